#pragma once

/// \file
/// Bounce buffers for messages until the group takes them. They are reused, so that a training step
/// does not allocate.

#include "unisono/core/list.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <new>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Blocks in powers of two, aligned to cache lines. Keeps at most `most_kept` unused bytes.
class BouncePool {
public:
    static constexpr std::size_t least = 2048;
    static constexpr std::size_t most_kept = std::size_t{256} << 20;

    struct Block {
        std::byte* data = nullptr;
        std::size_t capacity = 0;
    };

    BouncePool() = default;
    BouncePool(BouncePool&& other) noexcept : free_(std::move(other.free_)), kept_(std::exchange(other.kept_, 0)) {
        other.free_.clear();
    }
    BouncePool& operator=(BouncePool&&) = delete;
    ~BouncePool() {
        for (const Block& block : free_) destroy(block);
    }

    /// The fitting block that was returned last: it is in cache.
    [[nodiscard]] Block take(std::size_t bytes) {
        const std::size_t wanted = std::bit_ceil(std::max(bytes, least));
        for (std::size_t i = free_.size(); i-- > 0;) {
            if (free_[i].capacity != wanted) continue;
            const Block found = free_[i];
            free_.erase(i);
            kept_ -= found.capacity;
            return found;
        }
        return make(wanted);
    }

    void give(const Block& block) {
        if (block.capacity > most_kept - kept_) return destroy(block);
        kept_ += block.capacity;
        free_.push_back(block);
    }

    /// Allocates `count` small blocks before they are needed.
    void provide(std::size_t count) {
        free_.reserve(free_.size() + 2 * count);
        for (std::size_t i = 0; i < count; ++i) give(make(least));
    }

private:
    static constexpr std::align_val_t line{64};
    static Block make(std::size_t bytes) { return {static_cast<std::byte*>(::operator new(bytes, line)), bytes}; }
    static void destroy(const Block& block) { ::operator delete(block.data, line); }

    List<Block> free_;
    std::size_t kept_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
