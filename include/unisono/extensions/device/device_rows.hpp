#pragma once

/// \file
/// Batches on a device. Rows are gathered into pinned host memory and copied ahead on a separate
/// stream, while the device works on earlier batches. Not in the umbrella; unisono/nccl.hpp
/// provides CUDA's streams.

#include "unisono/core/device_span.hpp"
#include "unisono/core/list.hpp"
#include "unisono/data/data.hpp"

#include <concepts>
#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A data set whose batches are rows of numbers, with or without labels, and which writes them to
/// given memory. RowData is one.
template <class D>
concept row_source = requires(const D& data, std::span<const std::size_t> indices, std::span<typename D::Value> values,
                              std::span<typename D::Label> labels) {
    { data.size() } -> std::convertible_to<std::size_t>;
    { data.width() } -> std::convertible_to<std::size_t>;
    { data.has_labels() } -> std::same_as<bool>;
    data.fill(indices, values, labels);
};

/// An object that copies to a device: it has memory, one stream of its own, and marks in streams.
/// CudaPrefetch (extensions/cuda/prefetch.hpp) is one.
///
/// `mark(m)` and `mark(m, stream)` place m after the work enqueued so far on its own stream, or on
/// `stream`. `follow(m)` and `follow(m, stream)` make later work on that stream wait for m; the
/// host does not wait. `wait(m)` makes the host wait for a limited time, and then throws. A mark
/// that was never placed blocks nothing. Several threads may call these functions, one at a time.
template <class C>
concept batch_copier =
    detail::movable_value<C> && std::default_initializable<typename C::Mark> &&
    requires(C& copier, std::byte* bytes, std::size_t count, typename C::Mark& mark, typename C::Stream stream) {
        { copier.pinned(count) } -> std::same_as<std::shared_ptr<std::byte>>;
        { copier.on_device(count) } -> std::same_as<std::shared_ptr<std::byte>>;
        copier.copy(bytes, bytes, count);
        copier.mark(mark);
        copier.mark(mark, stream);
        copier.follow(mark);
        copier.follow(mark, stream);
        copier.wait(mark);
    };

namespace detail {

/// Memory of one batch on the host and on the device, and the marks of its users.
template <class Copier>
struct BatchRoom {
    std::shared_ptr<std::byte> pinned = {}, device = {};
    std::size_t bytes = 0;
    typename Copier::Mark copied = {};
    /// Streams, and the position up to which each uses the memory.
    std::vector<std::pair<typename Copier::Stream, typename Copier::Mark>> users = {};
};

/// The rooms that are not in use, in the order in which they were returned.
template <class Copier>
class BatchRooms {
public:
    using Room = BatchRoom<Copier>;

    explicit BatchRooms(Copier copier) : copier_(std::move(copier)) {}
    BatchRooms(const BatchRooms&) = delete;
    BatchRooms& operator=(const BatchRooms&) = delete;
    ~BatchRooms() {
        for (const std::unique_ptr<Room>& room : free_) {
            try {
                copier_.wait(room->copied);
                wait_for_users(*room);
            } catch (...) { // a user may still read it: the memory is leaked rather than overwritten
                static_cast<void>(new std::pair(room->pinned, room->device));
            }
        }
    }

    /// Returns a room of `bytes` bytes. The host may write to it at once; its copy to the device
    /// waits for the last users. Errors: the copier's.
    std::unique_ptr<Room> take(std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        std::unique_ptr<Room> room;
        if (free_.empty()) {
            room = std::make_unique<Room>();
        } else {
            copier_.wait(free_.front()->copied);
            if (free_.front()->bytes < bytes) wait_for_users(*free_.front()); // its memory is released
            room = std::move(free_.front());
            free_.erase(free_.begin());
        }
        if (room->bytes < bytes) {
            *room = {};
            room->pinned = copier_.pinned(bytes);
            room->device = copier_.on_device(bytes);
            room->bytes = bytes;
        }
        return room;
    }
    /// Copies the room's bytes from the host to the device.
    void send(Room& room, std::size_t bytes) {
        const std::lock_guard lock(mutex_);
        for (auto& [stream, used] : room.users) copier_.follow(used);
        copier_.copy(room.device.get(), room.pinned.get(), bytes);
        copier_.mark(room.copied);
    }
    void lend(Room& room, typename Copier::Stream stream) {
        const std::lock_guard lock(mutex_);
        copier_.follow(room.copied, stream);
        for (const auto& [known, used] : room.users)
            if (known == stream) return;
        room.users.emplace_back(stream, typename Copier::Mark{});
    }
    /// Returns a room when its batch ends. Work enqueued so far on the batch's streams may still
    /// use it.
    void give(std::unique_ptr<Room> room) noexcept {
        try {
            const std::lock_guard lock(mutex_);
            Room& one = *room;
            free_.push_back(std::move(room));
            for (auto& [stream, used] : one.users) copier_.mark(used, stream);
        } catch (...) { // the device reports the error to the next caller
        }
    }

private:
    void wait_for_users(Room& room) {
        for (auto& [stream, used] : room.users) copier_.wait(used);
    }

    std::mutex mutex_;
    Copier copier_;
    std::vector<std::unique_ptr<Room>> free_;
};

} // namespace detail

/// Rows of a batch on a device. Move-only. Its memory is reused after its end.
template <class T, class L, batch_copier Copier>
class DeviceRowBatch {
public:
    using Stream = typename Copier::Stream;

    DeviceRowBatch(DeviceRowBatch&& other) noexcept = default;
    DeviceRowBatch& operator=(DeviceRowBatch&& other) noexcept {
        if (this == &other) return *this;
        give_back();
        rooms_ = std::move(other.rooms_);
        room_ = std::move(other.room_);
        rows_ = other.rows_;
        width_ = other.width_;
        labels_at_ = other.labels_at_;
        has_labels_ = other.has_labels_;
        return *this;
    }
    ~DeviceRowBatch() { give_back(); }

    [[nodiscard]] std::size_t rows() const { return rows_; }
    [[nodiscard]] std::size_t width() const { return width_; }

    /// Call this before the batch is used on a stream. Later work on the stream waits for the rows;
    /// the memory is not overwritten before work enqueued up to the batch's end has finished. The
    /// host does not wait for either.
    void on(Stream stream) const { rooms_->lend(*room_, stream); }

    /// rows() x width() elements, on the device.
    [[nodiscard]] DeviceSpan<const T> values() const {
        return {reinterpret_cast<const T*>(room_->device.get()), rows_ * width_};
    }
    /// One label per row, on the device; empty if the data have none.
    [[nodiscard]] DeviceSpan<const L> labels() const {
        return {reinterpret_cast<const L*>(room_->device.get() + labels_at_), has_labels_ ? rows_ : 0};
    }
    /// The labels in host memory, for code that evaluates on the host.
    [[nodiscard]] std::span<const L> labels_on_host() const {
        return {reinterpret_cast<const L*>(room_->pinned.get() + labels_at_), has_labels_ ? rows_ : 0};
    }

private:
    template <row_source Data, batch_copier C>
    friend class DeviceRows;
    using Rooms = detail::BatchRooms<Copier>;

    DeviceRowBatch() = default;
    void give_back() {
        if (room_ != nullptr) rooms_->give(std::move(room_));
    }

    std::shared_ptr<Rooms> rooms_;
    std::unique_ptr<typename Rooms::Room> room_;
    std::size_t rows_ = 0;
    std::size_t width_ = 0;
    std::size_t labels_at_ = 0;
    bool has_labels_ = false;
};

/// A data set like `data`, whose batches are on a device. If a Loader reads ahead (as in
/// `Trainer::fit`), a batch's rows are gathered and copied while the device works on earlier
/// batches. The host waits for the device only if all batches in use are still to be processed.
///
///     un::RowData rows(values, width, labels);
///     un::DeviceRows data(rows, un::CudaPrefetch(world.endpoint().device()));
///     trainer.fit(data, {.epochs = 10, .batch_size = 64});
///
/// The model calls batch.on(stream()), and its kernels read batch.values().
///
/// `data` must outlive it.
/// Memory: one room per batch in use (a Loader's depth + 1), each in pinned host memory and on the
/// device. Rooms are allocated for the first batches, and again for larger ones.
/// Errors: those of the data set and of the copier.
template <row_source Data, batch_copier Copier>
class DeviceRows {
    using T = typename Data::Value;
    using L = typename Data::Label;

public:
    using Batch = DeviceRowBatch<T, L, Copier>;

    DeviceRows(const Data& data, Copier copier)
        : data_(&data), rooms_(std::make_shared<detail::BatchRooms<Copier>>(std::move(copier))) {}

    [[nodiscard]] std::size_t size() const { return data_->size(); }
    [[nodiscard]] std::size_t width() const { return data_->width(); }

    [[nodiscard]] Batch batch(std::span<const std::size_t> indices) const {
        Batch made;
        made.rows_ = indices.size();
        made.width_ = data_->width();
        made.has_labels_ = data_->has_labels();
        const std::size_t values = made.rows_ * made.width_;
        made.labels_at_ = (values * sizeof(T) + apart - 1) / apart * apart;
        const std::size_t labels = made.has_labels_ ? made.rows_ : 0;
        const std::size_t bytes = made.labels_at_ + labels * sizeof(L);
        made.room_ = rooms_->take(bytes);
        made.rooms_ = rooms_;
        std::byte* const here = made.room_->pinned.get();
        data_->fill(indices, {reinterpret_cast<T*>(here), values},
                    {reinterpret_cast<L*>(here + made.labels_at_), labels});
        rooms_->send(*made.room_, bytes);
        return made;
    }

private:
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_copyable_v<L>, "rows are copied as bytes");
    static constexpr std::size_t apart = 256; ///< alignment of addresses for devices, in bytes

    const Data* data_;
    std::shared_ptr<detail::BatchRooms<Copier>> rooms_;
};

UNISONO_NAMESPACE_END
