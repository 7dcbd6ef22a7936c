#pragma once

/// \file
/// One rank's device: its stream, its communicators, and its programs in flight. Only `close` and
/// `abort` wait, for a limited time.

#include "unisono/core/list.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/device.hpp"
#include "unisono/extensions/nccl/calls.hpp"
#include "unisono/extensions/nccl/communicator.hpp"
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

class NcclDevice : public CudaDevice {
public:
    static constexpr std::uint64_t world_group = 1; ///< the id of every world

    /// `stream`: one of its own, or the caller's.
    NcclDevice(int ordinal, CudaStream stream) : CudaDevice(ordinal), stream_(std::move(stream)) {}
    NcclDevice(const NcclDevice&) = delete;
    NcclDevice& operator=(const NcclDevice&) = delete;
    ~NcclDevice() { close(std::chrono::nanoseconds(0)); }

    [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

    // --- communicators ---------------------------------------------------------------------------

    void begin_world(NcclCommunicator world) { communicators_.push_back({world_group, std::move(world)}); }
    [[nodiscard]] bool world_is_ready() { return ready(communicators_.front().communicator); }

    /// Begins a group of the ranks of `parent` that pass the same colour. `group_is_open` tells
    /// when it exists.
    void open_group(std::uint64_t parent, std::uint64_t id, int colour, int key) {
        opening_ = {.parent = parent, .id = id, .colour = colour, .key = key, .begun = false};
    }
    [[nodiscard]] bool group_is_open() {
        pump();
        if (failed()) return false;
        if (!opening_.begun) {
            NcclCommunicator& parent = of(opening_.parent);
            if (!is_quiet() || !ready(parent)) return false; // NCCL must have no other work meanwhile
            const CudaDeviceGuard here(ordinal());
            NcclCommunicator made = parent.split(opening_.colour, opening_.key);
            communicators_.push_back({opening_.id, std::move(made)});
            opening_.begun = true;
        }
        if (!ready(communicators_.back().communicator) || !ready(of(opening_.parent))) return false;
        if (!communicators_.back().communicator.exists()) communicators_.pop_back(); // this rank has no colour
        return true;
    }
    /// Called after the group's last operation has started. The group ends when that operation is
    /// done; no rank waits.
    void close_group(std::uint64_t id) {
        for (std::size_t i = 0; i < communicators_.size(); ++i) {
            if (communicators_[i].group != id) continue;
            closing_.push_back(std::move(communicators_[i]));
            communicators_.erase(communicators_.begin() + static_cast<std::ptrdiff_t>(i));
            return;
        }
    }

    // --- programs: see transport/stream_call.hpp -------------------------------------------------

    std::uint32_t begin_program(std::uint64_t group) {
        if (free_.empty()) {
            const CudaDeviceGuard here(ordinal());
            slots_.push_back(std::make_unique<Slot>());
            free_.push_back(static_cast<std::uint32_t>(slots_.size() - 1));
        }
        const std::uint32_t number = free_.back();
        free_.pop_back();
        Slot& slot = *slots_[number];
        slot.program.clear();
        slot.program.group = group;
        slot.cursor = 0;
        slot.phase = Phase::made;
        std::swap(slot.awaits, awaited_);
        return number;
    }
    [[nodiscard]] StreamProgram& program(std::uint32_t number) { return slots_[number]->program; }
    void submit(std::uint32_t number) {
        slots_[number]->phase = Phase::waits;
        waiting_.push_back(number);
        enqueue_waiting();
    }
    /// As far as `pump` has seen.
    [[nodiscard]] bool program_done(std::uint32_t number) const { return slots_[number]->phase == Phase::done; }
    void release_program(std::uint32_t number) {
        for (std::size_t i = 0; i < running_.size() && slots_[number]->phase == Phase::enqueued; ++i) {
            if (running_[i] != number) continue;
            running_.erase(i);
            break;
        }
        free_.push_back(number);
    }

    /// Makes later work on this stream wait for the program; false if the program is not enqueued
    /// yet.
    [[nodiscard]] bool follow_program(std::uint32_t number, void* stream) {
        Slot& slot = *slots_[number];
        if (slot.phase == Phase::waits) enqueue_waiting();
        if (slot.phase != Phase::enqueued && slot.phase != Phase::done) return false;
        return follow(static_cast<cudaStream_t>(stream), slot.event.get());
    }
    /// As `follow_program`, for all that was enqueued so far.
    void follow_all(void* stream) { follow_all_of(stream_.get(), static_cast<cudaStream_t>(stream)); }

    void begin_capture() {
        const CudaDeviceGuard here(ordinal());
        graphs_.begin(stream_.get());
    }
    [[nodiscard]] std::shared_ptr<CudaGraph> end_capture() {
        const CudaDeviceGuard here(ordinal());
        return graphs_.end();
    }
    /// NCCL enqueues from its own threads. They must have finished before a capture ends.
    void drop_capture() {
        if (!graphs_.capturing()) return;
        const nanoseconds until = deadline_after(steady_now(), std::chrono::seconds(1));
        for (Member& one : communicators_)
            while (one.communicator.state() == NcclCommunicator::State::busy && steady_now() < until)
                std::this_thread::yield();
        graphs_.stop();
    }
    [[nodiscard]] bool is_capturing() const { return graphs_.capturing(); }

    /// True if no submitted program is in flight.
    [[nodiscard]] bool is_quiet() const { return waiting_.empty() && running_.empty(); }

    /// Enqueues what it can, checks for errors and for groups that end, and notes which programs
    /// are done. An error may end their events early, so it is looked for in between.
    void pump() {
        enqueue_waiting();
        if (failed() || communicators_.empty() || (is_quiet() && closing_.empty())) return;
        const bool some_are_done = !running_.empty() && is_done(running_.front());
        if (const nanoseconds now = steady_now(); some_are_done || now >= next_look_) {
            next_look_ = now + look_every;
            look_around();
        }
        if (some_are_done && !failed()) note_done();
    }

    // --- memory ----------------------------------------------------------------------------------

    /// Begins to register memory together with all ranks of a group. `window_is_open` tells when
    /// that is done, and `has_window` whether NCCL made a window of it.
    void open_window(std::uint64_t group, std::shared_ptr<std::byte> memory, std::size_t bytes) {
        window_ = {.group = group, .memory = std::move(memory), .bytes = bytes == 0 ? 1 : bytes};
    }
    [[nodiscard]] bool window_is_open() {
        pump();
        if (failed()) return false;
        NcclCommunicator& communicator = of(window_.group);
        if (window_.memory != nullptr) {
            if (!is_quiet() || !ready(communicator)) return false;
            const CudaDeviceGuard here(ordinal());
            if (!communicator.begin_window(std::exchange(window_.memory, nullptr), window_.bytes)) {
                fail(concat({"NCCL: ", communicator.why()}), communicator);
                return false;
            }
        }
        return ready(communicator);
    }
    [[nodiscard]] bool has_window(std::uint64_t group) { return of(group).has_window(); }

    /// True if the failure is an error of NCCL, of which another rank may be the cause.
    [[nodiscard]] bool is_failure_of_nccl() const { return is_nccls_; }
    /// The process makes other communicators after an abort.
    void outlive_aborts() { revokes_ = true; }

    // --- the end ---------------------------------------------------------------------------------

    /// Ends all enqueued work, which accesses no memory afterwards. False if CUDA did not confirm
    /// that within the time.
    bool abort(std::chrono::nanoseconds within) {
        if (aborted_) return calm_;
        aborted_ = true;
        const nanoseconds until = deadline_after(steady_now(), within);
        note({.code = ErrorCode::aborted, .message = "aborted"});
        const bool works = has_work();
        waiting_.clear();
        drop_capture();
        graphs_.drop_all();
        std::vector<NcclCommunicator*> all;
        for (Member& one : closing_) all.push_back(&one.communicator);
        for (std::size_t i = communicators_.size(); i-- != 0;) all.push_back(&communicators_[i].communicator);
        calm_ = NcclCommunicator::abort(all, within, revokes_);
        while (calm_ && works && goes_on(cudaStreamQuery(stream_.get()))) {
            if (steady_now() >= until) calm_ = false;
            else std::this_thread::yield();
        }
        return calm_;
    }

    /// Ends in order, if there was no error and the peers end in order within the time as well;
    /// else aborts.
    void close(std::chrono::nanoseconds within) {
        if (closed_) return;
        closed_ = true;
        const nanoseconds until = deadline_after(steady_now(), within);
        for (std::size_t i = communicators_.size(); i-- > 1;) closing_.push_back(std::move(communicators_[i]));
        if (communicators_.size() > 1) communicators_.resize(1);
        bool good = !failed() && settle(until);
        graphs_.drop_all();
        good = good && end_all(closing_, until) && end_all(communicators_, until);
        if (!good) abort(std::max<std::chrono::nanoseconds>(within, std::chrono::seconds(1)));
        slots_.clear();
        free_events();
        if (calm_) return free_blocks();
        for (auto* const all : {&communicators_, &closing_}) // the device may still access memory: leak it
            for (Member& one : *all) one.communicator.leak_memory();
    }

private:
    static constexpr nanoseconds look_every = 1'000'000;

    enum class Phase : std::uint8_t { made, waits, enqueued, done };
    struct Slot {
        StreamProgram program;
        CudaEvent event;
        Awaited awaits; ///< before its first call
        std::size_t cursor = 0;
        Phase phase = Phase::made;
    };
    struct Member {
        std::uint64_t group = 0;
        NcclCommunicator communicator;
    };
    struct Window {
        std::uint64_t group = 0;
        std::shared_ptr<std::byte> memory = nullptr; ///< to be registered
        std::size_t bytes = 0;
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

    void fail(const std::string& why, const NcclCommunicator& by) {
        if (failed()) return;
        is_nccls_ = by.code() != ncclSuccess;
        note({.code = by.code() == ncclRemoteError ? ErrorCode::peer_lost : ErrorCode::aborted, .message = why});
    }
    bool ready(NcclCommunicator& one) {
        const auto state = one.state();
        if (state == NcclCommunicator::State::failed) fail(concat({"NCCL: ", one.why()}), one);
        return state == NcclCommunicator::State::ready;
    }

    /// True if the stream may have work of a program, perhaps of one whose other calls wait.
    [[nodiscard]] bool has_work() const {
        return !running_.empty() || (!waiting_.empty() && slots_[waiting_.front()]->cursor != 0);
    }
    void enqueue_waiting() {
        if (failed() || communicators_.empty() || waiting_.empty()) return;
        try {
            const CudaDeviceGuard here(ordinal());
            while (!waiting_.empty() && enqueue_some(waiting_.front())) {
            }
        } catch (const std::exception& thrown) { // by a kernel
            note({.code = ErrorCode::aborted, .message = concat({thrown.what()})});
        }
    }

    /// True if the work of an enqueued program has ended; false also after an error.
    [[nodiscard]] bool is_done(std::uint32_t number) { return has_passed(slots_[number]->event.get()); }
    /// Programs end in the order of the stream. The first one is done: if the last one is, too, all
    /// are; otherwise those between are asked until one is not.
    void note_done() {
        if (running_.size() > 1 && is_done(running_.back())) {
            for (const std::uint32_t number : running_) slots_[number]->phase = Phase::done;
            return running_.clear();
        }
        do {
            slots_[running_.front()]->phase = Phase::done;
            running_.erase(0);
        } while (running_.size() > 1 && is_done(running_.front())); // the last one is not
    }

    /// Enqueues one communication, or one call of the stream only; false if it has to wait, or
    /// failed.
    bool enqueue_some(std::uint32_t number) {
        Slot& slot = *slots_[number];
        NcclCommunicator& communicator = of(slot.program.group);
        if (!ready(communicator)) return false;
        weighted_.drop(communicator.get());
        for (; !slot.awaits.empty(); slot.awaits.pop_back()) {
            if (!follow(stream_.get(), event(slot.awaits.back()))) return false;
            give_event(slot.awaits.back());
        }
        if (slot.cursor == slot.program.calls.size()) {
            if (!expect(cudaEventRecord(slot.event.get(), stream_.get()), "cudaEventRecord")) return false;
            waiting_.erase(0);
            if (graphs_.capturing()) { // a captured event cannot be queried
                slot.phase = Phase::done;
                graphs_.count();
                return true;
            }
            slot.phase = Phase::enqueued;
            running_.push_back(number);
            return true;
        }
        std::size_t end = slot.cursor;
        while (slot.program.calls[end].open) ++end;
        ++end;
        std::string why;
        const std::size_t first = std::exchange(slot.cursor, end); // before: a kernel may run, and throw
        const bool good = enqueue_calls(communicator, slot.program, first, end, stream_.get(), weighted_, why);
        if (!good) fail(why, communicator);
        return good;
    }

    void look_around() {
        for (auto* const all : {&communicators_, &closing_}) // closing ones may still have work
            for (Member& one : *all)
                if (!one.communicator.ends() && one.communicator.look() == NcclCommunicator::State::failed)
                    static_cast<void>(ready(one.communicator));
        if (!is_quiet() || graphs_.any()) return;
        end_some(closing_);
    }
    static void end_some(std::vector<Member>& all) {
        for (Member& one : all) one.communicator.finalise();
        std::erase_if(all, [](Member& one) { return one.communicator.ended(); });
    }

    /// Waits until all enqueued work is done; false if it is not by `until`, or after an error.
    bool settle(nanoseconds until) {
        while (!is_quiet()) {
            pump();
            if (failed() || steady_now() >= until) return is_quiet();
            std::this_thread::yield();
        }
        return true;
    }
    bool end_all(std::vector<Member>& all, nanoseconds until) {
        for (end_some(all); !all.empty(); end_some(all)) {
            for (Member& one : all)
                if (one.communicator.look() == NcclCommunicator::State::failed) return false;
            if (steady_now() >= until) return false;
            std::this_thread::yield();
        }
        return true;
    }

    CudaStream stream_;
    std::vector<Member> communicators_; ///< the world's is the first
    std::vector<Member> closing_;
    Opening opening_;
    Window window_;
    std::vector<std::unique_ptr<Slot>> slots_;
    List<std::uint32_t> free_;
    List<std::uint32_t> waiting_; ///< submitted programs, in order
    List<std::uint32_t> running_; ///< programs on the stream that are not known to be done, in order
    WeightedSumOperation weighted_;
    CudaGraphs graphs_;
    bool aborted_ = false;
    bool closed_ = false;
    bool revokes_ = false;
    bool is_nccls_ = false;
    bool calm_ = true; ///< no enqueued work is running any more
    nanoseconds next_look_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END
