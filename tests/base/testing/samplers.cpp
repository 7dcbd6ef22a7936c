#include "support.hpp"

#include "unisono/sampler/samplers.hpp"
#include "unisono/testing/sampler_laws.hpp"

#include <algorithm>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

namespace {

/// The archetype with one fault in each micro-batch that it gives.
template <class Fault>
struct MutantSampler {
    struct Stream : ArchetypeSampler::Stream {
        using ArchetypeSampler::Stream::Stream;
        un::MicroBatch next() {
            un::MicroBatch micro = ArchetypeSampler::Stream::next();
            Fault{}(micro, spoiled);
            return micro;
        }
        std::vector<std::size_t> spoiled = {};
    };
    static constexpr std::string_view name = "mutant sampler";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const MutantSampler&, const MutantSampler&) = default;
    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] Stream stream(const un::SamplerShape& shape, un::Epoch epoch, std::int64_t consumed = 0) const {
        return {shape, epoch, consumed};
    }
};

struct RepeatsTheFirstSample {
    void operator()(un::MicroBatch& micro, std::vector<std::size_t>& kept) const {
        kept.assign(micro.samples.size(), micro.samples.empty() ? 0 : micro.samples[0]);
        micro.samples = kept;
    }
};
struct CountsOnlyItsOwn {
    void operator()(un::MicroBatch& micro, std::vector<std::size_t>&) const {
        micro.round_samples = static_cast<std::int64_t>(micro.samples.size());
    }
};
struct ForgetsTheEnd {
    void operator()(un::MicroBatch& micro, std::vector<std::size_t>&) const { micro.ends_epoch = false; }
};
struct ResumesTooEarly {
    void operator()(un::MicroBatch& micro, std::vector<std::size_t>&) const { micro.resume.samples -= 1; }
};
struct RunsOver {
    void operator()(un::MicroBatch& micro, std::vector<std::size_t>& kept) const {
        kept.assign(micro.samples.begin(), micro.samples.end());
        for (std::size_t& sample : kept) ++sample;
        micro.samples = kept;
    }
};

} // namespace

namespace mutants { // not anonymous, or clang would call the comparison unneeded

/// Ignores the position from which it should continue.
struct StartsAnew {
    static constexpr std::string_view name = "starts anew";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const StartsAnew&, const StartsAnew&) = default;
    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] ArchetypeSampler::Stream stream(const un::SamplerShape& shape, un::Epoch epoch,
                                                  std::int64_t = 0) const {
        return {shape, epoch, 0};
    }
};

/// Continues from a multiple of its replicas: right if the number of replicas has not changed.
struct RoundsDown {
    bool drop_last = false;
    static constexpr std::string_view name = "rounds down";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const RoundsDown&, const RoundsDown&) = default;
    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] un::SampleStream stream(const un::SamplerShape& shape, un::Epoch epoch,
                                          std::int64_t consumed = 0) const {
        const std::int64_t begin = consumed == shape.data_size ? consumed : consumed / shape.replicas * shape.replicas;
        return un::DistributedSampler{.drop_last = drop_last}.stream(shape, epoch, begin);
    }
};

/// As RoundsDown, but upwards.
struct RoundsUp {
    bool drop_last = false;
    static constexpr std::string_view name = "rounds up";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const RoundsUp&, const RoundsUp&) = default;
    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] un::SampleStream stream(const un::SamplerShape& shape, un::Epoch epoch,
                                          std::int64_t consumed = 0) const {
        const std::int64_t begin = (consumed + shape.replicas - 1) / shape.replicas * shape.replicas;
        return un::DistributedSampler{.drop_last = drop_last}.stream(shape, epoch, std::min(begin, shape.data_size));
    }
};

/// Made for 7 samples, as a sampler with a number per sample is.
struct ForOneDataSet {
    static constexpr std::string_view name = "for one data set";
    static constexpr un::Family family = un::Family::sampler;
    friend bool operator==(const ForOneDataSet&, const ForOneDataSet&) = default;
    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] ArchetypeSampler::Stream stream(const un::SamplerShape& shape, un::Epoch epoch,
                                                  std::int64_t consumed = 0) const {
        if (shape.data_size != 7) un::refuse_input("knows 7 samples");
        return {shape, epoch, consumed};
    }
};

/// Every epoch has the same half of the samples, at least one.
struct HalfTheSamples : un::SequentialSampler {
    static constexpr std::string_view name = "half the samples";
    friend bool operator==(const HalfTheSamples&, const HalfTheSamples&) = default;
    [[nodiscard]] un::SampleStream stream(un::SamplerShape shape, un::Epoch epoch, std::int64_t consumed = 0) const {
        shape.data_size = (shape.data_size + 1) / 2;
        return un::SequentialSampler::stream(shape, epoch, consumed);
    }
};

} // namespace mutants

BOOST_AUTO_TEST_SUITE(certified_samplers)

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(sampler_laws(ArchetypeSampler{}, Coverage::exact));
    expect_lawful(sampler_laws(un::SequentialSampler{}, Coverage::exact));
    expect_lawful(sampler_laws(un::EvaluationSampler{}, Coverage::exact));
    for (const bool shuffle : {false, true}) {
        for (const bool drop : {false, true}) {
            const auto coverage = drop ? Coverage::cut : Coverage::padded;
            expect_lawful(sampler_laws(un::DistributedSampler{.shuffle = shuffle, .drop_last = drop}, coverage));
            expect_lawful(
                sampler_laws(un::InterleavedSampler{.replicas = 3, .shuffle = shuffle, .drop_last = drop}, coverage));
            expect_lawful(sampler_laws(un::ScatterSampler{.shuffle = shuffle, .drop_last = drop},
                                       drop ? Coverage::cut : Coverage::exact));
        }
    }
}

BOOST_AUTO_TEST_CASE(of_mutants) {
    expect_reported(sampler_laws(MutantSampler<RepeatsTheFirstSample>{}, Coverage::exact),
                    {"mutant sampler", "a sample is given 0 times; expected once", "2 samples in batches of 2"});
    expect_reported(sampler_laws(MutantSampler<CountsOnlyItsOwn>{}, Coverage::exact), {"round_samples"});
    expect_reported(sampler_laws(MutantSampler<ForgetsTheEnd>{}, Coverage::exact), {"ends_epoch is wrong"});
    expect_reported(sampler_laws(MutantSampler<ResumesTooEarly>{}, Coverage::exact),
                    {"resume is not the stream's position"});
    expect_reported(sampler_laws(MutantSampler<RunsOver>{}, Coverage::exact), {"out of range"});
    expect_reported(sampler_laws(mutants::StartsAnew{}, Coverage::exact), {"resumed at", "differs"});
    // It pads.
    expect_reported(sampler_laws(un::DistributedSampler{}, Coverage::exact),
                    {"a sample is given 2 times; expected once"});
    expect_reported(sampler_laws(mutants::RoundsDown{}, Coverage::padded), {"rounds down", "on 2 ranks", "missing"});
    expect_reported(sampler_laws(mutants::RoundsDown{.drop_last = true}, Coverage::cut), {"twice, or too early"});
    expect_reported(sampler_laws(mutants::RoundsUp{}, Coverage::padded), {"rounds up", "on 2 ranks", "left out"});
    expect_reported(sampler_laws(mutants::RoundsUp{.drop_last = true}, Coverage::cut), {"rounds up", "on 2 ranks"});
}

BOOST_AUTO_TEST_CASE(subset_of_the_samples) {
    const SamplerTrial trial = {.data_sizes = {1, 7, 25}, .batch_sizes = {1, 2, 4}};
    expect_lawful(sampler_laws(mutants::HalfTheSamples{}, Coverage::subset, trial));
    expect_lawful(sampler_laws(un::SequentialSampler{}, Coverage::subset));
    expect_reported(sampler_laws(mutants::HalfTheSamples{}, Coverage::cut, trial),
                    {"7 samples in batches of 1 on 1 ranks, epoch 1: one replica gets 4 samples; expected 7"});
    expect_reported(sampler_laws(MutantSampler<RepeatsTheFirstSample>{}, Coverage::subset),
                    {"a sample is given twice"});
    expect_reported(sampler_laws(mutants::RoundsUp{}, Coverage::subset), {"rounds up", "on 2 ranks"});
}

BOOST_AUTO_TEST_CASE(made_for_one_data_set) {
    expect_lawful(sampler_laws(mutants::ForOneDataSet{}, Coverage::exact, {.data_sizes = {7}}));
    expect_reported(sampler_laws(mutants::ForOneDataSet{}, Coverage::exact),
                    {"1 samples in batches of 1", "threw", "knows 7 samples"});
    expect_reported(sampler_laws(mutants::StartsAnew{}, Coverage::exact, {.data_sizes = {7}}), {"resumed at"});
}

BOOST_AUTO_TEST_SUITE_END()
