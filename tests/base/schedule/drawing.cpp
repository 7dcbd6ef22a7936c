// Drawings: well-formed, complete, and a function of the schedule alone.
#include <boost/test/unit_test.hpp>

#include "unisono/extensions/laboratory/draw.hpp"
#include "unisono/schedule/families.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace {

namespace un = unisono;
using namespace un::schedule;

/// Returns why a text is not a well-formed XML document of elements, attributes and escaped text.
/// Empty: it is one.
std::string fault_in_xml(std::string_view text) {
    std::vector<std::string> open;
    bool had_root = false;
    std::size_t at = 0;
    const auto is_name = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == ':';
    };
    const auto reference_ends = [&](std::size_t ampersand) {
        for (const std::string_view known : {"&amp;", "&lt;", "&gt;", "&quot;", "&apos;"})
            if (text.substr(ampersand, known.size()) == known) return true;
        return false;
    };
    while (at < text.size()) {
        if (text[at] != '<') {
            if (text[at] == '&' && !reference_ends(at)) return "bad reference at " + std::to_string(at);
            if (text[at] == '>') return "bare > at " + std::to_string(at);
            if (open.empty() && text[at] != '\n') return "text outside the root at " + std::to_string(at);
            ++at;
            continue;
        }
        const bool closing = text.substr(at, 2) == "</";
        at += closing ? 2 : 1;
        std::string name;
        while (at < text.size() && is_name(text[at])) name += text[at++];
        if (name.empty()) return "element without a name at " + std::to_string(at);
        if (closing) {
            if (open.empty() || open.back() != name) return "</" + name + "> closes nothing at " + std::to_string(at);
            open.pop_back();
        } else if (open.empty() && had_root) return "a second root <" + name + ">";
        std::vector<std::string> attributes;
        while (at < text.size() && text[at] == ' ') {
            std::string attribute;
            for (++at; at < text.size() && is_name(text[at]);) attribute += text[at++];
            for (const auto& other : attributes)
                if (other == attribute) return "attribute " + attribute + " twice in <" + name + ">";
            attributes.push_back(attribute);
            if (closing || attribute.empty() || text.substr(at, 2) != "=\"") return "bad attribute in <" + name + ">";
            for (at += 2; at < text.size() && text[at] != '"'; ++at)
                if (text[at] == '<' || (text[at] == '&' && !reference_ends(at))) return "bad value in <" + name + ">";
            ++at;
        }
        const bool empty = text.substr(at, 2) == "/>";
        at += empty ? 1 : 0;
        if (at >= text.size() || text[at] != '>') return "<" + name + "> does not end";
        ++at;
        had_root = true;
        if (!closing && !empty) open.push_back(name);
    }
    return !open.empty() ? "<" + open.back() + "> is never closed" : had_root ? "" : "no root";
}

std::size_t count(std::string_view text, std::string_view word) {
    std::size_t found = 0;
    for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) ++found;
    return found;
}

template <class Family, un::Collective What>
void draw_one(int world, int root) {
    const auto make = [](const Shape& shape) { return schedule_of<What>(Family{}, shape); };
    const std::string svg = draw(world, root, make);
    BOOST_TEST(fault_in_xml(svg) == "", make({}).name << " on " << world << ": " << fault_in_xml(svg));
    BOOST_TEST(svg == draw(world, root, make));
    BOOST_TEST(svg.find("NaN") == std::string::npos);
    std::size_t messages = 0;
    for (int rank = 0; rank < world; ++rank) messages += make({world, rank, root}).cost().messages;
    if (!ScheduleIn<Family, What>::mapped) // two arrows are in the legend
        BOOST_TEST(count(svg, "marker-end") == messages + 2, make({}).name << " on " << world << " ranks");
}

template <class... Families>
void draw_all(int world, int root) {
    (for_each_collective<Families>([&](auto what) { draw_one<Families, what>(world, root); }), ...);
}

/// A schedule whose name would break a drawing without escapes.
struct OddlyNamed : RingAllReduce {
    static constexpr std::string_view name = "a < b & \"c\" > 'd'";
    [[maybe_unused]] friend bool operator==(const OddlyNamed&, const OddlyNamed&) = default;
};

} // namespace

BOOST_AUTO_TEST_SUITE(schedule_drawing)

BOOST_AUTO_TEST_CASE(the_test_sees_broken_documents) {
    BOOST_TEST(fault_in_xml("<a><b/></a>") == "");
    for (const std::string_view broken :
         {"", "<a>", "<a></b>", "<a b=\"1\" b=\"2\"/>", "<a>&</a>", "<a/><a/>", "<a b=1/>", "<a b=\"<\"/>", "a"})
        BOOST_TEST(fault_in_xml(broken) != "", broken);
}

BOOST_AUTO_TEST_CASE(every_schedule) {
    for (const int world : {1, 2, 3, 7, 16})
        for (const int root : {0, world - 1})
            draw_all<un::RingSchedule, un::TreeSchedule, un::HalvingDoublingSchedule, un::DirectSchedule,
                     un::MappedSchedule, un::StagedSchedule>(world, root);
}

BOOST_AUTO_TEST_CASE(what_is_in_it) {
    const std::string ring = draw<RingAllReduce>(3);
    BOOST_TEST(ring.find(">ring all_reduce, 3 ranks<") != std::string::npos);
    BOOST_TEST(ring.find(">rank 2<") != std::string::npos);
    BOOST_TEST(ring.find(">round 3<") != std::string::npos);
    BOOST_TEST(ring.find("rank 1, round 0: send input[1] to rank 2") != std::string::npos);
    BOOST_TEST(count(ring, "<line class=\"combine\"") == 3u * 2u + 1u);
    BOOST_TEST(count(ring, "<line class=\"send\"") == 3u * 2u + 1u);
    BOOST_TEST(count(ring, "class=\"label\"") == 12u);
    const std::string mapped = draw<Mapped<un::Collective::all_reduce>>(3);
    BOOST_TEST(count(mapped, "class=\"flag\"") == 3u * 2u + 1u);
    BOOST_TEST(count(mapped, "<line class=\"wait\"") == 3u * 2u + 1u);
    BOOST_TEST(count(mapped, "<line class=\"read\"") == 3u * 2u + 1u);
    BOOST_TEST(count(mapped, "<line class=\"write\"") == 3u * 2u + 1u);
    BOOST_TEST(draw<TreeGather>(5, 2).find("tree gather, 5 ranks, root 2") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(odd_names_are_escaped) {
    const std::string svg = draw(2, 0, [](const Shape& shape) { return OddlyNamed{{shape}}; });
    BOOST_TEST(fault_in_xml(svg) == "");
    BOOST_TEST(svg.find("a &lt; b &amp; &quot;c&quot; &gt; &apos;d&apos;, 2 ranks") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(steps_in_words) {
    BOOST_TEST(describe(send_to(4, output_blocks(2, 2), 1)) == "send output[2..3] to rank 4, part 1");
    BOOST_TEST(describe(combine_from(0, input_blocks(1), scratch_blocks(1, 1, 3, 1))) ==
               "receive_combine input[1] with what rank 0 sends into scratch[1] in slot 3 behind 1");
    BOOST_TEST(describe(detail::combine_all_ranks(input_blocks(1), everyone, output_blocks(1))) ==
               "combine_peers input[1] of all ranks into output[1] of all ranks");
    BOOST_TEST(describe(Step{StepKind::post, everyone, input_blocks(0), {}, 0}) == "post with input[0]");
    BOOST_TEST(describe(Step{StepKind::await, everyone, {}, {}, 0}) == "await");
}

BOOST_AUTO_TEST_CASE(bad_shapes_are_refused) { BOOST_CHECK_THROW(draw<RingAllReduce>(0), un::error); }

BOOST_AUTO_TEST_SUITE_END()
