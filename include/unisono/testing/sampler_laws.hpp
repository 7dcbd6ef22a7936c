#pragma once

/// \file
/// The laws of sampler/sampler.hpp for any sampler, and a minimal sampler.

#include "unisono/core/text.hpp"
#include "unisono/sampler/sampler.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal sampler: samples in stored order, dealt out in blocks, with a short last round.
struct ArchetypeSampler {
    class Stream {
    public:
        Stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed) : shape_(shape) {
            samples_.resize(static_cast<std::size_t>(shape.batch_size));
            restart(epoch, consumed);
        }
        void restart(Epoch epoch, std::int64_t consumed = 0) {
            if (consumed < 0 || consumed > shape_.data_size)
                refuse_input(
                    concat({"ArchetypeSampler: sample ", consumed, "; expected 0 to data_size, ", shape_.data_size}));
            epoch_ = epoch;
            from_ = consumed;
            given_ = 0;
        }
        [[nodiscard]] std::int64_t global_batch() const { return shape_.batch_size * shape_.replicas; }
        [[nodiscard]] std::int64_t rounds() const {
            return (shape_.data_size - from_ + global_batch() - 1) / global_batch();
        }
        [[nodiscard]] bool done() const { return given_ == rounds() * shape_.hosted; }
        [[nodiscard]] Position position() const { return {epoch_, after(given_ / shape_.hosted)}; }

        MicroBatch next() {
            if (done()) refuse_input("ArchetypeSampler: the epoch has no more samples; expected a restart");
            const std::int64_t round = given_ / shape_.hosted;
            const std::int64_t replica = shape_.replica + given_ % shape_.hosted;
            const std::int64_t end_of_round = after(round + 1);
            const std::int64_t begin = std::min(end_of_round, after(round) + replica * shape_.batch_size);
            const std::int64_t count = std::min(end_of_round - begin, shape_.batch_size);
            std::iota(samples_.begin(), samples_.begin() + count, static_cast<std::size_t>(begin));
            ++given_;
            return {.samples = {samples_.data(), static_cast<std::size_t>(count)},
                    .replica = replica,
                    .round = round,
                    .round_samples = end_of_round - after(round),
                    .ends_round = given_ % shape_.hosted == 0,
                    .ends_epoch = done(),
                    .resume = {epoch_, end_of_round}};
        }

    private:
        /// The number of samples that are consumed after `rounds` rounds.
        [[nodiscard]] std::int64_t after(std::int64_t rounds) const {
            return std::min(shape_.data_size, from_ + rounds * global_batch());
        }
        SamplerShape shape_;
        Epoch epoch_ = Epoch{0};
        std::int64_t from_ = 0;
        std::int64_t given_ = 0;
        std::vector<std::size_t> samples_;
    };

    static constexpr std::string_view name = "archetype sampler";
    static constexpr Family family = Family::sampler;
    friend bool operator==(const ArchetypeSampler&, const ArchetypeSampler&) = default;

    [[nodiscard]] std::int64_t replicas_per_rank() const { return 1; }
    [[nodiscard]] Stream stream(const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0) const {
        check_shape(shape, name);
        return {shape, epoch, consumed};
    }
};
static_assert(sampler_policy<ArchetypeSampler>);

/// How often an epoch contains each sample.
enum class Coverage : std::uint8_t {
    exact,  ///< once
    padded, ///< at least once; numbers of repetitions differ by at most one
    cut,    ///< at most once; the end of the order is left out, less than a global batch
    subset, ///< at most once; the sampler chooses which, and how many
};

/// A copy of a stream's micro-batch.
struct Kept {
    std::vector<std::size_t> samples;
    MicroBatch micro;
    friend bool operator==(const Kept& a, const Kept& b) {
        return a.samples == b.samples && a.micro.replica == b.micro.replica &&
               a.micro.round_samples == b.micro.round_samples && a.micro.ends_round == b.micro.ends_round &&
               a.micro.ends_epoch == b.micro.ends_epoch && a.micro.resume == b.micro.resume;
    }
};

/// All remaining micro-batches of a stream.
template <class Stream>
std::vector<Kept> drain(Stream& stream) {
    std::vector<Kept> all;
    while (!stream.done()) {
        const MicroBatch micro = stream.next();
        all.push_back({{micro.samples.begin(), micro.samples.end()}, micro});
        all.back().micro.samples = {};
    }
    return all;
}

/// The setting of one check: W ranks that host the replicas that the sampler requires.
struct SamplerSetting {
    std::int64_t data_size;
    std::int64_t batch_size;
    std::int64_t world;
    std::int64_t epoch = 0;
};

/// The setting as text, for violations.
inline std::string text(const SamplerSetting& s) {
    return concat(
        {s.data_size, " samples in batches of ", s.batch_size, " on ", s.world, " ranks, epoch ", s.epoch, ": "});
}

/// The micro-batches of every rank, by rank.
template <class Sampler>
std::vector<std::vector<Kept>> all_ranks(const Sampler& sampler, const SamplerSetting& s, std::int64_t consumed = 0) {
    std::vector<std::vector<Kept>> ranks;
    for (std::int64_t r = 0; r < s.world; ++r) {
        auto stream =
            sampler.stream(shape_of_rank(sampler, s.data_size, s.batch_size, s.world, r), Epoch{s.epoch}, consumed);
        ranks.push_back(drain(stream));
    }
    return ranks;
}

/// The counts are right, sizes add up, and indices are in range. Sets `given` to the number of
/// times that each sample was given.
template <class Sampler>
std::optional<std::string> sampler_books(const Sampler& sampler, const SamplerSetting& s, std::vector<int>& given) {
    given.assign(static_cast<std::size_t>(s.data_size), 0);
    const std::int64_t hosted = sampler.replicas_per_rank();
    const auto ranks = all_ranks(sampler, s);
    const auto first = sampler.stream(shape_of_rank(sampler, s.data_size, s.batch_size, s.world, 0), Epoch{s.epoch});
    const std::int64_t rounds = first.rounds();
    std::vector<std::int64_t> seen(static_cast<std::size_t>(rounds), 0);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (static_cast<std::int64_t>(ranks[r].size()) != rounds * hosted)
            return concat({text(s), "ranks differ in micro-batches"});
        for (std::size_t i = 0; i < ranks[r].size(); ++i) {
            const Kept& kept = ranks[r][i];
            const auto at = static_cast<std::int64_t>(i);
            if (kept.micro.round != at / hosted) return concat({text(s), "rounds are misnumbered"});
            if (kept.micro.replica != static_cast<std::int64_t>(r) * hosted + at % hosted)
                return concat({text(s), "replicas out of order"});
            if (kept.micro.ends_round != (at % hosted == hosted - 1)) return concat({text(s), "ends_round is wrong"});
            if (kept.micro.ends_epoch != (i + 1 == ranks[r].size())) return concat({text(s), "ends_epoch is wrong"});
            if (kept.micro.round_samples !=
                ranks[0][static_cast<std::size_t>(kept.micro.round * hosted)].micro.round_samples)
                return concat({text(s), "ranks differ in round_samples"});
            if (static_cast<std::int64_t>(kept.samples.size()) > s.batch_size)
                return concat({text(s), "a micro-batch is larger than batch_size"});
            seen[static_cast<std::size_t>(kept.micro.round)] += static_cast<std::int64_t>(kept.samples.size());
            for (const std::size_t sample : kept.samples) {
                if (sample >= static_cast<std::size_t>(s.data_size))
                    return concat({text(s), "an index is out of range"});
                ++given[sample];
            }
        }
    }
    for (std::int64_t k = 0; k < rounds; ++k) {
        const auto& micro = ranks[0][static_cast<std::size_t>(k * hosted)].micro;
        if (seen[static_cast<std::size_t>(k)] != micro.round_samples)
            return concat({text(s), "round_samples is not the sum"});
        if (micro.round_samples > first.global_batch())
            return concat({text(s), "a round is larger than the global batch"});
        if (k + 1 < rounds && micro.round_samples != first.global_batch())
            return concat({text(s), "a round before the last is not full"});
    }
    if (all_ranks(sampler, s) != ranks) return concat({text(s), "the same stream made twice differs"});
    return std::nullopt;
}

/// If resumed after any round, with the same number of replicas, every rank gets exactly the rest.
template <class Sampler>
std::optional<std::string> sampler_resumes(const Sampler& sampler, const SamplerSetting& s) {
    for (std::int64_t r = 0; r < s.world; ++r) {
        const auto shape = shape_of_rank(sampler, s.data_size, s.batch_size, s.world, r);
        auto stream = sampler.stream(shape, Epoch{s.epoch});
        auto other = sampler.stream(shape, Epoch{s.epoch + 5}); // moved to another position below
        while (!stream.done()) {
            MicroBatch micro = stream.next();
            while (!micro.ends_round) micro = stream.next();
            if (!(micro.resume == stream.position())) return concat({text(s), "resume is not the stream's position"});
            auto rest = stream; // a copy has the position of the original
            auto resumed = sampler.stream(shape, micro.resume.epoch, micro.resume.samples);
            other.restart(micro.resume.epoch, micro.resume.samples);
            const auto expected = drain(rest);
            if (drain(resumed) != expected)
                return concat({text(s), "resumed at ", micro.resume.samples, " it differs"});
            if (drain(other) != expected)
                return concat({text(s), "restarted at ", micro.resume.samples, " it differs"});
            other.restart(Epoch{s.epoch + 5});
        }
    }
    return std::nullopt;
}

/// If resumed at any sample, even with another number of ranks, each round gives the next samples
/// of the order, so no sample is repeated or left out. `coverage` says how the last round is filled
/// or cut, and whether the order has all samples.
template <class Sampler>
std::optional<std::string> sampler_rests(const Sampler& sampler, const SamplerSetting& s, std::int64_t new_world,
                                         Coverage coverage) {
    const SamplerSetting one{s.data_size, 1, 1, s.epoch};
    std::vector<std::size_t> order; // as one replica with batch size 1 gets it
    auto whole = sampler;
    if constexpr (requires { whole.replicas; }) whole.replicas = 1;
    const auto alone = all_ranks(whole, one);
    for (const Kept& kept : alone[0]) order.insert(order.end(), kept.samples.begin(), kept.samples.end());
    const auto length = static_cast<std::int64_t>(order.size());
    if (coverage == Coverage::subset ? length == 0 : length != s.data_size)
        return concat({text(one), "one replica gets ", length, " samples; expected ",
                       coverage == Coverage::subset ? std::string("at least 1")
                                                    : concat({s.data_size, " (Coverage::subset allows less)"})});
    const SamplerSetting now{s.data_size, s.batch_size, new_world, s.epoch};
    const std::int64_t each =
        sampler.stream(shape_of_rank(sampler, now.data_size, now.batch_size, now.world, 0), Epoch{now.epoch})
            .global_batch();
    for (std::int64_t from = 0; from <= length; ++from) {
        std::vector<std::vector<std::size_t>> rounds;
        for (const auto& rank : all_ranks(sampler, now, from))
            for (const Kept& kept : rank) {
                const auto round = static_cast<std::size_t>(kept.micro.round);
                if (rounds.size() <= round) rounds.resize(round + 1);
                rounds[round].insert(rounds[round].end(), kept.samples.begin(), kept.samples.end());
            }
        const std::string where = concat({text(s), "from ", from, " on ", new_world, " ranks "});
        std::int64_t begin = from;
        for (std::vector<std::size_t>& given : rounds) {
            const std::int64_t end = std::min(length, begin + each);
            std::vector<std::size_t> due(order.begin() + begin, order.begin() + end);
            const bool last = begin + each >= length;
            std::sort(given.begin(), given.end());
            std::sort(due.begin(), due.end());
            const bool padded = last && coverage == Coverage::padded;
            const bool cut = last && coverage == Coverage::cut;
            if (!cut && !std::includes(given.begin(), given.end(), due.begin(), due.end()))
                return concat(
                    {where, "samples are missing: a round does not give the next ", due.size(), " of the order"});
            if (!padded && !std::includes(due.begin(), due.end(), given.begin(), given.end()))
                return concat({where, "samples come twice, or too early: a round gives samples other than the next ",
                               due.size(), " of the order"});
            begin = end;
        }
        if (begin != length && (coverage != Coverage::cut || length - begin >= each))
            return concat({where, "the last ", length - begin, " samples are left out"});
    }
    return std::nullopt;
}

/// The parameters of the trial: sizes that do not divide each other.
struct SamplerTrial {
    /// Only one size for a sampler that is made for one data set.
    std::vector<std::int64_t> data_sizes = {1, 2, 7, 12, 25};
    std::vector<std::int64_t> batch_sizes = {1, 2, 4, 12}; ///< sizes that exceed a data set are left out
    std::vector<std::int64_t> worlds = {1, 2, 3, 8};
};

/// Checks all laws for each data size, batch size and world.
template <sampler_policy Sampler>
Violations sampler_laws(const Sampler& sampler, Coverage coverage, const SamplerTrial& trial = {}) {
    Violations found{std::string(Sampler::name)};
    const auto note = [&](const std::optional<std::string>& wrong) {
        if (wrong) found.add(*wrong);
    };
    for (const std::int64_t n : trial.data_sizes) {
        for (const std::int64_t batch : trial.batch_sizes) {
            for (const std::int64_t world : trial.worlds) {
                if (batch > n || found.full()) continue;
                const SamplerSetting s{n, batch, world, 1};
                try {
                    std::vector<int> given;
                    const auto wrong = sampler_books(sampler, s, given);
                    note(wrong);
                    if (wrong) continue; // the other laws would only report it again
                    const auto [least, most] = std::minmax_element(given.begin(), given.end());
                    if (coverage == Coverage::exact && (*least != 1 || *most != 1))
                        found.add(concat(
                            {text(s), "a sample is given ", *least != 1 ? *least : *most, " times; expected once"}));
                    if (coverage == Coverage::padded && (*least < 1 || *most > *least + 1))
                        found.add(concat({text(s), "samples are missing, or padded unevenly"}));
                    if ((coverage == Coverage::cut || coverage == Coverage::subset) && *most > 1)
                        found.add(concat({text(s), "a sample is given twice"}));
                    note(sampler_resumes(sampler, s));
                    for (const std::int64_t other : {1, 2, 3}) note(sampler_rests(sampler, s, other, coverage));
                } catch (const std::exception& thrown) {
                    found.add(concat({text(s), "threw ", thrown.what()}));
                }
            }
        }
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
