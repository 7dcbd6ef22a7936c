// Serves a network that is split over ranks. Clients connect to a Unix socket, send images of 64
// floats, and get 10 numbers for each image, in order.
//
//     parallel_serve --socket /tmp/digits --ranks 2 --seconds 60
//
// Ranks are processes. The first rank owns the socket. It runs one thread with poll(), and waits
// for no client.
#include "../numbers.hpp"
#include "../parallel_digits/layers.hpp"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <list>
#include <poll.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace un = unisono;

namespace {

/// Receives clients' images and sends their results. Clients take turns.
class Sockets {
public:
    explicit Sockets(const std::string& path) : path_(path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof address.sun_path)
            throw std::runtime_error("--socket: a path of at most 107 bytes, found " + std::to_string(path.size()));
        std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
        listens_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (listens_ < 0 || ::bind(listens_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::listen(listens_, 64) != 0)
            throw std::runtime_error("cannot listen at '" + path + "': " + std::strerror(errno));
    }
    Sockets(const Sockets&) = delete;
    Sockets& operator=(const Sockets&) = delete;
    ~Sockets() {
        for (const Client& one : clients_)
            if (one.socket >= 0) ::close(one.socket);
        ::close(listens_);
        ::unlink(path_.c_str());
    }

    /// Takes the next whole image of any client. Waits briefly if there is none.
    bool next(std::vector<float>& request) {
        move();
        for (std::size_t tried = 0; tried < clients_.size(); ++tried) {
            clients_.splice(clients_.end(), clients_, clients_.begin()); // the next client's turn
            Client& one = clients_.back();
            if (one.in.size() < image_bytes || one.out.size() > most_waiting) continue;
            request.resize(digits::pixels);
            std::memcpy(request.data(), one.in.data(), image_bytes);
            one.in.erase(0, image_bytes);
            ++one.asked;
            order_.push_back(&one);
            return true;
        }
        return false;
    }
    void answer(std::span<const float> outputs) {
        Client& one = *order_.front();
        order_.pop_front();
        --one.asked;
        ++answered_;
        if (one.socket >= 0) one.out.append(reinterpret_cast<const char*>(outputs.data()), outputs.size_bytes());
    }
    [[nodiscard]] std::size_t answered() const { return answered_; }

private:
    static constexpr std::size_t image_bytes = digits::pixels * sizeof(float);
    /// In bytes. A client that does not read its results is not served.
    static constexpr std::size_t most_waiting = 1 << 16;

    struct Client {
        int socket;
        std::size_t asked = 0; ///< requests in flight
        std::string in = {}, out = {};
        bool ended = false; ///< sends no more requests
    };

    void move() {
        std::vector<pollfd> polled = {{listens_, POLLIN, 0}};
        for (const Client& one : clients_) {
            short events = one.out.empty() ? 0 : POLLOUT;
            if (!one.ended && one.in.size() < most_waiting) events |= POLLIN;
            polled.push_back({one.socket, events, 0});
        }
        ::poll(polled.data(), polled.size(), order_.empty() ? 1 : 0);
        std::size_t at = 1;
        for (Client& one : clients_) {
            const short happened = polled[at++].revents;
            if (one.socket < 0) continue;
            if ((happened & (POLLIN | POLLHUP | POLLERR)) != 0) read(one);
            if ((happened & POLLOUT) != 0) write(one);
            if (one.ended && one.out.empty() && one.asked == 0 && one.in.size() < image_bytes) drop(one);
        }
        clients_.remove_if([](const Client& one) { return one.socket < 0 && one.asked == 0; });
        if ((polled[0].revents & POLLIN) == 0) return;
        const int made = ::accept4(listens_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (made >= 0) clients_.push_back({made});
    }
    static void drop(Client& one) {
        ::close(one.socket);
        one.socket = -1;
        one.in.clear();
        one.out.clear();
    }
    static void read(Client& one) {
        char bytes[16384];
        const ssize_t got = ::recv(one.socket, bytes, sizeof bytes, 0);
        if (got > 0) one.in.append(bytes, static_cast<std::size_t>(got));
        else if (got == 0) one.ended = true;
        else if (errno != EAGAIN && errno != EINTR) drop(one);
    }
    static void write(Client& one) {
        const ssize_t put = ::send(one.socket, one.out.data(), one.out.size(), MSG_NOSIGNAL);
        if (put > 0) one.out.erase(0, static_cast<std::size_t>(put));
        else if (put < 0 && errno != EAGAIN && errno != EINTR) drop(one);
    }

    std::string path_;
    int listens_ = -1;
    std::list<Client> clients_;
    std::deque<Client*> order_; ///< of the requests in flight
    std::size_t answered_ = 0;
};

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Serves a network that is split over ranks.", "parallel_serve"};
    std::string socket;
    int ranks = 2;
    double seconds = 60;
    std::size_t requests = 0;
    app.add_option("--socket", socket, "Path of the Unix socket")->required();
    app.add_option("--ranks", ranks, "Processes over which the layers are spread (2)")->check(numbers::from(1, 5));
    app.add_option("--seconds", seconds, "Until it ends (60)")->check(numbers::from(1e-3, 1e9));
    app.add_option("--requests", requests, "After which it ends (0: never)")->check(numbers::at_least(std::size_t{0}));
    CLI11_PARSE(app, argc, argv);
    try {
        un::run<un::SharedMemory>(ranks, [&](auto& world) {
            un::PipelineModel model{world, parallel_digits::layers(64, 4), parallel_digits::CrossEntropy{}};
            std::optional<Sockets> sockets;
            if (world.rank() == 0) sockets.emplace(socket);
            const auto begin = std::chrono::steady_clock::now();
            std::size_t taken = 0;
            un::serve(
                model,
                [&](std::vector<float>& request) {
                    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
                    if (passed.count() > seconds || (requests != 0 && taken == requests)) return un::Request::last;
                    if (!sockets->next(request)) return un::Request::none;
                    ++taken;
                    return un::Request::ready;
                },
                [&](std::span<const float> outputs) { sockets->answer(outputs); });
            if (!sockets) return;
            for (int i = 0; i < 100; ++i) { // output that is still to be written
                std::vector<float> none;
                if (sockets->next(none)) break;
            }
            std::printf("%zu requests answered by %d ranks\n", sockets->answered(), ranks);
        });
        return 0;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "parallel_serve: %s\n", failed.what());
        return 2;
    }
}
