// How soon four ranks behind slow links learn the digits, by update mode and wire format, with 100
// Mbit/s and 20 ms between any two ranks, in virtual time. If servers make the updates, one more
// rank is the server. The output depends only on the seed: the simulator decides when messages
// arrive, and a micro-batch takes the stated time. No clock is read. Then the bytes that an update
// of a network of 4 million parameters sends, by wire format.

#include "support/report.hpp"

#include "../../examples/digits/data.hpp"
#include "../../examples/digits/network.hpp"

#include <unisono/compression.hpp>
#include <unisono/reducer/scheduled.hpp>
#include <unisono/simulate.hpp>
#include <unisono/update/averaging.hpp>
#include <unisono/updates.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int ranks = 4;
constexpr std::int64_t batch_size = 8;             // per rank
constexpr un::nanoseconds compute_ns = 500'000;    // per micro-batch
constexpr un::Link link = {20'000'000, 100e6 / 8}; // 20 ms, 100 Mbit/s
constexpr double target = 0.95;                    // of the test images
un::nanoseconds straggler_ns = compute_ns;         // of the last worker
const std::vector<std::size_t> widths = {digits::pixels, 32, digits::kinds};

struct Course {
    double reached_s = NAN;    ///< virtual seconds to the target
    double best = 0, last = 0; ///< accuracy
    double virtual_s = 0;
    double bytes_a_sample = 0;
    std::uint64_t updates = 0; ///< of all parameters, by any rank
    un::Staleness staleness = {};
    std::vector<std::pair<double, double>> seen = {}; ///< virtual seconds, accuracy
};

double accuracy_of(digits::Network& network, const digits::Images& images) {
    std::vector<std::size_t> all(images.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    const auto found = network.predict(images.data().batch(all));
    std::size_t right = 0;
    for (std::size_t i = 0; i < all.size(); ++i) right += found[i] == images.labels[i];
    return static_cast<double>(right) / static_cast<double>(all.size());
}

/// The network, whose passes take virtual time.
class Slow : public digits::Network {
public:
    explicit Slow(un::Simulated& endpoint) : Network(widths, 3), endpoint_(&endpoint) {}
    double operator()(const digits::Batch& batch, un::Pass& pass) {
        endpoint_->compute(endpoint_->rank() == ranks - 1 ? straggler_ns : compute_ns);
        return Network::operator()(batch, pass);
    }

private:
    un::Simulated* endpoint_;
};

constexpr un::Sgd momentum = {.learning_rate = 0.05, .momentum = 0.9};
/// Stale gradients and signs tolerate this.
constexpr un::Sgd less_momentum = {.learning_rate = 0.05, .momentum = 0.6};

/// Orthogonal gradients add.
constexpr un::Sgd third_of_the_rate = {.learning_rate = 0.05 / 3, .momentum = 0.9};

/// Rank 0 evaluates its model after every `look` updates of its own; if ranks train independently,
/// just after they have synchronised. Evaluation takes no time. `servers` are additional ranks.
template <class... Policies>
Course train(const digits::Split& images, std::int64_t epochs, std::uint64_t look, int servers, const un::Sgd& sgd,
             const Policies&... policies) {
    Course course;
    std::uint64_t own = 0;
    const auto report = un::simulate(ranks + servers, {.seed = 1, .link = link}, [&](auto& world) {
        Slow network(world.endpoint());
        un::Trainer trainer{world, network, un::DistributedSampler{.shuffle = true, .seed = 3}, sgd, policies...};
        const auto on_update = [&](const un::UpdateReport& update) {
            course.updates = std::max(course.updates, update.number);
            if (world.rank() != 0 || ++own % look != 0) return;
            const double accuracy = accuracy_of(network, images.test);
            const double now = static_cast<double>(world.endpoint().now()) * 1e-9;
            course.seen.emplace_back(now, accuracy);
            course.best = std::max(course.best, accuracy);
            if (accuracy >= target && std::isnan(course.reached_s)) course.reached_s = now;
        };
        const auto fitted = trainer.fit(images.train.data(),
                                        {.epochs = epochs, .batch_size = batch_size, .progress = false}, on_update);
        trainer.verify_replicas();
        if (world.rank() != 0) return;
        course.staleness = fitted.staleness;
        course.last = accuracy_of(network, images.test);
    });
    course.virtual_s = static_cast<double>(report.time) * 1e-9;
    course.bytes_a_sample = static_cast<double>(report.bytes) / static_cast<double>(own * batch_size * ranks);
    return course;
}
template <class... Policies>
Course train(const digits::Split& images, std::int64_t epochs, std::uint64_t look, const Policies&... policies) {
    return train(images, epochs, look, 0, momentum, policies...);
}
template <class Update>
Course serve(const digits::Split& images, std::int64_t epochs, const un::Sgd& sgd, const Update& update) {
    return train(images, epochs, 10, update.servers, sgd, update);
}

class Table {
public:
    explicit Table(bench::Report& report, std::string kind = "") : report_(report), kind_(std::move(kind)) {
        report_.header({"mode", "accuracy", "to the first", "best", "to 95 %, s", "sooner", "bytes/sample", "updates/s",
                        "stale: mean", "most"});
    }
    void add(const std::string& name, const Course& course) {
        if (std::isnan(first_)) first_ = course.reached_s;
        if (std::isnan(first_accuracy_)) first_accuracy_ = course.last;
        const double rate = static_cast<double>(course.updates) / course.virtual_s;
        report_.row({name, bench::format("%.1f %%", 100 * course.last),
                     bench::format("%+.1f", 100 * (course.last - first_accuracy_)),
                     bench::format("%.1f %%", 100 * course.best), bench::format("%.2f", course.reached_s),
                     bench::format("%.1f x", first_ / course.reached_s), bench::format("%.0f", course.bytes_a_sample),
                     bench::format("%.1f", rate), bench::format("%.1f", course.staleness.mean),
                     bench::format("%.0f", static_cast<double>(course.staleness.most))});
        nlohmann::json entry = {{"case", name + kind_},
                                {"accuracy", course.last},
                                {"best", course.best},
                                {"bytes_a_sample", course.bytes_a_sample},
                                {"updates_a_second", rate},
                                {"mean_staleness", course.staleness.mean},
                                {"most_staleness", course.staleness.most},
                                {"course", course.seen}};
        if (!std::isnan(course.reached_s)) entry["seconds_to_target"] = course.reached_s;
        report_.add(std::move(entry));
    }

private:
    bench::Report& report_;
    std::string kind_;
    double first_ = NAN, first_accuracy_ = NAN;
};

/// Parameters with the shapes of a network of 64 inputs, two hidden layers and 10 outputs, and
/// meaningless gradients.
class Shapes {
public:
    static constexpr un::GradientKind gradient_kind = un::GradientKind::sum;
    explicit Shapes(std::size_t hidden)
        : shapes_{{64, hidden}, {hidden}, {hidden, hidden}, {hidden}, {hidden, 10}, {10}} {
        for (const auto& shape : shapes_) count_ += shape[0] * (shape.size() == 2 ? shape[1] : 1);
        values_.resize(count_);
        gradient_.resize(count_);
        std::size_t at = 0;
        for (const auto& shape : shapes_) {
            const std::size_t size = shape[0] * (shape.size() == 2 ? shape[1] : 1);
            parameters_.push_back(std::span(values_).subspan(at, size));
            gradients_.push_back(std::span(gradient_).subspan(at, size));
            at += size;
        }
    }
    Shapes(const Shapes&) = delete;
    Shapes& operator=(const Shapes&) = delete;
    std::span<const std::span<float>> parameters() { return parameters_; }
    std::span<const std::span<float>> gradients() { return gradients_; }
    [[nodiscard]] const std::vector<std::vector<std::size_t>>& parameter_shapes() const { return shapes_; }
    [[nodiscard]] std::size_t count() const { return count_; }
    double operator()(std::uint32_t seed, un::Pass&) {
        for (float& x : gradient_)
            x += static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
        return 0;
    }

private:
    std::vector<std::vector<std::size_t>> shapes_;
    std::size_t count_ = 0;
    std::vector<float> values_, gradient_;
    std::vector<std::span<float>> parameters_, gradients_;
};

/// Bytes that all ranks send for an update, without the few that make a trainer.
template <class... Policies>
double bytes_of_update(std::size_t hidden, const Policies&... policies) {
    const auto bytes = [&](int updates) {
        const auto report = un::simulate(ranks, {.seed = 1}, [&](auto& world) {
            Shapes model(hidden);
            un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.01}, policies...};
            for (int i = 0; i < updates; ++i) trainer.step(static_cast<std::uint32_t>(world.rank() + ranks * i));
        });
        return static_cast<double>(report.bytes);
    };
    return bytes(2) - bytes(1);
}

void count_bytes(bench::Report& report, std::size_t hidden) {
    std::printf("\nAn update of %d parameters, %d ranks: bytes counted where they are sent\n",
                static_cast<int>(Shapes(hidden).count()), ranks);
    report.header({"wire format", "MB an update", "less"});
    double plain = 0;
    const auto add = [&](const std::string& name, double bytes) {
        if (plain == 0) plain = bytes;
        report.row({name, bench::format("%.2f", bytes * 1e-6), bench::format("%.1f x", plain / bytes)});
        report.add(
            {{"case", name + "; bytes of an update"}, {"bytes_an_update", bytes}, {"times_less", plain / bytes}});
    };
    add("none", bytes_of_update(hidden));
    add("fp16 wire", bytes_of_update(hidden, un::Fp16Wire{}));
    add("bf16 wire", bytes_of_update(hidden, un::Bf16Wire{}));
    add("int8 wire", bytes_of_update(hidden, un::Int8Wire{}));
    add("fp8 wire", bytes_of_update(hidden, un::Fp8Wire{}));
    add("1 bit", bytes_of_update(hidden, un::OneBit{}));
    add("top-k, 1 %", bytes_of_update(hidden, un::TopK{}));
    add("PowerSGD, rank 4", bytes_of_update(hidden, un::PowerSgd{}));
    add("PowerSGD, rank 1", bytes_of_update(hidden, un::PowerSgd{.rank = 1}));
    add("Adasum", bytes_of_update(hidden, un::Adasum{}));
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("update modes behind slow links", options);
    const auto images = digits::split(digits::read(DIGITS_DATA), 357);
    const std::int64_t epochs = options.quick ? 4 : 40;
    std::printf(
        "%d simulated ranks, 100 Mbit/s and 20 ms between any two, %.1f ms a micro-batch of %d: seconds are virtual\n",
        ranks, static_cast<double>(compute_ns) * 1e-6, static_cast<int>(batch_size));
    Table table(report);
    table.add("synchronous", train(images, epochs, 10));
    table.add("  by a ring", train(images, epochs, 10, un::RingReducer{}));
    table.add("  bf16 wire", train(images, epochs, 10, un::Bf16Wire{}));
    table.add("  bf16, by a ring", train(images, epochs, 10, un::Bf16Wire{}, un::RingReducer{}));
    table.add("  fp16 wire", train(images, epochs, 10, un::Fp16Wire{}));
    table.add("  int8 wire", train(images, epochs, 10, un::Int8Wire{}));
    table.add("  fp8 wire, e4m3", train(images, epochs, 10, un::Fp8Wire{}));
    table.add("  fp8 wire, e5m2", train(images, epochs, 10, un::Fp8Wire{.format = un::Fp8Format::e5m2}));
    table.add("  1 bit, momentum 0.6", train(images, epochs, 10, 0, less_momentum, un::OneBit{.warm_up = 50}));
    table.add("  1 bit, momentum 0.9", train(images, epochs, 10, un::OneBit{.warm_up = 50}));
    table.add("  top-k, 1 %", train(images, epochs, 10, un::TopK{}));
    table.add("  PowerSGD, rank 4", train(images, epochs, 10, un::PowerSgd{}));
    table.add("  PowerSGD, rank 1", train(images, epochs, 10, un::PowerSgd{.rank = 1}));
    table.add("  Adasum", train(images, epochs, 10, un::Adasum{}));
    table.add("  Adasum, a third of the rate", train(images, epochs, 10, 0, third_of_the_rate, un::Adasum{}));
    table.add("local steps, 8", train(images, epochs, 8, un::LocalSteps{.steps = 8}));
    table.add("local steps, 32", train(images, epochs, 32, un::LocalSteps{.steps = 32}));
    table.add("Diloco, 32", train(images, epochs, 32, un::Diloco<>{.steps = 32}));
    table.add("Diloco, 128", train(images, epochs, 128, un::Diloco<>{.steps = 128}));
    table.add("  Diloco, 128, int8 wire", train(images, epochs, 128, un::Diloco<>{.steps = 128}, un::Int8Wire{}));
    table.add("  Diloco, 128, PowerSGD 1",
              train(images, epochs, 128, un::Diloco<>{.steps = 128}, un::PowerSgd{.rank = 1}));
    table.add("streaming Diloco, 32",
              train(images, epochs, 32, un::StreamingDiloco<>{.steps = 32, .fragments = 4, .overlap = 4}));
    table.add("streaming Diloco, 128",
              train(images, epochs, 128, un::StreamingDiloco<>{.steps = 128, .fragments = 4, .overlap = 16}));
    table.add("gossip, exponential", train(images, epochs, 10, un::Gossip{}));
    table.add("gossip, ring", train(images, epochs, 10, un::Gossip{.graph = un::GossipGraph::ring}));
    table.add("gossip, exponential, 8", train(images, epochs, 8, un::Gossip{.steps = 8}));
    table.add("bounded staleness, 0", serve(images, epochs, momentum, un::BoundedStaleness{.staleness = 0}));
    table.add("bounded staleness, 3", serve(images, epochs, less_momentum, un::BoundedStaleness{.staleness = 3}));
    table.add("backup workers, 1", serve(images, epochs, momentum, un::BackupWorkers{}));
    table.add("asynchronous, 0.9", serve(images, epochs, momentum, un::Asynchronous{}));
    table.add("asynchronous", serve(images, epochs, less_momentum, un::Asynchronous{}));
    table.add("delay compensated", serve(images, epochs, less_momentum, un::DelayCompensated{.lambda = 1}));
    table.add("Hogwild", train(images, epochs, 10, 0, less_momentum, un::Hogwild{}));
    count_bytes(report, options.quick ? 256 : 2048);
    straggler_ns = 100'000'000;
    std::printf("\nOne of the four takes %.0f ms a micro-batch\n", static_cast<double>(straggler_ns) * 1e-6);
    Table uneven(report, "; a straggler");
    uneven.add("synchronous", train(images, epochs, 10));
    uneven.add("local steps, 32", train(images, epochs, 32, un::LocalSteps{.steps = 32}));
    uneven.add("gossip, exponential", train(images, epochs, 10, un::Gossip{}));
    uneven.add("bounded staleness, 0", serve(images, epochs, momentum, un::BoundedStaleness{.staleness = 0}));
    uneven.add("backup workers, 1", serve(images, epochs, momentum, un::BackupWorkers{}));
    uneven.add("bounded staleness, 3", serve(images, epochs, less_momentum, un::BoundedStaleness{.staleness = 3}));
    uneven.add("bounded staleness, 30", serve(images, epochs, less_momentum, un::BoundedStaleness{.staleness = 30}));
    uneven.add("asynchronous", serve(images, epochs, less_momentum, un::Asynchronous{}));
    uneven.add("Hogwild", train(images, epochs, 10, 0, less_momentum, un::Hogwild{}));
    uneven.add("delay compensated", serve(images, epochs, less_momentum, un::DelayCompensated{.lambda = 1}));
}
