#pragma once

/// \file
/// One rank's device: its stream, its communicators, and the programs on their way through them. Nothing here waits but `close` and
/// `abort`, which do so for a limited time.

#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/transport/nccl_calls.hpp"
#include "unisono/transport/nccl_communicator.hpp"
#include "unisono/transport/nccl_memory.hpp"
#include "unisono/transport/stream_call.hpp"

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class NcclDevice {
public:
    static constexpr std::uint64_t world_group = 1; ///< the number of every world

    /// `stream`: of its own, or the caller's.
    NcclDevice(int ordinal, CudaStream stream) : ordinal_(ordinal), stream_(std::move(stream)) {}
    NcclDevice(const NcclDevice&) = delete;
    NcclDevice& operator=(const NcclDevice&) = delete;
    ~NcclDevice() { close(std::chrono::nanoseconds(0)); }

    [[nodiscard]] int ordinal() const { return ordinal_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
    [[nodiscard]] DevicePool& pool() { return pool_; }
    [[nodiscard]] PinnedRanges& pinned() { return *pinned_; }
    [[nodiscard]] const std::shared_ptr<PinnedRanges>& shared_pinned() const { return pinned_; }

    /// What went wrong, in NCCL's or CUDA's words; empty: nothing. It stays.
    [[nodiscard]] const std::string& failure() const { return failure_; }
    /// Whether that was said to come from another rank.
    [[nodiscard]] bool failed_remotely() const { return failed_remotely_; }

    // --- communicators ------------------------------------------------------------------------------------------------

    void begin_world(NcclCommunicator world) { communicators_.push_back({world_group, std::move(world)}); }
    [[nodiscard]] bool world_is_ready() { return ready(communicators_.front().communicator); }

    /// Begins a group of those ranks of `parent` that give the same colour. `group_is_open` says when it is there.
    void open_group(std::uint64_t parent, std::uint64_t id, int colour, int key) {
        opening_ = {.parent = parent, .id = id, .colour = colour, .key = key, .begun = false};
    }
    [[nodiscard]] bool group_is_open() {
        pump();
        if (!failure_.empty()) return false;
        if (!opening_.begun) {
            if (!is_quiet()) return false; // NCCL wants nothing else to go on meanwhile
            const CudaDeviceGuard here(ordinal_);
            NcclCommunicator& parent = of(opening_.parent);
            const bool share = opening_.parent == world_group;
            communicators_.push_back(
                {opening_.id, NcclCommunicator::split(parent.get(), opening_.colour, opening_.key, share)});
            opening_.begun = true;
        }
        if (!ready(communicators_.back().communicator)) return false;
        if (!communicators_.back().communicator.exists()) communicators_.pop_back(); // without a colour
        return true;
    }
    /// Its last operation was started: it ends once that is done, without anybody waiting.
    void close_group(std::uint64_t id) {
        for (std::size_t i = 0; i < communicators_.size(); ++i) {
            if (communicators_[i].group != id) continue;
            closing_.push_back(std::move(communicators_[i]));
            communicators_.erase(communicators_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
    }

    // --- programs: see stream_call.hpp --------------------------------------------------------------------------------

    std::uint32_t begin_program(std::uint64_t group) {
        if (free_.empty()) {
            const CudaDeviceGuard here(ordinal_);
            slots_.push_back(std::make_unique<Slot>());
            free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
        }
        const std::uint32_t number = free_.back();
        free_.pop_back();
        Slot& slot = *slots_[number];
        slot.program.clear();
        slot.program.group = group;
        slot.cursor = 0;
        slot.stage = Stage::made;
        return number;
    }
    [[nodiscard]] StreamProgram& program(std::uint32_t number) { return slots_[number]->program; }
    void submit(std::uint32_t number) {
        slots_[number]->stage = Stage::waits;
        waiting_.push_back(number);
        pump();
    }
    [[nodiscard]] bool program_done(std::uint32_t number) {
        Slot& slot = *slots_[number];
        if (slot.stage == Stage::done) return true;
        if (slot.stage != Stage::enqueued || !failure_.empty()) return false;
        const cudaError_t answer = cudaEventQuery(slot.event.get());
        if (answer == cudaErrorNotReady) return false;
        if (answer != cudaSuccess) {
            fail(concat({"cudaEventQuery: ", words_of(answer)}), false);
            return false;
        }
        slot.stage = Stage::done;
        --enqueued_;
        return true;
    }
    void release_program(std::uint32_t number) {
        if (slots_[number]->stage == Stage::enqueued) --enqueued_;
        free_.push_back(number);
    }

    /// Programs that were submitted and are not known to be done.
    [[nodiscard]] bool is_quiet() const { return waiting_.empty() && enqueued_ == 0; }

    /// Enqueues what can be, and looks after errors and groups that end.
    void pump() {
        if (!failure_.empty() || communicators_.empty()) return;
        if (!waiting_.empty()) {
            try {
                const CudaDeviceGuard here(ordinal_);
                while (!waiting_.empty() && enqueue_some(*slots_[waiting_.front()])) {
                }
            } catch (const std::exception& thrown) { // by a kernel
                fail(thrown.what(), false);
            }
        }
        if (is_quiet() && closing_.empty()) return;
        if (const nanoseconds now = steady_now(); now >= next_look_) {
            next_look_ = now + look_every;
            look_around();
        }
    }

    /// This device's stream goes on after what the other was given so far.
    void follow(cudaStream_t other) {
        const CudaDeviceGuard here(ordinal_);
        if (other_ == nullptr) other_ = std::make_unique<CudaEvent>();
        check_cuda(cudaEventRecord(other_->get(), other), "cudaEventRecord");
        check_cuda(cudaStreamWaitEvent(stream_.get(), other_->get(), 0), "cudaStreamWaitEvent");
    }

    // --- memory -------------------------------------------------------------------------------------------------------

    /// Memory of the device, registered with the world's communicator.
    [[nodiscard]] void* register_memory(void* data, std::size_t bytes) {
        return communicators_.front().communicator.register_memory(data, bytes);
    }
    void deregister(void* registration) {
        if (!communicators_.empty()) communicators_.front().communicator.deregister(registration);
    }

    // --- the end ------------------------------------------------------------------------------------------------------

    /// Everything that was enqueued ends now, and nothing of it touches memory afterwards: false where CUDA did not confirm that
    /// within the time.
    bool abort(std::chrono::nanoseconds within) {
        if (aborted_) return calm_;
        aborted_ = true;
        const nanoseconds until = deadline_after(steady_now(), within);
        if (failure_.empty()) failure_ = "aborted";
        waiting_.clear();
        std::vector<NcclCommunicator*> all;
        for (Member& one : closing_) all.push_back(&one.communicator);
        for (std::size_t i = communicators_.size(); i-- != 0;) all.push_back(&communicators_[i].communicator);
        calm_ = NcclCommunicator::abort(all, within);
        while (calm_ && enqueued_ != 0 && cudaStreamQuery(stream_.get()) == cudaErrorNotReady) {
            if (steady_now() >= until) calm_ = false;
            else std::this_thread::yield();
        }
        return calm_;
    }

    /// Ends in order, if all is well and the others do so, too, within the time; else by an abort.
    void close(std::chrono::nanoseconds within) {
        if (closed_) return;
        closed_ = true;
        const nanoseconds until = deadline_after(steady_now(), within);
        for (std::size_t i = communicators_.size(); i-- > 1;) closing_.push_back(std::move(communicators_[i]));
        if (communicators_.size() > 1) communicators_.resize(1);
        bool good = failure_.empty() && settle(until);
        good = good && end_all(closing_, until) && end_all(communicators_, until);
        if (!good) abort(std::max<std::chrono::nanoseconds>(within, std::chrono::seconds(1)));
        slots_.clear();
        other_.reset();
        if (calm_) pool_.free_all(); // else it may still touch them: rather lost than wrong
    }

private:
    static constexpr nanoseconds look_every = 1'000'000;

    enum class Stage : std::uint8_t { made, waits, enqueued, done };
    struct Slot {
        StreamProgram program;
        CudaEvent event;
        std::size_t cursor = 0;
        Stage stage = Stage::made;
    };
    struct Member {
        std::uint64_t group = 0;
        NcclCommunicator communicator;
    };
    struct Opening {
        std::uint64_t parent = 0;
        std::uint64_t id = 0;
        int colour = 0;
        int key = 0;
        bool begun = false;
    };

    NcclCommunicator& of(std::uint64_t group) {
        for (Member& one : communicators_)
            if (one.group == group) return one.communicator;
        for (Member& one : closing_)
            if (one.group == group) return one.communicator;
        return communicators_.front().communicator;
    }

    void fail(const std::string& why, bool remotely) {
        if (!failure_.empty()) return;
        failure_ = why;
        failed_remotely_ = remotely;
    }
    bool ready(NcclCommunicator& one) {
        const auto state = one.state();
        if (state == NcclCommunicator::State::failed)
            fail(concat({"NCCL: ", one.why()}), one.code() == ncclRemoteError);
        return state == NcclCommunicator::State::ready;
    }

    /// One communication, or one call on the stream alone; false where it has to wait, or failed.
    bool enqueue_some(Slot& slot) {
        NcclCommunicator& communicator = of(slot.program.group);
        if (!ready(communicator)) return false;
        weighted_.drop(communicator.get());
        if (slot.cursor == slot.program.calls.size()) {
            if (const cudaError_t answer = cudaEventRecord(slot.event.get(), stream_.get()); answer != cudaSuccess) {
                fail(concat({"cudaEventRecord: ", words_of(answer)}), false);
                return false;
            }
            slot.stage = Stage::enqueued;
            ++enqueued_;
            waiting_.erase(0);
            return true;
        }
        std::size_t end = slot.cursor;
        while (slot.program.calls[end].open) ++end;
        ++end;
        std::string why;
        const bool good = enqueue_calls(communicator, slot.program, slot.cursor, end, stream_.get(), weighted_, why);
        slot.cursor = end;
        if (!good) fail(why, communicator.code() == ncclRemoteError);
        return good;
    }

    void look_around() {
        for (Member& one : communicators_) {
            if (one.communicator.look() == NcclCommunicator::State::failed) static_cast<void>(ready(one.communicator));
        }
        if (!is_quiet()) return;
        for (Member& one : closing_) one.communicator.finalise();
        std::erase_if(closing_, [](Member& one) { return one.communicator.ended(); });
    }

    /// All that was enqueued is done.
    bool settle(nanoseconds until) {
        while (!is_quiet()) {
            pump();
            for (std::uint32_t number = 0; number < slots_.size(); ++number) static_cast<void>(program_done(number));
            if (!failure_.empty() || steady_now() >= until) return is_quiet();
            std::this_thread::yield();
        }
        return true;
    }
    bool end_all(std::vector<Member>& all, nanoseconds until) {
        for (Member& one : all) one.communicator.finalise();
        while (!all.empty()) {
            std::erase_if(all, [](Member& one) { return one.communicator.ended(); });
            if (all.empty()) break;
            for (Member& one : all)
                if (one.communicator.look() == NcclCommunicator::State::failed) return false;
            if (steady_now() >= until) return false;
            std::this_thread::yield();
        }
        return true;
    }

    int ordinal_;
    CudaStream stream_;
    std::vector<Member> communicators_; ///< the world's first
    std::vector<Member> closing_;
    Opening opening_;
    std::vector<std::unique_ptr<Slot>> slots_;
    List<std::uint32_t> free_;
    List<std::uint32_t> waiting_; ///< programs, as they were submitted
    std::uint32_t enqueued_ = 0;  ///< programs that are on the stream, as far as known
    WeightedSumOperation weighted_;
    DevicePool pool_;
    std::shared_ptr<PinnedRanges> pinned_ = std::make_shared<PinnedRanges>();
    std::string failure_;
    bool failed_remotely_ = false;
    std::unique_ptr<CudaEvent> other_; ///< of streams that are followed
    bool aborted_ = false;
    bool closed_ = false;
    bool calm_ = true; ///< nothing of what was enqueued goes on
    nanoseconds next_look_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
