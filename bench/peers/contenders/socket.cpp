// The floor of networks: all_reduce and send with the least that sockets require, written for this
// purpose. There are no headers, no matching and no deadlines. Every rank spins, or yields if ranks
// outnumber cores.

#include "contenders/contender.hpp"

#include <unisono/launch.hpp>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <poll.h>
#include <sys/socket.h>

namespace {

/// A connection to each other rank. Files in `place` say at which address each rank listens.
class Sockets {
public:
    Sockets(const std::string& place, int rank, int ranks) : to_(static_cast<std::size_t>(ranks), -1) {
        namespace net = unisono::detail;
        const bool loopback = bench::host_of(rank, ranks).space.empty();
        const net::Listener listener = net::listen_at(loopback, 0);
        const std::string mine = file(place, rank);
        std::ofstream(mine + ".new") << listener.port << '\n';
        std::rename((mine + ".new").c_str(), mine.c_str());
        const unisono::nanoseconds until = unisono::steady_now() + 30'000'000'000;
        for (int peer = 0; peer < rank; ++peer) {
            std::uint16_t port = 0;
            while (!(std::ifstream(file(place, peer)) >> port)) {
                if (unisono::steady_now() > until) bench::give_up("rank " + std::to_string(peer) + " does not come");
                usleep(1000);
            }
            std::string why;
            const auto found = net::resolve(bench::host_of(peer, ranks).address, port, why);
            if (found.empty()) bench::give_up("no address: " + why);
            const auto socket = net::connect_to(found[0], until, why);
            if (!socket.valid()) bench::give_up("rank " + std::to_string(peer) + " is not reached: " + why);
            keep(peer, ::dup(socket.get()));
            const std::int32_t me = rank;
            if (::send(of(peer), &me, sizeof me, MSG_NOSIGNAL) != sizeof me) bench::give_up("a connection ended");
        }
        for (int more = rank + 1; more < ranks; ++more) {
            pollfd wait{.fd = listener.socket.get(), .events = POLLIN, .revents = 0};
            if (::poll(&wait, 1, 30'000) != 1) bench::give_up("no rank connects");
            const int socket = ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC);
            std::int32_t peer = -1;
            if (::recv(socket, &peer, sizeof peer, MSG_WAITALL) != sizeof peer || peer <= rank || peer >= ranks)
                bench::give_up("a stranger connected");
            keep(peer, socket);
        }
    }
    Sockets(const Sockets&) = delete;
    Sockets& operator=(const Sockets&) = delete;
    ~Sockets() {
        for (const int each : to_) ::close(each);
    }
    [[nodiscard]] int of(int peer) const { return to_[static_cast<std::size_t>(peer)]; }

private:
    static std::string file(const std::string& place, int rank) { return place + "/socket." + std::to_string(rank); }
    void keep(int peer, int socket) {
        ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
        unisono::detail::set_up_connection(socket);
        to_[static_cast<std::size_t>(peer)] = socket;
    }

    std::vector<int> to_;
};

class Floor {
public:
    Floor(const bench::Invitation& invitation, int rank)
        : rank_(rank), ranks_(invitation.ranks), sockets_(invitation.place, rank, invitation.ranks),
          yields_(static_cast<std::size_t>(ranks_) > bench::cores().size()) {}

    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }

    std::vector<std::string> begin(const bench::Work& work) {
        if (work.what == bench::Collective::send) return {"one stream"};
        if (work.what != bench::Collective::all_reduce) bench::give_up("the raw socket has no such collective");
        buffer_.resize(std::max(work.count * static_cast<std::size_t>(ranks_ - 1), ring_floats));
        if (work.in.size_bytes() > most_exchanged) return {"ring"};
        return {"exchange", "ring"};
    }
    static void keep(int, bool) {}
    static void end() {}

    void call(const bench::Work& work, int way, int root) {
        if (work.what == bench::Collective::send) return send(work, root);
        const bool one_round = way == 0 && work.in.size_bytes() <= most_exchanged;
        if (one_round) exchange(work.in);
        else ring(work.in);
    }

private:
    static constexpr std::size_t most_exchanged = 65536;
    static constexpr std::size_t ring_floats = 65536;

    void send(const bench::Work& work, int root) {
        const int next = (root + 1) % ranks_;
        const std::size_t all = work.in.size_bytes();
        for (std::size_t done = 0; rank_ == root && done < all;)
            done += pass(put(next, reinterpret_cast<const char*>(work.in.data()) + done, all - done));
        for (std::size_t done = 0; rank_ == next && done < all;)
            done += pass(get(root, reinterpret_cast<char*>(work.out.data()) + done, all - done));
    }

    /// Sends everything to all ranks, then sums.
    void exchange(std::span<float> data) {
        const std::size_t bytes = data.size_bytes();
        const auto others = static_cast<std::size_t>(ranks_ - 1);
        struct Way {
            int peer = 0;
            std::size_t out = 0, in = 0;
        };
        std::array<Way, 32> ways{};
        for (std::size_t i = 0; i < others; ++i) ways.at(i).peer = (rank_ + 1 + static_cast<int>(i)) % ranks_;
        for (std::size_t left = 2 * bytes * others; left != 0;) {
            std::size_t moved = 0;
            for (std::size_t i = 0; i < others; ++i) {
                Way& way = ways[i];
                auto* const to = reinterpret_cast<char*>(buffer_.data()) + i * bytes;
                if (way.out < bytes) {
                    const auto* const from = reinterpret_cast<const char*>(data.data());
                    const std::size_t some = put(way.peer, from + way.out, bytes - way.out);
                    way.out += some;
                    moved += some;
                }
                if (way.in < bytes) {
                    const std::size_t some = get(way.peer, to + way.in, bytes - way.in);
                    way.in += some;
                    moved += some;
                }
            }
            left -= pass(moved);
        }
        for (std::size_t i = 0; i < others; ++i)
            for (std::size_t at = 0; at < data.size(); ++at) data[at] += buffer_[i * data.size() + at];
    }

    /// One stream to the next rank and one from the previous: the blocks that others sum, then the
    /// sums. Data are passed on as soon as they are summed. An element returns only after it has
    /// been all around, so nothing is overwritten before it is sent.
    void ring(std::span<float> data) {
        const auto p = static_cast<std::size_t>(ranks_);
        const auto me = static_cast<std::size_t>(rank_);
        const std::size_t turns = 2 * (p - 1);
        const auto begin_of = [&](std::size_t block) { return data.size() * block / p; };
        const auto block_at = [&](std::size_t turn, std::size_t first) { return (first + 2 * p - turn % (2 * p)) % p; };
        struct Stream {
            std::size_t turn = 0, at = 0; ///< bytes of this turn's block that are done
        };
        Stream out, in;
        std::size_t pending = 0; ///< bytes that arrived but do not make a whole float
        auto* const bytes = reinterpret_cast<char*>(data.data());
        auto* const from = reinterpret_cast<char*>(buffer_.data());
        const int next = (rank_ + 1) % ranks_, previous = (rank_ + ranks_ - 1) % ranks_;
        while (out.turn < turns || in.turn < turns) {
            std::size_t moved = 0;
            if (out.turn < turns) {
                const std::size_t block = block_at(out.turn, me);
                const std::size_t begin = begin_of(block) * sizeof(float);
                const std::size_t length = begin_of(block + 1) * sizeof(float) - begin;
                // The own block, or what has arrived of this one in the previous turn.
                std::size_t ready = length;
                if (out.turn > in.turn) ready = out.turn == in.turn + 1 ? in.at : 0;
                if (out.at < ready) {
                    const std::size_t some = put(next, bytes + begin + out.at, ready - out.at);
                    out.at += some;
                    moved += some;
                }
                if (out.at == length) out = {out.turn + 1, 0};
            }
            if (in.turn < turns) {
                const std::size_t block = block_at(in.turn, me + p - 1);
                const std::size_t begin = begin_of(block) * sizeof(float);
                const std::size_t length = begin_of(block + 1) * sizeof(float) - begin;
                if (in.turn + 1 < p) {
                    const std::size_t most = std::min(length - in.at - pending, ring_floats * sizeof(float) - pending);
                    const std::size_t some = get(previous, from + pending, most);
                    moved += some;
                    pending += some;
                    const std::size_t whole = pending / sizeof(float);
                    float* const to = data.data() + (begin + in.at) / sizeof(float);
                    for (std::size_t i = 0; i < whole; ++i) to[i] += buffer_[i];
                    in.at += whole * sizeof(float);
                    pending -= whole * sizeof(float);
                    if (whole != 0 && pending != 0) std::memmove(from, from + whole * sizeof(float), pending);
                } else {
                    const std::size_t some = get(previous, bytes + begin + in.at, length - in.at);
                    moved += some;
                    in.at += some;
                }
                if (in.at == length) in = {in.turn + 1, 0};
            }
            pass(moved);
        }
    }

    std::size_t put(int peer, const char* data, std::size_t bytes) const {
        return moved(::send(sockets_.of(peer), data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL), bytes);
    }
    std::size_t get(int peer, char* data, std::size_t bytes) const {
        return moved(::recv(sockets_.of(peer), data, bytes, MSG_DONTWAIT), bytes);
    }
    static std::size_t moved(ssize_t result, std::size_t wanted) {
        if (result > 0 || wanted == 0) return static_cast<std::size_t>(std::max<ssize_t>(result, 0));
        if (result == 0 || (errno != EAGAIN && errno != EINTR)) bench::give_up("a connection ended");
        return 0;
    }
    std::size_t pass(std::size_t moved) const {
        if (moved == 0 && yields_) sched_yield();
        return moved;
    }

    int rank_;
    int ranks_;
    Sockets sockets_;
    bool yields_;
    std::vector<float> buffer_;
};

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    return bench::run_forked(invitation.ranks, [&](int rank) {
        Floor floor(invitation, rank);
        bench::Contender(floor, invitation.place).serve();
    });
}
