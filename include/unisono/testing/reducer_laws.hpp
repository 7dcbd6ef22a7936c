#pragma once

/// \file
/// The laws of reducer/reducer.hpp for any reducer, on threads of this process, and a minimal
/// reducer.

#include "unisono/collective/exchange.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/laboratory/verify.hpp"
#include "unisono/group/run.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/reducer/reducer.hpp"
#include "unisono/testing/testing.hpp"
#include "unisono/transport/in_process.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal reducer: one collective.
struct ArchetypeReducer {
    static constexpr std::string_view name = "archetype reducer";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = false;
    friend bool operator==(const ArchetypeReducer&, const ArchetypeReducer&) = default;

    struct Run {
        template <class World, class T>
        Operation sum(World& group, std::span<T> values) const {
            return start_all_reduce(group, values);
        }
    };
    template <class World>
    [[nodiscard]] Run start(World&) const {
        return {};
    }
};
static_assert(reducer_policy<ArchetypeReducer, Group<InProcess>>);

/// The minimal reducer that gives owners: rank 0 owns everything.
struct ArchetypeOwnerReducer {
    static constexpr std::string_view name = "archetype owner reducer";
    static constexpr Family family = Family::reducer;
    static constexpr bool gives_owners = true;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const ArchetypeOwnerReducer&, const ArchetypeOwnerReducer&) = default;

    [[nodiscard]] Owners owners(const BucketFacts& facts) const {
        return Owners::chosen(facts.count, {0}, facts.world);
    }

    struct Run {
        template <class World, class T>
        Operation sum_to(World& group, std::span<T> values, int owner) const {
            return start_reduce(group, std::span<const T>(values), values, owner);
        }
        template <class World, class T>
        Operation publish(World& group, std::span<T> values, int owner) const {
            return start_broadcast(group, values, owner);
        }
    };
    template <class World>
    [[nodiscard]] Run start(World&) const {
        return {};
    }
};
static_assert(reducer_policy<ArchetypeOwnerReducer, Group<InProcess>>);

/// The parameters of the trial.
struct ReducerTrial {
    int least_ranks = 1; ///< for reducers that refuse smaller worlds
    int most_ranks = 5;
    std::vector<std::size_t> counts = {0, 1, 3, 16, 257, 5000};  ///< numbers of elements
    std::chrono::nanoseconds timeout = std::chrono::seconds(30); ///< time limit of each wait; a hang is a violation
};

namespace detail {

/// Proves a schedule that a group is about to run: one that breaks the laws of
/// schedule/schedule.hpp may write outside of its memory. The parts of the other ranks are those of
/// the same schedule with another `shape.rank`, so its other members must not depend on the rank.
/// \throws error bad_input: the first violation
inline void prove_plan(const unisono::detail::GroupContext& group, const unisono::detail::Plan& plan) {
    using Plans = std::vector<unisono::detail::Owned<const unisono::detail::Plan>>;
    if (plan.transports_own() || plan.collective() > Collective::barrier) return;
    const schedule::Shape shape = plan.shape();
    const auto refuse = [&](const std::string& why) {
        refuse_input({"the schedule ", plan.name(), " breaks a law, so it was not run: ", why,
                      " (schedule_laws shows all violations)"});
    };
    if (shape.world != group.size() || shape.rank != group.rank || shape.root < 0 || shape.root >= shape.world)
        refuse(concat({"its shape is rank ", shape.rank, " of ", shape.world, " with root ", shape.root, " on rank ",
                       group.rank, " of ", group.size()}));
    Plans plans;
    schedule::detail::Program program{.name = std::string(plan.name()),
                                      .collective = plan.collective(),
                                      .mapped = plan.mapped(),
                                      .single_blocks = plan.single_blocks(),
                                      .staged = plan.staged(),
                                      .world = shape.world,
                                      .root = shape.root,
                                      .blocks = plan.blocks(),
                                      .ranks = {},
                                      .factory = &plans};
    for (int rank = 0; rank < shape.world; ++rank) {
        plans.push_back(plan.of_rank(rank));
        const unisono::detail::Plan* const one = plans.back().get();
        if (one == nullptr) return refuse("its shape cannot be changed");
        program.ranks.push_back({.blocks = one->blocks(),
                                 .rounds = one->rounds(),
                                 .scratch_slots = one->scratch_slots(),
                                 .channel_depth = 0,
                                 .cost = {}});
    }
    program.generate = [](const void* all, const schedule::Shape& of, std::uint32_t round,
                          std::vector<schedule::Step>& steps) {
        unisono::detail::List<schedule::Step> room;
        const auto made = (*static_cast<const Plans*>(all))[static_cast<std::size_t>(of.rank)]->round(round, room);
        steps.assign(made.begin(), made.end());
    };
    schedule::Report report;
    schedule::detail::verify_program(program, {.channels = false}, report);
    if (!report.proven()) refuse(report.violations.front());
}

/// The laws for one world, called on each rank. A lock protects the violations of all ranks.
template <reducer_policy<Group<InProcess>> Policy>
class ReducerWorld {
public:
    ReducerWorld(const Policy& policy, const ReducerTrial& trial, int ranks, Violations& found)
        : policy_(policy), trial_(trial), ranks_(ranks), found_(found), results_(static_cast<std::size_t>(ranks)) {}

    void run() {
        try {
            unisono::run<InProcess>(ranks_,
                                    [&](Group<InProcess>& world) {
                                        world.context().plans.watch = {&prove_plan, &world.context()};
                                        auto verbs = policy_.start(world);
                                        laws<float>(world, verbs);
                                        laws<double>(world, verbs);
                                        whole<std::int64_t>(world, verbs, "std::int64_t, by which Reproducible sums");
                                        whole<std::int32_t>(world, verbs,
                                                            "std::int32_t, by which NarrowReproducible sums");
                                    },
                                    {.timeout = trial_.timeout});
        } catch (const std::exception& thrown) {
            add(concat({"threw ", thrown.what()}));
        }
    }

private:
    void add(const std::string& what) {
        const std::lock_guard lock(mutex_);
        found_.add(concat({"on ", ranks_, " ranks: ", what}));
    }

    /// The laws for integers, if the run has for them what it has for floats.
    template <class T, class Verbs>
    void whole(Group<InProcess>& world, Verbs& verbs, const char* which) {
        constexpr bool to_all = requires(std::span<T> values) { verbs.sum(world, values); };
        constexpr bool to_owner = requires(std::span<T> values) { verbs.sum_to(world, values, 0); };
        if constexpr ((to_all || !sums_to_all<Verbs, Group<InProcess>>)&&(to_owner || !Policy::reduces_to_owners))
            laws<T>(world, verbs);
        else if (world.rank() == 0) add(concat({"the run does not sum ", which}));
    }

    /// Whole numbers whose sums are exact in any order, and that need all digits of T.
    template <class T>
    T term(int rank, std::size_t i) const {
        const std::int64_t parts = std::int64_t{ranks_} * (ranks_ + 1) / 2; // rank r's share is r + 1 of these parts
        const std::int64_t most =
            std::max<std::int64_t>(11, (std::int64_t{1} << std::min(std::numeric_limits<T>::digits, 62)) / parts);
        const std::uint64_t choices = 2 * static_cast<std::uint64_t>(most) - 1; // below 2^63
        const std::uint64_t mixed = (i + 1) * std::uint64_t{0x9e3779b97f4a7c15};
        return static_cast<T>((rank + 1) * (static_cast<std::int64_t>(mixed % choices) - (most - 1)));
    }
    template <class T>
    T sum(std::size_t i) const {
        T all = 0;
        for (int rank = 0; rank < ranks_; ++rank) all += term<T>(rank, i);
        return all;
    }
    template <class T>
    std::vector<T> terms(int rank, std::size_t count) const {
        std::vector<T> values(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = term<T>(rank, i);
        return values;
    }
    template <class T>
    void expect_sums(const std::vector<T>& values, int rank, const std::string& verb) {
        for (std::size_t i = 0; i < values.size(); ++i)
            if (values[i] != sum<T>(i))
                return add(concat({verb, ": element ", i, " of ", values.size(), " on rank ", rank, " is ", values[i],
                                   "; the sum of all ranks' is ", sum<T>(i)}));
    }

    template <class T, class Verbs>
    void laws(Group<InProcess>& world, Verbs& verbs) {
        for (const std::size_t count : trial_.counts) {
            if constexpr (sums_to_all<Verbs, Group<InProcess>>) {
                to_all<T>(world, verbs, count);
                if constexpr (std::is_floating_point_v<T>) same_bits_on_all<T>(world, verbs, count);
            }
            if constexpr (Policy::reduces_to_owners)
                for (int owner = 0; owner < ranks_; ++owner) to_owner<T>(world, verbs, count, owner);
            if constexpr (sums_slices<Verbs, Group<InProcess>>) {
                if (unisono::detail::sums_slices_at_once<Group<InProcess>>(verbs)) to_slices<T>(world, verbs, count);
            }
        }
        several_in_flight<T>(world, verbs);
    }

    template <class T, class Verbs>
    void to_all(Group<InProcess>& world, Verbs& verbs, std::size_t count) {
        auto values = terms<T>(world.rank(), count);
        verbs.sum(world, std::span<T>(values)).wait();
        expect_sums(values, world.rank(), "sum");
    }

    /// Numbers whose sum depends on the order of additions.
    template <class T, class Verbs>
    void same_bits_on_all(Group<InProcess>& world, Verbs& verbs, std::size_t count) {
        const auto rank = static_cast<std::size_t>(world.rank());
        std::vector<T> values(count);
        for (std::size_t i = 0; i < count; ++i)
            values[i] = static_cast<T>(1) / static_cast<T>(3 + 7 * rank + i) * (i % 2 == 0 ? T(1) : T(-1000));
        verbs.sum(world, std::span<T>(values)).wait();
        results_[rank].resize(count * sizeof(T));
        if (count != 0) std::memcpy(results_[rank].data(), values.data(), count * sizeof(T));
        barrier(world);
        if (rank != 0 && results_[rank] != results_[0])
            add(concat({"the sum of ", count, " elements has other bits on rank ", rank, " than on rank 0"}));
        barrier(world);
    }

    template <class T, class Verbs>
    void to_owner(Group<InProcess>& world, Verbs& verbs, std::size_t count, int owner) {
        const std::string whose = concat({" rank ", owner});
        auto values = terms<T>(world.rank(), count);
        verbs.sum_to(world, std::span<T>(values), owner).wait();
        if (world.rank() == owner) expect_sums(values, owner, concat({"sum_to", whose}));
        else values.assign(count, T(-1)); // values are undefined there
        verbs.publish(world, std::span<T>(values), owner).wait();
        expect_sums(values, world.rank(), concat({"publish from", whose}));
    }

    /// Reduces to slices of uneven sizes, some of them empty.
    template <class T, class Verbs>
    void to_slices(Group<InProcess>& world, Verbs& verbs, std::size_t count) {
        std::vector<std::size_t> counts(static_cast<std::size_t>(ranks_));
        std::size_t left = count;
        for (std::size_t rank = 0; rank + 1 < counts.size(); ++rank) {
            counts[rank] = rank % 2 == 1 ? 0 : left / 2;
            left -= counts[rank];
        }
        counts.back() = left;
        auto values = terms<T>(world.rank(), count);
        verbs.sum_slices(world, std::span<T>(values), std::span<const std::size_t>(counts)).wait();
        std::size_t first = 0;
        for (int rank = 0; rank < world.rank(); ++rank) first += counts[static_cast<std::size_t>(rank)];
        for (std::size_t i = first; i < first + counts[static_cast<std::size_t>(world.rank())]; ++i)
            if (values[i] != sum<T>(i))
                return add(concat({"sum_slices: element ", i, " of ", count, ", of the slice of rank ", world.rank(),
                                   ", is ", values[i], "; the sum of all ranks' is ", sum<T>(i)}));
    }

    /// As in a trainer: several buckets, which are waited for in another order than they were
    /// started in.
    template <class T, class Verbs>
    void several_in_flight(Group<InProcess>& world, Verbs& verbs) {
        std::vector<std::vector<T>> buckets;
        std::vector<Operation> operations;
        for (const std::size_t count : trial_.counts) buckets.push_back(terms<T>(world.rank(), count));
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            const std::span<T> bucket(buckets[i]);
            if constexpr (Policy::reduces_to_owners)
                operations.push_back(verbs.sum_to(world, bucket, static_cast<int>(i) % ranks_));
            else operations.push_back(verbs.sum(world, bucket));
        }
        for (std::size_t i = buckets.size(); i-- > 0;) {
            operations[i].wait();
            if (!Policy::reduces_to_owners || world.rank() == static_cast<int>(i) % ranks_)
                expect_sums(buckets[i], world.rank(), "with several in flight");
        }
    }

    const Policy& policy_;
    const ReducerTrial& trial_;
    int ranks_;
    Violations& found_;
    std::vector<std::vector<std::byte>> results_;
    std::mutex mutex_;
};

template <class Policy>
void owner_laws(const Policy& policy, const ReducerTrial& trial, Violations& found) {
    for (int ranks = trial.least_ranks; ranks <= trial.most_ranks; ++ranks) {
        for (const std::size_t count : trial.counts) {
            const BucketFacts facts{.index = 1, .count = count, .element_bytes = 4, .world = ranks};
            const std::string what = concat({" for ", count, " elements on ", ranks, " ranks"});
            try {
                const Owners owners = policy.owners(facts);
                if (owners.count() != count || owners.world() != ranks)
                    found.add(concat({"owners() are those of ", owners.count(), " elements on ", owners.world(),
                                      " ranks; expected them", what}));
                if (owners.replicated())
                    found.add(concat({"owners() are all ranks", what, ", although `gives_owners` is true"}));
                if (!(owners == policy.owners(facts))) found.add(concat({"owners() differs from call to call", what}));
            } catch (const std::exception& thrown) {
                found.add(concat({"owners() threw", what, ": ", thrown.what()}));
            }
        }
    }
}

} // namespace detail

/// Checks sums for all ranks, for each owner, and of the ranks' slices; the values that owners
/// publish; the same bits on all ranks; several operations in flight. In float, double,
/// std::int64_t and std::int32_t, on each number of ranks. A reducer that gives owners must do so
/// by a pure function. Schedules are proven before they run, since one that breaks its laws may
/// write outside of its memory.
template <reducer_policy<Group<InProcess>> Policy>
Violations reducer_laws(const Policy& policy, const ReducerTrial& trial = {}) {
    Violations found{std::string(Policy::name)};
    for (int ranks = trial.least_ranks; ranks <= trial.most_ranks && !found.full(); ++ranks)
        detail::ReducerWorld<Policy>(policy, trial, ranks, found).run();
    if constexpr (Policy::gives_owners) {
        if (!Policy::reduces_to_owners) found.add("gives owners but does not reduce to them");
        detail::owner_laws(policy, trial, found);
    }
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
