#pragma once

/// \file
/// A plan: a schedule that was prepared once for the executor. Small plans keep their steps. Large
/// ones generate each round when it is due, so that thousands of simulated ranks fit into memory.

#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/schedule/schedule.hpp"

#include <cstdint>
#include <span>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Plan {
public:
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    virtual ~Plan() = default;

    [[nodiscard]] Collective collective() const { return collective_; }
    [[nodiscard]] std::string_view name() const { return name_; }
    [[nodiscard]] const schedule::Shape& shape() const { return shape_; }
    [[nodiscard]] std::uint32_t blocks() const { return blocks_; }
    [[nodiscard]] std::uint32_t rounds() const { return rounds_; }
    [[nodiscard]] std::uint32_t scratch_slots() const { return scratch_slots_; }
    /// True if it uses mapped steps, and so uses the flags of the group's mapped board.
    [[nodiscard]] bool mapped() const { return mapped_; }
    /// True if ranks access only their own buffers and the copies beside flags, never another
    /// rank's buffers.
    [[nodiscard]] bool staged() const { return staged_; }
    /// True if no step has more than one block, as far as the schedule says.
    [[nodiscard]] bool single_blocks() const { return single_blocks_; }
    /// True if data may be cut into lanes: see schedule/schedule.hpp.
    [[nodiscard]] bool can_be_cut() const { return can_be_cut_; }
    /// True if the transport runs a collective of its own beside the messages.
    [[nodiscard]] bool transports_own() const { return transports_own_; }
    /// The plan of the same schedule on another rank; null if the schedule's shape is fixed.
    [[nodiscard]] virtual Owned<const Plan> of_rank(int rank) const = 0;
    /// A hash of the name, the world, the root and the schedule's variant, which the ranks compare.
    [[nodiscard]] std::uint32_t hash() const { return hash_; }

    /// True if all steps are kept. Then `kept_steps` has them, and `first_step` the beginning of
    /// each round.
    [[nodiscard]] bool keeps_steps() const { return !begins_.empty(); }
    [[nodiscard]] const List<schedule::Step>& kept_steps() const { return steps_; }
    [[nodiscard]] std::uint32_t first_step(std::uint32_t round) const { return begins_[round]; }

    /// The steps of a round: kept ones, or generated into `room`.
    [[nodiscard]] Part<const schedule::Step> round(std::uint32_t index, List<schedule::Step>& room) const {
        if (!begins_.empty()) {
            return {steps_.data() + begins_[index], begins_[index + 1] - begins_[index]};
        }
        room.clear();
        generate(index, room);
        return room;
    }

protected:
    Plan(Collective collective, std::string_view name, const schedule::Shape& shape, std::uint32_t blocks,
         std::uint32_t rounds, std::uint32_t scratch_slots, bool mapped, bool staged, bool single_blocks);

    void leave_to_transport() { transports_own_ = true; }
    /// Distinguishes schedules of one name with different parameters, which ranks must agree on.
    void distinguish(std::uint32_t variant) { hash_ = fnv1a(hash_, variant); }

    void keep_steps_if_few();
    /// Not inlined: schedules call it in fifty places.
    static void append(List<schedule::Step>& steps, const schedule::Step& step);

    virtual void generate(std::uint32_t round, List<schedule::Step>& steps) const = 0;

private:
    Collective collective_;
    bool mapped_;
    bool transports_own_ = false;
    bool staged_;
    bool single_blocks_;
    bool can_be_cut_;
    std::string_view name_;
    schedule::Shape shape_;
    std::uint32_t blocks_;
    std::uint32_t rounds_;
    std::uint32_t scratch_slots_;
    std::uint32_t hash_ = 0;
    List<schedule::Step> steps_;
    List<std::uint32_t> begins_; ///< of each round; empty: steps are generated
};

template <collective_schedule Schedule>
class PlanOf final : public Plan {
public:
    [[gnu::cold, gnu::noinline]] explicit PlanOf(const Schedule& schedule)
        : Plan(Schedule::collective, Schedule::name, schedule.shape, schedule.blocks(), schedule.rounds(),
               schedule.scratch_slots(), Schedule::mapped, schedule::is_staged<Schedule>, Schedule::single_blocks),
          schedule_(schedule) {
        if constexpr (requires { schedule.variant(); }) distinguish(schedule.variant());
        if constexpr (schedule::is_transports_own<Schedule>) leave_to_transport();
        keep_steps_if_few();
    }
    [[nodiscard]] const Schedule& schedule() const { return schedule_; }
    [[nodiscard, gnu::cold]] Owned<const Plan> of_rank([[maybe_unused]] int rank) const override {
        Owned<const Plan> made;
        if constexpr (requires(Schedule& other) { other.shape.rank = rank; }) {
            Schedule other = schedule_;
            other.shape.rank = rank;
            made.take(new PlanOf(other));
        }
        return made;
    }

    static constexpr char type_tag = 0; ///< its address identifies the type without RTTI

private:
    [[gnu::cold]] void generate(std::uint32_t round, List<schedule::Step>& steps) const override {
        schedule_.round(round, [&](const schedule::Step& step) { append(steps, step); });
    }
    Schedule schedule_;
};

struct GroupContext; // context.hpp

/// Is shown each new plan of a group before the group uses it, and may throw. For laws (testing/).
struct PlanWatch {
    void (*see)(const GroupContext& group, const Plan& made) = nullptr;
    const GroupContext* group = nullptr;
};

/// The plans of one group, found by schedule.
class PlanCache {
public:
    PlanWatch watch; ///< groups that are split off have the same

    PlanCache() = default;
    PlanCache(const PlanCache&) = delete;
    PlanCache& operator=(const PlanCache&) = delete;
    ~PlanCache();

    template <collective_schedule Schedule>
    const Plan& find(const Schedule& schedule) {
        const auto is_of = [](const Plan& plan, const void* wanted) {
            return static_cast<const PlanOf<Schedule>&>(plan).schedule() == *static_cast<const Schedule*>(wanted);
        };
        const void* const type = &PlanOf<Schedule>::type_tag;
        const Plan* const known = find(type, is_of, &schedule);
        return known != nullptr ? *known : keep(type, new PlanOf<Schedule>(schedule));
    }

private:
    [[nodiscard]] const Plan* find(const void* type, bool (*is_of)(const Plan&, const void*), const void* wanted) const;
    const Plan& keep(const void* type, const Plan* made);

    struct Entry {
        const void* type = nullptr;
        const Plan* plan = nullptr; ///< owned
    };
    List<Entry> entries_;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION Plan::Plan(Collective collective, std::string_view name, const schedule::Shape& shape,
                                            std::uint32_t blocks, std::uint32_t rounds, std::uint32_t scratch_slots,
                                            bool mapped, bool staged, bool single_blocks)
    : collective_(collective), mapped_(mapped), staged_(staged), single_blocks_(single_blocks),
      can_be_cut_(!mapped && blocks != 0 && (single_blocks || moves_vectors(collective))), name_(name), shape_(shape),
      blocks_(blocks), rounds_(rounds), scratch_slots_(scratch_slots), hash_(fnv1a(fnv_basis_32, name)) {
    distinguish(static_cast<std::uint32_t>(shape.world));
    distinguish(static_cast<std::uint32_t>(shape.root));
}

UNISONO_DEFINITION PlanCache::~PlanCache() {
    for (const Entry& entry : entries_) delete entry.plan;
}

UNISONO_DEFINITION const Plan* PlanCache::find(const void* type, bool (*is_of)(const Plan&, const void*),
                                               const void* wanted) const {
    for (const Entry& entry : entries_)
        if (entry.type == type && is_of(*entry.plan, wanted)) return entry.plan;
    return nullptr;
}

UNISONO_DEFINITION const Plan& PlanCache::keep(const void* type, const Plan* made) {
    Owned<const Plan> plan(made);
    if (watch.see != nullptr) watch.see(*watch.group, *made);
    entries_.push_back({type, made});
    return *plan.release();
}

[[gnu::noinline]] UNISONO_DEFINITION void Plan::append(List<schedule::Step>& steps, const schedule::Step& step) {
    steps.push_back(step);
}

[[gnu::cold]] UNISONO_DEFINITION void Plan::keep_steps_if_few() {
    constexpr std::uint32_t most_rounds = 64;
    constexpr std::size_t most_steps = 512;
    List<schedule::Step> room;
    for (std::uint32_t round = 0; round < rounds_; ++round) {
        room.clear();
        generate(round, room);
        if (rounds_ > most_rounds || steps_.size() + room.size() > most_steps) {
            steps_ = {};
            begins_ = {};
            return;
        }
        begins_.push_back(static_cast<std::uint32_t>(steps_.size()));
        steps_.append(room);
    }
    begins_.push_back(static_cast<std::uint32_t>(steps_.size()));
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
