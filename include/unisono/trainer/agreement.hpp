#pragma once

/// \file
/// Compares what must be equal on all ranks before training. If it differs, every rank gets an
/// error that names the ranks and the difference.

#include "unisono/collective/of_core.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/floating_point.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/flat_model.hpp"
#include "unisono/trainer/kernels.hpp"
#include "unisono/trainer/policy_fields.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Throws an error that says that `rank` differs from `peer`. Ranks are the world's numbers.
[[noreturn]] void throw_mismatch(std::string_view operation, int rank, int peer, const std::string& message);

/// The user's call that an operation's name denotes.
constexpr Caller caller_named(std::string_view operation) {
    for (const auto& [name, caller] : {std::pair<std::string_view, Caller>{"fit", Caller::fit},
                                       {"evaluate", Caller::evaluate},
                                       {"predict", Caller::predict},
                                       {"verify_replicas", Caller::verify_replicas},
                                       {"save", Caller::save},
                                       {"resume", Caller::resume},
                                       {"Trainer", Caller::trainer}})
        if (name == operation) return caller;
    return Caller::none;
}

/// Compares named numbers of all ranks with those of rank 0. \throws error mismatch, the same on
/// all ranks
void agree_on(GroupCore& world, std::string_view operation, std::span<const std::string_view> names,
              std::span<const std::int64_t> mine);

/// Compares the policies of all ranks, since ranks with different policies would diverge silently.
void agree_on_policies(GroupCore& world, Part<const PolicyFacts> facts);

/// Small parameters are broadcast together, in messages of at most this many bytes.
inline constexpr std::size_t bytes_together = std::size_t{1} << 17;

/// Calls visit(begin, end, elements) for one range of `count` things after another. A range of more
/// than one thing has at most `most` elements.
template <class Size, class Visit>
void visit_together(std::size_t count, std::size_t most, Size size, Visit visit) {
    for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
        std::size_t elements = size(end++);
        while (end < count && elements <= most && size(end) <= most - elements) elements += size(end++);
        visit(begin, end, elements);
    }
}

/// The parameters with which a trainer begins.
enum class Parameters : std::uint8_t {
    of_rank_0, ///< broadcast
    equal,     ///< all ranks have them already
};

/// Broadcasts rank 0's memory, which has the same sizes on all ranks.
void broadcast_memory(GroupCore& world, const List<std::span<unsigned char>>& all);

/// Broadcasts rank 0's parameters. On a device: extensions/device/kernels.hpp.
template <class T>
void broadcast_parameters(GroupCore& world, const FlatModel<T>& flat, const HostKernels<T>&) {
    List<std::span<unsigned char>> all;
    flat.visit_by_parameter({0, flat.count()}, [&](std::size_t, const Stretch<T>& one) {
        all.push_back({reinterpret_cast<unsigned char*>(one.parameters), one.count * sizeof(T)});
    });
    if (world.size() != 1) broadcast_memory(world, all);
}

/// Broadcasts rank 0's buffers (running statistics). \throws error mismatch: this rank's have other
/// sizes or types
template <class World, class Model>
void broadcast_buffers(World& world, Model& model) {
    if constexpr (requires { model.buffers(); }) {
        if (world.size() == 1) return;
        if constexpr (trained_on_device<Model>) {
            world.endpoint().wait_for(model.stream());
            for_each_span(model.buffers(), [&](auto one) { broadcast(world, one, 0); });
        } else {
            std::uint64_t hash = fnv_basis;
            List<std::span<unsigned char>> all = {{reinterpret_cast<unsigned char*>(&hash), sizeof hash}};
            for_each_span(model.buffers(), [&](auto one) {
                using T = typename decltype(one)::element_type;
                hash = fnv1a(fnv1a(hash, std::uint64_t{one.size()}), static_cast<std::uint64_t>(element_type_of<T>));
                all.push_back({reinterpret_cast<unsigned char*>(one.data()), one.size_bytes()});
            });
            const std::uint64_t own = hash;
            broadcast_memory(world, all);
            if (hash != own)
                throw error(Fault{.code = ErrorCode::mismatch,
                                  .rank = world.world_rank(),
                                  .peer = world.world_rank(0),
                                  .operation = "Trainer",
                                  .message = concat({"the model's buffers() on rank ", world.world_rank(),
                                                     " have other sizes or element types than on rank ",
                                                     world.world_rank(0), "; expected the same on all ranks"})});
        }
    }
}

/// Checks that all ranks hold the same bits. \throws error mismatch, the same on all ranks, that
/// names the first rank that differs from rank 0 and its first different parameter
template <class Model, class Flat, class Computes>
void verify_replicas(GroupCore& world, Model& model, const Flat& flat, const Computes& kernels) {
    using T = typename Flat::Element;
    if (world.size() == 1) return;
    List<std::uint64_t> hashes;
    for (std::size_t i = 0; i < flat.layout().parameters(); ++i) {
        std::uint64_t hash = fnv_basis;
        flat.visit({flat.layout().start_of(i), flat.layout().shapes()[i].count}, [&](const Stretch<T>& one) {
            kernels.read(one.parameters, one.count, [&](std::span<const T> values) {
                hash = hash_bytes(values.data(), values.size_bytes(), hash);
            });
        });
        hashes.push_back(hash);
    }
    List<std::uint64_t> all(hashes.size() * static_cast<std::size_t>(world.size()));
    gather_words(world, hashes, all, Caller::verify_replicas);
    for (int rank = 1; rank < world.size(); ++rank)
        for (std::size_t i = 0; i < hashes.size(); ++i)
            if (all[static_cast<std::size_t>(rank) * hashes.size() + i] != all[i])
                throw_mismatch("verify_replicas", world.world_rank(rank), world.world_rank(0),
                               concat({parameter_label(model, i), " differs between rank ", world.world_rank(0),
                                       " and rank ", world.world_rank(rank)}));
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void agree_on(GroupCore& world, std::string_view operation,
                                               std::span<const std::string_view> names,
                                               std::span<const std::int64_t> mine) {
    if (world.size() == 1) return;
    const std::size_t count = mine.size();
    List<std::uint64_t> words;
    for (const std::int64_t one : mine) words.push_back(static_cast<std::uint64_t>(one));
    List<std::uint64_t> all(count * static_cast<std::size_t>(world.size()));
    gather_words(world, words, all, caller_named(operation));
    for (std::size_t i = 0; i < count; ++i) {
        for (int rank = 1; rank < world.size(); ++rank) {
            const auto found = static_cast<std::int64_t>(all[static_cast<std::size_t>(rank) * count + i]);
            const auto expected = static_cast<std::int64_t>(all[i]);
            if (found == expected) continue;
            const int who = world.world_rank(rank);
            throw_mismatch(operation, who, world.world_rank(0),
                           concat({names[i], " is ", found, " on rank ", who, " and ", expected, " on rank ",
                                   world.world_rank(0), "; expected the same on all ranks"}));
        }
    }
}

[[gnu::cold]] UNISONO_DEFINITION void agree_on_policies(GroupCore& world, Part<const PolicyFacts> facts) {
    if (world.size() == 1) return;
    List<std::uint64_t> mine;
    for (const PolicyFacts& one : facts) mine.push_back(one.hash());
    List<std::uint64_t> all(mine.size() * static_cast<std::size_t>(world.size()));
    gather_words(world, mine, all, Caller::trainer);
    for (std::size_t i = mine.size(); i < all.size(); ++i) {
        if (all[i] == all[i % mine.size()]) continue;
        const PolicyFacts& one = facts[i % mine.size()];
        const int rank = world.world_rank(static_cast<int>(i / mine.size()));
        throw_mismatch("Trainer", rank, world.world_rank(0),
                       concat({"rank ", rank, " has another ", one.family, " than rank ", world.world_rank(0),
                               " (here: ", one.text(), "); expected policies of equal parameters on all ranks"}));
    }
}

[[gnu::cold]] UNISONO_DEFINITION void broadcast_memory(GroupCore& world, const List<std::span<unsigned char>>& all) {
    List<unsigned char> packed;
    const auto size = [&](std::size_t i) { return all[i].size(); };
    visit_together(all.size(), bytes_together, size, [&](std::size_t begin, std::size_t end, std::size_t bytes) {
        if (end - begin == 1) return broadcast_bytes(world, std::as_writable_bytes(all[begin]), 0);
        packed.resize(bytes);
        unsigned char* to = packed.data();
        for (std::size_t i = begin; i < end; ++i) to = std::copy(all[i].begin(), all[i].end(), to);
        broadcast_bytes(world, std::as_writable_bytes(std::span(packed.data(), bytes)), 0);
        const unsigned char* from = packed.data();
        for (std::size_t i = begin; i < end; from += all[i++].size())
            std::copy(from, from + all[i].size(), all[i].data());
    });
}

[[gnu::cold]] UNISONO_DEFINITION void throw_mismatch(std::string_view operation, int rank, int peer,
                                                     const std::string& message) {
    throw agreed_error(Fault{.code = ErrorCode::mismatch,
                             .rank = rank,
                             .peer = peer,
                             .operation = std::string(operation),
                             .sequence = 0,
                             .message = message});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
