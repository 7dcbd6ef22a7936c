#pragma once

/// \file
/// Errors as values: for programs that are compiled without exceptions, since the library throws.
///
///     un::Fault fault = un::outcome_of([&] { un::run<un::InProcess>(4, train); });
///     if (fault.code != un::ErrorCode::none) return report(fault.code, fault.rank, fault.message);
///
/// The file with this call is compiled with exceptions, as every file that includes the library;
/// its callers, and the model that it trains, need not be. examples/without_exceptions is such a
/// program.

#include "unisono/core/error.hpp"

#include <exception>
#include <new>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// Runs `body()`, and returns the exception as a fault: `ErrorCode::none` if there is none, the
/// fault of an `error`, `refused` if memory is exhausted, `aborted` with its message for any other
/// exception. Never throws. (It is not noexcept, since the body may end its thread.)
template <class Body>
[[nodiscard]] Fault outcome_of(Body&& body) {
    try {
        std::forward<Body>(body)();
        return {};
    } catch (const std::bad_alloc&) {
        return {.code = ErrorCode::refused, .message = "out of memory"};
    } catch (const std::exception&) {
        return detail::fault_of_exception({.code = ErrorCode::aborted});
    } catch (...) {
        detail::pass_on_end_of_thread();
        return {.code = ErrorCode::aborted, .message = "something that is not a std::exception was thrown"};
    }
}

UNISONO_NAMESPACE_END
