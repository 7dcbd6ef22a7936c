// Pipeline schedules are proven, as fast as their formulas, and drawn. The proof finds errors.
#include <unisono/extensions/parallel/pipeline_proof.hpp>
#include <unisono/extensions/parallel/pipeline_schedules.hpp>
#include <unisono/extensions/parallel/pipeline_timeline.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace un = unisono;

namespace {

template <class Schedule>
void prove(const Schedule& schedule, int stages, std::uint32_t micro_batches, bool full) {
    const un::PipelineProgram program = un::pipeline_program(schedule, stages, micro_batches);
    const un::PipelineReport report = un::verify_pipeline(program);
    BOOST_TEST(report.proven(), (report.proven() ? "" : report.violations[0]));
    const std::uint64_t edges = stages == 1 ? 0 : program.parts() - 1;
    BOOST_TEST(report.messages == 2 * edges * micro_batches);
    if (full) {
        for (std::size_t s = 0; s < report.in_flight.size(); ++s)
            BOOST_TEST(report.in_flight[s] == program.in_flight[s],
                       Schedule::name << " " << stages << " " << micro_batches << ", stage " << s);
        const double bubble = un::pipeline_timeline(program).bubble();
        BOOST_TEST(std::abs(bubble - un::ideal_bubble(stages, micro_batches, schedule.chunks)) < 1e-12,
                   Schedule::name << " of " << stages << ", " << micro_batches << ", " << schedule.chunks << ": "
                                  << bubble);
    }
}

/// The proof's text for 1F1B on three stages after a change.
std::string changed(const std::function<void(un::PipelineProgram&)>& change) {
    un::PipelineProgram program = un::pipeline_program(un::OneForwardOneBackward{}, 3, 4);
    change(program);
    const un::PipelineReport report = un::verify_pipeline(program);
    return report.proven() ? "proven" : report.violations[0];
}
/// The work of a single stage in a given order.
struct InThisOrder {
    static constexpr std::string_view name = "in this order";
    std::array<un::PipelineWork, 12> order = {};
    std::uint32_t chunks = 2;

    template <class Visit>
    void work(const un::PipelineShape&, Visit&& visit) const {
        for (const un::PipelineWork& one : order) visit(one);
    }
    [[nodiscard]] static std::size_t in_flight(const un::PipelineShape&) { return 6; }
};
std::string said_of(const InThisOrder& schedule) {
    const un::PipelineReport report = un::verify_pipeline(schedule, 1, 3);
    return report.proven() ? "proven" : report.violations[0];
}
/// A schedule whose name would break a drawing without escapes.
struct OddlyNamed : un::GPipe {
    static constexpr std::string_view name = "a < b & \"c\"";
};
bool says(const std::string& text, const std::string& words) {
    if (text.find(words) != std::string::npos) return true;
    BOOST_TEST_MESSAGE(text);
    return false;
}

} // namespace

BOOST_AUTO_TEST_SUITE(pipelines)

BOOST_AUTO_TEST_CASE(all_are_proven_and_have_their_bubble) {
    for (int p = 1; p <= 8; ++p)
        for (std::uint32_t m = 1; m <= 20; ++m) {
            prove(un::GPipe{}, p, m, true);
            prove(un::OneForwardOneBackward{}, p, m, true);
            for (std::uint32_t v = 1; v <= 4; ++v)
                prove(un::Interleaved{v}, p, m, m % static_cast<std::uint32_t>(p) == 0);
        }
    prove(un::OneForwardOneBackward{}, 64, 256, true);
    prove(un::Interleaved{8}, 32, 64, true);
    prove(un::Interleaved{3}, 7, 50, false);
}

BOOST_AUTO_TEST_CASE(messages_and_uneven_parts_take_their_time) {
    // Two stages, two micro-batches, each with 1 forward and 2 backward. A message takes 0.5, so
    // the total is 1 + 0.5 + 3 + 3 + 0.5 + 2.
    const auto program = un::pipeline_program(un::OneForwardOneBackward{}, 2, 2);
    BOOST_TEST(std::abs(un::pipeline_timeline(program, {.transfer = 0.5}).total - 10) < 1e-12);
    // The slow part determines the time: the first fills it, and the last empties it.
    const auto timeline = un::pipeline_timeline(program, {.parts = {{1, 1}, {5, 5}}});
    BOOST_TEST(std::abs(timeline.total - 22) < 1e-12);
    BOOST_TEST(timeline.busy[0] == 4);
    BOOST_TEST(timeline.busy[1] == 20);
    BOOST_CHECK_THROW(un::pipeline_timeline(program, {.parts = {{1, 1}}}), un::error);
    BOOST_CHECK_THROW(un::pipeline_timeline(program, {.parts = {{1, 1}, {-1, 1}}}), un::error);
}

BOOST_AUTO_TEST_CASE(the_proof_finds_what_is_wrong) {
    using un::PipelineAction;
    using un::PipelineStep;
    BOOST_TEST(changed([](auto&) {}) == "proven");
    const auto find = [](std::vector<PipelineAction>& all, PipelineStep step, std::uint32_t i) {
        return std::find_if(all.begin(), all.end(),
                            [&](const PipelineAction& one) { return one.step == step && one.micro_batch == i; });
    };
    BOOST_TEST(says(changed([&](auto& p) { p.actions[1].erase(find(p.actions[1], PipelineStep::send_activation, 2)); }),
                    "the message that comes is of micro-batch 3"));
    BOOST_TEST(
        says(changed([&](auto& p) { p.actions[0].erase(find(p.actions[0], PipelineStep::receive_gradient, 3)); }),
             "never received"));
    BOOST_TEST(says(changed([&](auto& p) { p.actions[1].erase(find(p.actions[1], PipelineStep::send_gradient, 3)); }),
                    "waits for ever"));
    BOOST_TEST(says(changed([&](auto& p) { p.actions[2].erase(find(p.actions[2], PipelineStep::backward, 3)); }),
                    "3 backward"));
    BOOST_TEST(says(changed([&](auto& p) {
                        std::swap(*find(p.actions[2], PipelineStep::forward, 0),
                                  *find(p.actions[2], PipelineStep::backward, 0));
                    }),
                    "backward before forward"));
    BOOST_TEST(says(changed([&](auto& p) { find(p.actions[1], PipelineStep::forward, 1)->micro_batch = 0; }),
                    "out of order, or twice"));
    BOOST_TEST(
        says(changed([&](auto& p) { p.in_flight[0] = 2; }), "has 3 activations in flight, the schedule claims 2"));
    // The last stage goes backward before anything was sent, so no stage can continue.
    BOOST_TEST(says(changed([&](auto& p) {
                        std::rotate(p.actions[0].begin(), find(p.actions[0], PipelineStep::receive_gradient, 0),
                                    p.actions[0].end());
                    }),
                    "waits for ever"));
    // There is no room for a gradient, so a stage that would send one waits.
    BOOST_TEST(!un::verify_pipeline(un::pipeline_program(un::OneForwardOneBackward{}, 3, 4), 0).proven());
}

BOOST_AUTO_TEST_CASE(the_proof_finds_slots_that_are_still_needed) {
    for (const int stages : {1, 2, 3})
        for (const std::uint32_t v : {2u, 3u, 5u}) {
            un::PipelineProgram program = un::pipeline_program(un::Interleaved{v}, stages, 6);
            BOOST_TEST(un::verify_pipeline(program).proven());
            std::size_t& slots = program.slot_counts[0][v - 1];
            BOOST_TEST(slots >= 1u);
            --slots;
            BOOST_TEST(
                says(un::verify_pipeline(program).violations.at(0), slots == 0 ? "has no slot" : "in that slot"));
        }
    // A stage computes an input of the second chunk before the micro-batch ahead of it is through.
    const un::PipelineProgram one = un::pipeline_program(un::Interleaved{3}, 1, 6);
    BOOST_TEST((one.slot_counts[0] == std::vector<std::size_t>{2, 2, 1}));
}

BOOST_AUTO_TEST_CASE(the_proof_finds_what_is_wrong_on_a_single_stage) {
    constexpr auto ahead = un::PipelinePhase::forward, back = un::PipelinePhase::backward;
    InThisOrder schedule{{{{ahead, 0, 0},
                           {ahead, 0, 1},
                           {back, 0, 1},
                           {back, 0, 0},
                           {ahead, 1, 0},
                           {ahead, 1, 1},
                           {back, 1, 1},
                           {back, 1, 0},
                           {ahead, 2, 0},
                           {ahead, 2, 1},
                           {back, 2, 1},
                           {back, 2, 0}}}};
    BOOST_TEST(said_of(schedule) == "proven");
    InThisOrder other = schedule;
    std::swap(other.order[0], other.order[1]); // the second chunk before the first
    BOOST_TEST(says(said_of(other), "waits for ever"));
    other = schedule;
    std::swap(other.order[2], other.order[3]); // the gradient is not there yet
    BOOST_TEST(says(said_of(other), "waits for ever"));
    // Three gradients of a part, with room for two.
    other = {{{{ahead, 0, 0},
               {ahead, 0, 1},
               {ahead, 1, 0},
               {ahead, 1, 1},
               {ahead, 2, 0},
               {ahead, 2, 1},
               {back, 0, 1},
               {back, 1, 1},
               {back, 2, 1},
               {back, 0, 0},
               {back, 1, 0},
               {back, 2, 0}}}};
    BOOST_TEST(says(said_of(other), "waits for ever"));
}

BOOST_AUTO_TEST_CASE(what_is_no_pipeline_is_refused) {
    BOOST_CHECK_THROW(un::pipeline_program(un::GPipe{}, 0, 1), un::error);
    BOOST_CHECK_THROW(un::pipeline_program(un::GPipe{}, 2, 0), un::error);
    BOOST_CHECK_THROW(un::pipeline_program(un::Interleaved{0}, 2, 2), un::error);
}

BOOST_AUTO_TEST_CASE(a_drawing_has_every_piece_of_work) {
    const std::string svg = un::draw_pipeline(un::Interleaved{2}, 2, 4);
    const auto count = [&](const std::string& words) {
        std::size_t found = 0;
        for (std::size_t at = svg.find(words); at != std::string::npos; at = svg.find(words, at + 1)) ++found;
        return found;
    };
    BOOST_TEST(count("<title>") == 2u * 2 * 2 * 4);
    BOOST_TEST(count("micro-batch 3 backward") == 4u);
    BOOST_TEST(count("bubble 11.1 %") == 1u);
    BOOST_TEST(svg.ends_with("</svg>\n"));
}

BOOST_AUTO_TEST_CASE(a_drawing_escapes_its_name) {
    const std::string svg = un::draw_pipeline(OddlyNamed{}, 2, 2);
    BOOST_TEST(says(svg, "a &lt; b &amp; &quot;c&quot;, 2 stages"));
    BOOST_TEST(!says(svg, "a < b"));
}

BOOST_AUTO_TEST_SUITE_END()
