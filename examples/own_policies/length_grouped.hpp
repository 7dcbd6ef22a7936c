#pragma once

#include <unisono/core/random.hpp>
#include <unisono/sampler/samplers.hpp>

#include <algorithm>
#include <vector>

/// Deals positions as the sequential sampler does, and gives the sample at each position.
template <class Policy>
class LengthGroupedStream : unisono::SampleStream {
public:
    using SampleStream::done, SampleStream::rounds, SampleStream::global_batch, SampleStream::position;
    LengthGroupedStream(Policy policy, const unisono::SamplerShape& shape, unisono::Epoch epoch, std::int64_t consumed)
        : SampleStream(unisono::SequentialSampler{}.stream(shape, epoch, consumed)), policy_(std::move(policy)),
          order_(static_cast<std::size_t>(shape.data_size)), samples_(static_cast<std::size_t>(shape.batch_size)) {
        restart(epoch, consumed);
    }
    void restart(unisono::Epoch epoch, std::int64_t consumed = 0) {
        SampleStream::restart(epoch, consumed);
        unisono::Mt19937 generator(policy_.seed + static_cast<std::uint64_t>(epoch.number()));
        unisono::torch_randperm(generator, std::span<std::uint64_t>(order_));
        const auto key = [&](std::size_t sample) { return std::pair(policy_.lengths[sample], sample); };
        for (std::span rest(order_); !rest.empty(); rest = rest.subspan(std::min(policy_.window, rest.size())))
            std::ranges::sort(rest.first(std::min(policy_.window, rest.size())), {}, key);
    }
    unisono::MicroBatch next() {
        unisono::MicroBatch micro = SampleStream::next();
        std::ranges::transform(micro.samples, samples_.begin(), [&](std::size_t at) { return order_[at]; });
        micro.samples = std::span(samples_).first(micro.samples.size());
        return micro;
    }

private:
    Policy policy_;
    std::vector<std::size_t> order_, samples_;
};

/// Groups samples of similar length, so that micro-batches have little padding. It cuts a random
/// order into windows and sorts each window by length. Memory: 8 bytes per sample, beside the
/// lengths. Source: Vaswani et al. 2017, section 5.1; windows as in Hugging Face's
/// LengthGroupedSampler.
struct LengthGroupedSampler {
    std::vector<std::uint32_t> lengths = {}; ///< per sample
    /// The number of samples that are sorted together: some global batches.
    std::size_t window = 512;
    std::uint64_t seed = 0;

    static constexpr std::string_view name = "length-grouped";
    static constexpr unisono::Family family = unisono::Family::sampler;
    friend bool operator==(const LengthGroupedSampler&, const LengthGroupedSampler&) = default;

    [[nodiscard]] static std::int64_t replicas_per_rank() { return 1; }
    [[nodiscard]] auto stream(const unisono::SamplerShape& shape, unisono::Epoch epoch, std::int64_t at = 0) const {
        if (window == 0 || std::ssize(lengths) != shape.data_size)
            unisono::refuse_input({name, ": .window is ", window, ", .lengths has ", lengths.size(),
                                   " numbers; expected at least 1, and ", shape.data_size, ", one for each sample"});
        return LengthGroupedStream<LengthGroupedSampler>(*this, shape, epoch, at);
    }
};
static_assert(unisono::sampler_policy<LengthGroupedSampler>);
