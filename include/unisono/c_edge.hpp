#pragma once

/// \file
/// The common code of the calls of c.h: finds the group of a handle, and returns errors as numbers.
/// Programs include c.hpp.

#include "unisono/c.h"
#include "unisono/collective/blocks.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/untyped.hpp"
#include "unisono/core/outcome.hpp"
#include "unisono/hosts.hpp"
#include "unisono/join.hpp"
#include "unisono/tcp.hpp"
#include "unisono/transport/shared_memory.hpp"
#include "unisono/transport/shared_memory/join.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

using AnyGroup = std::variant<Group<SharedMemory>, Group<Hosts<Tcp>>, Group<Tcp>>;

struct LastError {
    std::string text;
    int rank = -1;
    int peer = -1;
};
inline LastError& last_error() {
    thread_local LastError last;
    return last;
}

/// Runs `body`, keeps the text of its exception, and returns its code.
template <class Body>
int status_of(Body&& body) noexcept {
    const Fault fault = outcome_of(std::forward<Body>(body));
    if (fault.code == ErrorCode::none) return UNISONO_OK;
    static_cast<void>(outcome_of([&] { // without memory there is no text
        LastError& last = last_error();
        last.rank = fault.rank;
        last.peer = fault.peer;
        last.text.clear();
        last.text = error(fault).what();
    }));
    return static_cast<int>(fault.code);
}

static_assert(static_cast<int>(ErrorCode::timeout) == UNISONO_TIMEOUT &&
              static_cast<int>(ErrorCode::peer_lost) == UNISONO_PEER_LOST &&
              static_cast<int>(ErrorCode::mismatch) == UNISONO_MISMATCH &&
              static_cast<int>(ErrorCode::refused) == UNISONO_REFUSED &&
              static_cast<int>(ErrorCode::aborted) == UNISONO_ABORTED &&
              static_cast<int>(ErrorCode::bad_input) == UNISONO_BAD_INPUT &&
              static_cast<int>(ErrorCode::not_finite) == UNISONO_NOT_FINITE);
static_assert(static_cast<int>(ElementType::float32) == UNISONO_FLOAT32 &&
              static_cast<int>(ElementType::float64) == UNISONO_FLOAT64 &&
              static_cast<int>(ElementType::bfloat16) == UNISONO_BFLOAT16 &&
              static_cast<int>(ElementType::float16) == UNISONO_FLOAT16 &&
              static_cast<int>(ElementType::int32) == UNISONO_INT32 &&
              static_cast<int>(ElementType::int64) == UNISONO_INT64 &&
              static_cast<int>(ElementType::uint8) == UNISONO_UINT8 &&
              static_cast<int>(ElementType::uint32) == UNISONO_UINT32 &&
              static_cast<int>(ElementType::uint64) == UNISONO_UINT64);

inline std::chrono::nanoseconds duration_of(double seconds) {
    if (!(seconds > 0)) refuse_input({"a timeout must be more than 0 seconds, found ", seconds});
    constexpr double most = 1e9; // 30 years
    return std::chrono::nanoseconds(static_cast<std::int64_t>((seconds < most ? seconds : most) * 1e9));
}

inline AnyGroup join_by(std::string_view transport, const JoinOptions& options) {
    if (transport != "auto" && transport != "shared_memory" && transport != "hosts" && transport != "tcp")
        refuse_input(
            {"unisono_join: found the transport '", transport, "', expected auto, shared_memory, hosts or tcp"});
    ControlPlane plane = rendezvous_of_job(options);
    if (transport == "tcp") return AnyGroup(join<Tcp>(std::move(plane), options));
    const nanoseconds deadline = deadline_after(steady_now(), options.rendezvous.timeout);
    if (transport == "shared_memory" || (transport == "auto" && (plane.size() == 1 || share_one_host(plane, deadline))))
        return AnyGroup(join<SharedMemory>(std::move(plane), options));
    return AnyGroup(join<Hosts<Tcp>>(std::move(plane), options));
}

inline Elements elements_of(unisono_type type) {
    const std::size_t bytes = unisono_type_bytes(type);
    if (bytes == 0)
        refuse_input({"found ", static_cast<int>(type), " as the type of elements, expected a unisono_type"});
    return {static_cast<ElementType>(type), static_cast<std::uint32_t>(bytes)};
}

inline Elements elements_of(std::size_t bytes) {
    if (bytes == 0 || bytes > std::numeric_limits<std::uint32_t>::max())
        refuse_input({"found elements of ", bytes, " bytes, expected at least 1 and less than 4 GiB"});
    return {ElementType::opaque, static_cast<std::uint32_t>(bytes)};
}

/// A reduction by enum or by function, and the elements to which it applies.
class Combination {
public:
    Combination(unisono_type type, unisono_op op) : elements_(elements_of(type)) {
        constexpr ReductionKind kinds[] = {ReductionKind::sum, ReductionKind::product, ReductionKind::min,
                                           ReductionKind::max};
        if (static_cast<std::size_t>(op) >= std::size(kinds))
            refuse_input({"found ", static_cast<int>(op), " as the operation, expected a unisono_op"});
        reduction_ = untyped::reduction(kinds[static_cast<std::size_t>(op)], elements_.type);
    }
    Combination(std::size_t element_bytes, unisono_function function, void* context)
        : elements_(elements_of(element_bytes)), call_{function, context},
          operation_{&Combination::combine, elements_.bytes, &call_} {
        if (function == nullptr) refuse_input("found no function for the operation");
        reduction_ = untyped::reduction(operation_);
    }
    Combination(const Combination&) = delete;
    Combination& operator=(const Combination&) = delete;

    [[nodiscard]] const Elements& elements() const { return elements_; }
    [[nodiscard]] const Reduction& reduction() const { return reduction_; }

private:
    struct Call {
        unisono_function function = nullptr;
        void* context = nullptr;
    };
    static void combine(const std::byte* in, std::byte* sum, std::size_t count, void* context) {
        const Call& call = *static_cast<const Call*>(context);
        call.function(in, sum, count, call.context);
    }

    Elements elements_;
    Call call_;
    untyped::ByteOperation operation_;
    Reduction reduction_;
};

} // namespace detail::c_edge
UNISONO_NAMESPACE_END

struct unisono_world {
    unisono::detail::c_edge::AnyGroup group;
    int rank = 0;
    int size = 1;
};
