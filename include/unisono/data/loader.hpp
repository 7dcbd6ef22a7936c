#pragma once

/// \file
/// Reads batches of a data set ahead of training, in the order of a stream of index lists.

#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/core/time.hpp"
#include "unisono/core/value.hpp"
#include "unisono/data/data.hpp"

#include <exception>
#include <optional>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The source of a loader's index lists: a sampler's stream, or a similar type. `next()` returns an
/// object with `samples`, valid until the following call, and any other facts for the consumer of
/// the batch.
template <class S>
concept index_stream = detail::movable_value<S> && requires(S& stream, const S& view) {
    { view.done() } -> std::same_as<bool>;
    requires std::same_as<std::remove_cvref_t<decltype(stream.next().samples)>, std::span<const std::size_t>>;
    requires detail::copyable_value<std::remove_cvref_t<decltype(stream.next())>>;
    std::remove_cvref_t<decltype(stream.next())>{};
};

/// Options of a loader.
struct LoaderOptions {
    static constexpr int most_depth = 1 << 16;
    /// Batches that a thread of the loader reads ahead; 0: no thread, a batch is read when it is
    /// asked for.
    int depth = 2;
    std::chrono::nanoseconds timeout = std::chrono::minutes{10}; ///< longest wait for a batch (depth > 0), more than 0
    friend bool operator==(const LoaderOptions&, const LoaderOptions&) = default;
};

/// The batches of a stream, in its order, read ahead by at most `depth`. The batches and their
/// order do not depend on the depth. For an empty index list the loader gives an item without a
/// batch, and does not call the data set.
///
/// If the data set or the stream throws, the `next()` that would have returned the batch throws the
/// exception, after all batches before it. Then the stream has ended until the next restart. The
/// data set must outlive the loader; one thread at a time calls it.
/// Memory: depth + 1 batches. The loader itself allocates nothing per batch. `restart()` and the
/// destructor wait only for the batch that is being read.
template <data_set Data, index_stream Stream>
class Loader {
    using Entry = std::remove_cvref_t<decltype(std::declval<Stream&>().next())>;

public:
    using Batch = batch_of<Data>;

    struct Item {
        Entry entry = {};                ///< the stream's result; its samples stay valid as long as the item
        std::optional<Batch> batch = {}; ///< empty if there are no samples
    };

    /// Reads `data` in the order of `stream`, from its current position. Reading ahead starts at
    /// once.
    /// \throws error bad_input: empty data, a negative or excessive depth, a timeout that is not
    /// positive; refused: no thread is available
    Loader(Data& data, Stream stream, LoaderOptions options = {});
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    ~Loader();

    /// The next batch, valid until the following call; null at the end of the stream.
    /// \throws what the data set or the stream threw; error timeout if the data set takes longer
    /// than the limit
    Item* next();

    /// Drops the batches that were read ahead, and continues at the position to which
    /// `stream.restart(arguments...)` moves the stream, for instance in the next epoch. instance to
    /// the next epoch.
    template <class... Arguments>
        requires requires(Stream& stream, Arguments&&... arguments) {
            stream.restart(std::forward<Arguments>(arguments)...);
        }
    void restart(Arguments&&... arguments) {
        detail::Lock lock{mutex_};
        if (lost_) throw error(ErrorCode::refused, "Loader: its thread has ended in the data set");
        ended_ = true; // the reader starts no other batch
        consumer_wakes_.wait(lock, [this] { return !reading_; });
        for (Slot& slot : slots_) {
            slot.item.batch.reset();
            slot.thrown = nullptr;
        }
        first_ = filled_ = 0;
        held_ = false;
        stream_.restart(std::forward<Arguments>(arguments)...); // if this throws, the loader stays at its end
        ended_ = false;
        reader_wakes_.wake_one();
    }

    [[nodiscard]] const LoaderOptions& options() const { return options_; }

private:
    struct Slot {
        Item item = {};
        detail::List<std::size_t> samples = {}; // a copy: the stream's own list is valid only until its next call
        std::exception_ptr thrown = {};
    };

    static LoaderOptions checked(Data& data, const LoaderOptions& options);

    void read_into(Slot& slot);

    Item* read_now();

    [[nodiscard]] int ahead() const { return static_cast<int>(filled_) - (held_ ? 1 : 0); }

    void read_ahead();
    /// The reader's thread is about to end in the data set: the consumer must not wait for it.
    void lose_reader(Slot& slot);

    Data& data_;
    Stream stream_; // accessed by the reader while `reading_`, otherwise under the mutex
    LoaderOptions options_;
    detail::FixedArray<Slot> slots_; // a ring: `filled_` slots from `first_` on, the consumer's (`held_`) first
    std::size_t first_ = 0;
    std::size_t filled_ = 0;
    bool held_ = false;
    bool reading_ = false;
    bool ended_ = false; // no batch is read until a restart
    bool quit_ = false;
    bool lost_ = false; // the reader's thread has ended
    detail::Mutex mutex_;
    detail::Condition reader_wakes_;
    detail::Condition consumer_wakes_;
    detail::Thread reader_;
};

template <data_set Data, index_stream Stream>
[[gnu::cold]] Loader<Data, Stream>::Loader(Data& data, Stream stream, LoaderOptions options)
    : data_(data), stream_(std::move(stream)), options_(checked(data, options)),
      slots_(static_cast<std::size_t>(options.depth) + 1) {
    if (options_.depth == 0) return;
    const int failed = reader_.start([](void* self) { static_cast<Loader*>(self)->read_ahead(); }, this);
    if (failed != 0)
        throw error(ErrorCode::refused,
                    detail::no_thread_for("Loader, which reads ahead (LoaderOptions::depth = 0 needs none)", failed));
}

template <data_set Data, index_stream Stream>
[[gnu::cold]] Loader<Data, Stream>::~Loader() {
    if (options_.depth == 0) return;
    {
        const detail::Lock lock{mutex_};
        quit_ = true;
    }
    reader_wakes_.wake_one();
    reader_.join();
}

template <data_set Data, index_stream Stream>
typename Loader<Data, Stream>::Item* Loader<Data, Stream>::next() {
    if (options_.depth == 0) return read_now();
    detail::Lock lock{mutex_};
    if (held_) { // returns the consumer's slot
        Slot& slot = slots_[first_];
        lock.unlock();
        slot.item.batch.reset(); // the batch is destroyed on the thread that used it
        lock.lock();
        held_ = false;
        first_ = (first_ + 1) % slots_.size();
        --filled_;
    }
    if (!consumer_wakes_.wait(lock, deadline_after(steady_now(), options_.timeout),
                              [this] { return filled_ > 0 || ended_; }))
        throw error(ErrorCode::timeout, concat({"the data set has not given the next batch within ",
                                                options_.timeout.count() / 1'000'000, " ms"}));
    if (filled_ == 0) return nullptr;
    Slot& slot = slots_[first_];
    held_ = true; // the reader may fill another slot
    reader_wakes_.wake_one();
    if (slot.thrown) std::rethrow_exception(std::exchange(slot.thrown, nullptr));
    return &slot.item;
}

template <data_set Data, index_stream Stream>
LoaderOptions Loader<Data, Stream>::checked(Data& data, const LoaderOptions& options) {
    if (static_cast<std::size_t>(data.size()) == 0) refuse_input("Loader: the data set is empty (size() is 0)");
    if (options.depth < 0 || options.depth > LoaderOptions::most_depth)
        refuse_input({"Loader: depth is ", options.depth, ", expected 0 to ", LoaderOptions::most_depth});
    if (options.timeout.count() <= 0)
        refuse_input({"Loader: timeout is ", options.timeout.count(), " ns, expected more than 0"});
    return options;
}

template <data_set Data, index_stream Stream>
void Loader<Data, Stream>::read_into(Slot& slot) {
    slot.item.entry = stream_.next();
    std::span<const std::size_t>& samples = slot.item.entry.samples;
    if (options_.depth > 0) {
        slot.samples.assign(samples);
        samples = slot.samples;
    }
    if (!samples.empty()) slot.item.batch.emplace(data_.batch(std::span<const std::size_t>{samples}));
}

template <data_set Data, index_stream Stream>
typename Loader<Data, Stream>::Item* Loader<Data, Stream>::read_now() {
    Slot& slot = slots_[0];
    slot.item.batch.reset();
    if (std::exchange(ended_, true)) return nullptr; // stays true if anything throws
    if (stream_.done()) return nullptr;
    read_into(slot);
    ended_ = false; // all went well
    return &slot.item;
}

template <data_set Data, index_stream Stream>
[[gnu::cold]] void Loader<Data, Stream>::lose_reader(Slot& slot) {
    const detail::Lock lock{mutex_};
    lost_ = true;
    reading_ = false;
    ended_ = true;
    slot.thrown = std::make_exception_ptr(
        error(ErrorCode::aborted, concat({"Loader: the data set threw ", detail::end_of_thread})));
    ++filled_;
    consumer_wakes_.wake_one();
}

template <data_set Data, index_stream Stream>
void Loader<Data, Stream>::read_ahead() {
    detail::Lock lock{mutex_};
    for (;;) {
        reader_wakes_.wait(lock, [this] { return quit_ || (!ended_ && ahead() < options_.depth); });
        if (quit_) return;
        Slot& slot = slots_[(first_ + filled_) % slots_.size()];
        reading_ = true;
        lock.unlock();
        bool done = false;
        try {
            done = stream_.done();
            if (!done) read_into(slot);
        } catch (...) {
            slot.item.batch.reset();
            slot.thrown = std::current_exception();
            if (detail::ends_its_thread()) {
                lose_reader(slot);
                throw;
            }
        }
        lock.lock();
        reading_ = false;
        ended_ = ended_ || done || slot.thrown;
        if (!done) ++filled_;
        consumer_wakes_.wake_one();
    }
}

template <class Data, class Stream>
Loader(Data&, Stream) -> Loader<Data, Stream>;
template <class Data, class Stream>
Loader(Data&, Stream, LoaderOptions) -> Loader<Data, Stream>;

UNISONO_NAMESPACE_END
