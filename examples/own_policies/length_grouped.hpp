#pragma once

#include <unisono/sampler/samplers.hpp>

#include <algorithm>
#include <vector>

/// Groups samples of similar length, so that micro-batches have little padding. It cuts a random
/// order into windows and sorts each window by length. Source: Vaswani et al. 2017, section 5.1;
/// windows as in Hugging Face's LengthGroupedSampler.
struct LengthGroupedSampler {
    std::vector<std::uint32_t> lengths = {}; ///< per sample
    std::size_t window = 512;                ///< samples that are sorted together: some global batches
    std::uint64_t seed = 0;

    static constexpr std::string_view name = "length-grouped";
    static constexpr unisono::Family family = unisono::Family::sampler;
    friend bool operator==(const LengthGroupedSampler&, const LengthGroupedSampler&) = default;

    [[nodiscard]] static std::int64_t replicas_per_rank() { return 1; }
    [[nodiscard]] auto stream(const unisono::SamplerShape& shape, unisono::Epoch epoch, std::int64_t at = 0) const {
        if (window == 0 || std::ssize(lengths) != shape.data_size)
            unisono::refuse_input({name, ": .window is ", window, ", .lengths has ", lengths.size(),
                                   " numbers; expected at least 1, and ", shape.data_size, ", one for each sample"});
        return unisono::OrderedStream<LengthGroupedSampler>(*this, shape, epoch, at);
    }

    void draw(unisono::Epoch epoch, std::span<std::size_t> order) const {
        unisono::Mt19937 generator(seed + static_cast<std::uint64_t>(epoch.number()));
        unisono::torch_randperm(generator, order);
        const auto key = [&](std::size_t sample) { return std::pair(lengths[sample], sample); };
        for (; !order.empty(); order = order.subspan(std::min(window, order.size())))
            std::ranges::sort(order.first(std::min(window, order.size())), {}, key);
    }
};
static_assert(unisono::sampler_policy<LengthGroupedSampler>);
