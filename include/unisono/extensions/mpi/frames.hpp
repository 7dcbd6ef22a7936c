#pragma once

/// \file
/// MPI's messages that carry the wire's frames, and the buffers that receive them.

#include "unisono/core/time.hpp"
#include "unisono/extensions/mpi/calls.hpp"
#include "unisono/transport/transport.hpp"

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct MpiFrame {
    static constexpr std::size_t eager_bytes = 8192;
    enum class Kind : std::uint32_t { whole, announced, goodbye, fault, inquiry, answer };

    Envelope envelope; ///< of a goodbye only the size: the frames from its sender to this rank, with it
    Kind kind = Kind::whole;
    std::int32_t from = 0;
    std::int32_t tag = 0;
    std::uint32_t bytes = 0;
    alignas(64) std::byte payload[eager_bytes];
};

/// Buffers of frames to send, reused.
class MpiFrames {
public:
    [[nodiscard]] MpiFrame* take() {
        if (spare_.empty()) {
            all_.push_back(std::make_unique<MpiFrame>());
            return all_.back().get();
        }
        MpiFrame* const one = spare_.back();
        spare_.pop_back();
        return one;
    }
    void give_back(MpiFrame* one) { spare_.push_back(one); }

private:
    std::vector<std::unique_ptr<MpiFrame>> all_;
    std::vector<MpiFrame*> spare_;
};

/// Receives that are posted in advance, for frames of any rank.
class MpiInbox {
public:
    static constexpr int frame_tag = 1;

    MpiInbox() = default;
    explicit MpiInbox(MPI_Comm communicator)
        : communicator_(communicator), buffers_(std::make_unique<MpiFrame[]>(posted)),
          arriving_(posted, MPI_REQUEST_NULL), finished_(posted) {}
    MpiInbox(MpiInbox&& other) noexcept = default;
    MpiInbox& operator=(MpiInbox&& other) noexcept = default;

    /// Posts all receives; returns MPI's code.
    int post_all() {
        int code = MPI_SUCCESS;
        for (int slot = 0; slot < posted && code == MPI_SUCCESS; ++slot) code = post(slot);
        return code;
    }
    /// Calls `take` for each frame that has arrived; returns MPI's code.
    template <class Take>
    int for_each(Take take) {
        if (buffers_ == nullptr || cancelled_) return MPI_SUCCESS;
        int count = 0;
        int code = MPI_Testsome(posted, arriving_.data(), &count, finished_.data(), MPI_STATUSES_IGNORE);
        for (int i = 0; i < count; ++i) {
            const int slot = finished_[static_cast<std::size_t>(i)];
            take(std::as_const(buffers_[static_cast<std::size_t>(slot)]));
            if (const int again = post(slot); again != MPI_SUCCESS) code = again;
        }
        return code;
    }
    /// Cancels all receives. MPI may still write to the buffers until `is_posted` is false.
    void cancel() {
        if (std::exchange(cancelled_, true)) return;
        for (MPI_Request& one : arriving_)
            if (one != MPI_REQUEST_NULL) MPI_Cancel(&one);
    }
    [[nodiscard]] bool is_posted() {
        int done = 1;
        if (buffers_ != nullptr) MPI_Testall(posted, arriving_.data(), &done, MPI_STATUSES_IGNORE);
        return done == 0;
    }

private:
    static constexpr int posted = 16;

    int post(int slot) {
        const auto at = static_cast<std::size_t>(slot);
        return MPI_Irecv(&buffers_[at], sizeof(MpiFrame), MPI_BYTE, MPI_ANY_SOURCE, frame_tag, communicator_,
                         &arriving_[at]);
    }

    MPI_Comm communicator_ = MPI_COMM_NULL;
    std::unique_ptr<MpiFrame[]> buffers_;
    std::vector<MPI_Request> arriving_; ///< one per buffer
    std::vector<int> finished_;
    bool cancelled_ = false;
};

} // namespace detail
UNISONO_NAMESPACE_END
