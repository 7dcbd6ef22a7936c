#pragma once

/// \file
/// The laws of compression/compression.hpp for any compression, on threads of this process, and a
/// minimal compression.

#include "unisono/compression/compression.hpp"
#include "unisono/core/text.hpp"
#include "unisono/group/run.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/testing/testing.hpp"
#include "unisono/transport/in_process.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal compression: the reducer sums the gradients as they are.
struct ArchetypeCompression {
    static constexpr std::string_view name = "archetype compression";
    static constexpr Family family = Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    friend bool operator==(const ArchetypeCompression&, const ArchetypeCompression&) = default;
    void check() const {}

    template <class World, class T>
    struct Run {
        World* world;
        std::vector<Slice> buckets;
        std::vector<Operation> operations = {};

        template <class Reduction>
        void begin(std::size_t b, T* values, Reduction& reduction) {
            operations.push_back(reduction.sum(*world, std::span<T>(values, buckets[b].count)));
        }
        void finish() {
            for (Operation& one : operations) one.wait();
            operations.clear();
        }
        void forget() {}
        [[nodiscard]] std::size_t bytes() const { return 0; }
    };
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const Slice> buckets) const {
        return {&world, {buckets.begin(), buckets.end()}};
    }
};
static_assert(compression_policy<ArchetypeCompression>);

/// The parameters of the trial.
struct CompressionTrial {
    int most_ranks = 4;
    std::vector<std::size_t> counts = {1, 7, 300, 1025}; ///< numbers of elements of the buckets
    bool loses_nothing = true;                           ///< the remainder is sent later
    int updates_until_all = 100;                         ///< updates without a new gradient in which all of it is sent
    double tolerance = 1e-4;                             ///< greatest loss, relative to the largest sum
    std::chrono::nanoseconds timeout = std::chrono::seconds(30); ///< time limit of each wait; a hang is a violation
};

namespace detail {

/// The laws for one world, called on each rank. A lock protects the violations of all ranks.
template <compression_policy Policy>
class CompressionWorld {
public:
    CompressionWorld(const Policy& policy, const CompressionTrial& trial, int ranks, Violations& found)
        : policy_(policy), trial_(trial), ranks_(ranks), found_(found), results_(static_cast<std::size_t>(ranks)) {
        for (std::size_t at = 0, b = trial.counts.size(); b-- > 0; at += trial.counts[b])
            buckets_.insert(buckets_.begin(), {at, trial.counts[b]}); // the last elements are the first bucket
        count_ = buckets_.front().end();
        for (auto bucket = buckets_.rbegin(); bucket != buckets_.rend(); ++bucket) parameters_.push_back({*bucket});
    }

    void run() {
        try {
            unisono::run<InProcess>(ranks_,
                                    [&](Group<InProcess>& world) {
                                        laws<float>(world);
                                        laws<double>(world);
                                    },
                                    {.timeout = trial_.timeout});
        } catch (const std::exception& thrown) {
            add(concat({"threw ", thrown.what()}));
        }
    }

private:
    void add(const std::string& what) {
        const std::lock_guard lock(mutex_);
        found_.add(concat({"on ", ranks_, " ranks: ", what}));
    }

    template <class T>
    static T gradient(int rank, int update, std::size_t i) {
        return static_cast<T>(std::sin(0.7 * rank + 1.3 * update + 0.01 * static_cast<double>(i)) *
                              std::exp2(static_cast<double>(i % 5) - 2));
    }

    /// One update: returns the result for all ranks' gradients. If `update` is negative, the
    /// gradients are zero.
    /// `corrected`: what `correct` gets before `finish`, if it is not 1.
    template <class T, class Run>
    std::vector<T> exchange(Group<InProcess>& world, Run& run, int update, [[maybe_unused]] double corrected = 1) {
        auto reduction = NativeReducer{}.start(world);
        std::vector<T> values(count_);
        for (std::size_t i = 0; i < count_ && update >= 0; ++i) values[i] = gradient<T>(world.rank(), update, i);
        for (std::size_t b = 0; b < buckets_.size(); ++b) run.begin(b, values.data() + buckets_[b].first, reduction);
        if constexpr (requires { run.correct(corrected); })
            if (corrected != 1) run.correct(corrected);
        run.finish();
        return values;
    }

    template <class T>
    void expect_zeros(const std::vector<T>& values, const Group<InProcess>& world, std::string_view when) {
        for (std::size_t i = 0; i < count_; ++i)
            if (values[i] != 0)
                return add(
                    concat({when, " element ", i, " on rank ", world.rank(), " is ", values[i], "; expected 0"}));
    }

    template <class T>
    void same_bits(Group<InProcess>& world, const std::vector<T>& values, int update) {
        const auto rank = static_cast<std::size_t>(world.rank());
        results_[rank].assign(values.begin(), values.end());
        barrier(world);
        for (std::size_t i = 0; i < count_; ++i)
            if (results_[rank][i] != results_[0][i]) {
                add(concat({"update ", update, ": element ", i, " is ", values[i], " on rank ", world.rank(), " and ",
                            results_[0][i], " on rank 0"}));
                break;
            }
        barrier(world);
    }

    /// Two updates, of which the second counts what the first has left over `rescaled` times, and
    /// `corrected` says during its exchange that it should have been as many times more.
    template <class T>
    void rest_counts(Group<InProcess>& world, double rescaled, double corrected) {
        auto wire = unisono::detail::start_compression<T>(policy_, world, buckets_, parameters_);
        std::vector<double> total(count_), expected(count_);
        double largest = 0;
        for (int update = 0; update < 2 + trial_.updates_until_all; ++update) {
            if (update == 1) wire.rescale(rescaled);
            const std::vector<T> values =
                exchange<T>(world, wire, update < 2 ? update : -1, update == 1 ? corrected : 1);
            for (std::size_t i = 0; i < count_; ++i) {
                total[i] += static_cast<double>(values[i]);
                for (int rank = 0; rank < ranks_ && update < 2; ++rank)
                    expected[i] += static_cast<double>(gradient<T>(rank, update, i));
                if (update == 0) // of what is left over, so much is not sent
                    expected[i] -= (1 - rescaled * corrected) * (expected[i] - total[i]);
                largest = std::max(largest, std::abs(expected[i]));
            }
        }
        const std::string called = corrected == 1 ? concat({"rescale(", rescaled, ")"})
                                                  : concat({"rescale(", rescaled, ") and correct(", corrected, ")"});
        for (std::size_t i = 0; i < count_; ++i)
            if (!(std::abs(total[i] - expected[i]) <= 2 * trial_.tolerance * largest))
                return add(
                    concat({"element ", i, " adds up to ", total[i], " after ", called, "; expected ", expected[i],
                            ", in which what was left over counts ", rescaled * corrected, " times"}));
    }

    template <class T>
    void laws(Group<InProcess>& world) {
        auto wire = unisono::detail::start_compression<T>(policy_, world, buckets_, parameters_);
        expect_zeros(exchange<T>(world, wire, -1), world, "of zeros");
        std::vector<double> total(count_), exact(count_);
        double largest = 0;
        std::vector<T> first;
        for (int update = 0; update < 3; ++update) {
            const std::vector<T> values = exchange<T>(world, wire, update);
            same_bits(world, values, update);
            if (update == 0) first = values;
            for (std::size_t i = 0; i < count_; ++i) {
                total[i] += static_cast<double>(values[i]);
                for (int rank = 0; rank < ranks_; ++rank) exact[i] += static_cast<double>(gradient<T>(rank, update, i));
                largest = std::max(largest, std::abs(exact[i]));
            }
        }
        if (trial_.loses_nothing) {
            for (int update = 0; update < trial_.updates_until_all; ++update) {
                const std::vector<T> values = exchange<T>(world, wire, -1);
                for (std::size_t i = 0; i < count_; ++i) total[i] += static_cast<double>(values[i]);
            }
            for (std::size_t i = 0; i < count_; ++i)
                if (!(std::abs(total[i] - exact[i]) <= trial_.tolerance * largest)) {
                    add(concat({"element ", i, " adds up to ", total[i], " in ", 3 + trial_.updates_until_all,
                                " updates; the gradients add up to ", exact[i]}));
                    break;
                }
        }
        if constexpr (requires { wire.rescale(0.5); }) {
            if (trial_.loses_nothing) rest_counts<T>(world, 0.5, 1);
            if constexpr (requires { wire.correct(2.0); })
                if (trial_.loses_nothing) rest_counts<T>(world, 0.5, 2);
        }
        static_cast<void>(exchange<T>(world, wire, 5));
        wire.forget();
        expect_zeros(exchange<T>(world, wire, -1), world, "of zeros, after forget,");
        unisono::detail::restart_compression(wire);
        static_cast<void>(exchange<T>(world, wire, -1));
        if (exchange<T>(world, wire, 0) != first) add("the same gradients give other bits after a restart");
        auto again = unisono::detail::start_compression<T>(policy_, world, buckets_, parameters_);
        static_cast<void>(exchange<T>(world, again, -1));
        if (exchange<T>(world, again, 0) != first) add("the same gradients give other bits in another run");
    }

    const Policy& policy_;
    const CompressionTrial& trial_;
    int ranks_;
    Violations& found_;
    std::vector<Slice> buckets_;
    std::vector<ParameterMatrix> parameters_; ///< one per bucket, without a matrix's shape
    std::size_t count_ = 0;
    std::vector<std::vector<double>> results_;
    std::mutex mutex_;
};

/// A format of messages (extensions/compression/gathered.hpp) writes only to its message.
template <class T, class Policy>
void message_laws(const Policy& policy, const CompressionTrial& trial, Violations& found) {
    if constexpr (requires(std::span<T> rest, std::span<std::byte> message) {
                      { policy.message_bytes(rest.size()) } -> std::same_as<std::size_t>;
                      policy.encode(rest, message);
                  }) {
        for (const std::size_t count : trial.counts) {
            constexpr std::byte unused{0xa5};
            const std::size_t bytes = policy.message_bytes(count);
            std::vector<std::byte> memory(bytes + 64, unused);
            std::vector<T> rest(count);
            for (std::size_t i = 0; i < count; ++i) rest[i] = static_cast<T>(std::sin(static_cast<double>(i + 1)));
            policy.encode(std::span<T>(rest), std::span<std::byte>(memory).first(bytes));
            const auto behind = static_cast<std::ptrdiff_t>(bytes);
            if (std::any_of(memory.begin() + behind, memory.end(), [&](std::byte one) { return one != unused; }))
                found.add(concat(
                    {"encode() writes behind a message of ", count, " elements; its message_bytes() is ", bytes}));
        }
    }
}

} // namespace detail

/// A format writes only to its messages. All ranks have the same bits. Zeros stay zeros. Nothing
/// that error feedback keeps is lost, also if `rescale` and `correct`, where the run has them,
/// change how often it counts, and nothing remains after `forget`. A run depends only on its
/// gradients, and after `restart` not on those before. In float and double, on each number of
/// ranks, for buckets of these sizes.
template <compression_policy Policy>
    requires(Policy::compresses)
Violations compression_laws(const Policy& policy, const CompressionTrial& trial = {}) {
    Violations found{std::string(Policy::name)};
    try {
        policy.check();
    } catch (const std::exception& thrown) {
        found.add(concat({"check() threw ", thrown.what()}));
        return found;
    }
    detail::message_laws<float>(policy, trial, found);
    detail::message_laws<double>(policy, trial, found);
    if (!found.lawful()) return found; // the other laws would write there, too
    for (int ranks = 1; ranks <= trial.most_ranks && !found.full(); ++ranks)
        detail::CompressionWorld<Policy>(policy, trial, ranks, found).run();
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
