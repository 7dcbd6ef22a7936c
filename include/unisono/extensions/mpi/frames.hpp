#pragma once

/// \file
/// MPI's messages that carry the wire's frames, the buffers that receive them, and what remains of
/// both after a world.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/transport.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// MPI's text for an error.
inline std::string mpi_error_text(int code, const char* call) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return concat({call, ": ", std::string(text, static_cast<std::size_t>(length))});
}
/// Throws `refused` with MPI's text.
inline void check_mpi(int code, const char* call) {
    if (code != MPI_SUCCESS) throw error(ErrorCode::refused, mpi_error_text(code, call));
}

inline constexpr std::size_t most_mpi_bytes = std::size_t{1} << 30; ///< of one message: MPI counts in int
template <class Visit>
void for_each_mpi_piece(std::size_t bytes, std::size_t most, Visit visit) {
    for (std::size_t at = 0; at < bytes; at += most) visit(at, static_cast<int>(std::min(most, bytes - at)));
}

inline bool mpi_is_finalized() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
}

/// A communicator of the library's own, which is freed unless it is taken.
class MpiCommunicator {
public:
    explicit MpiCommunicator(MPI_Comm communicator) : communicator_(communicator) {}
    MpiCommunicator(MpiCommunicator&& other) noexcept
        : communicator_(std::exchange(other.communicator_, MPI_COMM_NULL)) {}
    MpiCommunicator& operator=(MpiCommunicator&&) = delete;
    ~MpiCommunicator() {
        if (communicator_ != MPI_COMM_NULL) MPI_Comm_free(&communicator_);
    }
    [[nodiscard]] MPI_Comm get() const { return communicator_; }
    [[nodiscard]] MPI_Comm take() { return std::exchange(communicator_, MPI_COMM_NULL); }

private:
    MPI_Comm communicator_;
};

/// A duplicate of a communicator whose errors are codes. Collective. Errors of MPI_Comm_dup go to
/// the handler of the original communicator, which by default ends the job; so it is replaced
/// during the call.
inline MpiCommunicator copy_of(MPI_Comm communicator) {
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    check_mpi(MPI_Comm_get_errhandler(communicator, &before), "MPI_Comm_get_errhandler");
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Comm made = MPI_COMM_NULL;
    const int code = MPI_Comm_dup(communicator, &made);
    MPI_Comm_set_errhandler(communicator, before);
    MPI_Errhandler_free(&before);
    check_mpi(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    return MpiCommunicator(made);
}

/// Cancels a receive; waits for at most one second.
inline void cancel_receive(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    const nanoseconds until = steady_now() + 1'000'000'000;
    for (int done = 0; done == 0 && steady_now() < until;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

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

/// The remains of a world that a rank has ended: memory that MPI may still access, and
/// communicators.
///
/// A rank leaves while peers may still send to it, and while MPI may still read the data that it
/// has sent. If a communicator is freed too early, a later one gets its number and then finds its
/// messages. So each rank tells every other rank how many frames it has sent to it, by one
/// nonblocking reduction that begins when the rank leaves. A rank that has received all those
/// frames, and whose own are sent, frees its communicator.
///
/// No rank waits for that. The cleaning proceeds whenever a world begins or ends, and in
/// MPI_Finalize.
class MpiRemains {
public:
    /// `sent`: the number of frames to each rank. `received`: the number of frames from all ranks
    /// together. `whole`: there was no fault, and only frames are in flight here.
    MpiRemains(MPI_Comm communicator, std::vector<std::uint64_t> sent, std::uint64_t received, bool whole)
        : communicator_(communicator), sent_(std::move(sent)), received_(received), whole_(whole) {
        if (sent_.size() == 1) return;
        if (!whole)
            for (std::uint64_t& one : sent_) one += broken;
        const int code =
            MPI_Ireduce_scatter_block(sent_.data(), &expected_, 1, MPI_UINT64_T, MPI_SUM, communicator_, &counting_);
        if (code != MPI_SUCCESS) expected_ = broken, whole_ = false;
    }
    MpiRemains(const MpiRemains&) = delete;
    MpiRemains& operator=(const MpiRemains&) = delete;

    /// Keeps frames that MPI may read until the requests are done.
    void hold(MpiFrames frames, std::vector<MPI_Request> requests) {
        frames_ = std::move(frames);
        sending_ = std::move(requests);
    }
    void hold(MpiInbox inbox) { inbox_ = std::move(inbox); }

    /// True once MPI accesses nothing of it any more. Not called again after that.
    bool is_over() {
        int out = 1;
        if (!sending_.empty())
            MPI_Testall(static_cast<int>(sending_.size()), sending_.data(), &out, MPI_STATUSES_IGNORE);
        if (!is_all_here()) return false;
        inbox_.cancel();
        if (out == 0 || inbox_.is_posted()) return false;
        if (whole_ && expected_ < broken) MPI_Comm_free(&communicator_);
        return true;
    }

    /// Called when MPI ends, so that no receive is still posted then.
    void give_up() {
        inbox_.cancel();
        static_cast<void>(inbox_.is_posted());
    }

private:
    /// Added to a count: a rank had a fault. Then the communicators are never freed, since no rank
    /// knows what is still in flight.
    static constexpr std::uint64_t broken = std::uint64_t{1} << 40;

    bool is_all_here() {
        inbox_.for_each([&](const MpiFrame& frame) {
            ++received_;
            // Its payload will find no receive.
            if (frame.kind == MpiFrame::Kind::announced) whole_ = false;
        });
        if (counting_ != MPI_REQUEST_NULL) {
            int counted = 0;
            MPI_Test(&counting_, &counted, MPI_STATUS_IGNORE);
            if (counted == 0) return false;
        }
        return received_ >= expected_ % broken;
    }

    MPI_Comm communicator_;
    std::vector<std::uint64_t> sent_;
    std::uint64_t received_;
    std::uint64_t expected_ = 0;
    bool whole_;
    MPI_Request counting_ = MPI_REQUEST_NULL;
    MpiInbox inbox_;
    MpiFrames frames_;
    std::vector<MPI_Request> sending_;
};

/// The remains of all worlds of the process. Called only while MPI may be called.
class MpiKeeper {
public:
    static void keep(std::unique_ptr<MpiRemains> one) {
        MpiKeeper& all = keeper();
        const std::scoped_lock lock(all.mutex_);
        if (!std::exchange(all.looks_at_the_end_, true)) look_at_the_end();
        if (!one->is_over()) all.remains_.push_back(std::move(one));
        all.look();
    }
    /// Releases remains that are over; returns the number of the others.
    static std::size_t look_again() {
        MpiKeeper& all = keeper();
        const std::scoped_lock lock(all.mutex_);
        all.look();
        return all.remains_.size();
    }

private:
    static constexpr nanoseconds finalize_within = 1'000'000'000;

    static MpiKeeper& keeper() {
        static auto* const one = new MpiKeeper; // MPI may write to what it holds until the process ends
        return *one;
    }
    void look() {
        std::erase_if(remains_, [](const std::unique_ptr<MpiRemains>& one) { return one->is_over(); });
    }
    /// MPI_Finalize first frees the attributes of MPI_COMM_SELF; their callbacks may call MPI.
    static void look_at_the_end() {
        int key = MPI_KEYVAL_INVALID;
        if (MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &finalize, &key, nullptr) != MPI_SUCCESS) return;
        MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
        MPI_Comm_free_keyval(&key);
    }
    static int finalize(MPI_Comm, int, void*, void*) {
        const nanoseconds until = steady_now() + finalize_within;
        while (look_again() != 0 && steady_now() < until) std::this_thread::yield();
        const std::scoped_lock lock(keeper().mutex_);
        for (const std::unique_ptr<MpiRemains>& one : keeper().remains_) one->give_up();
        return MPI_SUCCESS;
    }

    std::mutex mutex_;
    bool looks_at_the_end_ = false;
    std::vector<std::unique_ptr<MpiRemains>> remains_;
};

} // namespace detail
UNISONO_NAMESPACE_END
