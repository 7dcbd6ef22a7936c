// Draws one update as SVG, from a run in virtual time: when each rank computes, and which messages
// travel at that time. The model reports each gradient as soon as its backward pass has computed
// it, so buckets travel during the pass. With --silent the model reports nothing, and all buckets
// travel after the pass.
//
//     draw_update --ranks 2 --both --output update.svg

#include "../numbers.hpp"

#include <unisono/simulate.hpp>
#include <unisono/unisono.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace un = unisono;

namespace {

constexpr int layers = 6;
constexpr std::size_t layer_size = 65'536;
constexpr un::nanoseconds forward_ns = 60'000, backward_ns = 120'000; // per layer

/// An interval in which a rank computed or a message was in flight.
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

/// Layers that take a given time and whose gradients are one.
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

/// The events of the second update. The first one includes work that is done once.
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

/// One update to draw, with its heading.
struct Part {
    std::string heading;
    Seen seen;
};

/// The functions below return parts of an SVG document.
std::string text_at(const char* kind, double x, double y, const std::string& words) {
    return un::concat({"<text class=\"", kind, "\" x=\"", un::fixed_text(x, 1), "\" y=\"", un::fixed_text(y, 1), "\">",
                       words, "</text>\n"});
}
std::string box(const char* kind, double x, double y, double width, double height, const std::string& tip) {
    return un::concat({"<rect class=\"", kind, "\" x=\"", un::fixed_text(x, 1), "\" y=\"", un::fixed_text(y, 1),
                       "\" width=\"", un::fixed_text(width, 1), "\" height=\"", un::fixed_text(height, 1), "\"><title>",
                       tip, "</title></rect>\n"});
}

constexpr const char* style =
    "<style>text{font-family:system-ui,sans-serif;font-size:12px;fill:#1f2328}.title{font-size:14px;font-weight:600}"
    ".faint{fill:#59636e}.tick{fill:#59636e;text-anchor:middle}.paper{fill:#fff}"
    ".grid{stroke:#d1d9e0}.end{stroke:#1f2328;stroke-dasharray:4 3}"
    ".forward{fill:#8fb8de}.backward{fill:#1f6fb4}.message{fill:#c8461b}@media "
    "(prefers-color-scheme:dark){text{fill:#f0f6fc}.faint,.tick{fill:#9198a1}.paper{fill:#0d1117}"
    ".grid{stroke:#3d444d}.end{stroke:#f0f6fc}}"
    ".in{font-size:11px;fill:#fff;text-anchor:middle}.dark{font-size:11px;fill:#1f2328;text-anchor:middle}</style>\n";

/// Draws updates below one another, on one time axis. Each rank has a row for computation and a row
/// for its messages on the link.
std::string draw(const std::vector<Part>& parts, int ranks) {
    constexpr double left = 70, right = 30, width = 860, row = 22, link = 14, of_rank = row + link + 14, heading = 30;
    un::nanoseconds longest = 0;
    for (const Part& part : parts) longest = std::max(longest, part.seen.end - part.seen.begin);
    constexpr un::nanoseconds tick = 250'000;
    longest = (longest + tick - 1) / tick * tick;
    const double scale = (width - left - right) / static_cast<double>(longest);
    const double of_part = heading + ranks * of_rank + 6;
    const double bottom = 6 + of_part * static_cast<double>(parts.size()), height = bottom + 58;

    std::string svg = un::concat({"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", un::fixed_text(width, 0),
                                  "\" height=\"", un::fixed_text(height, 0), "\" viewBox=\"0 0 ",
                                  un::fixed_text(width, 0), " ", un::fixed_text(height, 0), "\">\n", style,
                                  "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n"});
    for (un::nanoseconds at = 0; at <= longest; at += tick) {
        const std::string x = un::fixed_text(left + static_cast<double>(at) * scale, 1);
        for (std::size_t part = 0; part < parts.size(); ++part) { // below the heading of each part
            const double begin = 6 + heading + of_part * static_cast<double>(part);
            svg += un::concat({"<line class=\"grid\" x1=\"", x, "\" y1=\"", un::fixed_text(begin, 0), "\" x2=\"", x,
                               "\" y2=\"", un::fixed_text(begin + of_part - heading, 0), "\"/>\n"});
        }
        svg += text_at("tick", left + static_cast<double>(at) * scale, bottom + 15,
                       un::concat({un::fixed_text(static_cast<double>(at) * 1e-6, 2), at == longest ? " ms" : ""}));
    }
    double top = 6;
    for (const auto& [title, seen] : parts) {
        const auto x = [&, begin = seen.begin](un::nanoseconds time) {
            return left + static_cast<double>(time - begin) * scale;
        };
        const auto y = [&](int rank) { return top + heading + rank * of_rank; };
        svg += text_at(
            "title", 16, top + 20,
            un::concat({title, ": ", un::fixed_text(static_cast<double>(seen.end - seen.begin) * 1e-6, 2), " ms"}));
        for (int rank = 0; rank < ranks; ++rank) {
            svg += text_at("name", 16, y(rank) + 15, un::concat({"rank ", rank}));
            svg += text_at("faint", 16, y(rank) + row + 12, "sends");
        }
        for (const Work& one : seen.work) {
            const std::size_t space = one.what.find(' ');
            const bool forward = one.what[0] == 'f';
            svg += box(forward ? "forward" : "backward", x(one.begin), y(one.rank),
                       static_cast<double>(one.end - one.begin) * scale - 1, row - 2, one.what);
            svg += text_at(forward ? "dark" : "in", x((one.begin + one.end) / 2), y(one.rank) + 14,
                           one.what.substr(space + 1));
        }
        // The time until which each link is busy.
        std::vector<un::nanoseconds> busy(static_cast<std::size_t>(ranks), 0);
        for (const Message& one : seen.messages) {
            if (one.bytes < 4096) continue; // the verdict, and the barrier before it
            un::nanoseconds& free = busy[static_cast<std::size_t>(one.from)];
            // Until then the message waited for the link.
            const un::nanoseconds begin = std::max(one.begin, free);
            free = one.end;
            svg += box("message", x(begin), y(one.from) + row, static_cast<double>(one.end - begin) * scale - 1, link,
                       un::concat({one.bytes, " bytes to rank ", one.to}));
        }
        const std::string end = un::fixed_text(x(seen.end), 1);
        svg += un::concat({"<line class=\"end\" x1=\"", end, "\" y1=\"", top + heading - 4, "\" x2=\"", end, "\" y2=\"",
                           top + of_part - 8, "\"/>\n"});
        top += of_part;
    }
    double at = left;
    const auto entry = [&](const char* kind, const std::string& words, double length) {
        svg += box(kind, at, bottom + 32, 22, 12, words) + text_at("name", at + 28, bottom + 42, words);
        at += 40 + length;
    };
    entry("forward", "forward pass of a layer", 150);
    entry("backward", "backward pass of a layer", 160);
    entry("message", "half of a layer's gradient on the link", 220);
    return svg + "</svg>\n";
}

} // namespace

int main(int argc, char** argv) try {
    int ranks = 2;
    bool silent = false, both = false;
    double bandwidth = 2.5e9;
    std::string output = "-";
    CLI::App app{"Draws one update as SVG, from a run in virtual time"};
    app.add_option("-n,--ranks", ranks, "number of ranks")->check(numbers::from(2, 16))->capture_default_str();
    app.add_option("-b,--bandwidth", bandwidth, "of each link, bytes a second")
        ->check(numbers::at_least(1.0))
        ->capture_default_str();
    app.add_flag("-s,--silent", silent, "the model does not say what is ready");
    app.add_flag("--both", both, "the model that says it above the one that does not");
    app.add_option("-o,--output", output, "file to write; - for standard output")->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    std::vector<Part> parts;
    if (both || !silent) parts.push_back({"The model says what is ready", watch(ranks, true, bandwidth)});
    if (both || silent) parts.push_back({"The model says nothing", watch(ranks, false, bandwidth)});
    const std::string svg = draw(parts, ranks);
    if (output == "-") std::cout << svg;
    else if (!(std::ofstream{output} << svg << std::flush)) {
        std::cerr << "cannot write " << output << "\n";
        return 1;
    }
    for (const Part& part : parts)
        std::cerr << part.heading << ": " << part.seen.messages.size() << " messages in "
                  << un::fixed_text(static_cast<double>(part.seen.end - part.seen.begin) * 1e-6, 2) << " ms\n";
} catch (const std::exception& failed) {
    std::fprintf(stderr, "draw_update: %s\n", failed.what());
    return 2;
}
