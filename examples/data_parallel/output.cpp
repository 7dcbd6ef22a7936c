#include "output.hpp"

#include <nlohmann/json.hpp>

#include <cstring>
#include <string>

namespace {

/// The weights that the article prints for its two programs.
const std::vector<float> article = {0.9472f, 0.9440f, 0.9527f, 0.9687f, 0.9570f, 0.9343f, 0.9411f, 0.9186f};

bool is_the_article(const Configuration& run) {
    return run.epochs == 2 && run.batch_size == 4 && run.data_size == 8 && run.seed == 0 && !run.shuffle;
}

std::string text_of(std::span<const float> weights) {
    std::string text = "[";
    for (const float weight : weights) text += un::concat({text.size() > 1 ? " " : "", un::fixed_text(weight, 4)});
    return text + "]";
}

std::string text_of(const Configuration& run) {
    std::string text = std::to_string(run.ranks) + (run.ranks == 1 ? " rank, " : " ranks, ") + run.sampler_name();
    return run.acc_steps == 1 ? text : text + ", " + std::to_string(run.acc_steps) + " accumulation steps";
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

nlohmann::ordered_json json_of(const Configuration& run, const std::vector<float>& weights) {
    auto hex = nlohmann::ordered_json::array();
    for (const float weight : weights) {
        char text[32];
        std::snprintf(text, sizeof text, "%a", static_cast<double>(weight));
        hex.push_back(text);
    }
    return {{"ranks", run.ranks},
            {"acc_steps", run.acc_steps},
            {"epochs", run.epochs},
            {"batch_size", run.batch_size},
            {"data_size", run.data_size},
            {"seed", run.seed},
            {"sampler", run.sampler_name()},
            {"reducer", run.reducer},
            {"shuffle", run.shuffle},
            {"weights", hex}};
}

} // namespace

void Narrator::operator()(const un::UpdateReport& update, std::span<const float> weights) {
    if (update.number == 1) std::fprintf(out_, "%s\n", text_of(run_).c_str());
    if (update.epoch != epoch_) {
        epoch_ = update.epoch;
        for (int rank = 0; rank < run_.ranks; ++rank) tell_micro_batches(rank);
    }
    std::fprintf(out_, "  update %llu: %s\n", static_cast<unsigned long long>(update.number), text_of(weights).c_str());
}

void Narrator::tell_micro_batches(int rank) {
    const auto sampler = run_.sampler_policy();
    const auto shape = un::shape_of_rank(sampler, run_.data_size, run_.batch_size, run_.ranks, rank);
    auto stream = sampler.stream(shape, un::Epoch{epoch_});
    std::string text;
    while (!stream.done()) {
        text += " [";
        for (const std::size_t sample : stream.next().samples)
            text += un::concat({text.back() == '[' ? "" : " ", sample});
        text += "]";
    }
    std::fprintf(out_, "  epoch %lld, rank %d:%s\n", static_cast<long long>(epoch_) + 1, rank, text.c_str());
}

bool report(const Options& options, const std::vector<std::vector<float>>& weights) {
    const bool compared = weights.size() == 2;
    const bool equal = !compared || equal_bits(weights[0], weights[1]);
    if (options.json) {
        auto object = json_of(options.runs[0], weights[0]);
        if (compared) object["equal"] = equal, object["compared_with"] = json_of(options.runs[1], weights[1]);
        std::puts(object.dump().c_str());
        return equal;
    }
    un::Table table;
    for (std::size_t i = 0; i < weights.size(); ++i) table.row({text_of(options.runs[i]), text_of(weights[i])});
    if (!compared || !is_the_article(options.runs[0])) {
        std::fputs(table.text().c_str(), stdout);
        if (compared) std::puts(equal ? "equal to the bit" : "not equal");
        return equal;
    }
    table.row({"the article, PyTorch", text_of(article)});
    const bool published = text_of(weights[0]) == text_of(article) && text_of(weights[1]) == text_of(article);
    std::fputs(table.text().c_str(), stdout);
    std::printf("The two runs are %s.\n", equal ? "equal to the bit" : "NOT equal");
    std::printf("They %s the article's weights.\n", published ? "reproduce" : "do NOT reproduce");
    return equal && published;
}
