#pragma once

/// \file
/// If one rank throws, it tells all others, so that no rank waits for it.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/group_core.hpp"

#include <exception>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// An error that all ranks throw after they have agreed on it. No rank has to be told, and the
/// group remains usable. No class of its own, since a program that does not catch it prints its
/// type.
error agreed_error(Fault why);

/// Tells all other ranks of the exception that is being handled, and rethrows it. A mismatch in an
/// inner operation also names `operation`.
[[noreturn]] void tell_all_and_throw(GroupCore& world, std::string_view operation);

/// Runs `body`. If it throws, tells the world, and passes the exception to the caller unchanged.
/// Then every other rank's pending and later calls throw an `error` that names this rank and has
/// the exception's text. A mismatch in an inner operation also names `operation`, the user's call.
/// In a world of one the caller may continue after catching the exception.
template <class Body>
auto telling_all(GroupCore& world, std::string_view operation, Body&& body) -> decltype(body()) {
    try {
        return body();
    } catch (...) {
        tell_all_and_throw(world, operation);
    }
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION error agreed_error(Fault why) { return error(std::move(why), true); }

/// Tells all other ranks of the exception that is being handled, unless all ranks throw it.
[[gnu::cold]] UNISONO_DEFINITION void tell_all(GroupCore& world, std::string_view operation) {
    const auto tell = [&](ErrorCode code, const std::string& message) {
        if (world.size() == 1) return;
        const int rank = world.world_rank();
        world.abort({.code = code,
                     .rank = rank,
                     .operation = std::string(operation),
                     .message = concat({"rank ", rank, " ", message})});
    };
    if (ends_its_thread()) return tell(ErrorCode::aborted, concat({"threw ", end_of_thread}));
    try {
        throw;
    } catch (const error& failed) {
        if (!failed.agreed()) tell(failed.code(), concat({"failed: ", failed.what()}));
    } catch (const std::exception& failed) {
        tell(ErrorCode::aborted, concat({"threw: ", failed.what()}));
    } catch (...) {
        tell(ErrorCode::aborted, "threw something that is not a std::exception");
    }
}

[[noreturn, gnu::cold]] UNISONO_DEFINITION void tell_all_and_throw(GroupCore& world, std::string_view operation) {
    tell_all(world, operation);
    try {
        throw;
    } catch (const error& failed) {
        const bool names_inner_operation = failed.code() == ErrorCode::mismatch && failed.sequence() != 0 &&
                                           failed.operation().find("::") == std::string::npos;
        if (!names_inner_operation) throw;
        Fault fault = failed.why();
        fault.message += concat({" (this rank called ", operation, ")"});
        throw error(std::move(fault));
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
