#pragma once

/// \file
/// The operations of one rank. Their states are kept for reuse.

#include "unisono/core/list.hpp"
#include "unisono/group/operation_state.hpp"

#include <cstddef>
#include <cstdint>

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

    /// Takes a free state: one that last ran this request, if any (it is prepared for it), else the
    /// least recently used. Taking the most recent one would make two alternating requests evict
    /// each other.
    std::uint32_t take(std::uint64_t group, const OperationRequest& request) {
        std::size_t oldest = free_.empty() ? 0 : free_.size() - 1;
        for (std::size_t i = free_.size(); i-- != 0 && free_.size() - i <= enough;) {
            if (ran(free_[i], group, request)) return take_at(i);
            if (states_[free_[i]]->taken_at < states_[free_[oldest]]->taken_at) oldest = i;
        }
        if (!free_.empty() && states_.size() >= enough) return take_at(oldest);
        add();
        return take_at(free_.size() - 1);
    }

    /// Takes this state if it is free.
    bool take(const OperationState& wanted) {
        if (wanted.free_at == no_operation) return false;
        take_at(wanted.free_at);
        return true;
    }

    void release(std::uint32_t index) {
        states_[index]->free_at = static_cast<std::uint32_t>(free_.size());
        free_.push_back(index);
    }

private:
    static constexpr std::size_t enough = 8; ///< states to make before any is reused, and to search

    std::uint32_t take_at(std::size_t position) {
        const std::uint32_t index = free_[position];
        free_[position] = free_.back();
        states_[free_[position]]->free_at = static_cast<std::uint32_t>(position);
        free_.pop_back();
        OperationState& operation = *states_[index];
        operation.free_at = no_operation;
        operation.taken_at = ++taken_;
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

    [[gnu::noinline]] void add() {
        free_.reserve(states_.size() + 1); // else one could be lost
        states_.reserve(states_.size() + 1);
        states_.push_back(new OperationState);
        states_.back()->number = static_cast<std::uint32_t>(states_.size() - 1);
        release(states_.back()->number);
    }

    List<OperationState*> states_;
    List<std::uint32_t> free_;
    std::uint64_t taken_ = 0; ///< the number of takes so far
};

} // namespace detail
UNISONO_NAMESPACE_END
