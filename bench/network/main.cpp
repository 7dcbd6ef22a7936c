// all_reduce of two ranks over sockets (Tcp, on the loopback) beside one written for the purpose with a raw socket between
// the same two threads: the floor. Both take turns; sums are verified.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/tcp.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using World = un::Group<un::Tcp>;

namespace {

constexpr int ranks = 2;

/// A connection over the loopback, both ends.
struct Sockets {
    int ends[2] = {-1, -1};
    Sockets() {
        const un::detail::Listener listener = un::detail::listen_at(true, 0);
        std::string why;
        auto to = un::detail::connect_to(un::detail::resolve("127.0.0.1", listener.port, why).at(0),
                                         un::steady_now() + 5'000'000'000, why);
        ends[0] = ::dup(to.get());
        un::detail::wait_for(listener.socket.get(), POLLIN, un::never);
        ends[1] = ::accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK);
        un::detail::set_up_connection(ends[1]);
    }
    Sockets(const Sockets&) = delete;
    Sockets& operator=(const Sockets&) = delete;
    ~Sockets() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
};

/// Sums of two ranks, with the least that sockets need. Small: both send all and add. Large: each sums one half, passing on
/// what it has of it while the rest still comes.
class RawAllReduce {
public:
    RawAllReduce(int socket, int me) : socket_(socket), me_(me), buffer_(std::max(buffer_floats, small_floats)) {}

    void run(float* data, std::size_t count) {
        if (count <= small_floats) return small(data, count);
        const std::size_t half = count / 2;
        float* const mine = me_ == 0 ? data : data + half;   // this rank sums it
        float* const theirs = me_ == 0 ? data + half : data; // and is given that
        const std::size_t own = (me_ == 0 ? half : count - half) * sizeof(float);
        const std::size_t other = count * sizeof(float) - own;
        // Out: their half as it is, then mine as far as it is summed. In: mine from them, then their sums.
        std::size_t out = 0, in = 0, summed = 0, pending = 0;
        const std::size_t all = count * sizeof(float);
        auto* const from = reinterpret_cast<char*>(buffer_.data());
        while (out < all || in < all) {
            const std::size_t ready = std::min(all, other + summed);
            if (out < ready) {
                const bool first = out < other;
                const char* const at =
                    first ? reinterpret_cast<char*>(theirs) + out : reinterpret_cast<char*>(mine) + (out - other);
                out += moved(::send(socket_, at, first ? other - out : ready - out, MSG_DONTWAIT | MSG_NOSIGNAL));
            }
            if (in < own) {
                const std::size_t most = std::min(own - in, buffer_floats * sizeof(float) - pending);
                const std::size_t got = moved(::recv(socket_, from + pending, most, MSG_DONTWAIT));
                in += got;
                pending += got;
                const std::size_t whole = pending / sizeof(float);
                float* const to = mine + summed / sizeof(float);
                for (std::size_t i = 0; i < whole; ++i) to[i] += buffer_[i];
                summed += whole * sizeof(float);
                pending -= whole * sizeof(float);
                std::copy_n(from + whole * sizeof(float), pending, from);
            } else if (in < all && out >= other) { // their half may be written once it is out
                in += moved(::recv(socket_, reinterpret_cast<char*>(theirs) + (in - own), all - in, MSG_DONTWAIT));
            }
        }
    }

private:
    static constexpr std::size_t small_floats = 4096;
    static constexpr std::size_t buffer_floats = 65536;

    void small(float* data, std::size_t count) {
        const std::size_t all = count * sizeof(float);
        std::size_t out = 0, in = 0;
        while (out < all || in < all) {
            if (out < all)
                out +=
                    moved(::send(socket_, reinterpret_cast<char*>(data) + out, all - out, MSG_DONTWAIT | MSG_NOSIGNAL));
            if (in < all)
                in += moved(::recv(socket_, reinterpret_cast<char*>(buffer_.data()) + in, all - in, MSG_DONTWAIT));
        }
        for (std::size_t i = 0; i < count; ++i) data[i] += buffer_[i];
    }
    static std::size_t moved(ssize_t result) {
        if (result > 0) return static_cast<std::size_t>(result);
        if (result == 0 || (errno != EAGAIN && errno != EINTR)) std::exit(1);
        return 0;
    }

    int socket_;
    int me_;
    std::vector<float> buffer_;
};

struct Shared {
    bench::Meeting meeting{ranks};
    Sockets sockets;
};
struct Times {
    bench::Series ours{"unisono", {}};
    bench::Series raw{"raw socket", {}};
};

void measure(World& world, Shared& shared, std::size_t count, int rounds, int in_a_row, Times& times) {
    const int me = world.rank();
    bench::Floats data(count, 1 + me);
    const auto values = data.first(count);
    RawAllReduce raw(shared.sockets.ends[me], me);
    const auto turn = [&](std::uint32_t repetition, const char* who, const auto& reduce) {
        double sum = 0;
        for (int i = 0; i < in_a_row; ++i) {
            bench::rewrite(values, me, repetition);
            sum += shared.meeting.time_together(me, reduce);
            bench::check_sum(values, ranks, repetition, who);
        }
        return sum / in_a_row;
    };
    for (int round = -1; round < rounds; ++round) { // the first one is not counted
        const auto repetition = static_cast<std::uint32_t>(round + 1);
        const double ours = turn(repetition, "unisono", [&] { un::all_reduce(world, values); });
        const double floor = turn(repetition + 7, "raw socket", [&] { raw.run(values.data(), count); });
        if (me != 0 || round < 0) continue;
        times.ours.add(ours);
        times.raw.add(floor);
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("network", options);
    report.header({"us, 2 ranks, loopback", "unisono", "spread", "raw socket", "ratio", "paired", "best quarter",
                   "more", "goal"});
    for (std::size_t bytes = 8; bytes <= (std::size_t{64} << 20); bytes *= bytes < 1024 ? 16 : 4) {
        if (bytes == 2048) bytes = 1024;
        if (options.quick && bytes > (std::size_t{1} << 20)) break;
        Shared shared;
        Times times;
        const int rounds = options.quick ? 5 : bytes <= (std::size_t{1} << 20) ? 40 : 15;
        const int in_a_row = options.quick ? 2 : bytes <= 65536 ? 20 : bytes <= (std::size_t{1} << 20) ? 5 : 1;
        un::run<un::Tcp>(ranks,
                         [&](World& world) { measure(world, shared, bytes / sizeof(float), rounds, in_a_row, times); },
                         {.bind_to_cores = true});
        report.compare(bench::in_words(bytes), times.ours, {times.raw},
                       bytes >= (std::size_t{16} << 20) ? 1.0 / 0.85 : 0.0);
    }
}
