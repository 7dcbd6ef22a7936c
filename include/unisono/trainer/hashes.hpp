#pragma once

/// \file
/// Hashes of a training's state, compared over ranks and logged. Not in the umbrella: include it
/// where it is used.
///
///     un::HashLog log(trainer, {.every = 10, .path = "run.hashes"});
///     trainer.fit(data, options, std::ref(log));
///
/// `compare_hash_logs` (observe/hash_log.hpp) and the program unisono-compare-hashes find the
/// update at which two runs begin to differ.

#include "unisono/core/descriptor.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/path.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/observe/hash_log.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/report.hpp"
#include "unisono/trainer/state_memory.hpp"
#include "unisono/trainer/trainer.hpp"

#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class T>
std::uint64_t hash_of_values(std::uint64_t first, std::span<const T> values) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < values.size(); ++i) hash += hash_of_element(first + i, std::bit_cast<Bits>(values[i]));
    return hash;
}

/// One hash per parameter, followed by one per parameter and array of the optimizer's state.
template <class Trainer>
List<std::uint64_t> hashes_of(Trainer& trainer) {
    using T = typename Trainer::Element;
    const Layout& layout = trainer.layout();
    const std::size_t parameters = layout.parameters();
    auto&& state = trainer.state().optimizer_state();
    List<std::uint64_t> hashes((1 + state.size()) * parameters);
    const auto part = [&](std::size_t p, const Slice& slice) { // the hash of a slice of parameter p, in flat order
        const std::size_t begin = std::max(layout.start_of(p), slice.first);
        const std::size_t end = std::min(layout.start_of(p) + layout.shapes()[p].count, slice.end());
        return Slice{begin, begin < end ? end - begin : 0};
    };
    for (std::size_t p = 0; p < parameters; ++p) {
        trainer.visit_parameters(part(p, {0, layout.count()}), [&](std::size_t flat, std::span<const T> values) {
            hashes[p] += hash_of_values(flat, values);
        });
    }
    std::size_t at = 0; // index in the state's arrays
    for (const Slice& slice : trainer.state().owned()) {
        for (std::size_t p = 0; p < parameters; ++p) {
            const Slice own = part(p, slice);
            for (std::size_t a = 0; a < state.size() && own.count != 0; ++a) {
                const StateMemory memory =
                    memory_of(trainer, state.array(a).subspan(at + own.first - slice.first, own.count));
                hashes[(1 + a) * parameters + p] +=
                    hash_of_values(own.first, std::span<const T>(static_cast<const T*>(memory.data), own.count));
            }
        }
        at += slice.count;
    }
    return hashes;
}

} // namespace detail

/// The hash of all parameters and of the optimizer's state, whichever rank owns the slices. It is
/// the same on all ranks, and for any number of ranks. Also compares the ranks: they must hold the
/// same parameters, and the same state if each rank holds all of it. Collective.
/// Cost: one pass over parameters and state, about a nanosecond per element; per rank, 8 bytes of
/// traffic for each parameter and array.
/// \throws error mismatch, on all ranks, that names the first rank that differs from rank 0 and its
/// first different parameter
template <class Trainer>
StateHash state_hash(Trainer& trainer) {
    auto& world = trainer.world();
    const auto inside = trainer.state().acting();
    return detail::telling_all(world, "state_hash", [&] {
        detail::List<std::uint64_t> mine = detail::hashes_of(trainer);
        const std::size_t parameters = trainer.layout().parameters();
        if (world.size() > 1) {
            const std::size_t count = mine.size();
            std::size_t owned = 0;
            for (const Slice& slice : trainer.state().owned()) owned += slice.count;
            mine.push_back(owned);
            detail::List<std::uint64_t> all((count + 1) * static_cast<std::size_t>(world.size()));
            detail::gather_words(world, mine, all);
            mine.pop_back();
            const std::size_t compared = Trainer::shards_parameters ? 0 : parameters;
            bool replicated = true; // each rank holds all of the optimizer's state
            for (std::size_t i = count; i < all.size(); i += count + 1)
                replicated = replicated && all[i] == trainer.layout().count();
            for (std::size_t i = count + 1; i < all.size(); ++i) {
                const std::size_t which = i % (count + 1);
                if (which >= (replicated ? count : compared) || all[i] == all[which]) continue;
                const int rank = world.world_rank(static_cast<int>(i / (count + 1)));
                const std::string label = parameter_label(trainer.trained(), which % parameters);
                const std::string part =
                    which < parameters
                        ? label
                        : concat({trainer.state().optimizer_state().name(which / parameters - 1), " of ", label});
                detail::throw_mismatch("state_hash", rank, world.world_rank(0),
                                       concat({part, " differs between rank ", world.world_rank(0), " and rank ", rank,
                                               ", after update ", trainer.updates()}));
            }
            for (std::size_t i = compared; i < count && !replicated; ++i) { // hashes of slices are added
                mine[i] = 0;
                for (std::size_t at = i; at < all.size(); at += count + 1) mine[i] += all[at];
            }
        }
        StateHash hash;
        for (std::size_t i = 0; i < mine.size(); ++i)
            (i < parameters ? hash.parameters : hash.optimizer) += hash_of_element(i, mine[i]);
        std::size_t i = 0;
        for (const std::int32_t exponent : trainer.state().grid_exponents())
            hash.optimizer += hash_of_element(i++ << 32, static_cast<std::uint32_t>(exponent));
        if (const LossScale& scale = trainer.loss_scale(); scale != LossScale{}) {
            hash.optimizer += hash_of_element(i << 32, std::bit_cast<std::uint64_t>(scale.scale));
            hash.optimizer += hash_of_element((i + 1) << 32, static_cast<std::uint64_t>(scale.good_updates));
        }
        return hash;
    });
}

/// Options of `HashLog`.
struct HashLogOptions {
    std::int64_t every = 1; ///< updates between two comparisons; at least 1
    std::string path = {};  ///< the log that rank 0 writes; empty: no log, ranks are only compared
};

/// Compares the ranks every n updates, and logs the hashes. Pass it to `fit` by std::ref; `fit`
/// calls it on every rank after each update. Refers to the trainer. After `resume`, it continues
/// the training's file and cuts off the lines of updates that are made again. A new training
/// replaces the file at its first update. \throws error as state_hash; refused: the file cannot be
/// written
template <class Trainer>
class HashLog {
public:
    HashLog(Trainer& trainer, HashLogOptions options) : trainer_(trainer), options_(std::move(options)) {
        if (options_.every < 1) refuse_input({"HashLogOptions.every is ", options_.every, "; expected at least 1"});
        if (options_.path.empty() || trainer.world().rank() != 0) return;
        options_.path = detail::absolute_path(options_.path);
        file_ = detail::open_above_standard_streams(options_.path.c_str(), "a");
        if (file_ == nullptr)
            throw error(ErrorCode::refused,
                        concat({"HashLog: cannot write '", options_.path, "': ", detail::why_not_opened(errno)}));
    }
    HashLog(const HashLog&) = delete;
    HashLog& operator=(const HashLog&) = delete;
    ~HashLog() {
        const detail::NotCancelled whole;
        if (file_ != nullptr) static_cast<void>(std::fclose(file_));
    }

    void operator()(const UpdateReport& report) {
        if (!report.committed) return;
        if (file_ != nullptr && !std::exchange(begun_, true)) detail::keep_hashes_before(options_.path, report.number);
        if (report.number % static_cast<std::uint64_t>(options_.every) != 0) return;
        last_ = state_hash(trainer_);
        if (file_ == nullptr) return;
        const std::string line = concat({hash_line(report.number, report.loss, last_), "\n"});
        if (std::fputs(line.c_str(), file_) < 0 || std::fflush(file_) != 0)
            throw error(ErrorCode::refused, concat({"HashLog: cannot write '", options_.path, "'"}));
    }

    /// The hash of the last update that was compared.
    [[nodiscard]] const StateHash& last() const { return last_; }

private:
    Trainer& trainer_;
    HashLogOptions options_;
    std::FILE* file_ = nullptr;
    bool begun_ = false; ///< the file has no lines of later updates
    StateHash last_;
};

UNISONO_NAMESPACE_END
