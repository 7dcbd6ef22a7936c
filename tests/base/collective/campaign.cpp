// Random collectives, compared with what each rank can compute by itself (campaign.hpp).
//
// UNISONO_TEST_CASES is the total number of cases, UNISONO_TEST_SEED the first seed.

#include "campaign.hpp"
#include "support/skip.hpp"

#include <atomic>
#include <fcntl.h>
#include <fstream>
#include <sys/file.h>
#include <unistd.h>

#ifndef UNISONO_TEST_CASES_IN_ALL
#define UNISONO_TEST_CASES_IN_ALL 3000
#endif

namespace un = unisono;
using test::Group;

BOOST_AUTO_TEST_SUITE(collective_campaign)

BOOST_AUTO_TEST_CASE(random_cases_against_what_a_rank_computes_alone) {
    const std::size_t all = campaign::from_environment("UNISONO_TEST_CASES", UNISONO_TEST_CASES_IN_ALL);
    std::uint64_t seed = campaign::from_environment("UNISONO_TEST_SEED", 1);
    constexpr int batches = 40; // of 2.5 cases on average
    std::size_t worlds = 0;
    for (std::size_t begun = 0; begun < all; begun += batches * 5 / 2, ++seed, ++worlds) {
        const int ranks = 1 + static_cast<int>(seed % 5);
        const campaign::Life life{.seed = seed, .batches = batches, .ends_by_throw = ranks > 1};
        const std::string name = "the world of seed " + std::to_string(seed);
        const campaign::Watchdog watchdog(name.c_str(), 120);
        test::Findings findings{ranks};
        try {
            test::run(
                ranks, [&](Group& world) { campaign::live(world, findings, life); }, test::limit);
            findings.expect(!life.ends_by_throw, "seed " + std::to_string(seed) + ": run did not throw");
        } catch (const std::exception& failed) {
            findings.expect(std::string(failed.what()).find("complaint") != std::string::npos,
                            "seed " + std::to_string(seed) + ": " + failed.what());
        }
    }
    BOOST_TEST_MESSAGE(worlds << " worlds");
}

BOOST_AUTO_TEST_CASE(overlaps_are_refused_or_right) {
    for (const int ranks : {1, 2, 3, 4}) {
        const campaign::Watchdog watchdog("overlaps", 120);
        test::on_each_rank(ranks, [&](Group& world, test::Findings& findings) {
            campaign::Random same(static_cast<std::uint64_t>(ranks));
            for (std::uint64_t number = 0; number < 120; ++number) {
                const std::string wrong =
                    number % 3 == 0   ? campaign::try_overlap(world, same, number, un::DirectSchedule{})
                    : number % 3 == 1 ? campaign::try_overlap(world, same, number, un::NativeSchedule{.ring_bytes = 0})
                                      : campaign::try_overlap(world, same, number, un::NativeSchedule{});
                findings.expect(wrong.empty(), wrong);
            }
        });
    }
}

BOOST_AUTO_TEST_CASE(overlaps_of_collectives_with_a_root_and_of_counts) {
    test::on_each_rank(3, [&](Group& world, test::Findings& findings) {
        const auto refused = [&](auto call, const char* what) {
            const std::string told = test::refusal_of(call);
            findings.expect(told.find("overlaps") != std::string::npos, std::string(what) + ": " + told);
        };
        for (const std::size_t count : {4u, 1000u, 50'000u}) {
            std::vector<float> data(3 * count + 1);
            const std::span<float> all(data.data(), 3 * count);
            const std::span<float> shifted(data.data() + 1, count);
            const std::vector<std::size_t> counts{count - 2, count + 1, count + 1};
            const std::span<float> mine(data.data() + 1, counts[static_cast<std::size_t>(world.rank())]);
            if (world.rank() == 1) { // the others take no part
                refused([&] { un::reduce(world, std::span<const float>(all).first(count), shifted, 1); }, "reduce");
                refused([&] { un::gather(world, shifted, all, 1); }, "gather");
                refused([&] { un::scatter(world, all, shifted, 1); }, "scatter");
            }
            refused([&] { un::all_reduce(world, all.first(count), shifted, un::WeightedMean{.weight = 2.0}); },
                    "a weighted mean");
            refused([&] { un::all_gather(world, mine, all, counts); }, "all_gather of counts");
            refused([&] { un::reduce_scatter(world, all, mine, un::Sum{}, counts); }, "reduce_scatter of counts");
            refused([&] { un::all_to_all(world, all, all, counts, counts); }, "all_to_all of counts");
            // Arguments that only matter on the root may be anything on other ranks.
            un::reduce(world, std::span<const float>(all).first(count),
                       world.rank() == 0 ? std::span<float>(data.data() + 2 * count, count) : shifted, 0);
            un::gather(world, std::span<const float>(data.data() + (world.rank() == 0 ? 0 : 1), count), all, 0);
        }
    });
}

BOOST_AUTO_TEST_CASE(all_to_all_of_different_amounts) {
    const campaign::Watchdog watchdog("all_to_all", 120);
    test::on_each_rank(3, [&]<class World>(World& world, test::Findings& findings) {
        const auto check = [&](std::size_t each, const auto& family) {
            std::vector<std::size_t> send(3), receive(3);
            for (std::size_t peer = 0; peer < 3; ++peer) {
                send[peer] = each * (static_cast<std::size_t>(world.rank()) + 1);
                receive[peer] = each * (peer + 1);
            }
            std::vector<float> in(3 * send[0], static_cast<float>(world.rank())), out(6 * each, -1.0f);
            un::all_to_all(world, in, out, send, receive, family);
            for (std::size_t i = 0; i < out.size(); ++i) {
                const float from = i < each ? 0.0f : i < 3 * each ? 1.0f : 2.0f;
                if (out[i] != from) return findings.expect(false, "element " + std::to_string(i));
            }
            findings.expect(true, "elements");
        };
        check(1000, un::DirectSchedule{.chunk_bytes = 1024});
        check(100'000, un::NativeSchedule{});
        check(100'000, un::DirectSchedule{.chunk_bytes = 65536});
        if constexpr (World::transport_type::maps_peers) {
            for (const std::size_t each : {1u, 10u, 1000u, 100'000u}) check(each, un::MappedSchedule{});
            for (const std::size_t each : {1u, 10u}) check(each, un::StagedSchedule{});
        }
    });
}

BOOST_AUTO_TEST_CASE(all_to_all_of_amounts_that_do_not_match) {
    const campaign::Watchdog watchdog("all_to_all", 120);
    const auto code = [&] {
        try {
            test::run(
                3,
                [&]<class World>(World& world) {
                    const std::size_t each = world.rank() == 1 ? 2 : 1;
                    const std::vector<std::size_t> send(3, each), receive(3, 1);
                    const std::vector<float> in(3 * each);
                    std::vector<float> out(3);
                    if constexpr (World::transport_type::maps_peers)
                        un::all_to_all(world, in, out, send, receive, un::MappedSchedule{});
                    else un::all_to_all(world, in, out, send, receive);
                },
                test::limit);
        } catch (const un::error& found) {
            return found.code();
        }
        return un::ErrorCode::none;
    }();
    BOOST_TEST((code == un::ErrorCode::mismatch));
}

/// All ranks must end, and report which rank threw what.
BOOST_AUTO_TEST_CASE(an_operation_that_throws_ends_all_ranks) {
    const auto check = [](std::size_t count, const auto& family, bool nonblocking) {
        const campaign::Watchdog watchdog("an operation that throws", 60);
        test::Findings findings{3};
        try {
            test::run(3,
                      [&](Group& world) {
                          const std::string complaint = world.rank() == 1 ? "the user's own" : "";
                          std::atomic<bool> complained = false;
                          campaign::Larger<float> op{complaint.empty() ? nullptr : &complaint, &complained};
                          std::vector<float> data(count, 1.0f);
                          try {
                              if (nonblocking) {
                                  un::Operation first = un::start_all_reduce(world, data, op, family);
                                  while (!first.poll()) world.progress();
                                  first.wait();
                              } else {
                                  un::all_reduce(world, data, op, family);
                              }
                              findings.expect(!complained, "an exception was swallowed");
                              // It had nothing to combine.
                              if (world.rank() == 1) throw std::out_of_range(complaint);
                              un::barrier(world);
                              findings.expect(false, "no error");
                          } catch (const un::error& failed) {
                              const std::string text = failed.what();
                              findings.expect(world.rank() != 1 && failed.rank() == 1 &&
                                                  text.find("rank 1 threw: the user's own") != std::string::npos,
                                              text);
                              throw;
                          } catch (const std::out_of_range&) {
                              findings.expect(world.rank() == 1, "another rank's exception");
                              throw;
                          }
                      },
                      {.timeout = std::chrono::seconds(20), .bind_to_cores = false});
            findings.expect(false, "run did not throw");
        } catch (const std::exception& failed) {
            findings.expect(std::string(failed.what()).find("the user's own") != std::string::npos, failed.what());
        }
    };
    for (const std::size_t count : {8u, 10'000u, 300'000u}) {
        for (const bool nonblocking : {false, true}) {
            check(count, un::NativeSchedule{}, nonblocking);
            check(count, un::RingSchedule{}, nonblocking);
            check(count, un::RingSchedule{.chunk_bytes = 4096}, nonblocking);
            check(count, un::DirectSchedule{}, nonblocking);
        }
    }
}

/// What Linux says that programs can still have, in GiB.
double available_memory() {
    std::ifstream facts("/proc/meminfo");
    for (std::string word; facts >> word;)
        if (double kilobytes = 0; word == "MemAvailable:" && facts >> kilobytes) return kilobytes / (1 << 20);
    return 0;
}

/// While it lives, no other program has one: two of the cases that take this much memory would not
/// fit.
class MemoryLock {
public:
    MemoryLock() { ::flock(folder_, LOCK_EX); }
    MemoryLock(const MemoryLock&) = delete;
    MemoryLock& operator=(const MemoryLock&) = delete;
    ~MemoryLock() { ::close(folder_); }

private:
    int folder_ = ::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
};

/// More than 2^31 bytes, where there is memory for it. Looks at some bytes of each page, and at all
/// of the last.
BOOST_AUTO_TEST_CASE(more_than_two_gigabytes,
                     *boost::unit_test::label("slow") * boost::unit_test::enable_if<test::Transport::maps_peers>()) {
    if (test::sanitized) return test::skip("it takes too long under a sanitizer");
    const MemoryLock alone;
    if (available_memory() < 8) return test::skip("it needs 8 GiB of free memory");
    const campaign::Watchdog watchdog("gigabytes", 500);
    test::Findings findings{2};
    test::run(2,
              [&](Group& world) {
                  const std::size_t count = (std::size_t{1} << 31) + 4099;
                  auto memory = world.allocate<std::uint8_t>(count);
                  const std::span<std::uint8_t> data(memory.data(), count);
                  const auto place = [](std::size_t i) { return static_cast<std::uint8_t>(i % 251); };
                  const auto check = [&](int factor, const char* what) {
                      for (std::size_t i = 0; i < count; i += i + 10'000 < count ? 4095 : 1)
                          if (data[i] != static_cast<std::uint8_t>(factor * place(i)))
                              return findings.expect(false, std::string(what) + " at " + std::to_string(i));
                      findings.expect(true, what);
                  };
                  for (std::size_t i = 0; i < count; i += i + 10'000 < count ? 4095 : 1)
                      data[i] = world.rank() == 0 ? place(i) : std::uint8_t{0};
                  un::broadcast(world, data, 0);
                  check(1, "broadcast");
                  un::all_reduce(world, data);
                  check(2, "all_reduce");
                  un::all_reduce(world, data, un::Max{}, un::RingSchedule{});
                  check(2, "ring all_reduce");
              },
              {.timeout = std::chrono::seconds(400), .bind_to_cores = false});
}

BOOST_AUTO_TEST_SUITE_END()
