// A rank that waits for others to compute leaves its core to the program's threads, and wakes when
// the others are done.
#include "../collective/findings.hpp"

#include "unisono/transport/memory/bell.hpp"

#include <boost/test/unit_test.hpp>

#include <ctime>
#include <thread>

namespace un = unisono;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// Processor time of this thread.
un::nanoseconds busy_now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

/// Rank 0 waits for rank 1 `rounds` times for `late`, in `meet`. For less than `part` of that time,
/// it may be busier than without late ranks.
template <class Meet>
void leaves_the_core(int rounds, std::chrono::nanoseconds late, double part, Meet meet) {
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        un::nanoseconds waited = 0;
        un::nanoseconds busy = 0;
        const auto round = [&](bool is_late) {
            un::barrier(group);
            if (group.rank() == 1 && is_late) std::this_thread::sleep_for(late);
            const un::nanoseconds began = un::steady_now();
            const un::nanoseconds began_busy = busy_now();
            meet(group);
            waited += un::steady_now() - began;
            const un::nanoseconds spent = busy_now() - began_busy;
            busy += spent;
            return spent;
        };
        un::nanoseconds work = round(false); // it does not wait; with a sanitizer it takes long
        for (int more = 0; more < 8; ++more) work = std::min(work, round(false));
        waited = busy = 0;
        for (int number = 0; number < rounds; ++number) round(true);
        busy -= rounds * work;
        if (group.rank() == 0)
            findings.expect(static_cast<double>(busy) < part * static_cast<double>(waited),
                            "busy for " + std::to_string(busy / 1000) + " us of " + std::to_string(waited / 1000) +
                                ", beside work of " + std::to_string(work / 1000));
    });
}

void reduce(Group& group, std::size_t count) {
    std::vector<float> data(count, 1);
    un::all_reduce(group, data);
}

void message(Group& group) {
    std::vector<float> data(20'000);
    if (group.rank() == 1) un::send(group, data, 0);
    else un::receive(group, data, 1);
}

} // namespace

BOOST_AUTO_TEST_SUITE(waiting)

BOOST_AUTO_TEST_CASE(many_waits_of_some_milliseconds_leave_the_core) {
    leaves_the_core(30, 8ms, 0.25, [](Group& group) { reduce(group, 2); });
    leaves_the_core(30, 8ms, 0.25, [](Group& group) { reduce(group, 20'000); });
    leaves_the_core(30, 8ms, 0.25, [](Group& group) { message(group); });
}

BOOST_AUTO_TEST_CASE(one_wait_of_a_second_leaves_the_core) {
    leaves_the_core(1, 1s, 0.1, [](Group& group) { reduce(group, 2); });
}

/// Two ranks pass a number back and forth. No sleep reaches its limit, as it would if a wake-up
/// were lost.
BOOST_AUTO_TEST_CASE(no_ring_is_lost) {
    struct Place {
        un::detail::SetBells set;
        un::detail::MemoryBell bells[2];
        alignas(128) std::atomic<std::uint32_t> number{0};
        std::atomic<std::uint32_t> lost{0};
    };
    const test::Shared<Place> place;
    test::on_ranks(2, [&](Group& group, test::Findings& findings) {
        using Fence = un::detail::AsymmetricFence;
        const Fence fence(test::will_be_processes() ? Fence::Reach::host : Fence::Reach::process);
        const auto me = static_cast<std::uint32_t>(group.rank());
        un::detail::MemoryBell& mine = place->bells[me];
        un::barrier(group);
        for (std::uint32_t turn = me; turn < 4000; turn += 2) {
            for (std::uint32_t attempt = 0; place->number.load(std::memory_order_acquire) != turn; ++attempt) {
                // It falls asleep sooner or later, to get the wake-up at any time.
                if (attempt < turn * 7919 % 64) continue;
                if (mine.set.load() == 0) place->set.set(mine, fence);
                else if (!un::detail::SetBells::sleep(mine, 5'000'000'000)) ++place->lost;
            }
            for (volatile std::uint32_t work = turn * 104729 % 2000; work != 0;) work = work - 1;
            place->number.store(turn + 1, std::memory_order_release);
            if (place->set.any(fence)) place->set.ring(place->bells[1 - me]);
        }
        un::barrier(group);
        place->set.clear(mine);
        un::barrier(group);
        findings.expect(place->set.count == 0, "bells are left set");
    });
    BOOST_TEST(place->lost == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
