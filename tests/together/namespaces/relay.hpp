// A slow, lossy cable for kernels without one (netem): frames between interfaces of several
// namespaces are delayed, sent one after the other, and sometimes lost, as a seed decides.
#pragma once

#include <unisono/core/time.hpp>

#include <cstdint>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <random>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace test {

struct RelayOptions {
    std::int64_t delay_ns = 0;
    double loss = 0;
    std::int64_t bits_per_second = 0; ///< per sending host; 0: no limit
    std::uint32_t seed = 1;
};

/// A process with an interface eth0 in each namespace. It repeats each frame on all other
/// interfaces. It ends with its owner, and the interfaces end with it.
class Relay {
public:
    Relay(const std::vector<int>& spaces, const RelayOptions& options) {
        int ready[2];
        if (::pipe2(ready, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        const int parent = ::getpid();
        process_ = ::fork();
        if (process_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(1);
            std::vector<Port> ports(spaces.size());
            char good = 'y';
            for (std::size_t i = 0; i < spaces.size(); ++i) {
                if (!open(ports[i], spaces[i])) good = 'n';
            }
            static_cast<void>(::write(ready[1], &good, 1) + 0);
            ::close(ready[1]);
            if (good == 'y') repeat(ports, options);
            ::_exit(1);
        }
        ::close(ready[1]);
        char good = 'n';
        static_cast<void>(::read(ready[0], &good, 1) + 0);
        ::close(ready[0]);
        if (good != 'y') {
            end();
            throw std::runtime_error("no tap interface (/dev/net/tun)");
        }
    }
    Relay(const Relay&) = delete;
    Relay& operator=(const Relay&) = delete;
    ~Relay() { end(); }

    /// Whether this machine supports a relay.
    static bool possible() { return ::access("/dev/net/tun", R_OK | W_OK) == 0; }

private:
    /// Frames per host; more are lost, as in a router.
    static constexpr std::size_t most_waiting = 1000;

    struct Frame {
        std::int64_t due = 0;
        std::vector<char> bytes;
    };
    struct Port {
        int file = -1;
        std::int64_t line_free = 0;
        std::deque<Frame> waiting; ///< of this host, in order of time
    };

    static bool open(Port& port, int space) {
        if (::setns(space, CLONE_NEWNET) != 0) return false;
        port.file = ::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        ifreq request{};
        std::strcpy(request.ifr_name, "eth0");
        request.ifr_flags = IFF_TAP | IFF_NO_PI;
        return port.file >= 0 && ::ioctl(port.file, TUNSETIFF, &request) == 0;
    }

    [[noreturn]] static void repeat(std::vector<Port>& ports, const RelayOptions& options) {
        std::minstd_rand random(options.seed);
        const auto lost_below = static_cast<std::uint32_t>(options.loss * static_cast<double>(std::minstd_rand::max()));
        std::vector<char> room(65536);
        for (;;) {
            std::int64_t now = unisono::steady_now();
            std::int64_t next = now + 100'000'000;
            for (Port& from : ports) {
                for (; !from.waiting.empty() && from.waiting.front().due <= now; from.waiting.pop_front()) {
                    const Frame& frame = from.waiting.front();
                    for (const Port& to : ports) {
                        if (&to != &from)
                            static_cast<void>(::write(to.file, frame.bytes.data(), frame.bytes.size()) + 0);
                    }
                }
                if (!from.waiting.empty() && from.waiting.front().due < next) next = from.waiting.front().due;
            }
            std::vector<pollfd> polled;
            for (const Port& port : ports) polled.push_back({port.file, POLLIN, 0});
            const timespec wait{.tv_sec = 0, .tv_nsec = next > now ? next - now : 0};
            ::ppoll(polled.data(), polled.size(), &wait, nullptr);
            now = unisono::steady_now();
            for (Port& from : ports) {
                for (int frames = 0; frames < 64; ++frames) {
                    const ssize_t got = ::read(from.file, room.data(), room.size());
                    if (got <= 0) break;
                    if (random() < lost_below || from.waiting.size() >= most_waiting) continue;
                    if (from.line_free < now) from.line_free = now;
                    if (options.bits_per_second != 0)
                        from.line_free += got * 8 * 1'000'000'000 / options.bits_per_second;
                    from.waiting.push_back({from.line_free + options.delay_ns, {room.data(), room.data() + got}});
                }
            }
        }
    }

    void end() {
        ::kill(process_, SIGKILL);
        ::waitpid(process_, nullptr, 0);
    }

    int process_ = -1;
};

} // namespace test
