#pragma once

/// \file
/// The operations of one rank: their states, which are kept for reuse.

#include "unisono/core/list.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class OperationPool {
public:
    OperationPool() = default;
    OperationPool(const OperationPool&) = delete;
    OperationPool& operator=(const OperationPool&) = delete;
    ~OperationPool() {
        for (const OperationState* one : states_) delete one;
    }

    OperationState& operator[](std::size_t index) { return *states_[index]; }
    const OperationState& operator[](std::size_t index) const { return *states_[index]; }
    [[nodiscard]] std::size_t size() const { return states_.size(); }

    /// A free state; preferably one that last ran the same request, since it is cut for it.
    std::uint32_t take(std::uint64_t group, const OperationRequest& request) {
        if (free_.empty() || !ran(free_.back(), group, request)) bring_forward(group, request);
        return take_last();
    }

    /// Takes this state, if it is among the last that became free.
    bool take(const OperationState& wanted) {
        for (std::size_t i = free_.size(); i-- != 0 && free_.size() - i <= enough;) {
            if (free_[i] != wanted.number) continue;
            std::swap(free_[i], free_.back());
            take_last();
            return true;
        }
        return false;
    }

    void release(std::uint32_t index) { free_.push_back(index); }

private:
    static constexpr std::size_t enough = 8; ///< states among which to look, and to have before one is cut anew

    std::uint32_t take_last() {
        const std::uint32_t index = free_.back();
        free_.pop_back();
        OperationState& operation = *states_[index];
        operation.done = false;
        operation.posts = 0;
        operation.next_lane = 0;
        operation.lanes_done = 0;
        operation.companion = no_operation;
        operation.finish = nullptr;
        return index;
    }

    [[nodiscard]] bool ran(std::uint32_t index, std::uint64_t group, const OperationRequest& request) const {
        const OperationState& last = *states_[index];
        return last.request.plan == request.plan && last.request.count == request.count &&
               last.request.caller == request.caller && last.cut_for_group == group;
    }

    [[gnu::noinline]] void bring_forward(std::uint64_t group, const OperationRequest& request) {
        for (std::size_t i = free_.size(); i-- != 0 && free_.size() - i <= enough;) {
            if (!ran(free_[i], group, request)) continue;
            return std::swap(free_[i], free_.back());
        }
        if (!free_.empty() && states_.size() >= enough) return;
        states_.reserve(states_.size() + 1); // else one could be lost
        states_.push_back(new OperationState);
        states_.back()->number = static_cast<std::uint32_t>(states_.size() - 1);
        free_.push_back(states_.back()->number);
    }

    List<OperationState*> states_;
    List<std::uint32_t> free_;
};

} // namespace detail
UNISONO_NAMESPACE_END
