#pragma once

/// \file
/// A communicator of NCCL. It never blocks, and is polled until it is ready. It ends in order
/// (deregister, finalise, destroy), or it is aborted.

#include "unisono/core/time.hpp"
#include "unisono/transport/nccl/api.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class NcclCommunicator {
public:
    enum class State { ready, busy, failed };

    NcclCommunicator() = default;
    /// Begins a communicator for rank `rank` of `ranks`, on the thread's current device. Errors:
    /// refused.
    static NcclCommunicator begin(int ranks, const ncclUniqueId& id, int rank) {
        NcclCommunicator made;
        ncclConfig_t config = configuration(false);
        made.note(ncclCommInitRankConfig(&made.handle_, ranks, id, rank, &config), "ncclCommInitRankConfig");
        return made;
    }
    /// Begins a communicator of the ranks of `from` that pass the same colour (NCCL_SPLIT_NOCOLOR:
    /// none), in the order of their keys. `share`: it uses the resources of `from`, which must
    /// outlive it. Collective. Errors: refused.
    static NcclCommunicator split(ncclComm_t from, int colour, int key, bool share) {
        NcclCommunicator made;
        ncclConfig_t config = configuration(share);
        made.from_ = from;
        made.note(ncclCommSplit(from, colour, key, &made.handle_, &config), "ncclCommSplit");
        made.busy_ = true;
        return made;
    }
    NcclCommunicator(NcclCommunicator&& other) noexcept { swap(other); }
    NcclCommunicator& operator=(NcclCommunicator&& other) noexcept {
        swap(other);
        return *this;
    }
    ~NcclCommunicator() = default; // its owner closes or aborts it, since both take time

    [[nodiscard]] ncclComm_t get() const { return handle_; }
    [[nodiscard]] bool exists() const { return handle_ != nullptr; }
    [[nodiscard]] bool is_aborted() const { return aborted_; }
    /// NCCL's text for why it failed.
    [[nodiscard]] const std::string& why() const { return why_; }
    [[nodiscard]] ncclResult_t code() const { return code_; }

    /// Notes the result of a call, which may still be in progress.
    bool note(ncclResult_t answer, const char* call) {
        if (answer == ncclSuccess) return true;
        if (answer == ncclInProgress) return busy_ = true;
        code_ = answer;
        why_ = concat({call, ": ", words_of(answer)});
        return false;
    }

    /// Whether it accepts calls. Asks NCCL only while it is busy.
    [[nodiscard]] State state() {
        if (code_ != ncclSuccess || aborted_) return State::failed;
        if (!busy_) return State::ready;
        return look();
    }

    /// As `state`, but always asks NCCL, which also reveals errors.
    [[nodiscard]] State look() {
        if (code_ != ncclSuccess || aborted_) return State::failed;
        if (from_ != nullptr) { // the new one can be asked once the old one has answered
            const State old = ask(from_);
            if (old != State::ready) return old;
        }
        const State now = handle_ == nullptr ? State::ready : ask(handle_);
        if (now == State::ready) {
            busy_ = false;
            from_ = nullptr;
        }
        return now;
    }

    /// Registers memory that NCCL may then use without copying. Null if NCCL refuses, which is
    /// slower but no error.
    void* register_memory(void* data, std::size_t bytes) {
        void* made = nullptr;
        if (state() != State::ready || ncclCommRegister(handle_, data, bytes, &made) != ncclSuccess) return nullptr;
        registered_.push_back(made);
        return made;
    }
    void deregister(void* registration) {
        const auto known = std::find(registered_.begin(), registered_.end(), registration);
        if (known == registered_.end()) return; // ended with the communicator
        registered_.erase(known);
        static_cast<void>(ncclCommDeregister(handle_, registration));
    }

    /// Begins to register memory together with all ranks of the communicator, as windows if the
    /// version has them; `has_window` tells the result once the communicator is ready again. The
    /// memory stays until the communicator has ended, even if all users release it.
    bool begin_window(const std::shared_ptr<std::byte>& memory, std::size_t bytes) {
#if UNISONO_NCCL_WINDOWS
        windows_.push_back(std::make_unique<Window>(Window{memory}));
        return note(
            ncclCommWindowRegister(handle_, memory.get(), bytes, &windows_.back()->handle, NCCL_WIN_COLL_SYMMETRIC),
            "ncclCommWindowRegister");
#else
        windows_.push_back(std::make_unique<Window>(Window{memory}));
        static_cast<void>(register_memory(memory.get(), bytes));
        return true;
#endif
    }
    /// True if the last registration became a window. NCCL may offer none between these devices,
    /// and then works without it.
    [[nodiscard]] bool has_window() const { return !windows_.empty() && windows_.back()->handle != nullptr; }

    /// Begins to end the communicator, whose work is done. Poll `ended` next.
    void finalise() {
        if (handle_ == nullptr || aborted_ || finalised_) return;
        while (!registered_.empty()) deregister(registered_.back());
#if UNISONO_NCCL_WINDOWS
        for (const auto& one : windows_)
            if (one->handle != nullptr) static_cast<void>(ncclCommWindowDeregister(handle_, one->handle));
#endif
        finalised_ = true;
        note(ncclCommFinalize(handle_), "ncclCommFinalize");
    }
    /// True if the communicator has ended. One that fails meanwhile must be aborted.
    [[nodiscard]] bool ended() {
        if (handle_ == nullptr || aborted_) return true;
        if (!finalised_ || look() != State::ready) return false;
        static_cast<void>(ncclCommDestroy(std::exchange(handle_, nullptr)));
        return true;
    }

    /// Aborts these communicators, in this order. NCCL's abort has been seen to hang: after
    /// `within` it continues on a thread of its own, and the result is false.
    static bool abort(const std::vector<NcclCommunicator*>& these, std::chrono::nanoseconds within) {
        struct Done {
            std::mutex mutex;
            std::condition_variable told;
            bool yes = false;
        };
        std::vector<ncclComm_t> handles;
        for (NcclCommunicator* const one : these) {
            if (one->handle_ == nullptr || std::exchange(one->aborted_, true)) continue;
            one->registered_.clear();
            handles.push_back(one->handle_);
        }
        if (handles.empty()) return true;
        const auto done = std::make_shared<Done>();
        std::thread worker([done, handles] {
            for (const ncclComm_t handle : handles) static_cast<void>(ncclCommAbort(handle));
            const std::lock_guard lock(done->mutex);
            done->yes = true;
            done->told.notify_all();
        });
        bool ended = false;
        {
            std::unique_lock lock(done->mutex);
            ended = done->told.wait_until(lock, std::chrono::steady_clock::now() + within, [&] { return done->yes; });
        }
        if (ended) worker.join();
        else worker.detach();
        return ended;
    }

private:
    struct Window {
        std::shared_ptr<std::byte> memory;
#if UNISONO_NCCL_WINDOWS
        ncclWindow_t handle = nullptr; ///< NCCL writes it before the communicator is ready again
#else
        void* handle = nullptr;
#endif
    };

    static ncclConfig_t configuration(bool share) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        config.splitShare = share ? 1 : 0;
        return config;
    }

    State ask(ncclComm_t whom) {
        ncclResult_t found = ncclSuccess;
        const ncclResult_t answer = ncclCommGetAsyncError(whom, &found);
        if (answer != ncclSuccess) found = answer;
        if (found == ncclSuccess) return State::ready;
        if (found == ncclInProgress) return State::busy;
        code_ = found;
        why_ = words_of(found);
        return State::failed;
    }

    void swap(NcclCommunicator& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(from_, other.from_);
        std::swap(busy_, other.busy_);
        std::swap(finalised_, other.finalised_);
        std::swap(aborted_, other.aborted_);
        std::swap(code_, other.code_);
        std::swap(why_, other.why_);
        std::swap(registered_, other.registered_);
        std::swap(windows_, other.windows_);
    }

    ncclComm_t handle_ = nullptr;
    ncclComm_t from_ = nullptr; ///< the communicator from which it is being split
    bool busy_ = false;
    bool finalised_ = false;
    bool aborted_ = false;
    ncclResult_t code_ = ncclSuccess;
    std::string why_;
    std::vector<void*> registered_;
    std::vector<std::unique_ptr<Window>> windows_;
};

} // namespace detail
UNISONO_NAMESPACE_END
