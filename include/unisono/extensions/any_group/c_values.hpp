#pragma once

/// \file
/// The arguments and results of c.h as the library's own: errors, stores, types, operations.

#include "unisono/c.h"
#include "unisono/core/error.hpp"
#include "unisono/core/outcome.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/any_group/reductions.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail::c_edge {

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
inline std::chrono::nanoseconds duration_of(double seconds) {
    if (!(seconds > 0)) refuse_input({"a timeout must be more than 0 seconds, found ", seconds});
    constexpr double most = 1e9; // 30 years
    return std::chrono::nanoseconds(static_cast<std::int64_t>((seconds < most ? seconds : most) * 1e9));
}

// Bytes without a name would be compared with zero, and a program does not set them.
static_assert(offsetof(unisono_options, reserved) + sizeof(int) == sizeof(unisono_options));
static_assert(offsetof(unisono_store, context) + sizeof(void*) == sizeof(unisono_store));

/// A struct of the caller's, as this version of the library has it. The caller may have been
/// compiled for another version. The first member is the size there, of at least `first` bytes,
/// the size in the first version. Members that the caller lacks are zero. Members that it has in
/// addition must be zero.
template <class Struct>
Struct of_caller(const void* callers, std::size_t first, std::string_view name) {
    constexpr std::size_t most = 256; // more is no size, but what happened to be in memory
    std::size_t size = 0;
    std::memcpy(&size, callers, sizeof size);
    if (size < first || size > most || size % alignof(Struct) != 0)
        refuse_input({name, ".size is ", size, ", expected ", sizeof(Struct),
                      ": the program has not begun with its initializer, or was compiled with a c.h that had none"});
    const auto* bytes = static_cast<const unsigned char*>(callers);
    for (std::size_t i = sizeof(Struct); i < size; ++i)
        if (bytes[i] != 0)
            refuse_input({"byte ", i, " of ", name, " is not 0, but this library has ", sizeof(Struct),
                          " bytes of it: the c.h of the program is newer"});
    Struct own = {};
    std::memcpy(&own, bytes, std::min(size, sizeof own));
    return own;
}

/// The caller's store, as `key_value_store`.
class Store {
public:
    explicit Store(const unisono_store* store) {
        if (store == nullptr) refuse_input("unisono_join_by: the store is NULL");
        store_ = of_caller<unisono_store>(store, offsetof(unisono_store, context) + sizeof(void*), "unisono_store");
        if (store_.set == nullptr || store_.get == nullptr)
            refuse_input("unisono_join_by: the store's set or get is NULL");
    }
    void set(const std::string& key, const std::string& value) {
        if (value.size() >= UNISONO_STORE_BYTES)
            throw error(ErrorCode::refused, concat({"the store's value of ", detail::quoted(key), " would have ",
                                                    value.size(), " bytes, more than a store holds"}));
        if (const int failed = store_.set(store_.context, key.c_str(), value.c_str()); failed != 0)
            throw error(ErrorCode::refused,
                        concat({"the store's set of the key ", detail::quoted(key), " returned ", failed}));
    }
    std::string get(const std::string& key, nanoseconds deadline) {
        char value[UNISONO_STORE_BYTES] = {};
        for (nanoseconds pause = 1'000'000;; pause = std::min<nanoseconds>(2 * pause, 200'000'000)) {
            const nanoseconds left = deadline - steady_now();
            if (left <= 0)
                throw error(ErrorCode::timeout,
                            concat({"the store has no value of the key ", detail::quoted(key), ", which rank 0 sets"}));
            const int found = store_.get(store_.context, key.c_str(), value, static_cast<double>(left) * 1e-9);
            value[UNISONO_STORE_BYTES - 1] = '\0';
            if (found == UNISONO_STORE_FOUND) return value;
            if (found != UNISONO_STORE_EMPTY)
                throw error(ErrorCode::refused,
                            concat({"the store's get of the key ", detail::quoted(key), " returned ", found}));
            std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, left)));
        }
    }

private:
    unisono_store store_ = {};
};

inline untyped::Number number_of(unisono_type type) {
    using enum untyped::Number;
    constexpr untyped::Number numbers[] = {float32, float64, bfloat16, float16, int32, int64,
                                           uint8,   uint32,  uint64,   int8,    int16, uint16};
    if (static_cast<std::size_t>(type) >= std::size(numbers))
        refuse_input({"found ", static_cast<int>(type), " as the type of elements, expected a unisono_type"});
    return numbers[static_cast<std::size_t>(type)];
}

inline Elements elements_of(std::size_t bytes) {
    if (bytes == 0 || bytes > std::numeric_limits<std::uint32_t>::max())
        refuse_input({"found elements of ", bytes, " bytes, expected at least 1 and less than 4 GiB"});
    return {ElementType::opaque, static_cast<std::uint32_t>(bytes)};
}

/// A function of the caller's, which a collective calls until its end.
struct ByteCall {
    unisono_function function = nullptr;
    void* context = nullptr;
    untyped::ByteOperation operation = {};

    static void combine(const std::byte* in, std::byte* sum, std::size_t count, void* self) {
        const ByteCall& call = *static_cast<const ByteCall*>(self);
        call.function(in, sum, count, call.context);
    }
};

/// Each makes a combination; the second one in a `ByteCall` that must outlive the collective.
inline auto by(unisono_type type, unisono_op op) {
    return [=](ByteCall&) {
        const untyped::Number number = number_of(type);
        if (static_cast<std::size_t>(op) > UNISONO_XOR)
            refuse_input({"found ", static_cast<int>(op), " as the operation, expected a unisono_op"});
        return untyped::combination(static_cast<untyped::Operator>(op), number);
    };
}
inline auto by(std::size_t element_bytes, unisono_function function, void* context) {
    return [=](ByteCall& call) {
        const Elements elements = elements_of(element_bytes);
        call = {function, context, {&ByteCall::combine, elements.bytes, &call}};
        if (function == nullptr) refuse_input("found no function for the operation");
        return untyped::Combination{elements, untyped::reduction(call.operation)};
    };
}

static_assert(static_cast<int>(untyped::Operator::sum) == UNISONO_SUM &&
              static_cast<int>(untyped::Operator::product) == UNISONO_PRODUCT &&
              static_cast<int>(untyped::Operator::min) == UNISONO_MIN &&
              static_cast<int>(untyped::Operator::max) == UNISONO_MAX &&
              static_cast<int>(untyped::Operator::bit_and) == UNISONO_AND &&
              static_cast<int>(untyped::Operator::bit_or) == UNISONO_OR &&
              static_cast<int>(untyped::Operator::bit_xor) == UNISONO_XOR);

} // namespace detail::c_edge
UNISONO_NAMESPACE_END
