// Tests the verifier: each schedule has one fault, which must be reported in the given words.
#include <boost/test/unit_test.hpp>

#include "unisono/extensions/laboratory/verify.hpp"
#include "unisono/schedule/families.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace un = unisono;
using namespace un::schedule;

/// The schedule of one rank as a list of steps, to be edited.
struct Edited {
    Shape shape = {};
    std::vector<std::vector<Step>> all = {};
    std::uint32_t block_count = 0, slots = 0, depth = 0;
    Cost claim = {};
};

template <class S>
Edited write_out(const S& original) {
    Edited edited{original.shape, {}, original.blocks(), original.scratch_slots(), original.channel_depth(),
                  original.cost()};
    for (std::uint32_t r = 0; r < original.rounds(); ++r) {
        edited.all.emplace_back();
        original.round(r, [&](const Step& step) { edited.all.back().push_back(step); });
    }
    return edited;
}

using Edit = std::function<void(int rank, Edited& schedule)>;

/// Verifies the ranks' lists of steps as schedule S.
template <class S>
Report verify_edited(int world, int root, const Edit& edit) {
    const auto make = [](const Shape& shape) { return S{shape}; };
    detail::Program program = detail::forget_type(world, root, make);
    std::vector<Edited> ranks;
    for (int rank = 0; rank < world; ++rank) {
        ranks.push_back(write_out(make({world, rank, root})));
        Edited& edited = ranks.back();
        edit(rank, edited);
        program.ranks[static_cast<std::size_t>(rank)] = {edited.block_count,
                                                         static_cast<std::uint32_t>(edited.all.size()), edited.slots,
                                                         edited.depth, edited.claim};
    }
    program.blocks = ranks.front().block_count;
    program.factory = &ranks;
    program.generate = [](const void* written, const Shape& shape, std::uint32_t round, std::vector<Step>& steps) {
        steps = (*static_cast<const std::vector<Edited>*>(written))[static_cast<std::size_t>(shape.rank)].all[round];
    };
    Report report;
    detail::verify_program(program, {}, report);
    return report;
}

std::string all_of(const Report& report) {
    std::string text;
    for (const auto& violation : report.violations) text += violation + "\n";
    return text;
}

/// The first violation must contain these words.
void check_first(const Report& report, std::initializer_list<std::string_view> words) {
    BOOST_TEST_REQUIRE(!report.proven());
    for (const auto& word : words)
        BOOST_TEST(report.violations.front().find(word) != std::string::npos, "expected '" << word << "' first in\n"
                                                                                           << all_of(report));
}

/// Some violation must contain these words.
void check_any(const Report& report, std::string_view words) {
    BOOST_TEST(all_of(report).find(words) != std::string::npos, "expected '" << words << "' in\n" << all_of(report));
}

const Edit no_edit = [](int, Edited&) {};

/// A first attempt: each rank sends its sum to the rank 2^k further on, and adds what arrives.
/// Right for powers of two.
template <bool SameBuffer>
struct NaiveDoubling {
    static constexpr un::Collective collective = un::Collective::all_reduce;
    static constexpr std::string_view name = "naive doubling";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    Shape shape;
    std::uint32_t blocks() const { return 1; }
    std::uint32_t rounds() const { return detail::ceil_log2(detail::world_of(shape)); }
    std::uint32_t scratch_slots() const { return 2; }
    std::uint32_t channel_depth() const { return 1; }
    Cost cost() const { return {rounds(), rounds(), rounds(), rounds()}; }
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        const auto sum = [&](std::uint32_t k) {
            return k == 0                        ? input_blocks(0)
                   : k == rounds() || SameBuffer ? output_blocks(0)
                                                 : scratch_blocks(0, 1, k % 2);
        };
        visit(send_to(detail::rank_at(shape, 1 << r), sum(r)));
        visit(combine_from(detail::rank_at(shape, -(1 << r)), sum(r), sum(r + 1)));
    }
    friend bool operator==(const NaiveDoubling&, const NaiveDoubling&) = default;
};

/// Ranks 0 and 1 swap and add, twice. Right if input and output are different memory.
struct Overwriting {
    static constexpr un::Collective collective = un::Collective::all_reduce;
    static constexpr std::string_view name = "overwriting";
    static constexpr bool mapped = false;
    static constexpr bool single_blocks = true;
    Shape shape;
    std::uint32_t blocks() const { return 1; }
    std::uint32_t rounds() const { return 2; }
    std::uint32_t scratch_slots() const { return 0; }
    std::uint32_t channel_depth() const { return 1; }
    Cost cost() const { return {2, 2, 1, 2}; }
    template <class Visit>
    void round(std::uint32_t r, Visit&& visit) const {
        const int peer = 1 - shape.rank;
        visit(send_to(peer, input_blocks(0)));
        if (r == 0) visit(receive_from(peer, output_blocks(0)));
        else visit(combine_from(peer, input_blocks(0), output_blocks(0)));
    }
    [[maybe_unused]] friend bool operator==(const Overwriting&, const Overwriting&) = default;
};

} // namespace

BOOST_AUTO_TEST_SUITE(schedule_mutants)

BOOST_AUTO_TEST_CASE(unedited_copies_are_proven) {
    BOOST_TEST(verify_edited<RingAllReduce>(5, 0, no_edit).proven());
    BOOST_TEST(verify_edited<TreeGather>(7, 3, no_edit).proven());
    BOOST_TEST(verify_edited<Mapped<un::Collective::all_reduce>>(4, 0, no_edit).proven());
    BOOST_TEST(verify<NaiveDoubling<false>>(4).proven());
}

// A writer must wait for every reader, however many others it has waited for.
BOOST_AUTO_TEST_CASE(root_that_awaits_one_reader_of_many) {
    for (int world = 3; world <= 5; ++world)
        for (int awaited = 1; awaited < world; ++awaited)
            check_any(verify_edited<Mapped<un::Collective::broadcast>>(world, 0,
                                                                       [&](int rank, Edited& s) {
                                                                           for (auto& round : s.all)
                                                                               for (Step& step : round)
                                                                                   if (rank == 0 &&
                                                                                       step.kind == StepKind::await)
                                                                                       step.peer = awaited;
                                                                       }),
                      "data race");
}

BOOST_AUTO_TEST_CASE(dropped_send) {
    const auto report = verify_edited<RingAllReduce>(4, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[3].erase(s.all[3].begin());
    });
    check_first(report,
                {"ring all_reduce on 4 ranks", "rank 3, round 3", "deadlock", "rank 2 sends it no such message"});
}

BOOST_AUTO_TEST_CASE(dropped_receive) {
    const auto report = verify_edited<DirectGather>(4, 1, [](int rank, Edited& s) {
        if (rank == 1) s.all[0].pop_back();
    });
    check_first(report, {"rank 0, round 0", "its message to rank 1", "never received"});
}

BOOST_AUTO_TEST_CASE(dropped_contribution) {
    const auto report = verify_edited<TreeReduce>(6, 0, [](int rank, Edited& s) {
        if (rank == 5) s.all[0].clear();
        if (rank == 4) s.all[0].clear(), s.all[2] = {send_to(0, input_blocks(0))};
    });
    check_first(report, {"rank 0", "output[0]", "lacks the contribution of rank 5"});
}

BOOST_AUTO_TEST_CASE(doubled_contribution) {
    check_first(verify<NaiveDoubling<false>>(3), {"rank 0, round 1", "contribution of rank 0 to block 0 counts twice"});
}

BOOST_AUTO_TEST_CASE(wrong_peer) {
    const auto report = verify_edited<RingAllGather>(4, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[1][0].peer = 3;
    });
    check_any(report, "rank 2, round 1");
    check_any(report, "rank 1, round 1: its message to rank 3 (part 0) is never received");
    const auto absent = verify_edited<RingAllGather>(4, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[1][0].peer = 4;
    });
    check_first(absent, {"rank 1, round 1", "there is no such rank"});
    const auto itself = verify_edited<RingAllGather>(4, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[1][0].peer = 1;
    });
    check_first(itself, {"rank 1, round 1", "a message to itself"});
}

BOOST_AUTO_TEST_CASE(wrong_block_on_one_side) {
    const auto report = verify_edited<RingAllGather>(4, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[2][0].source.first = 0;
    });
    check_first(report, {"rank 1, round 2", "receives [2] but rank 0 sends [0]"});
}

BOOST_AUTO_TEST_CASE(wrong_block_on_both_sides) {
    const auto report = verify_edited<DirectAllGather>(3, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[0][1].source = output_blocks(0), s.all[0][2].source = input_blocks(0);
        if (rank == 1)
            for (auto& step : s.all[0])
                if (step.kind == StepKind::receive) step.peer = step.peer == 0 ? 2 : 0;
    });
    check_first(report, {"rank 1, round 0", "receives ["});
}

BOOST_AUTO_TEST_CASE(missing_result) {
    const auto report = verify_edited<Mapped<un::Collective::all_gather>>(3, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[1].erase(s.all[1].begin());
    });
    check_first(report, {"rank 2: output[0] was never written"});
}

BOOST_AUTO_TEST_CASE(result_in_the_wrong_place) {
    const auto report = verify_edited<Mapped<un::Collective::all_to_all>>(3, 0, [](int rank, Edited& s) {
        if (rank == 2) std::swap(s.all[1][0].target, s.all[1][1].target);
    });
    check_first(report, {"rank 2: output[0]", "holds that of rank 1"});
}

BOOST_AUTO_TEST_CASE(wrong_rank_order_of_blocks) {
    const auto report = verify_edited<Mapped<un::Collective::scatter>>(3, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[1][0].source.first = 1;
    });
    check_first(report, {"rank 2", "output[2] holds block 1, expected block 2"});
}

BOOST_AUTO_TEST_CASE(swapped_rounds_deadlock) {
    const auto report = verify_edited<RingReduce>(4, 0, [](int rank, Edited& s) {
        if (rank == 2) std::swap(s.all[0], s.all[1]);
    });
    check_any(report, "deadlock");
    check_any(report, "but in round");
}

BOOST_AUTO_TEST_CASE(too_small_depth) {
    const auto report = verify_edited<RingAllReduce>(5, 0, [](int, Edited& s) { s.depth = 0; });
    check_first(report, {"deadlock with channels of depth 0", "rank 0 to send to rank 1 in round 0"});
    const auto differing =
        verify_edited<RingAllReduce>(5, 0, [](int rank, Edited& s) { s.depth += rank == 3 ? 1 : 0; });
    check_first(differing, {"rank 3 claims channel depth 2, rank 0 claims 1"});
    // Two messages to the same peer before either receives: one slot is not enough, unless a rank
    // receives first.
    const auto two = [](int, Edited& s) {
        s.all[0].insert(s.all[0].begin() + 2, send_to(1 - s.shape.rank, input_blocks(0, 0), 1));
        s.all[0].push_back(receive_from(1 - s.shape.rank, output_blocks(0, 0), 1));
        ++s.claim.messages;
    };
    const auto needs_two = verify_edited<RingAllGather>(2, 0, two);
    check_first(needs_two, {"deadlock with channels of depth 1"});
    const auto has_two = verify_edited<RingAllGather>(2, 0, [&](int rank, Edited& s) { two(rank, s), s.depth = 2; });
    BOOST_TEST(has_two.proven(), all_of(has_two));
    BOOST_TEST(has_two.least_depth == 2u);
}

BOOST_AUTO_TEST_CASE(wrong_cost) {
    const auto wrong = [](auto change) {
        return verify_edited<RingAllReduce>(3, 0, [=](int rank, Edited& s) {
            if (rank == 1) change(s.claim);
        });
    };
    check_first(wrong([](Cost& c) { ++c.messages; }), {"rank 1: cost() claims 5 messages, counted 4"});
    check_first(wrong([](Cost& c) { --c.blocks_sent; }), {"claims 3 blocks sent, counted 4"});
    check_first(wrong([](Cost& c) { ++c.blocks_combined; }), {"claims 3 blocks combined, counted 2"});
    check_first(wrong([](Cost& c) { ++c.rounds; }), {"claims 5 rounds, counted 4"});
    const auto mapped =
        verify_edited<Mapped<un::Collective::all_reduce>>(3, 0, [](int, Edited& s) { s.claim.rounds = 1; });
    check_first(mapped, {"claims 1 rounds, counted 2"});
}

BOOST_AUTO_TEST_CASE(hazard_in_a_round) {
    check_first(verify<NaiveDoubling<true>>(4), {"rank 0, round 1, step 0 (send output[0] to rank 2)",
                                                 "while another step of the round receives into it"});
    const auto twice = verify_edited<DirectGather>(3, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[0][2].target = s.all[0][1].target;
    });
    check_first(twice, {"rank 0, round 0", "two steps of the round receive into this"});
    const auto local = verify_edited<RingAllGather>(3, 0, [](int rank, Edited& s) {
        if (rank == 0) std::swap(s.all[0][0], s.all[0][1]);
    });
    check_first(local, {"local steps come before the messages"});
}

BOOST_AUTO_TEST_CASE(hazard_only_in_place) {
    const auto report = verify<Overwriting>(2);
    check_first(report, {"in place: rank 0, round 0", "while another step of the round receives into it"});
}

BOOST_AUTO_TEST_CASE(read_before_write) {
    const auto report = verify_edited<RingAllGather>(4, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[1][0].source.first = 2;
    });
    check_any(report,
              "rank 0, round 1, step 0 (send output[2] to rank 1): reads block 2 from output before it is written");
    const auto scratch = verify_edited<RingReduceScatter>(5, 0, [](int rank, Edited& s) {
        if (rank == 4) s.all[1][0].source.slot = 1;
    });
    check_any(scratch,
              "rank 4, round 1, step 0 (send scratch[2] in slot 1 to rank 0): reads block 2 from scratch before it is");
}

BOOST_AUTO_TEST_CASE(input_is_written) {
    const auto report = verify_edited<RingAllReduce>(3, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[0][1].target.where = Buffer::input;
    });
    check_first(report, {"rank 1, round 0", "writes to the input"});
}

BOOST_AUTO_TEST_CASE(memory_that_a_rank_does_not_have) {
    const auto output = verify_edited<TreeReduce>(4, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[0][0].target = output_blocks(0);
    });
    check_first(output, {"rank 2", "this rank has no output block 0"});
    const auto slots =
        verify_edited<RingReduceScatter>(5, 0, [](int rank, Edited& s) { s.slots -= rank == 3 ? 1 : 0; });
    check_first(slots, {"rank 3", "leaves the scratch memory of 1 slots"});
    const auto block = verify_edited<RingAllGather>(3, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[1][0].source.first = 3;
    });
    check_first(block, {"block 3 does not exist, there are 3"});
    const auto input = verify_edited<RingAllGather>(3, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[1][0].source.where = Buffer::input;
    });
    check_first(input, {"rank 0, round 1", "this rank is given no input block 2"});
}

BOOST_AUTO_TEST_CASE(scratch_of_uneven_blocks) {
    // Without `ahead` each received range would start a new run, and the whole could not be sent as
    // one.
    const auto unpacked = verify_edited<TreeGather>(8, 0, [](int rank, Edited& s) {
        if (rank != 4) return;
        for (auto& round : s.all)
            for (auto& step : round)
                if (step.target.where == Buffer::scratch) step.target.slot += step.target.ahead, step.target.ahead = 0;
    });
    check_first(unpacked, {"rank 4", "from scratch before it is written"});
    // Runs with different starts may share bytes although they share no slot number.
    const auto shared = verify_edited<HalvingReduceScatter>(8, 0, [](int rank, Edited& s) {
        if (rank != 0) return;
        s.all[0].back().target = scratch_blocks(0, 4, 0);
        s.all[0].insert(s.all[0].begin(), copy_blocks(input_blocks(5, 1), scratch_blocks(5, 1, 3)));
    });
    check_first(shared, {"rank 0, round 0", "may share memory with"});
}

BOOST_AUTO_TEST_CASE(parts) {
    const auto same = verify_edited<TreeGather>(8, 3, [](int, Edited& s) {
        for (auto& round : s.all)
            for (auto& step : round) step.part = 0;
    });
    check_any(same,
              "rank 3, round 2, step 0 (receive output[7] from rank 7): two messages of the round have the same part");
    const auto reversed = verify_edited<TreeGather>(8, 3, [](int rank, Edited& s) {
        if (rank == 7) std::swap(s.all[2][0], s.all[2][1]);
    });
    check_any(reversed, "received in another order than they are sent");
}

BOOST_AUTO_TEST_CASE(blocks_differ) {
    const auto report =
        verify_edited<RingAllReduce>(3, 0, [](int rank, Edited& s) { s.block_count += rank == 2 ? 1 : 0; });
    check_first(report, {"rank 2 has 4 blocks, rank 0 has 3"});
}

BOOST_AUTO_TEST_CASE(barrier_that_lets_go_too_early) {
    const auto report = verify_edited<DisseminationBarrier>(5, 0, [](int, Edited& s) {
        s.all.pop_back();
        --s.claim.messages, --s.claim.rounds;
    });
    check_first(report, {"rank 0 leaves without having heard from rank 1"});
}

BOOST_AUTO_TEST_CASE(mapped_races) {
    const auto no_entry =
        verify_edited<Mapped<un::Collective::all_reduce>>(3, 0, [](int, Edited& s) { s.all.erase(s.all.begin()); });
    check_first(no_entry, {"data race", "rank 0, round 0", "input[0] of rank 1 while rank 1 may write it"});
    const auto no_exit =
        verify_edited<Mapped<un::Collective::all_reduce>>(3, 0, [](int, Edited& s) { s.all[1].resize(1); });
    check_any(no_exit, "data race: the caller reads output[2] of rank 0 while rank 2 may write it");
    check_any(no_exit, "data race: the caller writes input[2] of rank 0 while rank 2 may read it");
    const auto others_block = verify_edited<Mapped<un::Collective::all_reduce>>(3, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[1][0].source.first = 2, s.all[1][0].target.first = 2;
    });
    check_first(others_block, {"data race", "output[2] of rank 0 while rank 2 may write it"});
    const auto gather = verify_edited<Mapped<un::Collective::gather>>(3, 0, [](int rank, Edited& s) {
        if (rank != 0) s.all[0].pop_back(), s.claim.rounds = 0;
    });
    check_any(gather, "data race: reads input[1] of rank 1 while rank 1 may write it");
    const auto barrier = verify_edited<MappedBarrier>(3, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[0].clear(), s.claim.rounds = 0;
    });
    check_any(barrier, "rank 1 leaves without having heard from rank 0");
    check_any(barrier, "deadlock: rank 0 awaits 1 posts in round 0, rank 1 makes 0");
}

// A rank reports that it is done and then reads: any rank, with any number of other readers.
BOOST_AUTO_TEST_CASE(mapped_reads_behind_the_last_flag) {
    for (const int world : {2, 3, 4, 5, 9}) {
        for (int root = 0; root < world; ++root) {
            for (int late = 0; late < world; ++late) {
                if (late == root) continue;
                const auto report =
                    verify_edited<Mapped<un::Collective::broadcast>>(world, root, [&](int rank, Edited& s) {
                        if (rank == late) std::swap(s.all[1][0], s.all[1][1]);
                    });
                BOOST_TEST_CONTEXT(world << " ranks, root " << root << ", rank " << late << " late")
                check_any(report, "data race: the caller writes output[0] of rank " + std::to_string(root) +
                                      " while rank " + std::to_string(late) + " may read it");
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(staged_copies_are_left_alone_but_inputs_are_not) {
    const auto report = verify_edited<Staged<un::Collective::all_reduce>>(
        3, 0, [](int, Edited& s) { s.all[1][0].source.where = Buffer::input; });
    check_first(report, {"touches another's buffer although staged is claimed"});
    const auto not_posted = verify_edited<Staged<un::Collective::all_reduce>>(3, 0, [](int rank, Edited& s) {
        if (rank == 1) s.all[0][0].source = {};
    });
    check_first(not_posted, {"reads posted[0] of rank 1 before it is written"});
    const auto misplaced = verify_edited<Staged<un::Collective::all_to_all>>(3, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[1][0].source.ahead = 1;
    });
    check_first(misplaced, {"looks for posted[2] of rank 0 behind 1 blocks of a copy that begins with block 0"});
}

BOOST_AUTO_TEST_CASE(mapped_deadlock) {
    const auto report = verify_edited<Mapped<un::Collective::reduce>>(4, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all[1].erase(s.all[1].begin() + 1);
    });
    check_any(report, "deadlock: rank 0 awaits 2 posts in round 1, rank 2 makes 1");
    const auto missing = verify_edited<MappedBarrier>(4, 0, [](int rank, Edited& s) {
        if (rank == 2) s.all.clear(), s.claim.rounds = 0;
    });
    check_any(missing, "deadlock: rank 0 awaits 1 posts in round 0, rank 2 makes 0");
    const auto twice =
        verify_edited<MappedBarrier>(2, 0, [](int, Edited& s) { s.all[0].insert(s.all[0].begin(), s.all[0][0]); });
    check_first(twice, {"posts again without having awaited"});
}

BOOST_AUTO_TEST_CASE(steps_of_the_wrong_kind) {
    const auto mapped = verify_edited<RingAllGather>(2, 0, [](int, Edited& s) {
        s.all[0].push_back({StepKind::await, everyone, {}, {}, 0});
    });
    check_first(mapped, {"mapped steps in a schedule that is not mapped"});
    const auto messages = verify_edited<MappedBarrier>(
        2, 0, [](int rank, Edited& s) { s.all[0].insert(s.all[0].begin(), send_to(1 - rank, input_blocks(0, 0))); });
    check_first(messages, {"a mapped schedule cannot have steps that send"});
    const auto several = verify_edited<RingAllReduce>(4, 0, [](int rank, Edited& s) {
        if (rank == 0) s.all[0][0].source.first = 0, s.all[0][0].source.count = 2;
    });
    check_first(several, {"has several blocks although single_blocks is claimed"});
}

BOOST_AUTO_TEST_CASE(bad_shapes_are_refused) {
    const auto says = [](std::string_view words) {
        return [=](const un::error& e) {
            return e.code() == un::ErrorCode::bad_input &&
                   std::string_view(e.what()).find(words) != std::string_view::npos;
        };
    };
    BOOST_CHECK_EXCEPTION(verify<RingAllReduce>(0), un::error, says("world is 0"));
    BOOST_CHECK_EXCEPTION(verify<TreeGather>(3, 3), un::error, says("root is 3, expected 0 to 2"));
    BOOST_CHECK_EXCEPTION(verify<TreeGather>(3, -1), un::error, says("root is -1"));
    BOOST_CHECK_EXCEPTION(verify<TreeGather>(40000), un::error, says("expected at most 32767"));
    BOOST_CHECK_EXCEPTION(refuse_bad_shape({4, 4, 0}), un::error, says("rank is 4, expected 0 to 3"));
}

BOOST_AUTO_TEST_SUITE_END()
