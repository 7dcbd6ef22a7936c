// Hosts that are network namespaces of this machine. The cables between them can be cut, delayed,
// limited in bandwidth, and lossy.
//
// The namespaces have no names. They and their contents end with the last process that holds them,
// however it ends. So nothing is left behind, and any number of tests may run at once.
#pragma once

#include "relay.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <utility>
#include <vector>

namespace test {

/// A network namespace.
class NetworkSpace {
public:
    NetworkSpace() {
        int ready[2];
        int release[2];
        if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(release, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
        const int child = ::fork();
        if (child == 0) {
            ::close(release[1]);
            const char made = ::unshare(CLONE_NEWNET) == 0 ? 'y' : 'n';
            char end = 0;
            static_cast<void>(::write(ready[1], &made, 1) + ::read(release[0], &end, 1));
            ::_exit(0);
        }
        char made = 'n';
        ::close(ready[1]);
        static_cast<void>(::read(ready[0], &made, 1) + 0);
        if (made == 'y') file_ = ::open(("/proc/" + std::to_string(child) + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
        for (const int each : {ready[0], release[0], release[1]}) ::close(each);
        ::waitpid(child, nullptr, 0);
        if (file_ < 0) throw std::runtime_error("no network name space of its own (unshare: not permitted here)");
    }
    NetworkSpace(const NetworkSpace&) = delete;
    NetworkSpace& operator=(const NetworkSpace&) = delete;
    ~NetworkSpace() { ::close(file_); }

    [[nodiscard]] int file() const { return file_; }
    /// Its path for other processes, while this one lives.
    [[nodiscard]] std::string path() const {
        return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
    }

    /// Runs `body` there in a new process, and returns its exit status.
    template <class Body>
    int run(Body body) const {
        std::fflush(nullptr);
        const int child = ::fork();
        if (child == 0) ::_exit(::setns(file_, CLONE_NEWNET) == 0 ? body() : 126);
        int status = -1;
        ::waitpid(child, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

    /// Runs a command line there, and returns whether it succeeded. `quiet`: its output is
    /// discarded.
    [[nodiscard]] bool command(const std::string& line, bool quiet = false) const {
        return run([&] {
                   const std::string whole =
                       "PATH=$PATH:/usr/sbin:/sbin; exec " + line + (quiet ? " >/dev/null 2>&1" : " >&2");
                   return ::execl("/bin/sh", "sh", "-c", whole.c_str(), nullptr);
               }) == 0;
    }

private:
    int file_ = -1;
};

/// The effect of a cable on its traffic, in each direction.
struct Cable {
    int delay_ms = 0;
    double loss = 0;
    int megabits = 0; ///< 0: no limit
};
inline constexpr Cable good{};
inline constexpr Cable far{.delay_ms = 10, .loss = 0.01, .megabits = 100};

/// Hosts on one switch, each with an interface eth0.
class Lab {
public:
    /// Why this machine supports no labs; empty if it does.
    static std::string why_not() {
        try {
            const NetworkSpace space;
            if (!space.command("ip -V", true)) return "no iproute2 (the program `ip`)";
            if (!space.command("ip link add a0 type veth peer name b0", true))
                return "no veth pairs (not permitted here, or not in this kernel)";
            if (!space.command("ip link add br0 type bridge", true))
                return "no bridges (not permitted here, or not in this kernel)";
        } catch (const std::exception& failed) {
            return failed.what();
        }
        return {};
    }

    explicit Lab(int hosts, const Cable& cable = good) {
        for (int host = 0; host < hosts; ++host) {
            hosts_.push_back(std::make_unique<NetworkSpace>());
            must(host, "ip link set lo up");
        }
        const bool shaped = cable.delay_ms != 0 || cable.loss != 0;
        if (shaped && !kernel_shapes()) {
            std::vector<int> spaces;
            for (const auto& each : hosts_) spaces.push_back(each->file());
            relay_ = std::make_unique<Relay>(spaces,
                                             RelayOptions{.delay_ns = cable.delay_ms * std::int64_t{1'000'000},
                                                          .loss = cable.loss,
                                                          .bits_per_second = cable.megabits * std::int64_t{1'000'000}});
        } else {
            must(switch_, "ip link add br0 type bridge");
            must(switch_, "ip link set br0 up");
            for (int host = 0; host < hosts; ++host) {
                must(switch_, "ip link add " + plug(host) + " type veth peer name far" + std::to_string(host));
                must(switch_, "ip link set far" + std::to_string(host) + " name eth0 netns " + space(host).path());
                must(switch_, "ip link set " + plug(host) + " master br0 up");
                if (!shaped) continue;
                char line[120];
                std::snprintf(line, sizeof line,
                              "tc qdisc add dev eth0 root netem delay %dms loss %g%% rate %dmbit limit 1000",
                              cable.delay_ms, 100 * cable.loss, cable.megabits);
                must(host, line);
            }
        }
        for (int host = 0; host < hosts; ++host) {
            must(host, "ip addr add " + address(host) + "/24 dev eth0");
            must(host, "ip link set eth0 up");
        }
    }

    [[nodiscard]] int hosts() const { return static_cast<int>(hosts_.size()); }
    [[nodiscard]] static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
    [[nodiscard]] const NetworkSpace& space(int host) const { return *hosts_[static_cast<std::size_t>(host)]; }
    /// Whether the tests' own relay makes delay and loss, instead of the kernel.
    [[nodiscard]] bool has_relay() const { return relay_ != nullptr; }

    /// A command line that runs on a host.
    [[nodiscard]] std::vector<std::string> on(int host, std::vector<std::string> command) const {
        command.insert(command.begin(), {"nsenter", "--net=" + space(host).path(), "--"});
        return command;
    }

    /// Pulls a host's cable, and plugs it in again.
    void cut(int host) const { must(switch_, "ip link set " + plug(host) + " down"); }
    void mend(int host) const { must(switch_, "ip link set " + plug(host) + " up"); }
    /// Another host has this address, too, and its cable is better: it answers by resets.
    void take_over(int address_of, int by) const {
        must(by, "ip addr add " + address(address_of) + "/24 dev eth0");
        for (int host = 0; host < hosts(); ++host)
            if (host != address_of) must(host, "ip neigh flush dev eth0");
    }
    /// Installs a firewall as hosts have it, while connections exist that it does not know: it
    /// accepts what this host begins, and refuses or drops the rest. False: there is no nft.
    [[nodiscard]] bool wall_in(int host, bool silently) const {
        if (!space(host).command("nft list tables", true)) return false;
        must(host, "nft add table ip f");
        must(host, "nft add chain ip f i '{ type filter hook input priority 0 ; policy drop ; }'");
        must(host, "nft add chain ip f o '{ type filter hook output priority 0 ; }'");
        must(host, "nft add rule ip f i iif lo accept");
        must(host, "nft add rule ip f i ct state established,related accept");
        if (!silently) must(host, "nft add rule ip f i ip protocol tcp reject with tcp reset");
        must(host, "nft add rule ip f o ct state new accept");
        return true;
    }
    /// Installs a firewall that refuses connections from other hosts, except to these ports: for
    /// example "29500, 40000-40031". False: there is no nft.
    [[nodiscard]] bool open_only(int host, const std::string& ports) const {
        if (!space(host).command("nft list tables", true)) return false;
        must(host, "nft add table ip f");
        must(host, "nft add chain ip f i '{ type filter hook input priority 0 ; }'");
        must(host, "nft add rule ip f i iif lo accept");
        must(host, "nft add rule ip f i tcp dport '{ " + ports + " }' accept");
        must(host, "nft add rule ip f i tcp flags '& (syn | ack) == syn' reject with tcp reset");
        return true;
    }
    /// Traffic from host `from` to host `to` does not arrive: with an immediate error, or silently.
    void refuse_way(int from, int to) const { must(from, "ip route add unreachable " + address(to) + "/32"); }
    void swallow_way(int from, int to) const {
        must(from, "ip neigh replace " + address(to) + " lladdr 02:00:00:00:00:fe dev eth0 nud permanent");
    }
    /// Two hosts refuse all that comes from each other. False: there is no nft.
    [[nodiscard]] bool refuse_each_other(int one, int other) const {
        if (!space(one).command("nft list tables", true)) return false;
        for (const auto& [host, from] : {std::pair{one, other}, {other, one}}) {
            must(host, "nft add table ip f");
            must(host, "nft add chain ip f i '{ type filter hook input priority 0 ; }'");
            must(host, "nft add rule ip f i tcp flags rst accept");
            must(host, "nft add rule ip f i ip saddr " + address(from) + " ip protocol tcp reject with tcp reset");
        }
        return true;
    }
    /// Limits a cable to this many kilobits per second in each direction, if the kernel supports it
    /// (tbf). Otherwise prints that it cannot, and leaves the cable as it is.
    void slow_down(int host, int kilobits) const {
        static const bool can =
            NetworkSpace().command("tc qdisc add dev lo root tbf rate 1mbit burst 16kb latency 9ms", true);
        if (!can) return static_cast<void>(std::puts("left out: slow cables: no tbf in this kernel"));
        const std::string shape = " root tbf rate " + std::to_string(kilobits) + "kbit burst 16kb latency 400ms";
        must(switch_, "tc qdisc replace dev " + plug(host) + shape);
        must(host, "tc qdisc replace dev eth0" + shape);
    }
    /// Bytes that a host has sent through its cable, including the network's headers.
    [[nodiscard]] std::uint64_t bytes_sent(int host) const {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
        space(host).run([&] {
            char text[4096] = {};
            const int file = ::open("/proc/thread-self/net/dev", O_RDONLY);
            const ssize_t got = ::read(file, text, sizeof text - 1);
            return got > 0 && ::write(ends[1], text, static_cast<std::size_t>(got)) == got ? 0 : 1;
        });
        ::close(ends[1]);
        char text[4096] = {};
        static_cast<void>(::read(ends[0], text, sizeof text - 1) + 0);
        ::close(ends[0]);
        const std::string all = text;
        const std::size_t at = all.find("eth0:");
        unsigned long long counts[9] = {};
        if (at == std::string::npos ||
            std::sscanf(all.c_str() + at + 5, "%llu %llu %llu %llu %llu %llu %llu %llu %llu", counts, counts + 1,
                        counts + 2, counts + 3, counts + 4, counts + 5, counts + 6, counts + 7, counts + 8) != 9)
            throw std::runtime_error("no counters of eth0 in: " + all);
        return counts[8];
    }

private:
    static bool kernel_shapes() {
        static const bool can = NetworkSpace().command("tc qdisc add dev lo root netem delay 1ms", true);
        return can;
    }
    static std::string plug(int host) { return "plug" + std::to_string(host); }
    void must(int host, const std::string& line) const { must(space(host), line); }
    static void must(const NetworkSpace& where, const std::string& line) {
        if (!where.command(line)) throw std::runtime_error("failed: " + line);
    }

    NetworkSpace switch_;
    std::vector<std::unique_ptr<NetworkSpace>> hosts_;
    std::unique_ptr<Relay> relay_;
};

} // namespace test
