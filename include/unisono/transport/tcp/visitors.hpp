#pragma once

/// \file
/// The connections whose rank is not known yet, and their limits: there is room for a fixed number,
/// of which one source gets at most as much as it leaves to others.
///
/// A new visitor is never dropped in favour of another: it may be a rank about to greet. While all
/// visitors are new, further ones wait in the system's queue. After `grace`, the oldest visitor of
/// the source with the most visitors is dropped for a new one.

#include "unisono/launch/source.hpp"
#include "unisono/transport/tcp/greeting.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class TcpVisitors {
public:
    static constexpr std::size_t most = 256;
    static constexpr nanoseconds grace = 1'000'000'000;     ///< the time in which a visitor is never dropped
    static constexpr nanoseconds may_wait = 10'000'000'000; ///< the longest wait for a greeting

    [[nodiscard]] std::size_t size() const { return all_.size(); }
    [[nodiscard]] bool empty() const { return all_.empty(); }
    [[nodiscard]] const TcpVisitor& operator[](std::size_t i) const { return all_[i]; }
    [[nodiscard]] TcpVisitor& operator[](std::size_t i) { return all_[i]; }

    /// Makes room for another visitor if necessary; false if no visitor may be dropped yet.
    bool make_room(nanoseconds now) {
        if (all_.size() < room()) return true;
        const std::size_t which = first_to_go();
        if (now - all_[which].since() < grace) return false;
        remove(which);
        return true;
    }
    /// Drops a visitor if a rank needs a descriptor. False if there is none.
    bool give_descriptor() {
        if (all_.empty()) return false;
        remove(first_to_go());
        return true;
    }
    void add(FileDescriptor socket, std::uint64_t source, nanoseconds now) {
        all_.emplace_back(std::move(socket), now, source);
    }
    /// Removes a visitor; the last one takes its index.
    void remove(std::size_t which) {
        if (which + 1 != all_.size()) all_[which] = std::move(all_.back());
        all_.pop_back();
    }

private:
    [[nodiscard]] static std::size_t room() { return room_for_strangers(most); }
    /// The oldest visitor of the source with the most. There must be a visitor.
    [[nodiscard]] std::size_t first_to_go() const {
        std::uint64_t sources[64] = {}; // by a hash: sources with equal hashes share a budget
        const auto place = [](std::uint64_t source) { return (source * 0x9e3779b97f4a7c15u) >> 58; };
        for (const TcpVisitor& one : all_) ++sources[place(one.source())];
        std::size_t found = 0;
        for (std::size_t i = 1; i < all_.size(); ++i) {
            const std::uint64_t crowd = sources[place(all_[i].source())], before = sources[place(all_[found].source())];
            if (crowd > before || (crowd == before && all_[i].since() < all_[found].since())) found = i;
        }
        return found;
    }

    std::vector<TcpVisitor> all_;
};

} // namespace detail
UNISONO_NAMESPACE_END
