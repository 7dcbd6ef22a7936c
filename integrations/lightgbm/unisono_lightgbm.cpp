// LightGBM's reduce_scatter and all_gather by unisono/c.h.
#include "unisono_lightgbm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// LightGBM's own types (its meta.h).
using Size = std::int32_t;
using Reducer = void (*)(const char* in, char* result, int type_size, Size bytes);

/// A call of LightGBM's reducer on bytes.
struct ByteCall {
    Reducer reducer = nullptr;
    int type_size = 1;
    std::size_t element_bytes = 1;
};

/// The operation of a reducer. LightGBM passes a function and the size of its type. Calls of the
/// function show what it does.
enum class Meaning : std::uint8_t {
    unknown,     ///< called on bytes
    float64_sum, ///< histograms of gradients and hessians
    int64_sum,   ///< quantized histograms: pairs of 32 bits, added as one number
    int32_sum    ///< the same with 16 bits
};

template <class Number>
bool gives(Reducer reducer, int type_size, const Number (&in)[2], const Number (&result)[2],
           const Number (&expected)[2]) {
    Number out[2];
    std::memcpy(out, result, sizeof out);
    reducer(reinterpret_cast<const char*>(in), reinterpret_cast<char*>(out), type_size, sizeof out);
    return std::memcmp(out, expected, sizeof out) == 0;
}

Meaning meaning_of(Reducer reducer, int type_size) {
    using L = std::int64_t;
    using I = std::int32_t;
    if (type_size == 8 && gives<double>(reducer, 8, {1.5, -8.25}, {2.25, 3.0}, {3.75, -5.25}) &&
        gives<double>(reducer, 8, {-0.1, 1e300}, {0.3, 1.0}, {0.3 + -0.1, 1e300}))
        return Meaning::float64_sum;
    // The halves of these numbers carry, so sums of the separate halves would differ.
    if (type_size == 4 && gives<L>(reducer, 4, {L{0x1'8000'0000}, -1}, {L{0x2'8000'0000}, 1}, {L{0x4'0000'0000}, 0}))
        return Meaning::int64_sum;
    if (type_size == 2 && gives<I>(reducer, 2, {0x1'8000, -1}, {0x2'8000, 1}, {0x4'0000, 0})) return Meaning::int32_sum;
    return Meaning::unknown;
}

struct Known {
    Reducer reducer;
    int type_size;
    Meaning meaning;
};

/// The calling thread's network. LightGBM has one per thread, too.
struct Network {
    unisono_world* world = nullptr;
    std::vector<Known> reducers;
    std::vector<std::size_t> counts, displacements; // scratch
    std::vector<char> copy;
};
thread_local Network network;

[[noreturn]] void fail(const char* what) { throw std::runtime_error(std::string(what) + ": " + unisono_last_error()); }

unisono_world* world_for(const char* what, int blocks) {
    unisono_world* world = network.world;
    if (world == nullptr)
        throw std::runtime_error(std::string(what) +
                                 ": this thread has no network; unisono_lightgbm_use has not been called on it");
    if (blocks != unisono_size(world))
        throw std::runtime_error(std::string(what) + ": found " + std::to_string(blocks) +
                                 " blocks, expected one for each of " + std::to_string(unisono_size(world)) + " ranks");
    return world;
}

bool overlap(const char* a, std::size_t a_bytes, const char* b, std::size_t b_bytes) {
    const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
    return first < second + b_bytes && second < first + a_bytes;
}

/// Takes blocks in bytes as elements of `each` bytes.
void take_blocks(const Size* starts, const Size* lengths, int blocks, std::size_t each) {
    network.counts.resize(static_cast<std::size_t>(blocks));
    network.displacements.resize(static_cast<std::size_t>(blocks));
    for (std::size_t r = 0; r < network.counts.size(); ++r) {
        network.counts[r] = static_cast<std::size_t>(lengths[r]) / each;
        network.displacements[r] = static_cast<std::size_t>(starts[r]) / each;
    }
}

bool divides(int blocks, const Size* starts, const Size* lengths, std::size_t each) {
    const auto size = static_cast<Size>(each);
    for (int r = 0; r < blocks; ++r) {
        if (starts[r] % size != 0 || lengths[r] % size != 0) return false;
    }
    return true;
}

Meaning known_meaning(Reducer reducer, int type_size) {
    for (const Known& known : network.reducers) {
        if (known.reducer == reducer && known.type_size == type_size) return known.meaning;
    }
    const Meaning meaning = meaning_of(reducer, type_size);
    network.reducers.push_back({reducer, type_size, meaning});
    return meaning;
}

void by_bytes(const void* in, void* result, std::size_t count, void* context) {
    const ByteCall& call = *static_cast<const ByteCall*>(context);
    call.reducer(static_cast<const char*>(in), static_cast<char*>(result), call.type_size,
                 static_cast<Size>(count * call.element_bytes));
}

void reduce_scatter(char* input, Size input_bytes, int type_size, const Size* starts, const Size* lengths, int blocks,
                    char* output, Size output_bytes, const Reducer& reducer) {
    constexpr const char* what = "LightGBM's reduce_scatter";
    unisono_world* world = world_for(what, blocks);
    const char* in = input;
    if (overlap(input, static_cast<std::size_t>(input_bytes), output, static_cast<std::size_t>(output_bytes))) {
        network.copy.assign(input, input + input_bytes);
        in = network.copy.data();
    }
    Meaning meaning = known_meaning(reducer, type_size);
    // Integer reducers work on pairs.
    std::size_t each = static_cast<std::size_t>(type_size) * (type_size == 4 || type_size == 2 ? 2 : 1);
    if (!divides(blocks, starts, lengths, each)) {
        each = static_cast<std::size_t>(type_size);
        meaning = Meaning::unknown;
    }
    if (!divides(blocks, starts, lengths, each))
        throw std::runtime_error(std::string(what) + ": found blocks that are no multiples of " + std::to_string(each) +
                                 " bytes");
    take_blocks(starts, lengths, blocks, each);
    const std::size_t *counts = network.counts.data(), *places = network.displacements.data();
    const auto sum = [&](unisono_type type) {
        return unisono_reduce_scatter_v(world, in, counts, places, output, type, UNISONO_SUM);
    };
    int status = UNISONO_OK;
    switch (meaning) {
    case Meaning::float64_sum: status = sum(UNISONO_FLOAT64); break;
    case Meaning::int64_sum: status = sum(UNISONO_INT64); break;
    case Meaning::int32_sum: status = sum(UNISONO_INT32); break;
    case Meaning::unknown: {
        ByteCall call{reducer, type_size, each};
        status = unisono_reduce_scatter_v_by(world, in, counts, places, output, each, &by_bytes, &call);
    }
    }
    if (status != UNISONO_OK) fail(what);
}

void all_gather(char* input, Size input_bytes, const Size* starts, const Size* lengths, int blocks, char* output,
                Size output_bytes) {
    constexpr const char* what = "LightGBM's all_gather";
    unisono_world* world = world_for(what, blocks);
    const int rank = unisono_rank(world);
    const auto bytes = static_cast<std::size_t>(lengths[rank]);
    // LightGBM gathers into the memory from which it gathers, and not always from the own block's
    // place.
    if (overlap(input, static_cast<std::size_t>(input_bytes), output, static_cast<std::size_t>(output_bytes))) {
        char* own = output + starts[rank];
        std::memmove(own, input, bytes);
        input = own;
    }
    take_blocks(starts, lengths, blocks, 1);
    if (unisono_all_gather_v(world, input, output, network.counts.data(), network.displacements.data(), 1) !=
        UNISONO_OK)
        fail(what);
}

/// The largest magnitude of the finite values. `finite` becomes false if there are others.
double largest_of(const float* values, std::size_t count, bool& finite) {
    float largest = 0;
    bool all = true;
    for (std::size_t i = 0; i < count; ++i) {
        const float magnitude = std::fabs(values[i]);
        all &= std::isfinite(magnitude);
        largest = magnitude > largest ? magnitude : largest;
    }
    finite = finite && all;
    return largest;
}

void round_to(float* values, std::size_t count, double largest, int bits) {
    if (largest == 0) return;
    const double step =
        // No float is finer than 2^-149.
        std::ldexp(1.0, std::max(std::ilogb(largest) + 1 - bits, -149));
    // At this distance from 0, doubles are multiples of `step`.
    const double shift = std::ldexp(1.5, 52 + std::ilogb(step));
    for (std::size_t i = 0; i < count; ++i)
        values[i] = static_cast<float>((static_cast<double>(values[i]) + shift) - shift);
}

} // namespace

extern "C" {

int unisono_lightgbm_use(unisono_world* world, unisono_lightgbm_init init) {
    if (world == nullptr) {
        network = {};
        return UNISONO_OK;
    }
    if (init == nullptr) return UNISONO_BAD_INPUT;
    network.world = world;
    const int failed = init(unisono_size(world), unisono_rank(world), reinterpret_cast<void*>(&reduce_scatter),
                            reinterpret_cast<void*>(&all_gather));
    return failed == 0 ? UNISONO_OK : UNISONO_REFUSED;
}

int unisono_lightgbm_round(unisono_world* world, float* gradients, float* hessians, size_t count) {
    bool finite = true;
    double facts[3] = {0, 0, 0}; // the largest of each kind, and whether a value is not finite
    facts[0] = largest_of(gradients, count, finite);
    facts[1] = largest_of(hessians, count, finite);
    facts[2] = finite ? 0 : 1;
    if (!finite) facts[0] = facts[1] = 0;
    auto rows = static_cast<std::int64_t>(count);
    int status = unisono_all_reduce(world, facts, facts, 3, UNISONO_FLOAT64, UNISONO_MAX);
    if (status == UNISONO_OK) status = unisono_all_reduce(world, &rows, &rows, 1, UNISONO_INT64, UNISONO_SUM);
    if (status != UNISONO_OK) return status;
    if (facts[2] != 0) return UNISONO_NOT_FINITE;
    // A sum of `rows` values of at most 2^bits steps each must fit the 53 bits of a double.
    const int bits = std::min(
        24, 53 - static_cast<int>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(rows, 1) - 1))));
    round_to(gradients, count, facts[0], bits);
    round_to(hessians, count, facts[1], bits);
    return UNISONO_OK;
}

} // extern "C"
