#pragma once

/// \file
/// The first bytes on a connection: who comes, and that it belongs to this world. Strangers are let go without a word.

#include "unisono/launch/descriptor.hpp"
#include "unisono/launch/token.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <sys/socket.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct TcpHello {
    static constexpr std::array<char, 8> expected = {'u', 'n', 'i', 's', 'o', 'n', 'o', '1'};

    std::array<char, 8> magic = expected;
    std::array<std::uint8_t, JobToken::bytes> key = {};
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t world = 0;
    std::uint32_t order = 0x01020304; ///< as this host writes it
};
static_assert(sizeof(TcpHello) == 40);

/// Somebody who has connected and may still be anybody.
class TcpVisitor {
public:
    TcpVisitor(FileDescriptor socket, nanoseconds since, std::uint64_t source)
        : socket_(std::move(socket)), since_(since), source_(source) {}

    enum class Answer : std::uint8_t { waits, stranger, rank };

    /// Reads on; `rank`: it is that of `from()`.
    Answer look(int me, int world, const JobToken& key) {
        const ssize_t got = ::recv(socket_.get(), bytes_.data() + have_, bytes_.size() - have_, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return Answer::waits;
        if (got <= 0) return Answer::stranger;
        have_ += static_cast<std::size_t>(got);
        TcpHello hello;
        if (std::memcmp(bytes_.data(), TcpHello::expected.data(), std::min(have_, TcpHello::expected.size())) != 0)
            return Answer::stranger;
        if (have_ < bytes_.size()) return Answer::waits;
        const std::uint32_t order = hello.order;
        std::memcpy(&hello, bytes_.data(), sizeof hello);
        const bool good =
            JobToken(hello.key) == key && hello.order == order && hello.to == static_cast<std::uint32_t>(me) &&
            hello.world == static_cast<std::uint32_t>(world) && hello.from < hello.world && hello.from != hello.to;
        from_ = static_cast<int>(hello.from);
        return good ? Answer::rank : Answer::stranger;
    }
    [[nodiscard]] int from() const { return from_; }
    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] nanoseconds since() const { return since_; }
    [[nodiscard]] std::uint64_t source() const { return source_; } ///< the host that it comes from
    [[nodiscard]] FileDescriptor take() { return std::move(socket_); }

private:
    FileDescriptor socket_;
    nanoseconds since_;
    std::uint64_t source_;
    std::array<std::byte, sizeof(TcpHello)> bytes_ = {};
    std::size_t have_ = 0;
    int from_ = -1;
};

} // namespace detail
UNISONO_NAMESPACE_END
