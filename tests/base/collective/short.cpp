// Collectives over mapped memory: copies beside the flags, ranks whose copies share lines, and the
// short path of a repeated call of any size. Each is tested among changing other calls, because
// state that outlives a call must stay right.

#include "findings.hpp"
#include "oracle.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace un = unisono;
using test::Group;

namespace {

/// The i-th number that rank `rank` gives in call `call`: a small integer, so that every sum is
/// exact.
int given(int call, int rank, std::size_t i) { return (call * 7 + rank * 31 + static_cast<int>(i) * 3) % 1000; }

template <class T>
std::vector<T> gift(int call, int rank, std::size_t count) {
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<T>(given(call, rank, i));
    return data;
}

/// Makes one collective of a random kind, count, root and operation, the same on all ranks, and
/// compares its result.
template <class T>
std::string call_any(Group& group, int call, std::mt19937& same) {
    const int world = group.size();
    const int me = group.rank();
    const auto ranks = static_cast<std::size_t>(world);
    const int kind = static_cast<int>(same() % 9);
    constexpr std::size_t counts[] = {0,  1,   2,   3,   4,   7,   16,  30,  63,  64,  65,   74,
                                      75, 133, 134, 148, 149, 266, 267, 400, 518, 519, 1100, 3000};
    const std::size_t count = counts[same() % std::size(counts)];
    const int root = static_cast<int>(same() % static_cast<unsigned>(world));
    const bool largest = same() % 2 == 0;
    const bool in_place = same() % 2 == 0;
    const std::vector<T> mine = gift<T>(call, me, count);
    const std::vector<T> wide = gift<T>(call, me, count * ranks);
    const auto reduced = [&](std::size_t i) {
        int sum = 0;
        int most = 0;
        for (int rank = 0; rank < world; ++rank) {
            sum += given(call, rank, i);
            most = std::max(most, given(call, rank, i));
        }
        return static_cast<T>(largest ? most : sum);
    };
    bool good = true;
    const auto with_operation = [&](auto run) {
        if (largest) run(un::Max{});
        else run(un::Sum{});
    };
    switch (kind) {
    case 0: {
        std::vector<T> out = in_place ? mine : std::vector<T>(count);
        with_operation([&](auto op) {
            if (in_place) un::all_reduce(group, out, op);
            else un::all_reduce(group, mine, out, op);
        });
        for (std::size_t i = 0; i < count; ++i) good &= out[i] == reduced(i);
        break;
    }
    case 1: {
        std::vector<T> out(count);
        with_operation([&](auto op) { un::reduce_scatter(group, wide, out, op); });
        for (std::size_t i = 0; i < count; ++i) good &= out[i] == reduced(static_cast<std::size_t>(me) * count + i);
        break;
    }
    case 2: {
        std::vector<T> out(count * ranks);
        un::all_gather(group, mine, out);
        for (std::size_t i = 0; i < out.size(); ++i)
            good &= out[i] == static_cast<T>(given(call, static_cast<int>(i / count), i % count));
        break;
    }
    case 3: {
        std::vector<T> data = mine;
        un::broadcast(group, data, root);
        for (std::size_t i = 0; i < count; ++i) good &= data[i] == static_cast<T>(given(call, root, i));
        break;
    }
    case 4: {
        std::vector<T> out(me == root ? count : 0);
        with_operation([&](auto op) { un::reduce(group, mine, out, root, op); });
        for (std::size_t i = 0; i < out.size(); ++i) good &= out[i] == reduced(i);
        break;
    }
    case 5: {
        std::vector<T> out(me == root ? count * ranks : 0);
        un::gather(group, mine, out, root);
        for (std::size_t i = 0; i < out.size(); ++i)
            good &= out[i] == static_cast<T>(given(call, static_cast<int>(i / count), i % count));
        break;
    }
    case 6: {
        std::vector<T> out(count);
        un::scatter(group, me == root ? wide : std::vector<T>{}, out, root);
        for (std::size_t i = 0; i < count; ++i)
            good &= out[i] == static_cast<T>(given(call, root, static_cast<std::size_t>(me) * count + i));
        break;
    }
    case 7: {
        std::vector<T> out(count * ranks);
        un::all_to_all(group, wide, out);
        for (std::size_t i = 0; i < out.size(); ++i)
            good &= out[i] == static_cast<T>(given(call, static_cast<int>(i / count),
                                                   static_cast<std::size_t>(me) * count + i % count));
        break;
    }
    default: un::barrier(group);
    }
    return good ? ""
                : "kind " + std::to_string(kind) + " count " + std::to_string(count) + " call " + std::to_string(call) +
                      " rank " + std::to_string(me);
}

} // namespace

BOOST_AUTO_TEST_SUITE(short_collectives)

BOOST_AUTO_TEST_CASE(any_in_any_order) {
    for (const int world : {1, 2, 3, 4, 5}) {
        test::on_each_rank(world, [&](Group& group, test::Findings& findings) {
            std::mt19937 same(static_cast<unsigned>(world));
            for (int call = 0; call < 600; ++call) {
                const unsigned type = same() % 4;
                const std::string wrong = type == 0   ? call_any<float>(group, call, same)
                                          : type == 1 ? call_any<double>(group, call, same)
                                          : type == 2 ? call_any<std::int32_t>(group, call, same)
                                                      : call_any<std::int64_t>(group, call, same);
                findings.expect(wrong.empty(), wrong);
            }
        });
    }
}

/// A long call takes over the state of a short one that would be repeated under the same number.
/// Then the short call is repeated.
BOOST_AUTO_TEST_CASE(long_after_short) {
    for (const int world : {2, 4}) {
        test::on_each_rank(world, [&](Group& group, test::Findings& findings) {
            // As many states as the group keeps.
            for (std::size_t count = 1; count < 20; ++count) {
                std::vector<float> some(count);
                un::all_reduce(group, some, un::Max{});
            }
            for (const std::size_t longer : {64u, 128u, 1600u}) {
                for (const std::size_t count : {33u, 50u, 84u, 97u}) {
                    for (const std::size_t now : {count, count + longer, count + longer, count + longer}) {
                        std::vector<std::int64_t> data(now, group.rank());
                        un::all_reduce(group, data);
                        for (const std::int64_t one : data)
                            findings.expect(one == world * (world - 1) / 2, std::to_string(now));
                    }
                }
            }
        });
    }
}

/// Ranks lag in turn, so that each side of a shared line is first now and then.
BOOST_AUTO_TEST_CASE(with_ranks_that_lag) {
    for (const int world : {2, 4}) {
        test::on_each_rank(world, [&](Group& group, test::Findings& findings) {
            std::mt19937 own(static_cast<unsigned>(group.rank()));
            for (int call = 0; call < 2000; ++call) {
                for (unsigned left = own() % 512; left != 0; --left) asm volatile("");
                double sum = call + group.rank();
                un::all_reduce(group, std::span(&sum, 1));
                findings.expect(sum == world * call + world * (world - 1) / 2.0, std::to_string(call));
                if (call % 3 == 0) un::barrier(group);
            }
        });
    }
}

/// A repeated call beside operations in flight, of the same plan and of others, on the group and on
/// a part of it.
BOOST_AUTO_TEST_CASE(beside_operations_in_flight) {
    test::on_each_rank(3, [&](Group& group, test::Findings& findings) {
        Group part = group.split(group.rank() % 2, 0);
        for (int call = 0; call < 300; ++call) {
            float first[2] = {1.0f, static_cast<float>(call)};
            float second[2] = {2.0f, static_cast<float>(group.rank())};
            std::vector<float> large(5000, static_cast<float>(call));
            un::Operation a = un::start_all_reduce(group, first);
            un::Operation b = un::start_all_reduce(group, large);
            un::all_reduce(group, second); // ends before the older ones are waited for
            un::Operation c = un::start_barrier(group);
            float of_part[1] = {1.0f};
            un::all_reduce(part, of_part);
            if (call % 2 == 0) b.wait();
            a.wait();
            un::barrier(group);
            c.wait();
            if (call % 2 != 0) b.wait();
            findings.expect(first[0] == 3.0f && first[1] == static_cast<float>(3 * call), "first");
            findings.expect(second[0] == 6.0f && second[1] == 3.0f, "second");
            findings.expect(large[4999] == static_cast<float>(3 * call), "large");
            findings.expect(of_part[0] == static_cast<float>(part.size()), "part");
        }
    });
}

/// Calls of one kind and size, several in flight at once, each with memory of its own.
BOOST_AUTO_TEST_CASE(repeated_calls_in_flight) {
    test::on_each_rank(3, [&](Group& group, test::Findings& findings) {
        constexpr std::size_t count = 3000; // too many to lie beside a flag
        for (int call = 0; call < 200; ++call) {
            std::vector<float> data[3], whole(3 * count);
            std::vector<un::Operation> started;
            for (int i = 0; i < 3; ++i) {
                data[i].assign(count, static_cast<float>(call + i * (group.rank() + 1)));
                if (i <= call % 3) started.push_back(un::start_all_reduce(group, data[i]));
                else un::all_reduce(group, data[i]);
            }
            std::vector<float> from_root(count, static_cast<float>(group.rank() + call));
            started.push_back(un::start_broadcast(group, from_root, call % 3));
            const std::vector<float> mine(count, 1.0f);
            started.push_back(un::start_all_gather(group, mine, whole));
            if (call % 2 != 0) std::swap(started.front(), started.back());
            for (un::Operation& one : started) one.wait();
            for (int i = 0; i < 3; ++i)
                findings.expect(data[i] == std::vector<float>(count, static_cast<float>(3 * call + i * 6)), "sum");
            findings.expect(from_root[count - 1] == static_cast<float>(call % 3 + call), "broadcast");
            un::reduce_scatter(group, whole, from_root);
            un::reduce(group, whole, whole, call % 3);
        }
    });
}

/// A user's operation that derives from one of the library's is another operation.
struct Product : un::Sum {
    template <class T>
    T operator()(T a, T b) const {
        return a * b;
    }
};

BOOST_AUTO_TEST_CASE(an_operation_that_derives_from_another_is_not_repeated_for_it) {
    static_assert(un::reduction_operation<Product, float>);
    test::on_each_rank(2, [&](Group& group, test::Findings& findings) {
        for (const std::size_t count : {1u, 3000u})
            for (int call = 0; call < 6; ++call) {
                std::vector<float> data(count, 3.0f);
                if (call % 2 == 0) un::all_reduce(group, data);
                else un::all_reduce(group, data, Product{});
                findings.expect(data[count - 1] == (call % 2 == 0 ? 6.0f : 9.0f), std::to_string(call));
            }
    });
}

/// Calls that gather the same bytes for different callers are distinguished, whatever ran before.
BOOST_AUTO_TEST_CASE(callers_are_compared_in_every_call) {
    for (const bool differ : {false, true}) {
        test::Findings findings{2};
        const auto body = [&](Group& group) {
            const auto agree = [&](std::string_view who) {
                un::detail::agree_on(group, who, std::array<std::string_view, 2>{"a", "b"},
                                     std::array<std::int64_t, 2>{1, 2});
            };
            const std::array<std::uint64_t, 2> mine{};
            std::array<std::uint64_t, 4> all{};
            un::all_gather(group, mine, all); // the same plan, without a caller
            agree("evaluate");
            agree("predict");
            try {
                agree(differ && group.rank() == 1 ? "predict" : "evaluate");
                findings.expect(!differ, "a difference passed");
            } catch (const un::error& failed) {
                findings.expect(failed.code() == un::ErrorCode::mismatch, failed.what());
                throw;
            }
        };
        if (differ) BOOST_CHECK_THROW(test::run(2, body, test::limit), un::error);
        else test::run(2, body, test::limit);
    }
}

/// Overlapping memory is refused after any number of calls without an overlap. Then these calls
/// work again.
BOOST_AUTO_TEST_CASE(an_overlap_is_found_in_a_repeated_call) {
    test::on_each_rank(2, [&](Group& group, test::Findings& findings) {
        const auto refused = [&](auto call) { findings.expect(test::is_refused(call), "an overlap passed"); };
        std::vector<float> room(4001, 1.0f), out(2000);
        const std::span<float> in = std::span(room).first(2000);
        for (int call = 0; call < 30; ++call) {
            if (call % 10 == 9) {
                const std::span<float> wrong = std::span(room).subspan(1, 2000);
                refused([&] { un::all_reduce(group, in, wrong); });
                refused([&] { un::start_all_reduce(group, in, wrong).wait(); });
            }
            un::all_reduce(group, in, out);
            un::start_all_reduce(group, in, out).wait();
            findings.expect(room == std::vector<float>(4001, 1.0f) && out == std::vector<float>(2000, 2.0f), "sum");
        }
    });
}

/// Another operation, type, root or kind is found if only a hash travels, also after many good
/// calls.
BOOST_AUTO_TEST_CASE(differences_are_found) {
    const auto both_fail = [](const std::vector<std::string>& words, auto last) {
        for (const int world : {2, 3}) {
            test::Findings findings;
            BOOST_CHECK_THROW(test::run(
                                  world,
                                  [&](Group& group) {
                                      float data[2] = {1, 2};
                                      std::vector<float> large(4000);
                                      for (int call = 0; call < 50; ++call) {
                                          un::all_reduce(group, data, un::Max{});
                                          un::all_reduce(group, large, un::Max{});
                                      }
                                      try {
                                          last(group);
                                          findings.expect(false, "rank " + std::to_string(group.rank()) + " passed");
                                      } catch (const un::error& failed) {
                                          const std::string text = failed.what();
                                          findings.expect(failed.code() == un::ErrorCode::mismatch, text);
                                          for (const std::string& word : words)
                                              findings.expect(text.find(word) != std::string::npos, text);
                                          throw;
                                      }
                                  },
                                  test::limit),
                              un::error);
        }
    };
    both_fail({"all_reduce(max) of 2 float32", "all_reduce(min) of 2 float32"}, [](Group& group) {
        float data[2] = {1, 2};
        if (group.rank() == 0) un::all_reduce(group, data, un::Max{});
        else un::all_reduce(group, data, un::Min{});
    });
    both_fail({"all_reduce(max) of 2 float32", "all_reduce(max) of 3 float32"}, [](Group& group) {
        float data[3] = {1, 2, 3};
        un::all_reduce(group, std::span(data).first(group.rank() == 1 ? 3 : 2), un::Max{});
    });
    both_fail({"all_reduce(max) of 4000 float32", "all_reduce(min) of 4000 float32"}, [](Group& group) {
        std::vector<float> data(4000);
        if (group.rank() == 0) un::all_reduce(group, data, un::Max{});
        else un::all_reduce(group, data, un::Min{});
    });
    both_fail({"all_reduce(max) of 4000 float32", "all_reduce(max) of 4001 float32"}, [](Group& group) {
        std::vector<float> data(4001);
        const auto mine = std::span(data).first(group.rank() == 1 ? 4001 : 4000);
        if (group.rank() == 0) un::all_reduce(group, mine, un::Max{});
        else un::start_all_reduce(group, mine, un::Max{}).wait();
    });
    both_fail({"all_reduce(max) of 2 float32", "barrier"}, [](Group& group) {
        float data[2] = {1, 2};
        if (group.rank() == 0) un::all_reduce(group, data, un::Max{});
        else un::barrier(group);
    });
    both_fail({"broadcast of 1 float64", "another root"}, [](Group& group) {
        double data[1] = {1};
        un::broadcast(group, data, group.rank() == 1 ? 1 : 0);
        un::barrier(group); // neither rank read anything of the other
    });
}

BOOST_AUTO_TEST_CASE(more_than_goes_beside_a_flag_is_refused_by_name) {
    test::on_each_rank(2, [&](Group& group, test::Findings& findings) {
        std::vector<float> data(519, 1.0f);
        un::all_reduce(group, std::span(data).first(518), un::Sum{}, un::StagedSchedule{});
        findings.expect(data[0] == 2.0f && data[517] == 2.0f && data[518] == 1.0f, "518 elements");
        try {
            un::all_reduce(group, data, un::Sum{}, un::StagedSchedule{});
            findings.expect(false, "519 elements passed");
        } catch (const un::error& failed) {
            const std::string text = failed.what();
            findings.expect(failed.code() == un::ErrorCode::bad_input &&
                                text.find("at most 2072 bytes beside a flag, found 2076") != std::string::npos,
                            text);
        }
    });
}

BOOST_AUTO_TEST_SUITE_END()
