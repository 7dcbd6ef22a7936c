// No rank blames a rank that has received everything and leaves, whatever the others are doing at
// that time.
#include "unisono/unisono.hpp"

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

/// Rank 0 polls a receive from rank 2, and a large send to rank 1, which leaves when it has
/// received all of it. A rank is suspected at the 255th idle poll, and receipts are checked at
/// every 8th: rank 1 leaves a few polls before, at each distance from both.
template <class Transport>
void leaves_in_good_order(int round) {
    // Ranks are threads, or processes.
    void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    BOOST_TEST_REQUIRE(shared != MAP_FAILED);
    auto* const flags = ::new (shared) std::atomic<int>[2] {};
    std::atomic<int>&may_receive = flags[0], &may_send = flags[1];
    const auto body = [&](auto& world) {
        std::vector<float> large(20'000), small(1);
        const auto await = [](const std::atomic<int>& flag, int least) {
            while (flag < least) std::this_thread::sleep_for(100us);
        };
        if (world.rank() == 0) {
            struct Release { // the others, even if this rank throws
                std::atomic<int>* flags;
                ~Release() { flags[0] = 1, flags[1] = 2; }
            };
            const Release release{flags};
            auto first = un::start_receive(world, small, 2);
            for (int i = 0; i < round % 8; ++i) first.poll();
            may_send = 1;
            first.wait();
            auto receipt = un::start_receive(world, small, 2);
            auto sent = un::start_send(world, large, 1);
            for (int i = 0; i < 247 + round / 8; ++i) sent.poll();
            may_receive = 1;
            std::this_thread::sleep_for(3ms);
            while (!sent.poll()) continue;
            may_send = 2;
            receipt.wait();
            sent.wait();
        } else if (world.rank() == 1) {
            await(may_receive, 1);
            un::receive(world, large, 0);
        } else {
            await(may_send, 1);
            un::send(world, small, 0);
            await(may_send, 2);
            un::send(world, small, 0);
        }
    };
    un::run<Transport>(3, body, {.timeout = 5s});
    ::munmap(shared, 4096);
}

/// A rank that is suspended while it looks whether a peer has left: the peer starts the operation,
/// finishes it and leaves meanwhile.
struct Suspended : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "suspended";
    static inline std::atomic<bool> looks{false};

    [[nodiscard]] un::Presence presence(int peer) override {
        if (rank() == 1 && peer == 0) {
            looks = true;
            const auto end = std::chrono::steady_clock::now() + 2s;
            while (!InProcess::has_left(0) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        }
        return InProcess::presence(peer);
    }
};

/// In this tree rank 1 waits for messages, but not for one from rank 0, which sends and leaves.
void starts_and_leaves_during_a_look() {
    constexpr int root = 7;
    Suspended::looks = false;
    const auto body = [&](auto& world) {
        if (world.rank() != 1) {
            while (!Suspended::looks) std::this_thread::sleep_for(100us);
            if (world.rank() != 0) std::this_thread::sleep_for(50ms);
        }
        std::vector<int> in{world.rank()}, out(1);
        un::reduce(world, in, out, root, un::Sum{}, un::TreeSchedule{});
        if (world.rank() == root && out[0] != 28) throw std::runtime_error("wrong sum");
    };
    un::run<Suspended>(8, body, {.timeout = 5s});
}

} // namespace

BOOST_AUTO_TEST_SUITE(leaving)

BOOST_AUTO_TEST_CASE(who_starts_and_leaves_during_a_look_is_not_blamed) {
    BOOST_CHECK_NO_THROW(starts_and_leaves_during_a_look());
}

BOOST_AUTO_TEST_CASE(who_has_received_all_is_not_blamed) {
    for (int round = 0; round < 64; ++round) BOOST_CHECK_NO_THROW(leaves_in_good_order<un::InProcess>(round));
    for (int round = 0; round < 64; ++round) BOOST_CHECK_NO_THROW(leaves_in_good_order<un::SharedMemory>(round));
}

BOOST_AUTO_TEST_SUITE_END()
