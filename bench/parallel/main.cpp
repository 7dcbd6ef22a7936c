// The gain of two ranks from a model that is split over them: requests per second compared with one
// rank, and the bubble of each pipeline schedule compared with its simulation, which uses the times
// of the parts as measured on one rank.

#include "support/report.hpp"

#include "../../examples/parallel_digits/layers.hpp"

#include <unisono/parallel.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <vector>

namespace {

namespace un = unisono;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr std::size_t wide = 192, depth = 8; // about eight equal layers

un::Layers<float> layers() {
    un::Layers<float> all;
    for (std::size_t l = 0; l < depth; ++l) all.add(parallel_digits::Dense{wide, wide, l + 1 == depth});
    return all;
}
struct Half {
    template <class MicroBatch>
    double operator()(std::span<const float> outputs, const MicroBatch&, std::span<float> gradients) const {
        for (std::size_t i = 0; i < outputs.size(); ++i) gradients[i] = outputs[i] - 0.5f;
        return 0;
    }
};

/// Requests per second, of `samples` samples each.
double served(int ranks, std::size_t requests, std::size_t samples) {
    double rate = 0;
    un::run<un::InProcess>(
        ranks,
        [&](auto& world) {
            un::PipelineModel model{
                world, layers(), Half{}, un::OneForwardOneBackward{},
                un::PipelineOptions{.placement = un::LayerPlacement(static_cast<std::size_t>(ranks),
                                                                    depth / static_cast<std::size_t>(ranks))}};
            std::size_t given = 0;
            un::barrier(world);
            const auto begin = Clock::now();
            un::serve(
                model,
                [&](std::vector<float>& request) {
                    if (given == requests) return un::Request::last;
                    request.assign(samples * wide, static_cast<float>(given++ % 7) / 7);
                    return un::Request::ready;
                },
                [](std::span<const float>) {});
            un::barrier(world);
            if (world.rank() == 0) rate = static_cast<double>(requests) / seconds_since(begin);
        },
        {.bind_to_cores = true});
    return rate;
}

/// Seconds of the passes of one update: the median of several.
template <class Schedule>
double trained(int ranks, const Schedule& schedule, std::uint32_t micro_batches, int repetitions) {
    std::vector<double> times;
    un::run<un::InProcess>(
        ranks,
        [&](auto& world) {
            const std::size_t parts = static_cast<std::size_t>(ranks) * schedule.chunks;
            un::PipelineModel model{world, layers(), Half{}, schedule,
                                    un::PipelineOptions{.micro_batches = micro_batches,
                                                        .placement = un::LayerPlacement(parts, depth / parts)}};
            const un::RowBatch<float> batch{std::vector<float>(micro_batches * 8 * wide, 0.3f), {}, wide};
            for (int i = -2; i < repetitions; ++i) {
                un::barrier(world);
                const auto begin = Clock::now();
                un::Pass pass;
                model(batch, pass);
                un::barrier(world);
                if (world.rank() == 0 && i >= 0) times.push_back(seconds_since(begin));
            }
        },
        {.bind_to_cores = true});
    std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
    return times[times.size() / 2];
}

template <class Schedule>
void compare(const Schedule& schedule, std::uint32_t micro_batches, int repetitions, nlohmann::json& cases) {
    const double one = trained(1, un::GPipe{}, micro_batches, repetitions);
    const double two = trained(2, schedule, micro_batches, repetitions);
    const double measured = 1 - one / (2 * two);
    const double simulated = un::pipeline_timeline(un::pipeline_program(schedule, 2, micro_batches)).bubble();
    std::printf("%-18s %2u micro-batches: one rank %7.3f ms, two %7.3f ms; they wait %5.1f %% of the time, simulated "
                "%5.1f %%; the update takes %.3f x the simulated time\n",
                std::string(Schedule::name).c_str(), micro_batches, one * 1e3, two * 1e3, 100 * measured,
                100 * simulated, two / (one / (2 * (1 - simulated))));
    cases.push_back({{"case", Schedule::name},
                     {"micro_batches", micro_batches},
                     {"one_ms", one * 1e3},
                     {"two_ms", two * 1e3},
                     {"bubble", measured},
                     {"simulated_bubble", simulated}});
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    nlohmann::json json = {{"benchmark", "parallel"}, {"quick", options.quick}, {"machine", bench::describe_machine()}};
    nlohmann::json& cases = json["cases"] = nlohmann::json::array();
    const std::size_t requests = options.quick ? 50 : 3000;
    for (const std::size_t samples : {std::size_t{1}, std::size_t{8}, std::size_t{32}}) {
        std::vector<double> ratios;
        double one = 0, two = 0;
        for (int i = 0; i < (options.quick ? 1 : 5); ++i) {
            one = served(1, requests / samples + 1, samples);
            two = served(2, requests / samples + 1, samples);
            ratios.push_back(two / one);
        }
        std::sort(ratios.begin(), ratios.end());
        std::printf("requests of %2zu samples: %8.0f a second by one rank, %8.0f by two: %.2f x (%.2f to %.2f)\n",
                    samples, one, two, ratios[ratios.size() / 2], ratios.front(), ratios.back());
        cases.push_back({{"case", "serve"}, {"samples", samples}, {"ratio", ratios[ratios.size() / 2]}});
    }
    const int repetitions = options.quick ? 3 : 31;
    for (const std::uint32_t micro_batches : {2u, 4u, 8u, 16u}) {
        compare(un::GPipe{}, micro_batches, repetitions, cases);
        compare(un::OneForwardOneBackward{}, micro_batches, repetitions, cases);
        compare(un::Interleaved{2}, micro_batches, repetitions, cases);
    }
    if (!options.json.empty()) std::ofstream(options.json) << json.dump(1) << "\n";
    return 0;
}
