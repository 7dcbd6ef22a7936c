#pragma once

/// \file
/// Policy: which samples go to which replica, and when.
///
/// A sampler is a plain value. For a shape (data size, batch size, replica) and an *epoch* it makes
/// a stream of micro-batches. The program must name the epoch, so it cannot forget to reshuffle
/// between epochs.
///
/// **Replicas are logical.** A *round* is one micro-batch of each of the L replicas. A rank hosts
/// `hosted` of them, and its stream gives their micro-batches in replica order, round after round.
/// So one rank that hosts eight replicas trains on the same micro-batches as eight ranks that host
/// one replica each.
///
/// **Positions.** Every sampler here deals out an epoch's order (the samples in the order drawn,
/// padded or cut): each round takes the next `global_batch()` samples of it. So after a round all
/// replicas together have consumed a prefix of the order, for any L, and a checkpoint needs only
/// `Position{epoch, samples}`. If training resumes with the same number of replicas, the streams
/// continue exactly. With another number of replicas or another batch size, the rest of the order
/// is dealt out again: no sample is repeated or left out.
///
/// Laws (tests/base/sampler checks every sampler against them):
/// - a stream has rounds() x hosted micro-batches, and rounds() is the same for every replica: no
///   rank waits for a rank that ran out of data. A replica without data in a round gets an empty
///   micro-batch (weight zero);
/// - the same shape, epoch and position give the same stream, on every machine;
/// - each index is below data_size; round_samples is the sum over all replicas and the same on all
///   of them;
/// - after the stream was made, `next()` and `restart()` do not allocate.
///
/// The stream of the samplers here (sampler/stream.hpp) deals out the positions of an order and
/// keeps these counts. A sampler with an order of its own returns an `OrderedStream`, and has one
/// more function, `draw(epoch, order)`.
///
/// Menu:
/// - `DistributedSampler`: PyTorch's order, shuffled or not, padded or cut. To train as under
///   PyTorch.
/// - `InterleavedSampler`: the same for n replicas per rank: the same training on fewer ranks.
/// - `SequentialSampler`: samples in stored order, each once; replica r gets r, r + L, ... To train
///   without shuffling.
/// - `EvaluationSampler`: samples in stored order, in blocks, each once. For metrics and
///   predictions.
/// - `ScatterSampler`: one order for all replicas, each sample once; each global batch is cut into
///   contiguous parts, as in torch.nn.DataParallel.
///
/// Absent: sampling with replacement and weighted sampling (a data set of your own can map
/// indices), and sharding by files (give each rank its own data set and a world of one).

#include "unisono/core/error.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/value.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

UNISONO_NAMESPACE_BEGIN

/// The number of an epoch, from 0. A separate type with an explicit constructor, so that no other
/// number is mistaken for an epoch.
class Epoch {
public:
    /// \throws error bad_input if negative
    explicit constexpr Epoch(std::int64_t number) : number_(number) {
        if (number < 0) refuse_input({"an epoch's number must be 0 or more, found ", number});
    }
    [[nodiscard]] constexpr std::int64_t number() const { return number_; }
    [[nodiscard]] constexpr Epoch next() const { return Epoch{number_ + 1}; }
    friend constexpr bool operator==(const Epoch&,
                                     const Epoch&) = default; // nvcc does not define the == that <=> implies
    friend constexpr auto operator<=>(const Epoch&, const Epoch&) = default;

private:
    std::int64_t number_;
};

/// Position of a training: all replicas together have consumed the first `samples` samples of this
/// epoch's order.
struct Position {
    Epoch epoch = Epoch{0};
    std::int64_t samples = 0; ///< 0 to data_size
    friend bool operator==(const Position&, const Position&) = default;
};

/// The shape for which a sampler makes a stream. The numbers are signed, so that a negative number
/// is refused by name instead of becoming a huge one.
struct SamplerShape {
    std::int64_t data_size = 0;  ///< samples in the data set, 1 or more
    std::int64_t batch_size = 1; ///< samples of a replica's micro-batch (ScatterSampler: of the global batch)
    std::int64_t replicas = 1;   ///< L: over all ranks
    std::int64_t replica = 0;    ///< the first replica that this rank hosts
    std::int64_t hosted = 1;     ///< number of consecutive replicas that this rank hosts, from `replica` on
    friend bool operator==(const SamplerShape&, const SamplerShape&) = default;
};

/// One micro-batch of one replica, and the facts that the trainer needs about it.
struct MicroBatch {
    /// Valid until the next call on the stream; empty: the replica has no data in this round.
    std::span<const std::size_t> samples = {};
    std::int64_t replica = 0;       ///< 0 to L - 1
    std::int64_t round = 0;         ///< 0 for the first round of the stream
    std::int64_t round_samples = 0; ///< samples of all L replicas in this round: the same on all ranks
    bool ends_round = false;        ///< the last micro-batch of this rank in this round
    bool ends_epoch = false;        ///< the last micro-batch of this rank in this epoch
    Position resume = {};           ///< position after this round
};

/// A rank's micro-batches of one epoch. `restart` keeps the memory and names the next epoch.
template <class S>
concept sample_stream =
    detail::movable_value<S> && requires(S& stream, const S& view, Epoch epoch, std::int64_t consumed) {
        { stream.next() } -> std::same_as<MicroBatch>; // throws error bad_input when done
        { view.done() } -> std::same_as<bool>;
        { view.rounds() } -> std::same_as<std::int64_t>;       // rounds from the position where the stream was started
        { view.global_batch() } -> std::same_as<std::int64_t>; // samples of a full round, all replicas together
        { view.position() } -> std::same_as<Position>;         // counts whole rounds only
        stream.restart(epoch);
        stream.restart(epoch, consumed);
    };

/// Policies that choose the samples of each replica.
template <class S>
concept sampler_policy = policy_of<S, Family::sampler> &&
                         requires(const S& sampler, const SamplerShape& shape, Epoch epoch, std::int64_t consumed) {
                             { sampler.replicas_per_rank() } -> std::same_as<std::int64_t>;
                             { sampler.stream(shape, epoch) } -> sample_stream;
                             { sampler.stream(shape, epoch, consumed) } -> sample_stream;
                         };

/// Refuses an invalid shape: names the parameter, the value found and the expected values.
void check_shape(const SamplerShape& shape, std::string_view who);

namespace detail {
/// As below, of a sampler with that name and number of replicas per rank.
SamplerShape shape_of_rank(std::string_view who, std::int64_t hosted, std::int64_t data_size, std::int64_t batch_size,
                           std::int64_t world, std::int64_t rank);
} // namespace detail

/// The shape of rank `rank` of `world` with this sampler: L = world x replicas_per_rank, and rank 0
/// hosts the first replicas.
/// \throws error bad_input: names the invalid parameter
template <sampler_policy Sampler>
SamplerShape shape_of_rank(const Sampler& sampler, std::int64_t data_size, std::int64_t batch_size, std::int64_t world,
                           std::int64_t rank) {
    return detail::shape_of_rank(Sampler::name, sampler.replicas_per_rank(), data_size, batch_size, world, rank);
}

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

[[gnu::cold]] UNISONO_DEFINITION void check_shape(const SamplerShape& shape, std::string_view who) {
    const auto refuse = [&](std::string_view parameter, std::int64_t found, const std::string& expected) {
        refuse_input({who, ": ", parameter, " is ", found, ", expected ", expected});
    };
    constexpr std::int64_t most = std::int64_t{1} << 48;
    constexpr std::int64_t most_replicas = (std::int64_t{1} << 31) - 1;
    if (shape.data_size == 0) refuse_input({who, ": the data set is empty (data_size is 0)"});
    if (shape.data_size < 0 || shape.data_size > most) refuse("data_size", shape.data_size, "1 to 2^48");
    if (shape.batch_size < 1) refuse("batch_size", shape.batch_size, "1 or more");
    if (shape.batch_size > shape.data_size)
        refuse("batch_size", shape.batch_size,
               concat({"at most data_size, which is ", shape.data_size, ": a batch larger than the data"}));
    if (shape.replicas < 1 || shape.replicas > most_replicas) refuse("replicas", shape.replicas, "1 to 2^31 - 1");
    if (shape.replica < 0 || shape.replica >= shape.replicas)
        refuse("replica", shape.replica, concat({"0 to ", shape.replicas - 1}));
    if (shape.hosted < 1 || shape.hosted > shape.replicas - shape.replica)
        refuse("hosted", shape.hosted,
               concat({"1 to ", shape.replicas - shape.replica, " (from replica ", shape.replica, " of ",
                       shape.replicas, ")"}));
}

[[gnu::cold]] UNISONO_DEFINITION SamplerShape detail::shape_of_rank(std::string_view who, std::int64_t hosted,
                                                                    std::int64_t data_size, std::int64_t batch_size,
                                                                    std::int64_t world, std::int64_t rank) {
    if (world < 1) refuse_input({who, ": world is ", world, ", expected 1 or more"});
    if (rank < 0 || rank >= world) refuse_input({who, ": rank is ", rank, ", expected 0 to ", world - 1});
    if (hosted < 1) refuse_input({who, ": replicas is ", hosted, ", expected 1 or more per rank"});
    std::int64_t replicas = 0;
    if (__builtin_mul_overflow(world, hosted, &replicas))
        refuse_input({who, ": ", world, " ranks of ", hosted, " replicas are too many"});
    // rank < world, so rank * hosted cannot overflow unless world * hosted did.
    const SamplerShape shape{.data_size = data_size,
                             .batch_size = batch_size,
                             .replicas = replicas,
                             .replica = rank * hosted,
                             .hosted = hosted};
    check_shape(shape, who);
    return shape;
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
