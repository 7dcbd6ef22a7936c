// Compiled with -ffast-math (and, for comparison, without). Sums on a grid must have the same bits
// whatever these flags do to floats, and whether or not the processor flushes subnormals. Prints
// one number for all results. Exit status 1: it is not the number of every build. 77: the flags are
// not those that the name of the test says.
#include <unisono/arithmetic/grid.hpp>
#include <unisono/arithmetic/grid_sum.hpp>

#include <array>
#include <cinttypes>
#include <cstdio>
#include <span>
#include <vector>

namespace un = unisono;

namespace {

constexpr std::uint64_t expected = 0x293ee8f26354888fu;

std::uint64_t state = 1;
std::uint64_t random_bits() { // splitmix64
    std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

std::uint64_t hash = 14695981039346656037u;
void mix(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 1099511628211u;
}

/// Made from bits only, so that no flag changes the input: exponents from `low` to `low + spread`,
/// subnormals, zeros, and if requested infinities and NaN.
template <class T>
T any(int low, int spread, bool special) {
    const std::uint64_t random = random_bits();
    const bool negative = random % 2 != 0;
    const std::uint64_t kind = (random >> 1) % 31;
    const auto make = [&](int mantissa, std::uint64_t field, std::uint64_t all_ones, int width) {
        std::uint64_t fraction = (random >> 8) & ((std::uint64_t{1} << mantissa) - 1);
        if (kind == 0) field = 0;
        if (kind == 1) field = fraction = 0;
        if (special && kind == 2) field = all_ones, fraction = 0;
        if (special && kind == 3) field = all_ones, fraction |= 1;
        return field << mantissa | fraction | (std::uint64_t{negative} << (width - 1));
    };
    const int exponent = low + static_cast<int>((random >> 40) % static_cast<unsigned>(spread + 1));
    if constexpr (std::is_same_v<T, double>)
        return std::bit_cast<double>(make(52, static_cast<std::uint64_t>(exponent + 1022), 0x7ff, 64));
    else if constexpr (std::is_same_v<T, float>)
        return std::bit_cast<float>(
            static_cast<std::uint32_t>(make(23, static_cast<std::uint64_t>(exponent + 126), 0xff, 32)));
    else {
        T value;
        if constexpr (std::is_same_v<T, un::bfloat16>)
            value.bits = static_cast<std::uint16_t>(make(7, static_cast<std::uint64_t>(exponent + 126), 0xff, 16));
        else value.bits = static_cast<std::uint16_t>(make(10, static_cast<std::uint64_t>(exponent + 14), 0x1f, 16));
        return value;
    }
}

template <class T>
void probe(int low, int spread, double weight) {
    constexpr std::size_t count = 777;
    std::array<std::vector<T>, 5> sources;
    for (auto& one : sources)
        for (std::size_t i = 0; i < count; ++i) one.push_back(any<T>(low, spread, false));
    std::int32_t needed = un::Grid::nothing;
    for (const auto& one : sources) needed = std::max(needed, un::needed_exponent(std::span<const T>(one), weight));
    const un::Grid grid = un::Grid::above<T>(needed);
    mix(&grid.exponent, sizeof grid.exponent);
    const std::uint64_t before = hash;
    std::uint64_t first = 0;
    for (const auto set : {un::InstructionSet::portable, un::InstructionSet::avx2, un::InstructionSet::avx512}) {
        if (set > un::best_instruction_set()) continue;
        hash = before;
        std::vector<std::int64_t> image(count);
        for (const auto& one : sources)
            un::detail::image_on<T, true>(set, image.data(), one.data(), count, weight, grid.exponent);
        mix(image.data(), count * sizeof(std::int64_t));
        std::vector<T> sum(count), straight(count);
        un::detail::from_image_on<T>(set, sum.data(), image.data(), count, grid.exponent);
        mix(sum.data(), count * sizeof(T));
        const un::detail::GridStretch stretch[] = {{count, grid.exponent}};
        const un::detail::GridMap map{stretch, 0, weight};
        for (const std::size_t n : {2ul, 5ul}) {
            std::vector<const std::byte*> in;
            for (std::size_t s = 0; s < n; ++s) in.push_back(reinterpret_cast<const std::byte*>(sources[s].data()));
            auto* out = reinterpret_cast<std::byte*>(straight.data());
            un::detail::combine_on_grid<T>(set, map, in.data(), n, &out, 1, count, 0);
            mix(straight.data(), count * sizeof(T));
        }
        if (first == 0) first = hash;
        if (first != hash) std::printf("instruction sets differ\n");
        if (first != hash) hash = 0;
    }
    // Values that are not finite are found and marked on any instruction set.
    for (T& one : sources[0]) one = any<T>(low, spread, true);
    std::vector<std::int64_t> image(count);
    std::vector<T> sum(count);
    needed = un::add_to_grid(std::span(image), std::span<const T>(sources[1]), weight, grid);
    mix(&needed, sizeof needed);
    needed = un::add_to_grid(std::span(image), std::span<const T>(sources[0]), weight, grid);
    mix(&needed, sizeof needed);
    const std::size_t marked = un::from_grid(std::span(sum), std::span<const std::int64_t>(image), grid);
    mix(&marked, sizeof marked);
    for (const std::int64_t one : image) {
        const bool bad = un::detail::is_marked(one);
        mix(&bad, sizeof bad);
    }
    mix(sum.data(), count * sizeof(T));
}

} // namespace

int main() {
#if defined(UNISONO_TEST_FAST_MATH) && !defined(__FAST_MATH__)
    std::puts("compiled without the flags of its name");
    return 1;
#endif
    for (const double weight : {1.0, 3.0, 0.1, 1e-20}) {
        probe<float>(-20, 30, weight);
        probe<float>(-125, 60, weight);
        probe<float>(60, 60, weight);
        probe<double>(-20, 50, weight);
        probe<double>(-1000, 100, weight);
        probe<double>(700, 200, weight);
        probe<un::bfloat16>(-30, 40, weight);
        probe<un::float16>(-13, 20, weight);
    }
    std::printf("%016" PRIx64 "\n", hash);
    return hash == expected ? 0 : 1;
}
