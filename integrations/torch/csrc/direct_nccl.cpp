#include "direct.hpp"

#include "unisono/extensions/nccl/calls.hpp"
#include "unisono/extensions/nccl/communicator.hpp"
#include "unisono/launch/host.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

namespace unisono_torch {
namespace {

using un::detail::NcclCommunicator;

/// An abort of NCCL, or its end, goes on without the caller after so long.
constexpr std::chrono::seconds longest_end{2};
/// Questions without a nap between them: NCCL takes most calls within microseconds.
constexpr int hasty_questions = 200;

class DirectNccl final : public Direct {
public:
    explicit DirectNccl(int device) : device_(device) {}
    ~DirectNccl() override { abort(); }

    /// False if `stop` said so before.
    bool begin(int ranks, const ncclUniqueId& id, int rank, const std::function<bool()>& stop) {
        const un::detail::CudaDeviceGuard here(device_);
        {
            const std::lock_guard lock(mutex_);
            communicator_ = NcclCommunicator::begin(ranks, id, rank);
        }
        return is_taken(stop);
    }

    bool enqueue(const un::detail::StreamCall& call, device::Stream& stream,
                 const std::function<bool()>& stop) override {
        const un::detail::CudaDeviceGuard here(device_);
        {
            const std::lock_guard lock(mutex_);
            if (over_) return false;
            const ncclResult_t answer =
                un::detail::call_nccl(call, communicator_.get(), static_cast<cudaStream_t>(stream.native()), {});
            if (!communicator_.note(answer, "a collective")) refuse();
        }
        return is_taken(stop);
    }

    std::string fault() override {
        const std::lock_guard lock(mutex_);
        if (over_ || communicator_.look() != NcclCommunicator::State::failed) return {};
        return "NCCL: " + communicator_.why();
    }

    void abort() override {
        over_ = true; // a thread that holds the lock asks for it
        const std::lock_guard lock(mutex_);
        static_cast<void>(NcclCommunicator::abort({&communicator_}, longest_end));
    }

    void end() override {
        const un::detail::CudaDeviceGuard here(device_);
        const std::lock_guard lock(mutex_);
        if (over_.exchange(true)) return;
        const un::nanoseconds until = un::deadline_after(un::steady_now(), longest_end);
        for (communicator_.finalise(); !communicator_.ended(); communicator_.finalise()) {
            if (un::steady_now() >= until || communicator_.state() == NcclCommunicator::State::failed) {
                static_cast<void>(NcclCommunicator::abort({&communicator_}, longest_end));
                return;
            }
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    }

private:
    [[noreturn]] void refuse() const { throw un::error(un::ErrorCode::refused, "NCCL: " + communicator_.why()); }

    /// Waits until the communicator accepts calls.
    bool is_taken(const std::function<bool()>& stop) {
        for (int question = 0;; ++question) {
            {
                const std::lock_guard lock(mutex_);
                if (over_) return false;
                const NcclCommunicator::State state = communicator_.look(); // a call may succeed and note an error
                if (state == NcclCommunicator::State::ready) return true;
                if (state == NcclCommunicator::State::failed) refuse();
            }
            if (stop()) return false;
            if (question < hasty_questions) std::this_thread::yield();
            else std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }

    int device_;
    std::mutex mutex_;
    NcclCommunicator communicator_;
    std::atomic<bool> over_{false};
};

} // namespace

namespace direct {

DirectCard card(int device, bool wanted, bool is_first) {
    DirectCard made{.host = un::detail::host_number(), .wanted = wanted ? 1 : 0};
    if (!wanted) return made;
    try {
        un::detail::check_cuda(cudaDeviceGetPCIBusId(made.device.data(), static_cast<int>(made.device.size()), device),
                               "cudaDeviceGetPCIBusId");
        const int version = un::detail::loaded_nccl();
        if (is_first) {
            ncclUniqueId id;
            static_assert(sizeof id.internal == sizeof made.id);
            un::detail::check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
            std::memcpy(made.id.data(), id.internal, made.id.size());
        }
        made.version = version;
    } catch (const un::error&) { // this rank has none
    }
    return made;
}

std::shared_ptr<Direct> begin(const std::vector<DirectCard>& cards, int rank, int device,
                              const std::function<bool()>& stop) {
    ncclUniqueId id;
    std::memcpy(id.internal, cards.front().id.data(), cards.front().id.size());
    auto made = std::make_shared<DirectNccl>(device);
    if (!made->begin(static_cast<int>(cards.size()), id, rank, stop)) return {};
    return made;
}

} // namespace direct
} // namespace unisono_torch
