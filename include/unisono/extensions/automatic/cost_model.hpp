#pragma once

/// \file
/// The time of a sum with each schedule as a function of its size: measured, or assumed; saved as
/// text.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/device/on_device.hpp"
#include "unisono/schedule/families.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The schedules between which AutomaticReducer chooses.
enum class ReducerChoice : std::uint8_t { native, ring, halving_doubling, tree };

/// The number of schedules to choose from.
inline constexpr std::size_t reducer_choices = 4;

constexpr std::string_view name_of(ReducerChoice choice) {
    constexpr std::string_view names[] = {"native", "ring", "halving_doubling", "tree"};
    return names[static_cast<std::size_t>(choice)];
}

/// Seconds of an all_reduce of 2^(exponent) bytes with each choice, at a few sizes, with linear
/// interpolation between them. A plain value: trivially copyable, so that ranks can agree on one.
struct ReducerCosts {
    static constexpr std::array<int, 6> exponents = {3, 10, 14, 17, 20, 23};

    std::array<std::array<double, exponents.size()>, reducer_choices> seconds = {}; ///< all 0: not measured
    std::int64_t world = 0;                                                         ///< ranks; 0: not measured
    friend bool operator==(const ReducerCosts&, const ReducerCosts&) = default;

    [[nodiscard]] bool measured() const { return world != 0; }
    /// Checks measured costs. \throws error bad_input: a negative number of ranks, or a time that
    /// is not finite and at least 0
    void check() const {
        if (world < 0)
            refuse_input({"ReducerCosts.world is ", world, "; expected at least 1 rank, or 0: not measured"});
        for (std::size_t c = 0; c < reducer_choices; ++c)
            for (std::size_t i = 0; i < exponents.size(); ++i)
                if (!(seconds[c][i] >= 0) || !detail::is_finite(seconds[c][i]))
                    refuse_input({"ReducerCosts.seconds of ", name_of(static_cast<ReducerChoice>(c)), " for 2^",
                                  exponents[i], " bytes is ", seconds[c][i], "; expected a finite time of at least 0"});
    }

    /// Seconds for `bytes` bytes; beyond the largest measured size, proportional.
    [[nodiscard]] double estimate(ReducerChoice choice, std::size_t bytes) const {
        const auto& points = seconds[static_cast<std::size_t>(choice)];
        const auto size = static_cast<double>(bytes);
        for (std::size_t i = 0; i < points.size(); ++i) {
            const double here = std::ldexp(1.0, exponents[i]);
            if (size > here) continue;
            if (i == 0) return points[0];
            const double before = std::ldexp(1.0, exponents[i - 1]);
            return points[i - 1] + (points[i] - points[i - 1]) * (size - before) / (here - before);
        }
        return points.back() * size / std::ldexp(1.0, exponents.back());
    }

    /// The cheapest choice; among equal ones the first.
    [[nodiscard]] ReducerChoice best(std::size_t bytes) const {
        ReducerChoice found = ReducerChoice::native;
        for (std::size_t c = 1; c < reducer_choices; ++c)
            if (estimate(static_cast<ReducerChoice>(c), bytes) < estimate(found, bytes))
                found = static_cast<ReducerChoice>(c);
        return found;
    }

    /// One line for the world, then one line per choice: its name and the seconds at each size, as
    /// exact hexadecimal floats.
    [[nodiscard]] std::string save() const {
        std::string text = concat({"unisono reducer costs 1, world ", world, "\n"});
        for (std::size_t c = 0; c < reducer_choices; ++c) {
            text += std::string(name_of(static_cast<ReducerChoice>(c)));
            for (const double one : seconds[c]) text += " " + detail::hexadecimal_text(one);
            text += "\n";
        }
        return text;
    }

    /// Reads the text of `save`. \throws error bad_input, with the wrong line
    [[nodiscard]] static ReducerCosts load(std::string_view text) {
        ReducerCosts costs;
        std::size_t line_number = 0;
        const auto next_line = [&] {
            ++line_number;
            return std::string(detail::take_until(text, '\n'));
        };
        const auto refuse = [&](const std::string& found, const std::string& expected) {
            refuse_input({"reducer costs, line ", line_number, ": found '", found, "'; expected ", expected});
        };
        const std::string head = "unisono reducer costs 1, world ";
        const std::string first = next_line();
        if (!first.starts_with(head)) refuse(first, concat({"'", head, "<ranks>'"}));
        const auto world = std::from_chars(first.data() + head.size(), first.data() + first.size(), costs.world);
        if (world.ec != std::errc{} || world.ptr != first.data() + first.size() || costs.world < 1)
            refuse(first, "at least 1 rank");
        for (std::size_t c = 0; c < reducer_choices; ++c) {
            const std::string line = next_line();
            const std::string name(name_of(static_cast<ReducerChoice>(c)));
            if (!line.starts_with(concat({name, " "})))
                refuse(line, concat({"'", name, "' and ", exponents.size(), " numbers"}));
            std::string_view rest = std::string_view(line).substr(name.size());
            for (double& one : costs.seconds[c]) { // not by strtod, which depends on the program's locale
                const bool hexadecimal = rest.starts_with(" 0x");
                rest.remove_prefix(std::min<std::size_t>(rest.size(), hexadecimal ? 3 : 1));
                const auto [end, problem] =
                    std::from_chars(rest.data(), rest.data() + rest.size(), one,
                                    hexadecimal ? std::chars_format::hex : std::chars_format::general);
                if (problem != std::errc{} || !(one > 0) || !detail::is_finite(one))
                    refuse(line, concat({exponents.size(), " seconds above 0 after the name"}));
                rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
            }
            if (!rest.empty()) refuse(line, concat({"nothing after ", exponents.size(), " numbers"}));
        }
        return costs;
    }
};

namespace detail {

/// The largest size that is measured, in floats.
inline constexpr std::size_t largest_measured = (std::size_t{1} << ReducerCosts::exponents.back()) / sizeof(float);

/// Gives all ranks rank 0's costs, so that they make the same choice.
template <class World>
void agree_on_costs(World& world, ReducerCosts& costs) {
    if (world.size() == 1) return;
    std::array<ReducerCosts, 1> one = {costs};
    broadcast(world, one, 0);
    costs = one[0];
}

/// `values`: a std::span or a DeviceSpan of floats.
template <class World, class Values, class Family>
double seconds_of_all_reduce(World& world, Values values, const Family& family, int repetitions) {
    all_reduce(world, values, Sum{}, family); // the first makes plans and touches memory
    barrier(world);
    const nanoseconds begin = world.endpoint().now();
    for (int i = 0; i < repetitions; ++i) all_reduce(world, values, Sum{}, family);
    return static_cast<double>(world.endpoint().now() - begin) * 1e-9 / repetitions;
}

/// `values_of(count)`: memory of `count` floats to sum.
template <class World, class ValuesOf>
ReducerCosts measure_all_reduces(World& world, const ValuesOf& values_of) {
    ReducerCosts costs;
    costs.world = world.size();
    for (std::size_t i = 0; i < ReducerCosts::exponents.size(); ++i) {
        const std::size_t bytes = std::size_t{1} << ReducerCosts::exponents[i];
        const int repetitions = bytes <= 4096 ? 50 : (bytes <= 262144 ? 10 : 3);
        const auto values = values_of(bytes / sizeof(float));
        for (std::size_t c = 0; c < reducer_choices; ++c) {
            double seconds = 0;
            switch (static_cast<ReducerChoice>(c)) {
            case ReducerChoice::native:
                seconds = seconds_of_all_reduce(world, values, NativeSchedule{}, repetitions);
                break;
            case ReducerChoice::ring:
                seconds = seconds_of_all_reduce(world, values, RingSchedule{}, repetitions);
                break;
            case ReducerChoice::halving_doubling:
                seconds = seconds_of_all_reduce(world, values, HalvingDoublingSchedule{}, repetitions);
                break;
            case ReducerChoice::tree:
                seconds = seconds_of_all_reduce(world, values, TreeSchedule{}, repetitions);
                break;
            }
            costs.seconds[c][i] = std::max(seconds, 1e-12); // a clock may be coarse
        }
    }
    agree_on_costs(world, costs);
    return costs;
}

} // namespace detail

/// Measures all choices at all sizes on these ranks; returns rank 0's times on every rank.
/// Collective. Takes some tens of milliseconds at 1 GB/s, and 8 MiB per rank during the call.
template <class World>
ReducerCosts measure_reducers(World& world) {
    std::vector<float> values(detail::largest_measured);
    return detail::measure_all_reduces(world,
                                       [&](std::size_t count) { return std::span<float>(values.data(), count); });
}

/// As above, for sums of device memory, for AutomaticReducer with a model on a device. Compile the
/// source for the device (nvcc). The 8 MiB are on the device.
template <streaming_transport Transport>
ReducerCosts measure_reducers_on_device(Group<Transport>& world) {
    const DeviceMemory<float> values = allocate_on_device<float>(world, detail::largest_measured); // any contents
    return detail::measure_all_reduces(world, [&](std::size_t count) { return values.span().subspan(0, count); });
}

/// Costs that are assumed without measurements: 1 us per round and 10 GB/s, the textbook's
/// alpha-beta model (Thakur et al. 2005). `native` gets the cost of the cheapest schedule, so that
/// it is chosen: it is the fastest if the transport maps memory.
inline ReducerCosts assumed_reducer_costs(int world) {
    ReducerCosts costs;
    costs.world = world;
    constexpr double alpha = 1e-6;
    constexpr double beta = 1e-10;
    const auto p = static_cast<double>(world);
    const double rounds = std::ceil(std::log2(std::max(2.0, p)));
    for (std::size_t i = 0; i < ReducerCosts::exponents.size(); ++i) {
        const double bytes = std::ldexp(1.0, ReducerCosts::exponents[i]);
        const double ring = 2 * (p - 1) * alpha + 2 * (p - 1) / p * bytes * beta + 1e-12;
        const double halving = 2 * rounds * alpha + 2 * (p - 1) / p * bytes * beta * 1.1 + 1e-12;
        const double tree = 2 * rounds * (alpha + bytes * beta) + 1e-12;
        const std::array<double, reducer_choices> all = {std::min({ring, halving, tree}), ring, halving, tree};
        for (std::size_t c = 0; c < reducer_choices; ++c) costs.seconds[c][i] = all[c];
    }
    return costs;
}

UNISONO_NAMESPACE_END
