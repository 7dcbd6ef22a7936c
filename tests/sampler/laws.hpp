#pragma once

// The laws of sampler/sampler.hpp, for any sampler. Each returns what it found wrong; empty: nothing.

#include "unisono/sampler/sampler.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sampler_laws {

namespace un = unisono;

/// What a stream gave, kept.
struct Kept {
    std::vector<std::size_t> samples;
    un::MicroBatch micro;
    friend bool operator==(const Kept& a, const Kept& b) {
        return a.samples == b.samples && a.micro.replica == b.micro.replica &&
               a.micro.round_samples == b.micro.round_samples && a.micro.ends_round == b.micro.ends_round &&
               a.micro.ends_epoch == b.micro.ends_epoch && a.micro.resume == b.micro.resume;
    }
};

template <class Stream>
std::vector<Kept> drain(Stream& stream) {
    std::vector<Kept> all;
    while (!stream.done()) {
        const un::MicroBatch micro = stream.next();
        all.push_back({{micro.samples.begin(), micro.samples.end()}, micro});
        all.back().micro.samples = {};
    }
    return all;
}

/// Setting of one check: W ranks that host what the sampler says.
struct Setting {
    std::int64_t data_size;
    std::int64_t batch_size;
    std::int64_t world;
    std::int64_t epoch = 0;
};

inline std::string text(const Setting& s) {
    return "N=" + std::to_string(s.data_size) + " b=" + std::to_string(s.batch_size) + " W=" + std::to_string(s.world) +
           " epoch=" + std::to_string(s.epoch) + ": ";
}

/// Every rank's micro-batches, by rank.
template <class Sampler>
std::vector<std::vector<Kept>> all_ranks(const Sampler& sampler, const Setting& s, std::int64_t consumed = 0) {
    std::vector<std::vector<Kept>> ranks;
    for (std::int64_t r = 0; r < s.world; ++r) {
        auto stream = sampler.stream(un::shape_of_rank(sampler, s.data_size, s.batch_size, s.world, r),
                                     un::Epoch{s.epoch}, consumed);
        ranks.push_back(drain(stream));
    }
    return ranks;
}

/// The samples of round after round, each round's sorted: what training sees, whoever computes it.
inline std::vector<std::vector<std::size_t>> by_rounds(const std::vector<std::vector<Kept>>& ranks) {
    std::vector<std::vector<std::size_t>> rounds;
    for (const auto& rank : ranks)
        for (const Kept& kept : rank) {
            const auto k = static_cast<std::size_t>(kept.micro.round);
            if (rounds.size() <= k) rounds.resize(k + 1);
            rounds[k].insert(rounds[k].end(), kept.samples.begin(), kept.samples.end());
        }
    for (auto& round : rounds) std::sort(round.begin(), round.end());
    return rounds;
}

/// Sizes add up, the bookkeeping is right, indices are in range; how often each sample was given.
template <class Sampler>
std::optional<std::string> shape_laws(const Sampler& sampler, const Setting& s, std::vector<int>& given) {
    given.assign(static_cast<std::size_t>(s.data_size), 0);
    const std::int64_t hosted = sampler.replicas_per_rank();
    const auto ranks = all_ranks(sampler, s);
    auto first = sampler.stream(un::shape_of_rank(sampler, s.data_size, s.batch_size, s.world, 0), un::Epoch{s.epoch});
    const std::int64_t rounds = first.rounds();
    std::vector<std::int64_t> seen(static_cast<std::size_t>(rounds), 0);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        if (static_cast<std::int64_t>(ranks[r].size()) != rounds * hosted)
            return text(s) + "ranks differ in micro-batches";
        for (std::size_t i = 0; i < ranks[r].size(); ++i) {
            const Kept& kept = ranks[r][i];
            const auto at = static_cast<std::int64_t>(i);
            if (kept.micro.round != at / hosted) return text(s) + "rounds are misnumbered";
            if (kept.micro.replica != static_cast<std::int64_t>(r) * hosted + at % hosted)
                return text(s) + "replicas out of order";
            if (kept.micro.ends_round != (at % hosted == hosted - 1)) return text(s) + "ends_round is wrong";
            if (kept.micro.ends_epoch != (i + 1 == ranks[r].size())) return text(s) + "ends_epoch is wrong";
            if (kept.micro.round_samples !=
                ranks[0][static_cast<std::size_t>(kept.micro.round * hosted)].micro.round_samples)
                return text(s) + "ranks differ in round_samples";
            if (static_cast<std::int64_t>(kept.samples.size()) > s.batch_size)
                return text(s) + "a micro-batch is larger than batch_size";
            seen[static_cast<std::size_t>(kept.micro.round)] += static_cast<std::int64_t>(kept.samples.size());
            for (const std::size_t sample : kept.samples) {
                if (sample >= static_cast<std::size_t>(s.data_size)) return text(s) + "an index is out of range";
                ++given[sample];
            }
        }
    }
    for (std::int64_t k = 0; k < rounds; ++k) {
        const auto& micro = ranks[0][static_cast<std::size_t>(k * hosted)].micro;
        if (seen[static_cast<std::size_t>(k)] != micro.round_samples) return text(s) + "round_samples is not the sum";
        if (micro.round_samples > first.global_batch()) return text(s) + "a round is larger than the global batch";
        if (k + 1 < rounds && micro.round_samples != first.global_batch())
            return text(s) + "a round before the last is not full";
    }
    return std::nullopt;
}

/// Resumed where any round ended, with as many replicas, every rank gives just the rest.
template <class Sampler>
std::optional<std::string> resume_law(const Sampler& sampler, const Setting& s) {
    for (std::int64_t r = 0; r < s.world; ++r) {
        const auto shape = un::shape_of_rank(sampler, s.data_size, s.batch_size, s.world, r);
        auto stream = sampler.stream(shape, un::Epoch{s.epoch});
        auto other = sampler.stream(shape, un::Epoch{s.epoch + 5}); // to be sent elsewhere
        while (!stream.done()) {
            un::MicroBatch micro = stream.next();
            while (!micro.ends_round) micro = stream.next();
            if (!(micro.resume == stream.position())) return text(s) + "resume is not the stream's position";
            auto rest = stream; // a copy stands where the original stands
            auto resumed = sampler.stream(shape, micro.resume.epoch, micro.resume.samples);
            other.restart(micro.resume.epoch, micro.resume.samples);
            const auto expected = drain(rest);
            if (drain(resumed) != expected)
                return text(s) + "resumed at " + std::to_string(micro.resume.samples) + " it differs";
            if (drain(other) != expected)
                return text(s) + "restarted at " + std::to_string(micro.resume.samples) + " it differs";
            other.restart(un::Epoch{s.epoch + 5});
        }
    }
    return std::nullopt;
}

/// Resumed at any sample at all, also by another number of ranks: what comes is the rest of the order, nothing twice and
/// nothing missing. `exact`: the sampler neither pads nor drops.
template <class Sampler>
std::optional<std::string> rest_law(const Sampler& sampler, const Setting& s, std::int64_t new_world, bool exact) {
    const Setting one{s.data_size, 1, 1, s.epoch};
    std::vector<std::size_t> order; // as one replica with batch 1 gets it
    auto whole = sampler;
    if constexpr (requires { whole.replicas; }) whole.replicas = 1;
    const auto alone = all_ranks(whole, one);
    for (const Kept& kept : alone[0]) order.insert(order.end(), kept.samples.begin(), kept.samples.end());
    for (std::int64_t from = 0; from <= s.data_size; ++from) {
        std::vector<std::size_t> given;
        for (const auto& rank : all_ranks(sampler, Setting{s.data_size, s.batch_size, new_world, s.epoch}, from))
            for (const Kept& kept : rank) given.insert(given.end(), kept.samples.begin(), kept.samples.end());
        std::vector<std::size_t> rest(order.begin() + from, order.end());
        std::sort(given.begin(), given.end());
        std::sort(rest.begin(), rest.end());
        const std::string where =
            text(s) + "from " + std::to_string(from) + " on " + std::to_string(new_world) + " ranks ";
        if (exact && given != rest) return where + "the rest differs";
        std::vector<std::size_t> once = given;
        once.erase(std::unique(once.begin(), once.end()), once.end());
        const bool padded = given.size() >= rest.size();
        if (padded && !std::includes(once.begin(), once.end(), rest.begin(), rest.end()))
            return where + "samples are missing";
        if (!padded && !std::includes(rest.begin(), rest.end(), given.begin(), given.end()))
            return where + "samples come twice";
    }
    return std::nullopt;
}

} // namespace sampler_laws
