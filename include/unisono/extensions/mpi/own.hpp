#pragma once

/// \file
/// MPI's own collectives in flight, and the memory that they access, since MPI cannot be made to
/// release it.

#include "unisono/core/config.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory that was given out, for libraries that cannot be made to release the memory in which they
/// work: they hold a share of it.
class LentMemory {
public:
    /// Remembers the memory as long as it is in use, and returns it.
    [[nodiscard]] std::shared_ptr<std::byte> add(std::shared_ptr<std::byte> memory, std::size_t bytes) {
        std::erase_if(parts_, [](const Part& one) { return one.memory.expired(); });
        parts_.push_back({memory, memory.get(), bytes});
        return memory;
    }
    /// A share of the allocation that contains all of these bytes; nullptr: none does.
    [[nodiscard]] std::shared_ptr<std::byte> share_of(const std::byte* data, std::size_t bytes) const {
        for (const Part& one : parts_) {
            const std::size_t at = reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(one.begin);
            if (at < one.bytes && bytes <= one.bytes - at && !one.memory.expired()) return one.memory.lock();
        }
        return nullptr;
    }

private:
    struct Part {
        std::weak_ptr<std::byte> memory;
        const std::byte* begin = nullptr;
        std::size_t bytes = 0;
    };
    std::vector<Part> parts_;
};

/// Collectives in the order of tickets, which is the same on all ranks, as MPI demands. A
/// nonblocking collective cannot be cancelled, so its memory stays until it is done: memory that
/// the group allocated and shares, or copies.
class MpiOwn {
public:
    /// A collective that has begun. It does not move, since MPI reads the counts in it.
    struct Call {
        MPI_Request request = MPI_REQUEST_NULL;
        std::uint32_t ticket = 0;
        std::shared_ptr<std::byte> input;  ///< keeps the input's memory alive
        std::shared_ptr<std::byte> output; ///< keeps the output's memory alive
        const std::byte* from = nullptr;   ///< the result to copy, if it was computed elsewhere
        std::byte* to = nullptr;
        std::size_t bytes = 0;
        std::vector<int> counts;
        std::vector<int> begins;
    };

    MpiOwn() = default;
    explicit MpiOwn(MPI_Comm communicator) : communicator_(communicator) {}
    MpiOwn(MpiOwn&& other) noexcept = default;
    MpiOwn& operator=(MpiOwn&&) = delete;
    ~MpiOwn() { keep(); }

    [[nodiscard]] MPI_Comm communicator() const { return communicator_; }
    [[nodiscard]] std::uint32_t ticket() { return tickets_++; }
    [[nodiscard]] bool is_turn_of(std::uint32_t ticket) const { return ticket == begun_; }

    /// The next call, which the caller fills in and begins at once.
    Call& next(std::uint32_t ticket) {
        ++begun_;
        if (spare_.empty()) spare_.push_back(std::make_unique<Call>());
        calls_.push_back(std::move(spare_.back()));
        spare_.pop_back();
        calls_.back()->ticket = ticket;
        return *calls_.back();
    }

    /// Memory for a rank's collectives: MPI works in it, and shares it.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(int rank, std::size_t bytes) {
        return allocated_.add(memory_for_rank(rank, bytes), bytes);
    }
    /// A share of the allocation that contains these bytes; null if none does.
    [[nodiscard]] std::shared_ptr<std::byte> share_of(const std::byte* data, std::size_t bytes) const {
        return allocated_.share_of(data, bytes);
    }
    /// Memory for one call, without another user.
    [[nodiscard]] static std::shared_ptr<std::byte> room(std::size_t bytes) {
        constexpr std::align_val_t line{64};
        return {static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), line)),
                [](std::byte* memory) { ::operator delete(memory, line); }};
    }

    /// True if a collective is done and its result in place. Not called again after that.
    [[nodiscard]] bool done(std::uint32_t ticket) {
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            Call& call = *calls_[i];
            if (call.ticket != ticket) continue;
            if (!is_done(call)) return false;
            if (call.from != nullptr && call.bytes != 0) std::memcpy(call.to, call.from, call.bytes);
            recycle(i);
            return true;
        }
        return false; // forgotten
    }

    /// True if no collective is in flight.
    [[nodiscard]] bool is_idle() const { return calls_.empty(); }
    /// Waits for the collectives in flight until `until`. The memory of one that is not done by
    /// then is never freed.
    void forget(nanoseconds until) {
        while (!calls_.empty() && steady_now() < until) {
            for (std::size_t i = 0; i < calls_.size();) {
                if (is_done(*calls_[i])) recycle(i);
                else ++i;
            }
            std::this_thread::yield();
        }
        keep();
    }

private:
    static bool is_done(Call& call) {
        int done = 0;
        return MPI_Test(&call.request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0;
    }
    void recycle(std::size_t i) {
        std::unique_ptr<Call> call = std::move(calls_[i]);
        calls_.erase(calls_.begin() + static_cast<std::ptrdiff_t>(i));
        call->input.reset();
        call->output.reset();
        call->from = nullptr;
        spare_.push_back(std::move(call));
    }
    void keep() {
        if (!calls_.empty()) static_cast<void>(new auto(std::move(calls_)));
        calls_.clear();
    }

    MPI_Comm communicator_ = MPI_COMM_NULL;
    std::uint32_t tickets_ = 0;
    std::uint32_t begun_ = 0;
    std::vector<std::unique_ptr<Call>> calls_; ///< in flight
    std::vector<std::unique_ptr<Call>> spare_;
    LentMemory allocated_;
};

} // namespace detail
UNISONO_NAMESPACE_END
