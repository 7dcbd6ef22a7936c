#pragma once

/// \file
/// The stream of the built-in samplers: an order, the treatment of its end, and the way in which a
/// round is dealt out to replicas. And the stream of samplers that draw an order of their own.

#include "unisono/core/list.hpp"
#include "unisono/core/random.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/sampler/sampler.hpp"

UNISONO_NAMESPACE_BEGIN
namespace sampling {

/// The way in which the samples of a round are dealt out to the L replicas.
enum class Deal : std::uint8_t {
    strided, ///< replica r takes positions r, r + L, r + 2L, ... of the round, as PyTorch's DistributedSampler
    blocks,  ///< contiguous parts of ceil(size / L), the last ones shorter or empty, as torch.chunk
};

/// The treatment of an order whose length does not divide evenly.
enum class Tail : std::uint8_t {
    keep, ///< the last round is short
    pad,  ///< repeat the order from its head, so that all replicas get the same number
    drop, ///< leave out the last samples, so that all replicas get the same number
};

/// The order of an epoch's samples, and the way in which they are dealt out to replicas.
struct Plan {
    SamplerShape shape = {};
    Deal deal = Deal::strided;
    Tail tail = Tail::keep;
    bool shuffle = false;
    std::uint64_t seed = 0;
    std::int64_t global_batch = 0; ///< samples of a full round; 0: full micro-batches of all replicas
};

/// The samples of one epoch in the order drawn: as stored (no memory), or a permutation of 4 bytes
/// per sample (8 above 2^32 samples).
class Order {
public:
    void draw(std::int64_t size, bool shuffle, std::uint64_t seed);
    [[nodiscard]] std::size_t operator[](std::size_t i) const {
        if (!narrow_.empty()) return narrow_[i];
        return wide_.empty() ? i : wide_[i];
    }

private:
    detail::List<std::uint32_t> narrow_;
    detail::List<std::size_t> wide_;
};

} // namespace sampling

/// A rank's micro-batches of one epoch. Memory: the order, if shuffled, and the indices of one
/// micro-batch. Cost: one pass over the data set's size at each restart if shuffled; nothing else
/// depends on that size.
class SampleStream {
public:
    /// \throws error bad_input: a plan or position that makes no sense
    SampleStream(const sampling::Plan& plan, Epoch epoch, std::int64_t consumed);

    /// Moves to the position in an epoch after the first `consumed` samples of its order.
    /// \throws error bad_input if that position does not exist
    void restart(Epoch epoch, std::int64_t consumed = 0);

    [[nodiscard]] bool done() const { return round_ == rounds_; }
    [[nodiscard]] std::int64_t rounds() const { return rounds_; }
    [[nodiscard]] std::int64_t global_batch() const { return plan_.global_batch; }
    /// Samples of all rounds on all replicas, including padding.
    [[nodiscard]] std::int64_t samples() const { return left_; }
    [[nodiscard]] const SamplerShape& shape() const { return plan_.shape; }
    [[nodiscard]] Position position() const { return {epoch_, prefix(round_)}; }

    /// The next micro-batch; its indices are valid until the next call.
    /// \throws error bad_input when done()
    MicroBatch next();

private:
    static std::int64_t up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

    /// Samples of the order that are consumed after `rounds` rounds, without padding.
    [[nodiscard]] std::int64_t prefix(std::int64_t rounds) const;
    [[nodiscard]] std::int64_t round_size() const {
        return std::min(plan_.global_batch, left_ - round_ * plan_.global_batch);
    }

    std::span<const std::size_t> deal(std::int64_t hosted);

    sampling::Plan plan_;
    sampling::Order order_;
    detail::List<std::size_t> indices_;
    bool drawn_ = false;
    Epoch epoch_ = Epoch{0};
    std::int64_t begin_ = 0; // the position in the order where this stream started
    std::int64_t left_ = 0;  // number of positions from there to the end, including padding
    std::int64_t rounds_ = 0;
    std::int64_t round_ = 0;
    std::int64_t hosted_ = 0; // index of the next hosted replica
};

UNISONO_CERTIFY(sample_stream<SampleStream>);

/// The stream of a sampler with an order of its own, each sample once: dealt out as by
/// SequentialSampler. `sampler.draw(epoch, order)` turns the numbers 0 to data_size - 1 in `order`
/// into the order of that epoch. It is called whenever the stream moves to another epoch; it
/// depends on nothing else, and does not allocate. Memory: a copy of the sampler, 8 bytes per
/// sample, and the indices of two micro-batches.
template <class Sampler>
class OrderedStream : SampleStream {
    static_assert(
        requires(const Sampler& sampler, Epoch epoch, std::span<std::size_t> order) { sampler.draw(epoch, order); },
        "OrderedStream: the sampler lacks `void draw(Epoch, std::span<std::size_t> order) const`");

public:
    using SampleStream::done, SampleStream::rounds, SampleStream::global_batch, SampleStream::position;

    /// \throws error bad_input: an invalid shape or position
    OrderedStream(const Sampler& sampler, const SamplerShape& shape, Epoch epoch, std::int64_t consumed = 0)
        : SampleStream(plan(shape), epoch, consumed), sampler_(sampler),
          order_(static_cast<std::size_t>(shape.data_size)), samples_(static_cast<std::size_t>(shape.batch_size)) {
        draw(epoch);
    }
    void restart(Epoch epoch, std::int64_t consumed = 0) {
        const bool drawn = epoch == position().epoch;
        SampleStream::restart(epoch, consumed);
        if (!drawn) draw(epoch);
    }
    MicroBatch next() {
        MicroBatch micro = SampleStream::next();
        for (std::size_t i = 0; i < micro.samples.size(); ++i) samples_[i] = order_[micro.samples[i]];
        micro.samples = {samples_.data(), micro.samples.size()};
        return micro;
    }

private:
    static sampling::Plan plan(const SamplerShape& shape) {
        check_shape(shape, Sampler::name);
        return {.shape = shape};
    }
    void draw(Epoch epoch) {
        for (std::size_t i = 0; i < order_.size(); ++i) order_[i] = i;
        sampler_.draw(epoch, std::span<std::size_t>(order_.data(), order_.size()));
    }

    Sampler sampler_;
    detail::List<std::size_t> order_, samples_;
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace sampling {

UNISONO_DEFINITION void Order::draw(std::int64_t size, bool shuffle, std::uint64_t seed) {
    const auto count = static_cast<std::size_t>(size);
    if (!shuffle) return;
    Mt19937 generator{seed};
    if (count <= 0xffffffffu) {
        narrow_.resize(count);
        torch_randperm(generator, std::span<std::uint32_t>(narrow_.data(), count));
    } else {
        wide_.resize(count);
        torch_randperm(generator, std::span<std::uint64_t>(wide_.data(), count));
    }
}

} // namespace sampling

[[gnu::cold]] UNISONO_DEFINITION SampleStream::SampleStream(const sampling::Plan& plan, Epoch epoch,
                                                            std::int64_t consumed)
    : plan_(plan) {
    // More than any order has, so that one round holds all samples.
    constexpr std::int64_t most = std::int64_t{1} << 60;
    check_shape(plan_.shape, "SampleStream");
    if (plan_.global_batch < 0 || plan_.global_batch > most)
        refuse_input({"SampleStream: global_batch is ", plan_.global_batch, ", expected 0 to 2^60"});
    const SamplerShape& shape = plan_.shape;
    std::int64_t& batch = plan_.global_batch;
    if (batch == 0 && (__builtin_mul_overflow(shape.batch_size, shape.replicas, &batch) || batch > most)) batch = most;
    // Only padding makes an order longer than the data, by less than one sample per replica.
    const std::int64_t longest = std::min(plan_.global_batch, shape.data_size + shape.replicas);
    indices_.resize(static_cast<std::size_t>(up(longest, shape.replicas)));
    restart(epoch, consumed);
}

[[gnu::cold]] UNISONO_DEFINITION void SampleStream::restart(Epoch epoch, std::int64_t consumed) {
    const SamplerShape& shape = plan_.shape;
    if (consumed < 0 || consumed > shape.data_size)
        refuse_input({"cannot resume at sample ", consumed, " of epoch ", epoch.number(),
                      ": expected 0 to data_size, which is ", shape.data_size});
    if (!drawn_ || (plan_.shuffle && epoch != epoch_))
        order_.draw(shape.data_size, plan_.shuffle, plan_.seed + static_cast<std::uint64_t>(epoch.number()));
    drawn_ = true;
    epoch_ = epoch;
    begin_ = consumed;
    left_ = shape.data_size - consumed;
    if (plan_.tail == sampling::Tail::pad) left_ = up(left_, shape.replicas) * shape.replicas;
    if (plan_.tail == sampling::Tail::drop)
        left_ -= left_ % (plan_.deal == sampling::Deal::strided ? shape.replicas : plan_.global_batch);
    rounds_ = up(left_, plan_.global_batch);
    round_ = 0;
    hosted_ = 0;
}

UNISONO_DEFINITION MicroBatch SampleStream::next() {
    if (done()) refuse_input({"epoch ", epoch_.number(), " has no more samples: restart() with the next epoch"});
    MicroBatch micro{.samples = deal(hosted_),
                     .replica = plan_.shape.replica + hosted_,
                     .round = round_,
                     .round_samples = round_size(),
                     .ends_round = hosted_ + 1 == plan_.shape.hosted,
                     .ends_epoch = false,
                     .resume = {epoch_, prefix(round_ + 1)}};
    if (++hosted_ == plan_.shape.hosted) {
        hosted_ = 0;
        ++round_;
    }
    micro.ends_epoch = done();
    return micro;
}

UNISONO_DEFINITION std::int64_t SampleStream::prefix(std::int64_t rounds) const {
    const std::int64_t dealt = rounds == rounds_ ? left_ : rounds * plan_.global_batch;
    return std::min(begin_ + dealt, plan_.shape.data_size);
}

UNISONO_DEFINITION std::span<const std::size_t> SampleStream::deal(std::int64_t hosted) {
    const std::int64_t replica = plan_.shape.replica + hosted;
    const std::int64_t replicas = plan_.shape.replicas;
    const std::int64_t size = round_size();
    const bool strided = plan_.deal == sampling::Deal::strided;
    const std::int64_t part = up(size, replicas);
    const std::int64_t first = strided ? replica : std::min(replica * part, size);
    const std::int64_t stride = strided ? replicas : 1;
    const std::int64_t count = strided ? (first < size ? up(size - first, replicas) : 0) : std::min(part, size - first);
    const auto data_size = static_cast<std::size_t>(plan_.shape.data_size);
    auto at = static_cast<std::size_t>(begin_ + round_ * plan_.global_batch + first);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i, at += static_cast<std::size_t>(stride))
        indices_[i] = order_[at < data_size ? at : at % data_size];
    return {indices_.data(), static_cast<std::size_t>(count)};
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
