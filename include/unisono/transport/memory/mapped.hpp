#pragma once

/// \file
/// The words of a world with mapped memory that a rank reads without a call while it waits.

#include "unisono/transport/memory/bell.hpp"
#include "unisono/transport/memory/channel.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// One per rank. Its targets live as long as the world; the first three are never null.
struct Mapped {
    const std::atomic<std::uint32_t>* fault = nullptr; ///< 0 while the world is well
    std::atomic<std::uint32_t>* touching = nullptr;    ///< this rank's; not 0 while it accesses peers' memory
    const SetBells* bells = nullptr;
    AsymmetricFence fence;            ///< a copy of the world's
    const std::byte* begin = nullptr; ///< of the memory that peers see,
    std::size_t bytes = 0;            ///< and its size
    std::uint32_t looks = 0;          ///< reads of a peer's word per attempt; 0 if ranks outnumber the cores
    std::uint32_t pauses = 0;         ///< attempts that only pause; then the rank idles

    /// True if peers see these bytes, if there are any.
    [[nodiscard, gnu::always_inline]] inline bool reaches(const void* data, std::size_t count) const {
        if (count == 0) return true;
        const auto at = reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(begin);
        return at < bytes && count <= bytes - at;
    }
    /// Called after this rank has written data that others may wait for. True if one of them may
    /// sleep.
    [[nodiscard, gnu::always_inline]] inline bool one_sleeps() const { return bells->any(fence); }

    /// The scope in which a rank accesses its peers' memory; false after a fault. An abort waits
    /// for its end.
    [[nodiscard]] bool begin_touching() const {
        fence.store_often(*touching, std::uint32_t{1});
        if (fault->load(std::memory_order_seq_cst) == 0) return true;
        end_touching();
        return false;
    }
    void end_touching() const { touching->store(0, std::memory_order_release); }
};

} // namespace detail
UNISONO_NAMESPACE_END
