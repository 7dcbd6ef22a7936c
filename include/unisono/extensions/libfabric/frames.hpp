#pragma once

/// \file
/// The frames before messages over libfabric, and the card by which ranks reach one another.

#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/extensions/libfabric/device.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Precedes each message, or stands alone. All machines of a world have the same byte order.
struct alignas(16) FabricFrame {
    enum Kind : std::uint32_t {
        message,     ///< the payload follows
        request,     ///< message `number` waits
        ready,       ///< the sender may send `number` under the tag `landing`
        goodbye,     ///< the last frame, except answers
        goodbye_seen ///< confirms the goodbye and all frames before it
    };

    std::uint64_t key = 0; ///< of the world: frames without it are dropped
    std::int32_t from = -1;
    Kind kind = message;
    std::uint64_t number = 0;
    std::uint64_t landing = 0;
    Envelope envelope = {};
};
static_assert(std::is_trivially_copyable_v<FabricFrame> && sizeof(FabricFrame) == 80);

/// libfabric tags: frames use 0, large messages set the highest bit.
constexpr std::uint64_t fabric_frame_tag = 0;
constexpr std::uint64_t fabric_bulk_bit = std::uint64_t{1} << 63;

/// The world's key as a number.
inline std::uint64_t fabric_key(const JobToken& token) {
    std::uint64_t halves[2];
    static_assert(sizeof halves == JobToken::bytes);
    std::memcpy(halves, token.value().data(), sizeof halves);
    return halves[0] ^ halves[1];
}

/// The largest eager message per provider: as measured (docs/libfabric.md), else 16 KiB.
inline std::size_t eager_bytes_of(std::string_view provider) {
    if (provider == "net" || provider == "tcp") return std::size_t{256} << 10;
    if (provider == "tcp;ofi_rxm") return (std::size_t{16} << 10) - 256; // its own buffers have 16 KiB
    if (provider == "shm") return std::size_t{8} << 10;
    return std::size_t{16} << 10;
}

/// A rank's address and provider, as bytes in a text.
struct FabricCard {
    std::uint32_t eager_bytes = 0;
    std::string provider = {};
    std::vector<std::byte> address = {};

    [[nodiscard]] std::string text() const {
        std::string all(reinterpret_cast<const char*>(&eager_bytes), sizeof eager_bytes);
        all += static_cast<char>(provider.size());
        all += provider;
        all.append(reinterpret_cast<const char*>(address.data()), address.size());
        return all;
    }
    /// Reads a card; empty if the text is none.
    static FabricCard read(std::string_view text) {
        FabricCard card;
        constexpr std::size_t fixed = sizeof card.eager_bytes;
        if (text.size() <= fixed) return card;
        const std::size_t length = static_cast<unsigned char>(text[fixed]);
        const std::size_t begin = fixed + 1;
        if (text.size() < begin + length) return card;
        std::memcpy(&card.eager_bytes, text.data(), fixed);
        card.provider = text.substr(begin, length);
        const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
        card.address.assign(bytes + begin + length, bytes + text.size());
        return card;
    }
};

inline FabricCard card_of(const FabricDevice& device, const LibfabricOptions& options) {
    const std::size_t eager = options.eager_bytes != 0 ? options.eager_bytes : eager_bytes_of(device.provider());
    return {.eager_bytes = static_cast<std::uint32_t>(std::min<std::size_t>(eager, std::size_t{1} << 30)),
            .provider = device.provider(),
            .address = device.address()};
}

/// Memory that libfabric may use.
struct FabricMemory {
    FabricMemory(FabricDevice& device, std::size_t size) : FabricMemory(device, made(size), size) {}
    /// Another owner's memory, kept alive.
    FabricMemory(FabricDevice& device, std::shared_ptr<std::byte> memory, std::size_t size)
        : data(std::move(memory)), bytes(size), region(device.register_memory(data.get(), size)) {}
    [[nodiscard]] bool holds(const std::byte* begin, std::size_t count) const {
        const std::size_t at = reinterpret_cast<std::uintptr_t>(begin) - reinterpret_cast<std::uintptr_t>(data.get());
        return at < bytes && count <= bytes - at;
    }

    std::shared_ptr<std::byte> data;
    std::size_t bytes;
    FabricRegion region; ///< destroyed before the memory

private:
    static std::shared_ptr<std::byte> made(std::size_t size) {
        constexpr std::align_val_t line{64};
        return {static_cast<std::byte*>(::operator new(size, line)),
                [](std::byte* memory) { ::operator delete(memory, line); }};
    }
};

/// A buffer for a frame and the payload after it.
struct FabricRoom : FabricOperation {
    FabricRoom(Kind what, FabricDevice& device, std::size_t bytes) : FabricOperation(what), memory(device, bytes) {}

    FabricMemory memory;
    int peer = -1;
    bool straight = false; ///< the payload is sent from the program's memory, which is free when the send completes
    Token token = 0;       ///< of that send
};

/// Records that do not move while libfabric or a peer knows their `number`. A number is not reused
/// soon.
template <class T>
class FabricRecords {
public:
    T& take() {
        if (free_.empty()) {
            free_.push_back(static_cast<std::uint32_t>(records_.size()));
            records_.push_back(std::make_unique<T>());
        }
        T& record = *records_[free_.back()];
        record.number = (std::uint64_t{uses_++ & 0x7fffffffu} << 32) | free_.back();
        free_.pop_back();
        return record;
    }
    /// The record with this number; nullptr if there is none now.
    [[nodiscard]] T* find(std::uint64_t number) {
        const auto at = static_cast<std::uint32_t>(number);
        return at < records_.size() && records_[at]->number == number ? records_[at].get() : nullptr;
    }
    void release(T& record) {
        free_.push_back(static_cast<std::uint32_t>(record.number));
        record.number = none;
    }
    [[nodiscard]] bool empty() const { return free_.size() == records_.size(); }

    static constexpr std::uint64_t none = ~std::uint64_t{0};

private:
    std::vector<std::unique_ptr<T>> records_;
    std::vector<std::uint32_t> free_;
    std::uint32_t uses_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
