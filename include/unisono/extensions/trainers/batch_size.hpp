#pragma once

/// \file
/// Finds the batch size: the micro-batch that fits into memory and gives the most samples per
/// second, and the number of micro-batches that a rank accumulates for a global batch. Not in the
/// umbrella.
///
///     const un::BatchSizeOptions options = {.global_batch = 512, .most_bytes = 4UL << 30};
///     const un::BatchSize found = un::find_batch_size(world, options, [&](std::int64_t samples) {
///         model(data.batch(first(samples)), pass); // one micro-batch of this size
///     });
///     un::Trainer trainer{world, model, un::Accumulate{.steps = found.accumulation}, ...};
///     trainer.fit(data, {.batch_size = found.micro_batch});
///     std::fputs(found.text().c_str(), stderr);

#include "unisono/collective/all_reduce.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/observe/table.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/failure.hpp"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of `find_batch_size`.
struct BatchSizeOptions {
    std::int64_t global_batch = 0; ///< samples per update over all ranks: a multiple of the ranks
    std::uint64_t most_bytes = 0;  ///< bytes that a process may have resident; 0: no limit
    int repetitions = 3;           ///< runs of each size; the fastest counts, since disturbances only slow down
};

/// The resident memory of this process, from Linux' /proc. Ranks that are threads share it.
struct ResidentMemory {
    /// Resets the peak. If the system does not allow that, the peak counts from the start of the
    /// process.
    void reset() {
        if (std::FILE* const file = std::fopen("/proc/self/clear_refs", "w")) {
            static_cast<void>(std::fputs("5", file));
            static_cast<void>(std::fclose(file));
        }
    }
    /// \throws error refused: there is no such file
    [[nodiscard]] std::uint64_t peak() const {
        std::FILE* const file = std::fopen("/proc/self/status", "r");
        unsigned long long kilobytes = 0;
        char line[256];
        bool found = false;
        while (file != nullptr && !found && std::fgets(line, sizeof line, file) != nullptr)
            found = std::sscanf(line, "VmHWM: %llu kB", &kilobytes) == 1; // NOLINT(cert-err34-c): the count says so
        if (file != nullptr) static_cast<void>(std::fclose(file));
        if (!found)
            throw error(Fault{.code = ErrorCode::refused,
                              .operation = "find_batch_size",
                              .message =
                                  "cannot read VmHWM from /proc/self/status; give BatchSizeOptions.most_bytes = 0, "
                                  "or a measure of your own"});
        return std::uint64_t{kilobytes} * 1024;
    }
};

/// Measures of peak memory, in bytes since the last reset.
template <class M>
concept memory_measure = requires(M& memory) {
    memory.reset();
    { memory.peak() } -> std::convertible_to<std::uint64_t>;
};

/// One size that was tried.
struct BatchTrial {
    std::int64_t micro_batch = 0;
    std::int64_t accumulation = 0;
    double seconds = 0;      ///< time of a micro-batch, on the slowest rank; 0: it did not fit
    std::uint64_t bytes = 0; ///< the greatest peak of any rank; 0: not measured
    [[nodiscard]] bool fits() const { return seconds > 0; }
};

/// The result, the same on all ranks.
struct BatchSize {
    std::int64_t micro_batch = 0;
    /// Micro-batches per rank and update: micro_batch * accumulation * ranks = global_batch.
    std::int64_t accumulation = 0;
    double samples_per_second = 0;       ///< samples per second of all ranks, without exchange and optimizer
    std::int64_t largest = 0;            ///< the largest micro-batch that fits, of those tried
    std::vector<BatchTrial> trials = {}; ///< from small to large, until one did not fit
    std::int64_t global_batch = 0;

    [[nodiscard]] std::string text() const {
        Table table({">micro-batch", ">accumulation", ">ms", ">samples/s", ">memory", ""});
        for (const BatchTrial& one : trials) {
            const std::string milliseconds = fixed_text(one.seconds * 1e3, 3);
            const auto speed = static_cast<std::size_t>(speed_of(one));
            table.row({std::to_string(one.micro_batch), std::to_string(one.accumulation),
                       one.fits() ? milliseconds : "", one.fits() ? count_text(speed) : "",
                       one.bytes != 0 ? bytes_text(one.bytes) : "",
                       !one.fits()                      ? "does not fit"
                       : one.micro_batch == micro_batch ? "taken"
                                                        : ""});
        }
        return table.text();
    }
    /// Samples per second of all ranks with this size.
    [[nodiscard]] double speed_of(const BatchTrial& one) const {
        return one.fits() ? static_cast<double>(global_batch) / (static_cast<double>(one.accumulation) * one.seconds)
                          : 0;
    }
};

/// Tries micro-batch sizes whose multiples make up the global batch, from small to large, until one
/// does not fit on some rank. run(samples) processes one micro-batch, as in training, on every
/// rank. The result is the smallest size within 2 % of the fastest, since it leaves the most
/// memory. Collective; all ranks get the same result. If `run` throws std::bad_alloc, the size does
/// not fit.
///
/// Cost: `repetitions` + 1 runs of each size; the sizes are divisors of the rank's share, each at
/// least 1.5 times the one before. The caller clears gradients and buffers that the runs have
/// changed.
/// Memory is the peak of the process. If the system cannot reset the peak, an earlier one counts.
/// Errors: bad_input (a global batch that is not a multiple of the ranks; not even one sample
/// fits), mismatch (options differ). If `run` throws on one rank, every other rank's call throws an
/// error that names it.
template <class World, class Run, memory_measure Memory = ResidentMemory>
    requires requires(Run& run, std::int64_t samples) { run(samples); }
BatchSize find_batch_size(World& world, const BatchSizeOptions& options, Run&& run, Memory memory = {}) {
    return detail::telling_all(world, "find_batch_size", [&] {
        const std::int64_t ranks = world.size();
        if (options.global_batch < 1 || options.global_batch % ranks != 0)
            refuse_input({"BatchSizeOptions.global_batch is ", options.global_batch, "; expected a multiple of the ",
                          ranks, " ranks, at least one sample each"});
        if (options.repetitions < 1)
            refuse_input({"BatchSizeOptions.repetitions is ", options.repetitions, "; expected at least 1"});
        detail::agree_on(world, "find_batch_size",
                         std::array<std::string_view, 3>{"global_batch", "most_bytes", "repetitions"},
                         std::array<std::int64_t, 3>{
                             options.global_batch, static_cast<std::int64_t>(options.most_bytes), options.repetitions});
        const std::int64_t share = options.global_batch / ranks;
        BatchSize found;
        found.global_batch = options.global_batch;
        for (std::int64_t size = 1, tried = 0; size <= share; ++size) {
            if (share % size != 0 || (2 * size < 3 * tried && size != share)) continue;
            tried = size;
            BatchTrial trial{size, share / size};
            double fastest = std::numeric_limits<double>::infinity();
            double beyond = 0;
            try {
                if (options.most_bytes != 0) memory.reset();
                run(size); // also warms up
                for (int i = 0; i < options.repetitions; ++i) {
                    const nanoseconds began = steady_now();
                    run(size);
                    fastest =
                        std::min(fastest, static_cast<double>(std::max<nanoseconds>(1, steady_now() - began)) * 1e-9);
                }
                if (options.most_bytes != 0) trial.bytes = memory.peak();
                beyond = options.most_bytes != 0 && trial.bytes > options.most_bytes ? 1 : 0;
            } catch (const std::bad_alloc&) {
                beyond = 1;
                fastest = 0;
            }
            std::array<double, 3> most = {beyond, fastest, static_cast<double>(trial.bytes)};
            if (ranks > 1) all_reduce(world, most, detail::Few<Max>{});
            trial.bytes = static_cast<std::uint64_t>(most[2]);
            if (most[0] == 0) {
                trial.seconds = most[1];
                found.largest = size;
            }
            found.trials.push_back(trial);
            if (!trial.fits()) break;
        }
        double best = 0;
        for (const BatchTrial& one : found.trials) best = std::max(best, found.speed_of(one));
        if (best == 0)
            refuse_input({"find_batch_size: one sample does not fit into BatchSizeOptions.most_bytes = ",
                          options.most_bytes, "; ", found.trials.front().bytes, " bytes were resident"});
        for (const BatchTrial& one : found.trials) {
            if (found.speed_of(one) < 0.98 * best) continue;
            found.micro_batch = one.micro_batch;
            found.accumulation = one.accumulation;
            found.samples_per_second = found.speed_of(one);
            break;
        }
        return found;
    });
}

UNISONO_NAMESPACE_END
