#pragma once

/// \file
/// Collectives of a group whose transport the compiler does not know, on host memory. They are made
/// of messages, which every transport moves, in ceil(log2 p) rounds. For the small and rare data by
/// which ranks compare what they have; a group with a transport in its type has faster ones.

#include "unisono/group/group_core.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Gathers the words of every rank, in rank order. `caller`: the user's call, which ranks compare.
void gather_words(GroupCore& world, std::span<const std::uint64_t> mine, std::span<std::uint64_t> all,
                  Caller caller = Caller::none);

/// Copies the bytes of rank `root` to all ranks.
void broadcast_bytes(GroupCore& world, std::span<std::byte> data, int root);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
#include "unisono/schedule/families.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void gather_words(GroupCore& world, std::span<const std::uint64_t> mine,
                                     std::span<std::uint64_t> all, Caller caller) {
    static constexpr int own_plan = 0; // so that the call has no native plan
    const PlanFunction plan = [](GroupCore& group, const Call&, OperationRequest& request) {
        request.plan =
            &group.plan(schedule::schedule_of<Collective::all_gather>(HalvingDoublingSchedule{}, group.shape()));
    };
    const auto words = [](const std::uint64_t* data, std::size_t count) {
        return CallBuffer{.data = reinterpret_cast<std::byte*>(const_cast<std::uint64_t*>(data)),
                          .count = count,
                          .element_bytes = sizeof(std::uint64_t),
                          .type = ElementType::uint64};
    };
    world.run({.what = Collective::all_gather, .caller = caller, .by = {plan, &own_plan}},
              words(mine.data(), mine.size()), words(all.data(), all.size()));
}

UNISONO_DEFINITION void broadcast_bytes(GroupCore& world, std::span<std::byte> data, int root) {
    static constexpr int own_plan = 0;
    const PlanFunction plan = [](GroupCore& group, const Call& call, OperationRequest& request) {
        request.plan =
            &group.plan(schedule::schedule_of<Collective::broadcast>(TreeSchedule{}, group.shape(call.root)));
    };
    const CallBuffer all{.data = data.data(), .count = data.size(), .type = ElementType::uint8};
    world.run({.what = Collective::broadcast, .root = root, .by = {plan, &own_plan}}, all, all);
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
