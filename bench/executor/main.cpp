// The executor, which runs any schedule over any transport, compared with one algorithm written by
// hand: the ring all_reduce over threads. The version by hand has the same ring, blocks and kernel.
// A cache line per message says where the data are. The receiver combines directly from its
// neighbour's memory and reports completion. There are no tags, signatures, plans or deadlines, and
// nothing else is in flight.

#include "support/meeting.hpp"
#include "support/memory.hpp"
#include "support/report.hpp"

#include <unisono/collective/collective.hpp>
#include <unisono/group/run.hpp>
#include <unisono/transport/in_process.hpp>

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

namespace un = unisono;
using World = un::Group<un::InProcess>;

namespace {

/// One message from a rank to the next.
struct alignas(128) Mail {
    static constexpr std::size_t most_inside = 48;
    std::atomic<std::uint64_t> sent{0};
    const float* data = nullptr;
    float inside[most_inside / sizeof(float)];
    alignas(128) std::atomic<std::uint64_t> consumed{0};
};

class HandWrittenRing {
public:
    explicit HandWrittenRing(int ranks)
        : ranks_(ranks), yields_(static_cast<std::size_t>(ranks) > bench::cores().size()),
          mails_(std::make_unique<Mail[]>(static_cast<std::size_t>(ranks) * depth)),
          turns_(std::make_unique<Turn[]>(static_cast<std::size_t>(ranks))) {}

    void all_reduce(int me, std::span<float> data) {
        const auto ranks = static_cast<std::size_t>(ranks_);
        const auto rank = static_cast<std::size_t>(me);
        const std::size_t left = (rank + ranks - 1) % ranks;
        // Blocks begin at cache lines.
        const std::size_t unit = data.size_bytes() >= ranks * 1024 ? 16 : 1;
        const std::size_t units = (data.size() + unit - 1) / unit;
        const auto begin = [&](std::size_t block) {
            return std::min(data.size(), (block * (units / ranks) + std::min(block, units % ranks)) * unit);
        };
        const auto block = [&](std::size_t number) {
            return data.subspan(begin(number), begin(number + 1) - begin(number));
        };
        std::uint64_t turn = turns_[rank].next;
        for (std::size_t round = 0; round < 2 * ranks - 2; ++round, ++turn) {
            const bool sums = round < ranks - 1;
            const std::span<float> out = block((rank + 2 * ranks - round) % ranks);
            const std::span<float> in = block((rank + 2 * ranks - round - 1) % ranks);
            send(rank, turn, out);
            receive(left, turn, in, sums);
            if (out.size_bytes() <= Mail::most_inside) continue; // it was copied
            until(mail(rank, turn).consumed, turn);
        }
        turns_[rank].next = turn;
    }

private:
    /// A rank may be this many messages ahead of its neighbour.
    static constexpr std::size_t depth = 4;
    struct alignas(128) Turn {
        std::uint64_t next = 1;
    };

    Mail& mail(std::size_t from, std::uint64_t turn) { return mails_[from * depth + turn % depth]; }

    void until(const std::atomic<std::uint64_t>& flag, std::uint64_t turn) const {
        while (flag.load(std::memory_order_acquire) < turn) {
            if (yields_) sched_yield();
            else __builtin_ia32_pause();
        }
    }

    void send(std::size_t rank, std::uint64_t turn, std::span<const float> data) {
        Mail& out = mail(rank, turn);
        if (turn > depth) until(out.consumed, turn - depth);
        out.data = data.data();
        if (data.size_bytes() <= Mail::most_inside && !data.empty())
            std::memcpy(out.inside, data.data(), data.size_bytes());
        out.sent.store(turn, std::memory_order_release);
    }

    void receive(std::size_t from, std::uint64_t turn, std::span<float> data, bool sums) {
        Mail& in = mail(from, turn);
        until(in.sent, turn);
        const float* theirs = data.size_bytes() <= Mail::most_inside ? in.inside : in.data;
        if (data.empty()) {
            // Nothing arrived.
        } else if (sums) {
            const un::Reduction sum = un::make_reduction<un::Sum, float>(un::Sum{});
            const std::byte* sources[2] = {reinterpret_cast<const std::byte*>(data.data()),
                                           reinterpret_cast<const std::byte*>(theirs)};
            auto* to = reinterpret_cast<std::byte*>(data.data());
            sum.combine(sum.state, sources, 2, &to, 1, data.size());
        } else {
            std::memcpy(data.data(), theirs, data.size_bytes());
        }
        in.consumed.store(turn, std::memory_order_release);
    }

    int ranks_;
    bool yields_;
    std::unique_ptr<Mail[]> mails_;
    std::unique_ptr<Turn[]> turns_;
};

struct Times {
    bench::Series ours{"unisono", {}};
    bench::Series by_hand{"by hand", {}};
};

void measure(World& world, bench::Meeting& meeting, HandWrittenRing& ring, std::size_t count, int rounds,
             Times& times) {
    const int me = world.rank();
    const int ranks = world.size();
    bench::Floats data(count, 1 + me);
    const auto values = data.first(count);
    const bool oversubscribed = static_cast<std::size_t>(ranks) > bench::cores().size();
    const std::size_t in_a_row = count * sizeof(float) >= 65536 ? 1 : oversubscribed ? 20 : 400;
    const auto rewrite_some = [&](std::size_t i) { values[i % count] = 1.0f; };
    for (int round = -1; round < rounds; ++round) {
        const auto repetition = static_cast<std::uint32_t>(round + 1);
        const auto turn = [&](const char* who, const auto& reduce) {
            bench::rewrite(values, me, repetition);
            reduce();
            bench::check_sum(values, ranks, repetition, who);
            bench::rewrite(values, me, repetition);
            return meeting.time(me, [&] {
                for (std::size_t i = 0; i < in_a_row; ++i) {
                    if (in_a_row > 1) rewrite_some(i);
                    reduce();
                }
            });
        };
        const double ours = turn("unisono", [&] { un::all_reduce(world, values, un::Sum{}, un::RingSchedule{}); });
        const double by_hand = turn("by hand", [&] { ring.all_reduce(me, values); });
        if (me != 0 || round < 0) continue;
        times.ours.add(ours / static_cast<double>(in_a_row));
        times.by_hand.add(by_hand / static_cast<double>(in_a_row));
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    bench::Report report("executor", options);
    for (const int ranks : {2, 4}) {
        if (!options.only.empty() && options.only != std::to_string(ranks)) continue;
        report.header({"us, " + std::to_string(ranks) + " ranks, ring", "unisono", "spread", "by hand", "ratio",
                       "paired", "best quarter", "more", "goal"});
        for (const std::size_t bytes :
             {8u, 64u, 512u, 1024u, 2048u, 4096u, 16384u, 65536u, 262144u, 1048576u, 4194304u}) {
            if (options.quick && bytes > 65536) continue;
            bench::Meeting meeting(ranks);
            HandWrittenRing ring(ranks);
            Times times;
            const int rounds = options.quick ? 10 : ranks > 2 ? 40 : bytes >= 65536 && bytes <= 1048576 ? 200 : 80;
            un::run<un::InProcess>(
                ranks, [&](World& world) { measure(world, meeting, ring, bytes / sizeof(float), rounds, times); },
                {.bind_to_cores = true});
            const bool goal = ranks == 2;
            if (bytes < 4096) report.compare(bench::in_words(bytes), times.ours, {times.by_hand}, goal ? 0.1 : 0, "us");
            else report.compare(bench::in_words(bytes), times.ours, {times.by_hand}, goal ? 1.1 : 0);
        }
    }
}
