#pragma once

/// \file
/// One connection between two ranks. Frames are sent from the program's memory in place, and
/// received through a buffer or directly into memory that the receiver chose.

#include "unisono/core/descriptor.hpp"
#include "unisono/extensions/network/frame_wire.hpp"
#include "unisono/extensions/tcp/frames.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class TcpLink {
public:
    enum class State : std::uint8_t {
        unknown,    ///< the peer has no address yet
        connecting, ///< by this rank
        greeting,   ///< connected; the peer has not answered yet
        awaited,    ///< the peer's own connection is about to arrive
        open,
        ended, ///< with a goodbye, or without
    };

    /// The reason for the end of a connection on which another process than the peer answers.
    static constexpr const char* no_key = "the process that answered there does not have this world's key";
    static constexpr std::size_t inside_bytes = 16384; ///< messages up to this size are assembled in the buffer

    /// A connection to the peer. `number`: its number among those to the peer, which share their
    /// stripes.
    explicit TcpLink(int peer, int number = 0, std::shared_ptr<TcpStripes> stripes = std::make_shared<TcpStripes>(1))
        : peer_(peer), number_(static_cast<std::size_t>(number)), stripes_(std::move(stripes)) {
        queue_.reserve(64);
    }
    TcpLink(const TcpLink&) = delete;
    TcpLink& operator=(const TcpLink&) = delete;
    ~TcpLink() { ::operator delete(buffer_, line); }

    [[nodiscard]] int peer() const { return peer_; }
    [[nodiscard]] int number() const { return static_cast<int>(number_); }
    [[nodiscard]] const std::shared_ptr<TcpStripes>& stripes() const { return stripes_; }
    [[nodiscard]] int fd() const { return socket_.get(); }
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool is_used() const { return true; } ///< every existing one is
    [[nodiscard]] bool is_open() const { return state_ == State::open; }
    [[nodiscard]] bool is_unsettled() const { return state_ != State::open && state_ != State::ended; }
    [[nodiscard]] bool is_sending() const { return head_ < queue_.size(); }
    [[nodiscard]] bool is_receiving() const { return arriving_ || stripes_->arrive(); }
    /// True if it lacks memory for arriving bytes until other connections have received those
    /// before.
    [[nodiscard]] bool is_stalled() const { return arriving_ && arrival().limit <= at_; }
    [[nodiscard]] bool may_bring() const { return is_open() && !is_stalled(); }
    [[nodiscard]] bool said_goodbye() const { return goodbye_; }
    [[nodiscard]] bool lost() const { return state_ == State::ended && !goodbye_; }
    [[nodiscard]] const std::string& why() const { return why_; } ///< why it is lost
    /// True if bytes were sent or received since the last call.
    [[nodiscard]] bool take_moved() { return std::exchange(moved_, false); }
    [[nodiscard]] bool may_send() const { return state_ == State::open && !broken_pipe_; }

    void become(State state, FileDescriptor socket = {}) {
        state_ = state;
        socket_ = std::move(socket);
        if (socket_.valid() && buffer_ == nullptr) buffer_ = static_cast<std::byte*>(::operator new(capacity(), line));
        begin_ = end_ = 0;
    }
    /// Notes that this rank has greeted the peer, whose answer is expected.
    void greeted(std::unique_ptr<TcpCall> call) {
        call_ = std::move(call);
        state_ = State::greeting;
    }
    /// Reads the answer. `accepted`: the connection is open.
    TcpCall::Answer hear_answer(const JobToken& key) {
        const TcpCall::Answer answer = call_->look(socket_.get(), key);
        if (answer == TcpCall::Answer::waits) return answer;
        const int failed = errno;
        call_.reset();
        errno = failed;
        if (answer == TcpCall::Answer::accepted) state_ = State::open;
        return answer;
    }
    void end(const std::string& why) {
        why_ = why;
        state_ = State::ended;
        socket_.close();
        arriving_ = false;
    }
    void forget() {
        queue_.clear();
        head_ = 0;
        arriving_ = false;
        stripes_->forget();
    }

    /// Sends a message. True if the kernel has taken all of it.
    bool send(const Envelope& envelope, const std::byte* data, Token token) {
        return send({.header = {.envelope = envelope}, .data = data, .bytes = envelope.bytes, .token = token});
    }
    /// As `send`, for this connection's stripe of the next striped message.
    bool send_stripe(const Envelope& envelope, const std::byte* data) {
        const auto bytes = static_cast<std::size_t>(envelope.bytes), room = TcpHeader::padded(bytes);
        const std::size_t from = stripes_->begin_of(number_, room);
        return send({.header = {.kind = TcpFrame::stripe, .envelope = envelope},
                     .data = data + from,
                     .bytes = std::min(bytes, stripes_->begin_of(number_ + 1, room)) - from,
                     .token = stripes_->next()});
    }
    void send_goodbye() {
        Outgoing last;
        last.header.kind = TcpFrame::goodbye;
        queue_.push_back(last);
        struct Ignore {
            void sent(Token) {}
        } ignore;
        flush(ignore);
    }

    /// Sends queued messages, as many as the kernel takes, several in one call.
    template <class Handler>
    void flush(Handler& handler) {
        while (is_sending() && may_send()) {
            iovec parts[most_together * parts_each];
            int count = 0;
            std::size_t bytes = 0;
            for (std::size_t i = head_; i < queue_.size() && i < head_ + most_together; ++i) {
                count += put(queue_[i], parts + count);
                bytes += queue_[i].total() - queue_[i].done;
            }
            const std::size_t wrote = write(parts, count);
            for (std::size_t left = wrote; left != 0;) {
                Outgoing& one = queue_[head_];
                const std::size_t part = std::min(left, one.total() - one.done);
                one.done += part;
                left -= part;
                if (one.done != one.total()) break;
                ++head_;
                Token token = one.token;
                if (one.header.kind == TcpFrame::message ||
                    (one.header.kind == TcpFrame::stripe && stripes_->is_out(one.token, token)))
                    handler.sent(token);
            }
            if (wrote != bytes) break;
        }
        forget_sent();
    }

    /// Reads what has arrived on an open connection.
    template <class Handler>
    void receive(Handler& handler) {
        for (int round = 0; round < most_rounds && socket_.valid() && !is_stalled(); ++round) {
            const std::size_t rest = arriving_ ? std::min(stop_, arrival().limit) - at_ : 0;
            // Of a large message only the header, since its payload is received into the handler's
            // memory.
            const bool header_first =
                end_ < sizeof(TcpHeader) && (number_ != 0 || handler.awaited_bytes(peer_) > inside_bytes);
            const std::size_t behind = arriving_ && at_ + rest != stop_ ? 0
                                       : header_first                   ? sizeof(TcpHeader) - end_
                                                                        : capacity() - end_;
            const ssize_t got = read(arriving_ ? handler.memory(arrival().number) : nullptr, rest, behind);
            if (got <= 0) {
                if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
                return end(got == 0 ? goodbye_ ? "" : "it ended without a goodbye" : errno_text(errno));
            }
            moved_ = true;
            const auto bytes = static_cast<std::size_t>(got);
            const bool all = bytes < rest + behind;
            end_ += bytes - std::min(bytes, rest);
            if (arriving_ && !landed(handler, std::min(bytes, rest))) return;
            parse(handler);
            if (all) return;
        }
    }

private:
    static constexpr std::align_val_t line{64};
    /// The size of the buffer: only the first connection carries small messages.
    [[nodiscard]] std::size_t capacity() const { return number_ == 0 ? 65536 : sizeof(TcpHeader); }
    static constexpr std::size_t most_bytes = std::size_t{1} << 47;
    static constexpr std::size_t most_together = 8;
    static constexpr std::size_t most_at_once = 65160;  ///< 45 Ethernet segments, which leave as one burst
    static constexpr std::size_t parts_each = 3;        ///< header, bytes, padding
    static constexpr int most_rounds = 4;               ///< so that sending is not neglected
    static constexpr std::size_t together_bytes = 1024; ///< messages up to this size are assembled before they are sent

    struct Outgoing {
        TcpHeader header;
        const std::byte* data = nullptr;
        std::size_t bytes = 0;
        Token token = 0;      ///< for a stripe: the number of its message
        std::size_t done = 0; ///< bytes that the kernel has taken
        [[nodiscard]] std::size_t total() const { return sizeof header + TcpHeader::padded(bytes); }
    };

    bool send(Outgoing one) {
        if (!is_sending() && may_send()) {
            one.done = one.total() <= together_bytes ? write_together(one) : write_parts(one);
            if (one.done == one.total()) return true;
        }
        queue_.push_back(one);
        return false;
    }

    /// The rest of a message, as parts for a system call.
    static int put(const Outgoing& one, iovec* parts) {
        static constexpr std::byte zeros[TcpHeader::alignment] = {};
        const std::size_t bytes = one.bytes;
        const iovec all[parts_each] = {
            {const_cast<TcpHeader*>(&one.header), sizeof one.header},
            {const_cast<std::byte*>(one.data), bytes},
            {const_cast<std::byte*>(zeros), TcpHeader::padded(bytes) - bytes},
        };
        int count = 0;
        std::size_t skip = one.done;
        for (const iovec& part : all) {
            const std::size_t skipped = std::min(skip, part.iov_len);
            skip -= skipped;
            if (skipped == part.iov_len) continue;
            parts[count++] = {static_cast<std::byte*>(part.iov_base) + skipped, part.iov_len - skipped};
        }
        return count;
    }

    /// Assembles and sends a small message of which nothing was sent yet.
    std::size_t write_together(const Outgoing& one) {
        alignas(TcpHeader) std::byte all[together_bytes];
        const std::size_t bytes = one.bytes;
        std::memcpy(all, &one.header, sizeof one.header);
        if (bytes != 0) std::memcpy(all + sizeof one.header, one.data, bytes);
        std::memset(all + sizeof one.header + bytes, 0, one.total() - sizeof one.header - bytes);
        return wrote([&] { return ::send(socket_.get(), all, one.total(), MSG_DONTWAIT | MSG_NOSIGNAL); });
    }
    std::size_t write_parts(const Outgoing& one) {
        iovec parts[parts_each];
        return write(parts, put(one, parts));
    }

    /// Writes in calls of `most_at_once` bytes: a call holds the connection's lock, and the kernel
    /// processes no acknowledgement meanwhile.
    std::size_t write(iovec* parts, int count) {
        std::size_t all = 0;
        for (;;) {
            int some = 0;
            std::size_t bytes = 0;
            while (some < count && bytes < most_at_once) bytes += parts[some++].iov_len;
            iovec& last = parts[some - 1];
            const std::size_t over = bytes > most_at_once ? bytes - most_at_once : 0; // of the last part
            last.iov_len -= over;
            msghdr message{};
            message.msg_iov = parts;
            message.msg_iovlen = static_cast<std::size_t>(some);
            const std::size_t now =
                wrote([&] { return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
            all += now;
            if (now != bytes - over || (some == count && over == 0)) return all;
            if (over != 0) last = {static_cast<std::byte*>(last.iov_base) + last.iov_len, over}, --some;
            parts += some;
            count -= some;
        }
    }
    template <class Call>
    std::size_t wrote(const Call& call) {
        for (;;) {
            const ssize_t bytes = call();
            moved_ = moved_ || bytes > 0;
            if (bytes >= 0) return static_cast<std::size_t>(bytes);
            if (errno == EINTR) continue;
            if (errno != EAGAIN) broken_pipe_ = true; // earlier bytes are still to be read
            return 0;
        }
    }

    /// Reads the rest of the arriving message, and up to `behind` further bytes into the buffer.
    ssize_t read(std::byte* memory, std::size_t rest, std::size_t behind) {
        if (!arriving_) return ::recv(socket_.get(), buffer_ + end_, behind, MSG_DONTWAIT);
        iovec parts[2] = {{memory + at_, rest}, {buffer_ + end_, behind}};
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = 2;
        return ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    }

    template <class Handler>
    void parse(Handler& handler) {
        while (end_ - begin_ >= sizeof(TcpHeader)) {
            TcpHeader header;
            std::memcpy(&header, buffer_ + begin_, sizeof header);
            if (header.mark != TcpHeader::expected_mark || header.envelope.bytes > most_bytes)
                return end("garbage came in place of a message");
            if (header.kind == TcpFrame::goodbye) {
                begin_ += sizeof header;
                goodbye_ = true;
                continue;
            }
            if (header.kind != TcpFrame::message && header.kind != TcpFrame::stripe)
                return end("garbage came in place of a message");
            const std::size_t room = TcpHeader::padded(header.envelope.bytes);
            const std::size_t here = end_ - begin_ - sizeof header;
            if (header.kind == TcpFrame::message && number_ == 0) {
                if (room <= here) {
                    const std::byte* const data = buffer_ + begin_ + sizeof header;
                    begin_ += sizeof header + room;
                    handler.message(peer_, header.envelope, data);
                    continue;
                }
                if (room <= inside_bytes) break;
            }
            if (!begin(handler, header, room)) return;
            const std::size_t part = std::min(here, stop_ - at_);
            if (part != 0) std::memcpy(handler.memory(arrival().number) + at_, buffer_ + begin_ + sizeof header, part);
            begin_ += sizeof header + part;
            if (!landed(handler, part)) return;
        }
        if (begin_ != 0 && begin_ != end_) std::memmove(buffer_, buffer_ + begin_, end_ - begin_); // stays aligned
        end_ -= begin_;
        begin_ = 0;
    }

    /// Begins a message, or a stripe of one, in the handler's memory; false: the connection has
    /// ended.
    template <class Handler>
    bool begin(Handler& handler, const TcpHeader& header, std::size_t room) {
        striped_ = header.kind == TcpFrame::stripe;
        at_ = striped_ ? stripes_->begin_of(number_, room) : 0;
        stop_ = striped_ ? stripes_->begin_of(number_ + 1, room) : room;
        const TcpArrival* const begun = striped_ ? stripes_->find(stripe_) : nullptr;
        if (at_ == stop_ || (!striped_ && number_ != 0) || (begun != nullptr && begun->room != room)) {
            end("garbage came in place of a message");
            return false;
        }
        if (begun == nullptr) {
            TcpArrival made{.number = handler.begin(peer_, header.envelope, room), .room = room};
            made.limit = std::min(room, handler.capacity(made.number));
            if (striped_) stripes_->add(made);
            else own_ = made;
        }
        arriving_ = handler.memory(arrival().number) != nullptr;
        if (!arriving_) end_for_want_of_room(room);
        return arriving_;
    }
    [[nodiscard]] TcpArrival& arrival() { return striped_ ? striped_arrival() : own_; }
    [[nodiscard]] const TcpArrival& arrival() const { return striped_ ? striped_arrival() : own_; }
    /// The stripes hold it from its first header until its last byte.
    [[nodiscard]] TcpArrival& striped_arrival() const {
        TcpArrival* found = stripes_->find(stripe_);
        if (found == nullptr) __builtin_unreachable();
        return *found;
    }
    /// Notes that `bytes` further bytes have arrived; false: there is no memory for the following
    /// ones.
    template <class Handler>
    bool landed(Handler& handler, std::size_t bytes) {
        TcpArrival& into = arrival();
        at_ += bytes;
        into.have += bytes;
        arriving_ = at_ != stop_;
        if (striped_ && !arriving_) ++stripe_;
        if (into.have == into.room) {
            const std::uint32_t number = into.number;
            if (striped_) stripes_->complete_first();
            handler.complete(number);
        } else if (into.have == into.limit) {
            if (handler.grow(into.number, into.have, into.room) == nullptr) {
                end_for_want_of_room(into.room);
                return false;
            }
            into.limit = std::min(into.room, handler.capacity(into.number));
        }
        return true;
    }

    void end_for_want_of_room(std::size_t bytes) {
        end(concat({"there is no room for a message of ", bytes, " bytes, which has begun"}));
    }

    /// Removes sent messages once they are most of the queue, since a queue may never be empty.
    void forget_sent() {
        const std::size_t left = queue_.size() - head_;
        if (left != 0 && (head_ < 64 || head_ < left)) return;
        for (std::size_t i = 0; i < left; ++i) queue_[i] = queue_[head_ + i];
        queue_.resize(left);
        head_ = 0;
    }

    int peer_;
    std::size_t number_;
    std::shared_ptr<TcpStripes> stripes_;
    std::unique_ptr<TcpCall> call_; ///< the greeting whose answer has not come
    State state_ = State::unknown;
    bool goodbye_ = false;
    bool broken_pipe_ = false;
    bool moved_ = false;
    bool arriving_ = false; ///< a message is arriving in the handler's memory
    FileDescriptor socket_;
    std::string why_;
    List<Outgoing> queue_;
    std::size_t head_ = 0; ///< of the queue: all messages before it are sent
    std::byte* buffer_ = nullptr;
    std::size_t begin_ = 0; ///< of the received bytes that are not processed yet
    std::size_t end_ = 0;
    TcpArrival own_;         ///< the arriving message, if it is not striped
    bool striped_ = false;   ///< what is arriving is a stripe
    std::size_t stripe_ = 0; ///< the number of the striped message whose bytes this connection receives next
    std::size_t at_ = 0;     ///< the position of the next byte in the message
    std::size_t stop_ = 0;   ///< the end of this connection's stripe in it
};

} // namespace detail
UNISONO_NAMESPACE_END
