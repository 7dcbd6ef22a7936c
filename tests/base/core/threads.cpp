#include <boost/test/unit_test.hpp>

#include "unisono/core/descriptor.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/core/threads.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <pthread.h>
#include <unistd.h>
#include <vector>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(core_threads)

BOOST_AUTO_TEST_CASE(a_thread_is_woken_by_a_condition_and_joined) {
    struct Shared {
        un::detail::Mutex mutex;
        un::detail::Condition changed;
        int turn = 0;
    } shared;
    un::detail::Thread thread;
    const int failed = thread.start(
        [](void* of) {
            Shared& all = *static_cast<Shared*>(of);
            un::detail::Lock lock(all.mutex);
            all.changed.wait(lock, [&] { return all.turn == 1; });
            all.turn = 2;
            all.changed.wake_one();
        },
        &shared);
    BOOST_TEST_REQUIRE(failed == 0);
    {
        un::detail::Lock lock(shared.mutex);
        shared.turn = 1;
        shared.changed.wake_one();
        BOOST_TEST(shared.changed.wait(lock, un::never, [&] { return shared.turn == 2; }));
    }
    thread.join();
    thread.join(); // of a joined thread: nothing
}

BOOST_AUTO_TEST_CASE(a_wait_ends_at_its_deadline) {
    un::detail::Mutex mutex;
    un::detail::Condition condition;
    un::detail::Lock lock(mutex);
    const un::nanoseconds before = un::steady_now();
    BOOST_TEST(!condition.wait(lock, before + 5'000'000, [] { return false; }));
    BOOST_TEST(un::steady_now() - before >= 5'000'000);
    // A condition that holds needs no time.
    BOOST_TEST(condition.wait(lock, before, [] { return true; }));
    int looks = 0;
    // The system refuses to wait for such a time.
    BOOST_TEST(!condition.wait(lock, -1, [&] { return ++looks == 1000; }));
    BOOST_TEST(looks == 2);
    un::detail::sleep_for(1'000'000);
    BOOST_TEST(un::steady_now() - before >= 6'000'000);
}

// A cancelled thread ends where it waits next, and nothing may unwind from a destructor.
BOOST_AUTO_TEST_CASE(a_cancelled_thread_still_closes_its_files) {
    static std::atomic<int> closed;
    closed = 0;
    un::detail::Thread thread;
    const int failed = thread.start(
        [](void*) {
            struct AtEnd {
                ~AtEnd() { ++closed; }
            } at_end;
            std::array<int, 2> ends = {};
            if (::pipe(ends.data()) != 0) return;
            un::detail::FileDescriptor read(ends[0]), write(ends[1]);
            ::pthread_cancel(::pthread_self());
            read.close();
            ++closed;
            std::FILE* const file = un::detail::open_above_standard_streams("/dev/null", "w");
            if (file != nullptr) ++closed;
            ::pthread_testcancel();
            closed = -100;
        },
        nullptr);
    BOOST_TEST_REQUIRE(failed == 0);
    thread.join();
    BOOST_TEST(closed == 3);
}

BOOST_AUTO_TEST_CASE(spans_are_those_of_the_standard) {
    std::vector<float> numbers(3);
    const std::vector<float> fixed(3);
    std::array<int, 2> two = {};
    std::span<float> view = numbers;
    static_assert(std::is_same_v<decltype(un::detail::as_span(numbers)), decltype(std::span(numbers))>);
    static_assert(std::is_same_v<decltype(un::detail::as_span(fixed)), decltype(std::span(fixed))>);
    static_assert(std::is_same_v<decltype(un::detail::as_span(two)), decltype(std::span(two))>);
    static_assert(std::is_same_v<decltype(un::detail::as_span(view)), decltype(std::span(view))>);
    static_assert(!un::detail::spannable<std::vector<bool>> && !un::detail::spannable<int>);
    BOOST_TEST(un::detail::as_span(numbers).data() == numbers.data());
    BOOST_TEST(un::detail::as_span(view).size() == 3u);
}

BOOST_AUTO_TEST_SUITE_END()
