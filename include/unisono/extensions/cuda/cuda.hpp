#pragma once

/// \file
/// Ranks with a GPU each, over any transport that moves host bytes: `Cuda<Tcp>`,
/// `Cuda<SharedMemory>`, `Cuda<Hosts<Tcp>>`, `Cuda<Libfabric>`, `Cuda<Mpi>`. For machines without
/// NCCL, for networks that NCCL does not know, for several ranks on one device, and for features
/// that NCCL lacks: a program's own operations, and the host's bits.
///
/// It is a wrapper, not an option of each transport, since no transport needs to know devices.
/// Device data pass through pinned host memory in chunks, which follow one another as lanes of the
/// host's schedules (extensions/device/bounced_lanes.hpp). Everything else is the network's own.

#include "unisono/extensions/cuda/copies.hpp"
#include "unisono/extensions/cuda/options.hpp"
#include "unisono/extensions/cuda/places.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/transport/endpoint.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank with a device over `Network`. It is made by `run<Cuda<Network>>`
/// (group/run.hpp) for threads of this process, by `join<Cuda<Network>>` (join.hpp) for processes
/// that a launcher has started, or from a transport of the network.
///
/// Errors: refused if there is no device, or not the requested one; afterwards those of the
/// network, and aborted for a CUDA error in a copy, which ends the world.
template <transport Network>
class Cuda : public detail::WithDevice<Network, detail::CudaCopies> {
    using Base = detail::WithDevice<Network, detail::CudaCopies>;
    using Base::device_;

public:
    static constexpr std::string_view name = "cuda";
    static constexpr bool through_host = true; ///< see extensions/device/bounced_lanes.hpp
    using Options = CudaOptions<Network>;

    /// A rank of a world of threads, on the device with its number modulo the number of devices.
    /// Errors: refused, bad_input.
    template <class World>
        requires std::constructible_from<Network, const std::shared_ptr<World>&, int>
    Cuda(const std::shared_ptr<World>& shared, int rank, const Options& options = {})
        : Cuda(shared, rank, options.with(Environment::of_process()), place_of_thread(rank, options)) {}
    /// A rank of `network`, on this device of this process. Errors: refused, bad_input.
    Cuda(Network network, int device, const Options& options = {}) : Cuda(begin(device), std::move(network), options) {}
    Cuda(Cuda&&) noexcept = default;
    Cuda& operator=(Cuda&&) = delete;
    ~Cuda() override = default;

    /// A collective begins after the work that a program has enqueued on this stream before it.
    [[nodiscard]] cudaStream_t stream() const { return device_->stream(); }
    /// The size of the chunks into which device data are cut, unless the schedule's family gives
    /// one.
    [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }

    void progress(EndpointSink& sink) override {
        Network::progress(sink);
        if (device_->failed() && this->first_fault() == nullptr) [[unlikely]]
            abort(this->fault_of_device());
    }
    void abort(const Fault& fault) override {
        Network::abort(fault);
        static_cast<void>(device_->settle(Base::abort_within));
    }

    // --- memory ----------------------------------------------------------------------------------

    /// The network's memory, if it allocates, else pinned host memory. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        if (this->facts().allocates) return Network::allocate(bytes);
        return detail::allocate_pinned(this->device(), device_->pinned(), bytes);
    }
    /// Memory of the device. Freeing it waits for all work of the device. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate_on_device(std::size_t bytes) {
        return detail::allocate_device(this->device(), bytes);
    }

    [[nodiscard]] std::unique_ptr<detail::OwnRuns> own_runs() override { return detail::own_runs_of(*this); }

    // --- copies: see extensions/device/bounced_lanes.hpp -----------------------------------------

    [[nodiscard]] detail::DeviceBlock take_block(std::size_t bytes) { return device_->take_block(bytes, false, true); }
    void fetch(std::byte* to, const std::byte* from, std::size_t bytes) { device_->fetch(to, from, bytes); }
    void put(std::byte* to, const std::byte* from, std::size_t bytes) { device_->put(to, from, bytes); }
    [[nodiscard]] std::uint32_t mark(bool outward) { return device_->mark(outward); }
    [[nodiscard]] bool passed(std::uint32_t mark) { return device_->passed(mark); }
    void order_puts() { device_->order_puts(); }
    void follow_puts(void* other) { device_->follow_puts(static_cast<cudaStream_t>(other)); }
    [[nodiscard]] auto take_awaited() { return device_->take_awaited(); }
    [[nodiscard]] bool reached(detail::CudaCopies::Awaited& awaited) { return device_->reached(awaited); }
    void note(const Fault& fault) { device_->note(fault); }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, as above; those of the network's `join`.
    /// Defined in cuda/join.hpp.
    template <control_plane Control>
    [[nodiscard]] static Cuda join(Control control, nanoseconds deadline, const Options& options);

private:
    template <class World>
    Cuda(const std::shared_ptr<World>& shared, int rank, const Options& options, int place)
        : Cuda(begin(place), options.begin(shared, rank), options) {}
    Cuda(std::shared_ptr<detail::CudaCopies> copies, Network&& network, const Options& options)
        : Base(name, std::move(network), std::move(copies), // as if all ranks were on this host
               [](const Network& all) { return all.size() > detail::available_cores(); }),
          piece_bytes_(options.with(Environment::of_process()).piece_bytes) {}

    static int place_of_thread(int rank, const Options& options) {
        const detail::CudaCard card = detail::cuda_card(0, options.device);
        return detail::place_of(std::vector<detail::CudaCard>(static_cast<std::size_t>(rank) + 1, card),
                                static_cast<std::size_t>(rank));
    }
    static std::shared_ptr<detail::CudaCopies> begin(int device) {
        const detail::CudaDeviceGuard here(device);
        return std::make_shared<detail::CudaCopies>(device);
    }

    std::size_t piece_bytes_;
};

UNISONO_NAMESPACE_END
