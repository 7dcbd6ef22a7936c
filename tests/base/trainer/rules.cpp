// The tables of docs/rules.md are the rows of the rules themselves.
#include "unisono/extensions/elastic/rules.hpp"
#include "unisono/extensions/checkpoint/checkpoints.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/extensions/trainers/full_batch.hpp"
#include "unisono/trainer/policy_set.hpp"
#include "unisono/trainer/reproducible.hpp"
#include "unisono/transport/in_process.hpp"
#include "unisono/update/averaging.hpp"

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace un = unisono;

namespace {

/// Without words that a reader of Markdown takes for HTML, as Group<Nccl>.
std::string plain(std::string_view words) {
    std::string text;
    for (const char each : words) {
        if (each == '<') text += '\\';
        text += each;
    }
    return text;
}

template <class Table>
std::string markdown(const std::string& title) {
    std::string families, others;
    for (const un::detail::RuleText& row : Table::texts) {
        if (row.required == "at most one") families += "- " + plain(row.found) + ": " + plain(row.why) + "\n";
        else
            others += "- **Found:** " + plain(row.found) + ".\n  **Required:** " + plain(row.required) +
                      ".\n  **Why:** " + plain(row.why) + ".\n";
    }
    std::string text = "## " + title + "\n\n";
    if (!families.empty()) text += "At most one policy of each family:\n\n" + families + "\nBetween families:\n\n";
    return text + others;
}

std::string tables() {
    return markdown<un::detail::PolicyRules>("Among policies") + "\n" +
           markdown<un::detail::ModelRules>("With the model and the transport") + "\n" +
           markdown<un::detail::DeviceRules>("With a model on a device") + "\n" +
           markdown<un::detail::ElasticRules>("With an elastic world") + "\n" +
           markdown<un::detail::JoinRules>("For join()") + "\n" +
           markdown<un::detail::FullBatchRules>("For FullBatch") + "\n" +
           markdown<un::detail::CheckpointRules>("For Checkpoints");
}

struct Model {
    float weight = 0, gradient = 0;
    std::span<float> parameters() { return {&weight, 1}; }
    std::span<float> gradients() { return {&gradient, 1}; }
};
using World = un::Group<un::InProcess>;

static_assert(un::refusal<World, Model>.empty());
static_assert(un::refusal<World, Model, un::Sgd, un::Reproducible>.empty());
static_assert(un::refusal<World, Model, un::TopK, un::Reproducible> ==
              "a compression rounds, and the sums are reproducible");

/// A training's refusal by the rules of one use of it.
template <class Table, class... Policies>
constexpr std::string_view refusal_by =
    Table::template refusal<un::detail::ChosenTraining<World, Model, un::detail::ChosenPolicies<Policies...>>>;
static_assert(refusal_by<un::detail::JoinRules, un::OneBit>.empty() &&
              refusal_by<un::detail::FullBatchRules, un::Reproducible>.empty() &&
              refusal_by<un::detail::CheckpointRules, un::OneBit>.empty() &&
              refusal_by<un::detail::CheckpointRules, un::LocalSteps>.empty());
static_assert(refusal_by<un::detail::JoinRules, un::LocalSteps> == un::detail::JoinRules::texts[0].summary);
static_assert(refusal_by<un::detail::FullBatchRules, un::OneBit> == "FullBatch has a compression");
static_assert(refusal_by<un::detail::CheckpointRules, un::LocalSteps, un::OneBit> ==
              "a checkpoint has no rounding errors, and each rank keeps its own");

} // namespace

BOOST_AUTO_TEST_SUITE(trainer_rules)

BOOST_AUTO_TEST_CASE(documentation_has_every_row) {
    std::ifstream file(UNISONO_TEST_DATA "/../../../docs/rules.md");
    std::ostringstream text;
    text << file.rdbuf();
    const std::size_t at = text.str().find("## Among policies");
    BOOST_TEST_REQUIRE(at != std::string::npos);
    BOOST_TEST(text.str().substr(at) == tables(), "docs/rules.md shall end with:\n" << tables());
}

BOOST_AUTO_TEST_CASE(every_row_has_words_of_its_own) {
    std::set<std::string_view> names, summaries;
    const auto check = [&](const auto& rows) {
        for (const un::detail::RuleText& row : rows) {
            BOOST_TEST(names.insert(row.name).second, row.name << " occurs twice");
            BOOST_TEST(summaries.insert(row.summary).second, row.summary << " occurs twice");
            for (const std::string_view part : {row.summary, row.found, row.required, row.why}) {
                BOOST_TEST(!part.empty(), row.name);
                BOOST_TEST((part.empty() || part.back() != '.'), row.name << " ends with a full stop");
            }
        }
    };
    check(un::detail::PolicyRules::texts);
    check(un::detail::ModelRules::texts);
    check(un::detail::DeviceRules::texts);
    check(un::detail::ElasticRules::texts);
    check(un::detail::JoinRules::texts);
    check(un::detail::FullBatchRules::texts);
    check(un::detail::CheckpointRules::texts);
}

BOOST_AUTO_TEST_SUITE_END()
