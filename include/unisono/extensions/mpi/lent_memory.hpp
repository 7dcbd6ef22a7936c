#pragma once

/// \file
/// Memory that was given out, for libraries that cannot be made to release the memory in which they
/// work: they hold a share of it.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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

} // namespace detail
UNISONO_NAMESPACE_END
