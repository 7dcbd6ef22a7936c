// Draws one update as SVG, from a run in virtual time: what each rank computes when, and which messages travel meanwhile. The model
// says what is ready as its backward pass goes from layer to layer, so that buckets travel while it goes on; with --silent it
// does not, and everything travels behind the pass.
//
//     draw_update --ranks 2 --output update.svg

#include "../numbers.hpp"

#include <unisono/simulate.hpp>
#include <unisono/unisono.hpp>

#include <CLI/CLI.hpp>

#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

constexpr int layers = 6;
constexpr std::size_t layer_size = 65'536;
constexpr un::nanoseconds forward_ns = 60'000, backward_ns = 120'000; // of a layer

/// A stretch of time in which a rank computed, or a message was under way.
struct Work {
    int rank;
    std::string what;
    un::nanoseconds begin, end;
};
struct Message {
    int from, to;
    std::uint64_t bytes;
    un::nanoseconds begin, end;
};

/// Layers that take their time and whose gradient is one.
class Layers {
public:
    Layers(un::Group<un::Simulated>& world, bool tells, std::vector<Work>& seen)
        : world_(world), tells_(tells), seen_(seen) {}

    std::vector<std::span<float>> parameters() { return cut(values_); }
    std::vector<std::span<float>> gradients() { return cut(gradient_); }
    double operator()(int, un::Pass& pass) {
        for (int layer = 0; layer < layers; ++layer) compute("forward", layer, forward_ns);
        for (int layer = layers - 1; layer >= 0; --layer) {
            compute("backward", layer, backward_ns);
            const std::span<float> gradient = cut(gradient_)[static_cast<std::size_t>(layer)];
            for (float& one : gradient) one += 1;
            if (tells_) pass.ready(static_cast<std::size_t>(layer));
        }
        return 1;
    }

private:
    static std::vector<std::span<float>> cut(std::vector<float>& all) {
        std::vector<std::span<float>> parts;
        for (std::size_t layer = 0; layer < layers; ++layer)
            parts.push_back(std::span(all).subspan(layer * layer_size, layer_size));
        return parts;
    }
    void compute(const std::string& what, int layer, un::nanoseconds duration) {
        const un::nanoseconds begin = world_.endpoint().now();
        world_.endpoint().compute(duration);
        seen_.push_back({world_.rank(), un::concat({what, " ", layer}), begin, world_.endpoint().now()});
    }

    un::Group<un::Simulated>& world_;
    bool tells_;
    std::vector<Work>& seen_;
    std::vector<float> values_ = std::vector<float>(layers * layer_size), gradient_ = values_;
};

/// What happened in the second update; the first one has to find out this and that.
struct Seen {
    std::vector<Work> work;
    std::vector<Message> messages;
    un::nanoseconds begin = 0, end = 0;
};

Seen watch(int ranks, bool tells, double bandwidth) {
    Seen seen;
    std::map<std::pair<int, int>, std::vector<un::TraceRecord>> under_way;
    un::SimulationOptions options{.link = {.latency_ns = 10'000, .bytes_per_second = bandwidth}};
    options.trace = [&](const un::TraceRecord& record) {
        std::vector<un::TraceRecord>& sent = under_way[{record.from, record.to}];
        if (record.kind == un::TraceKind::sent) sent.push_back(record);
        if (record.kind != un::TraceKind::arrived || sent.empty()) return;
        seen.messages.push_back({record.from, record.to, record.bytes, sent.front().time, record.time});
        sent.erase(sent.begin()); // messages of a pair stay in order
    };
    un::simulate(ranks, options, [&](un::Group<un::Simulated>& world) {
        Layers model(world, tells, seen.work);
        un::Trainer trainer{world, model, un::RingReducer{}, un::Buckets{layer_size * 4, layer_size * 4}};
        trainer.step(0);
        un::barrier(world);
        if (world.rank() == 0) {
            seen.work.clear();
            seen.messages.clear();
            seen.begin = world.endpoint().now();
        }
        un::barrier(world);
        trainer.step(0);
        seen.end = std::max(seen.end, world.endpoint().now());
    });
    return seen;
}

/// Two rows a rank: computing, and below it what it sends.
std::string draw(const Seen& seen, int ranks, const std::string& title) {
    constexpr int left = 70, right = 20, top = 40, row = 22, between = 18, width = 900;
    const double scale = (width - left - right) / static_cast<double>(seen.end - seen.begin);
    const auto x = [&](un::nanoseconds time) {
        return un::fixed_text(left + static_cast<double>(time - seen.begin) * scale, 1);
    };
    const auto length = [&](un::nanoseconds a, un::nanoseconds b) {
        return un::fixed_text(static_cast<double>(b - a) * scale, 1);
    };
    const auto y = [&](int rank, int line) { return top + rank * (2 * row + between) + line * row; };
    const int height = y(ranks, 0) + 24;
    std::string svg = un::concat(
        {"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height, "\" viewBox=\"0 0 ",
         width, " ", height,
         "\">\n<style>text{font-family:sans-serif;font-size:11px;fill:#222}.title{font-size:15px;font-weight:bold}"
         ".forward{fill:#8fb8de}.backward{fill:#1f6fb4}.message{fill:#c8461b;fill-opacity:0.8}rect{stroke:#fff;stroke-"
         "width:0.6}"
         ".in{font-size:10px;fill:#fff;text-anchor:middle}</style>\n<text class=\"title\" x=\"16\" y=\"22\">",
         title, "</text>\n"});
    for (int rank = 0; rank < ranks; ++rank)
        svg += un::concat({"<text x=\"16\" y=\"", y(rank, 0) + 15, "\">rank ", rank, "</text><text x=\"16\" y=\"",
                           y(rank, 1) + 15, "\">sends</text>\n"});
    for (const Work& one : seen.work) {
        const std::string kind = one.what.substr(0, one.what.find(' ')),
                          layer = one.what.substr(one.what.find(' ') + 1);
        svg += un::concat({"<rect class=\"", kind, "\" x=\"", x(one.begin), "\" y=\"", y(one.rank, 0), "\" width=\"",
                           length(one.begin, one.end), "\" height=\"", row - 2, "\"><title>", one.what,
                           "</title></rect><text class=\"in\" x=\"", x((one.begin + one.end) / 2), "\" y=\"",
                           y(one.rank, 0) + 14, "\">", layer, "</text>\n"});
    }
    for (const Message& one : seen.messages) {
        if (one.bytes < 4096) continue; // the verdict, and the barrier before
        svg += un::concat({"<rect class=\"message\" x=\"", x(one.begin), "\" y=\"", y(one.from, 1), "\" width=\"",
                           length(one.begin, one.end), "\" height=\"", row - 6, "\"><title>", one.bytes,
                           " bytes to rank ", one.to, "</title></rect>\n"});
    }
    return svg +
           un::concat({"<text x=\"", left, "\" y=\"", height - 8,
                       "\">forward (light) and backward by layer; red: gradients of a layer on their way; ",
                       un::fixed_text(static_cast<double>(seen.end - seen.begin) * 1e-6, 2), " ms</text>\n</svg>\n"});
}

} // namespace

int main(int argc, char** argv) {
    int ranks = 2;
    bool silent = false;
    double bandwidth = 2.5e9;
    std::string output = "-";
    CLI::App app{"Draws one update as SVG, from a run in virtual time"};
    app.add_option("-n,--ranks", ranks, "number of ranks")->check(numbers::from(2, 16))->capture_default_str();
    app.add_option("-b,--bandwidth", bandwidth, "of each link, bytes a second")
        ->check(numbers::at_least(1.0))
        ->capture_default_str();
    app.add_flag("-s,--silent", silent, "the model does not say what is ready");
    app.add_option("-o,--output", output, "file to write; - for standard output")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    const Seen seen = watch(ranks, !silent, bandwidth);
    const std::string svg = draw(seen, ranks,
                                 silent ? "An update of a model that does not say what is ready"
                                        : "An update: buckets travel while the backward pass goes on");
    if (output == "-") std::cout << svg;
    else if (!(std::ofstream{output} << svg << std::flush)) {
        std::cerr << "cannot write " << output << "\n";
        return 1;
    }
    std::cerr << seen.messages.size() << " messages in "
              << un::fixed_text(static_cast<double>(seen.end - seen.begin) * 1e-6, 2) << " ms\n";
}
