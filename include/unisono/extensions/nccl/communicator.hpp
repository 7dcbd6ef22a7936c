#pragma once

/// \file
/// A communicator of NCCL. It never blocks, and is polled until it is ready. It ends in order
/// (deregister, finalise, destroy), or it is aborted. Between a call and the moment when it is
/// ready again, a thread of NCCL works for it, so that nothing else may touch it. Not all calls
/// that begin such work say "in progress": ncclCommSplit and ncclCommWindowRegister answer
/// "success".

#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/api.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nccl.h>

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < 21900
#define UNISONO_TEXT_OF(x) #x
#define UNISONO_VALUE_OF(x) UNISONO_TEXT_OF(x)
#pragma message("found: NCCL_VERSION_CODE is " UNISONO_VALUE_OF(NCCL_VERSION_CODE) "; required: at least 21900")
#error "Unisono needs the headers of NCCL 2.19 or newer (communicators that do not block, split, registered memory)"
#endif

#if NCCL_VERSION_CODE >= 22700
#define UNISONO_NCCL_WINDOWS 1 ///< memory that all ranks of a communicator register together
#else
#define UNISONO_NCCL_WINDOWS 0
#endif

#if NCCL_VERSION_CODE >= 23000
#define UNISONO_NCCL_REVOKES 1 ///< a communicator's work ends, and other communicators can be made
#else
#define UNISONO_NCCL_REVOKES 0
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

// NCCL as this library uses it: versions, and the text of its errors. No other header includes
// NCCL's headers.

/// 22809 is "2.28.9"; before 2.9 versions had four digits.
inline std::string nccl_version_text(int code) {
    const int major = code < 10000 ? code / 1000 : code / 10000;
    const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
    return concat({major, ".", minor, ".", code % 100});
}

/// NCCL's name of a result, and its last message.
inline std::string words_of(ncclResult_t code) {
    std::string text = ncclGetErrorString(code);
    const char* const last = ncclGetLastError(nullptr);
    if (last != nullptr && *last != '\0') text += concat({" (", last, ")"});
    return text;
}

[[noreturn, gnu::cold]] inline void refuse_call(const char* call, const std::string& words) {
    throw error(ErrorCode::refused, concat({"NCCL: ", call, ": ", words}));
}

/// Checks a call. Nonblocking communicators answer "in progress", which is no error.
inline void check_nccl(ncclResult_t code, const char* call) {
    if (code != ncclSuccess && code != ncclInProgress) refuse_call(call, words_of(code));
}

/// The version of the loaded library. Errors: refused if it is older than the headers.
inline int loaded_nccl() {
    int loaded = 0;
    check_nccl(ncclGetVersion(&loaded), "ncclGetVersion");
    if (loaded < NCCL_VERSION_CODE)
        throw error(ErrorCode::refused,
                    concat({"NCCL: the library that was loaded is ", nccl_version_text(loaded), ", older than ",
                            nccl_version_text(NCCL_VERSION_CODE), ", whose headers the program was compiled with"}));
    return loaded;
}

class NcclCommunicator {
public:
    enum class State { ready, busy, failed };

    NcclCommunicator() = default;
    /// Begins a communicator for rank `rank` of `ranks`, on the thread's current device. Errors:
    /// refused.
    static NcclCommunicator begin(int ranks, const ncclUniqueId& id, int rank) {
        NcclCommunicator made;
        ncclConfig_t config = configuration();
        made.begins(ncclCommInitRankConfig(made.place(), ranks, id, rank, &config), "ncclCommInitRankConfig");
        return made;
    }
    /// Begins a communicator of the ranks of `from` that pass the same colour (NCCL_SPLIT_NOCOLOR:
    /// none), in the order of their keys. Collective. Errors: refused.
    static NcclCommunicator split(ncclComm_t from, int colour, int key) {
        NcclCommunicator made;
        ncclConfig_t config = configuration();
        made.from_ = from;
        made.begins(ncclCommSplit(from, colour, key, made.place(), &config), "ncclCommSplit");
        return made;
    }
    /// Begins a split of this communicator, which must be ready, and is busy afterwards.
    NcclCommunicator split(int colour, int key) {
        busy_ = true;
        return split(get(), colour, key);
    }
    NcclCommunicator(NcclCommunicator&& other) noexcept { swap(other); }
    NcclCommunicator& operator=(NcclCommunicator&& other) noexcept {
        swap(other);
        return *this;
    }
    ~NcclCommunicator() = default; // its owner closes or aborts it, since both take time

    [[nodiscard]] ncclComm_t get() const { return kept_ != nullptr ? kept_->handle : nullptr; }
    [[nodiscard]] bool exists() const { return get() != nullptr; }
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

    /// As `note`, for a call that begins work, whatever it answers.
    bool begins(ncclResult_t answer, const char* call) {
        busy_ = true;
        return note(answer, call);
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
        const State now = exists() ? ask(get()) : State::ready;
        if (now == State::ready) {
            busy_ = false;
            from_ = nullptr;
        }
        return now;
    }

    /// Begins to register memory together with all ranks of the communicator, as windows if the
    /// version has them; `has_window` tells the result once the communicator is ready again. The
    /// memory stays until the communicator has ended, even if all users release it.
    bool begin_window(const std::shared_ptr<std::byte>& memory, std::size_t bytes) {
#if UNISONO_NCCL_WINDOWS
        Window& made = *kept_->windows.emplace_back(std::make_unique<Window>(Window{memory, bytes}));
        return begins(ncclCommWindowRegister(get(), memory.get(), bytes, &made.handle, NCCL_WIN_COLL_SYMMETRIC),
                      "ncclCommWindowRegister");
#else
        kept_->windows.push_back(std::make_unique<Window>(Window{memory, bytes}));
        void* made = nullptr; // NCCL may refuse, which is slower but no error
        if (ncclCommRegister(get(), memory.get(), bytes, &made) == ncclSuccess) registered_.push_back(made);
        return true;
#endif
    }
    /// True if the address is in memory that all ranks were to register. NCCL must not send or
    /// receive it: a message between such memory and other memory hangs, and the peer's is unknown.
    [[nodiscard]] bool in_window(const void* address) const {
        const auto at = reinterpret_cast<std::uintptr_t>(address);
        return kept_ != nullptr && std::any_of(kept_->windows.begin(), kept_->windows.end(), [&](const auto& one) {
                   const auto begin = reinterpret_cast<std::uintptr_t>(one->memory.get());
                   return at >= begin && at - begin < one->bytes;
               });
    }
    /// True if the last registration became a window. NCCL may offer none between these devices,
    /// and then works without it.
    [[nodiscard]] bool has_window() const {
        return kept_ != nullptr && !kept_->windows.empty() && kept_->windows.back()->handle != nullptr;
    }

    /// Begins to end the communicator, whose work is done, once it is ready. Call it again until
    /// `ended`.
    void finalise() {
        if (aborted_ || finalised_ || state() != State::ready || !exists()) return;
        for (void* const one : std::exchange(registered_, {})) static_cast<void>(ncclCommDeregister(get(), one));
#if UNISONO_NCCL_WINDOWS
        for (const auto& one : kept_->windows)
            if (one->handle != nullptr) static_cast<void>(ncclCommWindowDeregister(get(), one->handle));
#endif
        finalised_ = true;
        begins(ncclCommFinalize(get()), "ncclCommFinalize");
    }
    /// True once NCCL was told to end it.
    [[nodiscard]] bool ends() const { return finalised_; }
    /// True if the communicator has ended. One that fails meanwhile must be aborted.
    [[nodiscard]] bool ended() {
        if (aborted_) return true;
        if (!finalised_) return !exists() && state() == State::ready; // no rank of the split's result
        if (look() != State::ready) return false;
        static_cast<void>(ncclCommDestroy(std::exchange(kept_->handle, nullptr)));
        return true;
    }

    /// Called if the device may still access memory that was registered: it is never freed.
    void leak_memory() {
        if (kept_ != nullptr) keep_for_ever(kept_);
    }

    /// Aborts these communicators, in this order; last those that a split had not finished, since
    /// only their parents' abort ends NCCL's work on them. NCCL's abort has been seen to hang:
    /// after `within` it continues on a thread of its own, and the result is false. `revokes`: ends
    /// those without windows by ncclCommRevoke, if NCCL has it and no split is going on: it only
    /// stops their work.
    static bool abort(const std::vector<NcclCommunicator*>& these, std::chrono::nanoseconds within,
                      bool revokes = false) {
        struct Done {
            std::mutex mutex;
            std::condition_variable told;
            bool yes = false;
        };
        struct One {
            std::shared_ptr<Kept> kept; ///< NCCL may still write to it
            bool opens = false;         ///< a split had not finished
        };
        std::vector<One> all;
        for (NcclCommunicator* const one : these) {
            if (one->kept_ == nullptr || std::exchange(one->aborted_, true)) continue;
            one->registered_.clear();
            if (one->exists() || one->from_ != nullptr) all.push_back({one->kept_, one->from_ != nullptr});
        }
        if (all.empty()) return true;
        const auto done = std::make_shared<Done>();
        const auto work = [done, all, revokes] {
            const bool splits = std::any_of(all.begin(), all.end(), [](const One& one) { return one.opens; });
            for (const One& one : all)
                if (revokes && !splits && one.kept->windows.empty()) revoke(one.kept->handle);
            for (int round = 0; round < 2; ++round)
                for (const One& one : all)
                    if (one.kept->handle != nullptr)
                        static_cast<void>(ncclCommAbort(std::exchange(one.kept->handle, nullptr)));
            for (const One& one : all)
                if (one.opens) keep_for_ever(one.kept); // a parent that remains may finish the split
            const std::lock_guard lock(done->mutex);
            done->yes = true;
            done->told.notify_all();
        };
        std::thread worker;
        try {
            worker = std::thread(work);
        } catch (const std::system_error&) { // no thread: NCCL's abort may hang, so its memory stays instead
            for (const One& one : all) keep_for_ever(one.kept);
            return false;
        }
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
        std::size_t bytes = 0;
#if UNISONO_NCCL_WINDOWS
        ncclWindow_t handle = nullptr; ///< NCCL writes it before the communicator is ready again
#else
        void* handle = nullptr;
#endif
    };

    /// NCCL's threads use this while calls are in progress: it stays where it is, until the
    /// communicator has ended.
    struct Kept {
        Kept() = default;
        Kept(const Kept&) = delete;
        Kept& operator=(const Kept&) = delete;
        ~Kept() = default;
        ncclComm_t handle = nullptr;
        std::vector<std::unique_ptr<Window>> windows = {};
    };

    /// Ends the work of a communicator, whatever its peers do, and destroys it. If NCCL refuses,
    /// leaves it to be aborted.
    static void revoke([[maybe_unused]] ncclComm_t& handle) {
#if UNISONO_NCCL_REVOKES
        if (handle == nullptr) return;
        ncclResult_t found = ncclCommRevoke(handle, NCCL_REVOKE_DEFAULT);
        while (found == ncclInProgress) {
            std::this_thread::sleep_for(std::chrono::microseconds(100));
            const ncclResult_t answer = ncclCommGetAsyncError(handle, &found);
            if (answer != ncclSuccess) found = answer;
        }
        if (found == ncclSuccess) static_cast<void>(ncclCommDestroy(std::exchange(handle, nullptr)));
#endif
    }

    static void keep_for_ever(const std::shared_ptr<Kept>& one) {
        static auto& all = *new std::vector<std::shared_ptr<Kept>>;
        static std::mutex mutex;
        const std::lock_guard lock(mutex);
        all.push_back(one);
    }

    ncclComm_t* place() {
        kept_ = std::make_shared<Kept>();
        return &kept_->handle;
    }

    static ncclConfig_t configuration() {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
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
        std::swap(kept_, other.kept_);
        std::swap(from_, other.from_);
        std::swap(busy_, other.busy_);
        std::swap(finalised_, other.finalised_);
        std::swap(aborted_, other.aborted_);
        std::swap(code_, other.code_);
        std::swap(why_, other.why_);
        std::swap(registered_, other.registered_);
    }

    std::shared_ptr<Kept> kept_;
    ncclComm_t from_ = nullptr; ///< the communicator from which it is being split
    bool busy_ = false;
    bool finalised_ = false;
    bool aborted_ = false;
    ncclResult_t code_ = ncclSuccess;
    std::string why_;
    std::vector<void*> registered_; ///< where NCCL has no windows
};

} // namespace detail
UNISONO_NAMESPACE_END
