// run() with processes, and processes that join by themselves.
#define UNISONO_TEST_TRANSPORT unisono::SharedMemory
#include "processes.hpp"

#include <boost/test/unit_test.hpp>
#include <thread>

namespace un = unisono;
using test::Group;
using namespace std::chrono_literals;

namespace {

/// Makes several kinds of calls, and throws if a result is wrong.
void use(Group& group) {
    const float sum = static_cast<float>(group.size() * (group.size() + 1) / 2);
    for (const std::size_t count : {1u, 200u, 5000u, 400'000u}) {
        const float mine = static_cast<float>(group.rank() + 1);
        std::vector<float> own(count, mine);
        un::Memory<float> shared = group.allocate<float>(count);
        std::fill(shared.begin(), shared.end(), mine);
        un::all_reduce(group, own);
        un::all_reduce(group, shared);
        un::Memory<float> ring = group.allocate<float>(count);
        std::fill(ring.begin(), ring.end(), mine);
        un::all_reduce(group, ring, un::Sum{}, un::RingSchedule{.chunk_bytes = 100'000});
        for (std::size_t i = 0; i < count; ++i) {
            if (own[i] != sum || shared[i] != sum || ring[i] != sum) throw std::runtime_error("a wrong sum");
        }
        if (group.size() == 1) continue;
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        std::fill(shared.begin(), shared.end(), mine);
        un::Operation sending = un::start_send(group, shared, next);
        un::receive(group, own, previous);
        sending.wait();
        if (own[count - 1] != static_cast<float>(previous + 1)) throw std::runtime_error("a wrong message");
    }
}

std::string message_of(const std::function<void()>& call, un::ErrorCode code) {
    try {
        call();
    } catch (const un::error& failed) {
        BOOST_TEST((failed.code() == code), failed.what());
        return failed.what();
    }
    return "";
}

} // namespace

BOOST_AUTO_TEST_SUITE(shared_memory_running, *boost::unit_test::enable_if<!test::under_thread_sanitizer>())

BOOST_AUTO_TEST_CASE(one_to_five_processes) {
    const test::Leftovers leftovers;
    for (int ranks = 1; ranks <= 5; ++ranks) {
        BOOST_CHECK_NO_THROW(un::run<un::SharedMemory>(
            ranks, [](Group& group) { use(group); }, test::limit));
    }
}

BOOST_AUTO_TEST_CASE(ranks_are_processes) {
    const test::Shared<std::array<std::atomic<int>, 3>> ids;
    int changed = 0;
    un::run<un::SharedMemory>(3, [&](Group& group) {
        (*ids)[static_cast<std::size_t>(group.rank())] = ::getpid();
        ++changed;
    });
    BOOST_TEST(changed == 0);
    BOOST_TEST(((*ids)[0] != (*ids)[1] && (*ids)[1] != (*ids)[2] && (*ids)[0] != ::getpid()));
}

BOOST_AUTO_TEST_CASE(strangers_see_each_other_at_other_addresses) {
    const test::Leftovers leftovers;
    for (int ranks = 1; ranks <= 5; ++ranks) {
        const test::Shared<std::array<std::atomic<std::int64_t>, 5>> shifts;
        const auto ends = test::run_strangers(
            ranks,
            [&](Group& group) {
                use(group);
                Group odd = group.split(group.rank() % 2, 0);
                use(odd);
                (*shifts)[static_cast<std::size_t>(group.rank())] = group.endpoint().shift(0);
            },
            test::limit);
        for (int rank = 0; rank < ranks; ++rank) {
            BOOST_TEST(ends[static_cast<std::size_t>(rank)] == 0);
            BOOST_TEST(((*shifts)[static_cast<std::size_t>(rank)] == 0) == (rank == 0));
        }
    }
}

BOOST_AUTO_TEST_CASE(an_exit_before_the_end_is_a_loss) {
    const test::Leftovers leftovers;
    const std::string text = message_of(
        [] {
            un::run<un::SharedMemory>(
                3,
                [](Group& group) {
                    if (group.rank() == 1) ::_exit(0);
                    un::barrier(group);
                },
                test::limit);
        },
        un::ErrorCode::peer_lost);
    BOOST_TEST(text.find("rank 1") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(ranks_that_go_on_after_a_fault_are_killed) {
    const test::Leftovers leftovers;
    const std::string text = message_of(
        [] {
            un::run<un::SharedMemory>(3,
                                      [](Group& group) {
                                          if (group.rank() == 2) throw std::runtime_error("enough");
                                          for (;;) std::this_thread::sleep_for(10ms);
                                      },
                                      {.timeout = 60s, .grace = 200ms});
        },
        un::ErrorCode::aborted);
    BOOST_TEST(text.find("rank 2 threw: enough") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(a_long_message_is_cut_and_kept) {
    const std::string text = message_of(
        [] {
            un::run<un::SharedMemory>(2, [](Group& group) {
                if (group.rank() == 1) throw std::runtime_error(std::string(10'000, 'x'));
            });
        },
        un::ErrorCode::aborted);
    BOOST_TEST(text.size() > 3000u);
    BOOST_TEST(text.size() < 5000u);
}

BOOST_AUTO_TEST_CASE(threads_are_not_forked) {
    std::atomic<bool> over{false};
    std::thread other([&] {
        while (!over) std::this_thread::sleep_for(1ms);
    });
    const std::string text = message_of([] { un::run<un::SharedMemory>(2, [](Group&) {}); }, un::ErrorCode::refused);
    BOOST_TEST(text.find("2 threads") != std::string::npos, text);
    over = true;
    other.join();
    BOOST_CHECK_NO_THROW(un::run<un::SharedMemory>(2, [](Group& group) { un::barrier(group); }));
}

BOOST_AUTO_TEST_CASE(programs_that_ignore_how_children_end) {
    const auto before = std::signal(SIGCHLD, SIG_IGN); // then the system reaps them
    BOOST_CHECK_NO_THROW(un::run<un::SharedMemory>(3, [](Group& group) { un::barrier(group); }));
    const std::string text = message_of(
        [] {
            un::run<un::SharedMemory>(2, [](Group& group) {
                if (group.rank() == 1) ::raise(SIGKILL);
                un::barrier(group);
            });
        },
        un::ErrorCode::peer_lost);
    std::signal(SIGCHLD, before);
    BOOST_TEST(text.find("rank 1") != std::string::npos, text);
}

BOOST_AUTO_TEST_CASE(joining_refuses_what_cannot_be) {
    const auto alone = [](const std::string& mine) { return std::vector<std::string>{mine}; };
    BOOST_CHECK_NO_THROW(static_cast<void>(un::join_shared_memory(0, 1, alone)));
    BOOST_CHECK_THROW(static_cast<void>(un::join_shared_memory(1, 1, alone)), un::error);
    BOOST_CHECK_THROW(static_cast<void>(un::join_shared_memory(0, 0, alone)), un::error);
    BOOST_CHECK_THROW(static_cast<void>(un::join_shared_memory(0, 2, alone)), un::error);

    // Rank 1's view of a rank 0 that is on another host, has another version, has failed, or whose
    // process ID belongs to another process here.
    const auto join = [&](const std::function<void(un::detail::SharedMemoryCard&)>& forge) {
        un::detail::SharedMemoryWorld first(2, std::size_t{1} << 20);
        return message_of(
            [&] {
                static_cast<void>(un::join_shared_memory(1, 2, [&](const std::string& mine) {
                    un::detail::SharedMemoryCard card{};
                    std::memcpy(&card, mine.data(), sizeof card);
                    card.file = first.segment().file();
                    card.failed[0] = '\0';
                    forge(card);
                    return std::vector<std::string>{std::string(reinterpret_cast<const char*>(&card), sizeof card),
                                                    mine};
                }));
            },
            un::ErrorCode::refused);
    };
    BOOST_TEST(join([](auto& card) { card.host[3] = '?'; }).find("another host") != std::string::npos);
    BOOST_TEST(join([](auto& card) { std::strcpy(card.failed, "no luck"); }).find("rank 0: no luck") !=
               std::string::npos);
    BOOST_TEST(join([](auto& card) { card.token[0] ^= 1; }).find("containers") != std::string::npos);
    BOOST_TEST(join([](auto& card) { card.process = 0x7ffffff0; }).find("cannot open") != std::string::npos);
    BOOST_TEST(join([](auto& card) { card.file = 0; }).find("rank 1: ") != std::string::npos);
    const auto short_text = [](const std::string&) { return std::vector<std::string>{"x"}; };
    BOOST_CHECK_THROW(static_cast<void>(un::join_shared_memory(0, 1, short_text)), un::error);
}

BOOST_AUTO_TEST_CASE(the_library_says_that_a_rank_came_and_left) {
    const auto shared = std::make_shared<un::SharedMemory::World>(2);
    BOOST_TEST(!shared->has_left(1));
    BOOST_TEST(!shared->has_died(1));
    { un::SharedMemory endpoint(shared, 1); }
    BOOST_TEST(shared->has_left(1));
    BOOST_TEST(!shared->has_died(1));
}

BOOST_AUTO_TEST_SUITE_END()
