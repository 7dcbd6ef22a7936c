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
/// One exception: MPI's own collectives get device memory itself, if the MPI of every rank accepts
/// it (extensions/device/whole_runs.hpp, mpi/device.hpp).

#include "unisono/extensions/cuda/copies.hpp"
#include "unisono/extensions/cuda/direct.hpp"
#include "unisono/extensions/cuda/options.hpp"
#include "unisono/extensions/cuda/places.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/transport/transport.hpp"

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
    /// A rank of `network`, on this device of this process. Errors: refused, bad_input. Collective
    /// over a network whose own collectives may accept device memory (MPI); then an error is the
    /// same on all ranks.
    Cuda(Network network, int device, const Options& options = {})
        : Cuda(begin_with(network, device, options), std::move(network), options) {}
    Cuda(Cuda&&) noexcept = default;
    Cuda& operator=(Cuda&&) = delete;
    ~Cuda() = default;

    /// A collective begins after the work that a program has enqueued on this stream before it.
    [[nodiscard]] cudaStream_t stream() const { return device_->stream(); }
    /// The size of the chunks into which device data are cut, unless the schedule's family gives
    /// one.
    [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }

    template <class Sink>
    void progress(Sink& sink) {
        if constexpr (detail::told_of_devices<Network>) {
            const auto here = on_its_device();
            Network::progress(sink);
        } else {
            Network::progress(sink);
        }
        if (device_->failed() && this->first_fault() == nullptr) [[unlikely]]
            abort(this->fault_of_device());
    }
    void abort(const Fault& fault) {
        Network::abort(fault);
        static_cast<void>(device_->settle(Base::abort_within));
    }

    // --- memory ----------------------------------------------------------------------------------

    /// The network's memory, if it allocates, else pinned host memory. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) {
        if constexpr (allocates<Network>) return Network::allocate(bytes);
        else return detail::allocate_pinned(this->device(), device_->pinned(), bytes);
    }
    /// Memory of the device. If transfers are direct, it is registered with the network once.
    /// Freeing it waits for all work of the device. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate_on_device(std::size_t bytes) {
        auto memory = device_->kept().allocate(this->device(), bytes);
        if (!goes_directly() || bytes < direct_from) return memory;
        struct Kept {
            std::shared_ptr<std::byte> memory;
            std::shared_ptr<void> reached; ///< destroyed before `memory`
        };
        const auto kept = std::make_shared<Kept>(Kept{std::move(memory), nullptr});
        try {
            kept->reached = reach(kept->memory.get(), bytes);
        } catch (const error&) { // the network has no room now: operations try again
        }
        return {kept, kept->memory.get()};
    }

    // --- copies: see extensions/device/bounced_lanes.hpp
    // -----------------------------------------------------

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

    // --- direct transfers from and to the device: see extensions/device/bounced_lanes.hpp ---

    /// True if large data that are not combined are transferred directly: see
    /// CudaOptions::transfers.
    [[nodiscard]] bool goes_directly() const {
        if constexpr (detail::reaches_device_memory<Network>) return this->moves_device_memory();
        else return false;
    }
    /// Collectives with fewer bytes per rank pass through the host. Chosen, not measured: below
    /// this size a copy in each direction costs about as much as registering memory with a network.
    static constexpr std::size_t direct_from = 65536;
    /// Null if the network cannot reach the memory. \throws error refused, if the network has no
    /// room
    [[nodiscard]] std::shared_ptr<void> reach(const std::byte* data, std::size_t bytes) {
        if constexpr (detail::reaches_device_memory<Network>) return Network::reach_device_memory(data, bytes);
        else return nullptr;
    }
    void move(std::byte* to, const std::byte* from, std::size_t bytes) { device_->move(to, from, bytes); }
    void see_arrivals() { device_->see_arrivals(); }

    // --- for a network's own collectives on device memory: see extensions/device/whole_runs.hpp
    // ---

    /// A share of memory from `allocate_on_device`; null for other memory.
    [[nodiscard]] std::shared_ptr<std::byte> share_on_device(const std::byte* data, std::size_t bytes) const {
        return device_->kept().share_of(data, bytes);
    }
    /// Memory that has no other user while a share of it is held. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> room_on_device(std::size_t bytes) {
        return device_->kept().room(this->device(), bytes);
    }
    [[nodiscard]] detail::CudaDeviceGuard on_its_device() const { return detail::CudaDeviceGuard(this->device()); }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, as above; those of the network's `join`.
    /// Defined in cuda/join.hpp.
    template <control_plane Control>
    [[nodiscard]] static Cuda join(Control control, nanoseconds deadline, const Options& options);

private:
    template <class World>
    Cuda(const std::shared_ptr<World>& shared, int rank, const Options& options, int place)
        : Cuda(begin(place), detail::WithDeviceMemory(options, place).options.begin(shared, rank), options) {}
    Cuda(std::shared_ptr<detail::CudaCopies> copies, Network&& network, const Options& options)
        : Base(std::move(network), std::move(copies), // as if all ranks were on this host
               [](const Network& all) { return all.size() > detail::available_cores(); }),
          piece_bytes_(options.with(Environment::of_process()).piece_bytes) {
        const DeviceTransfers wanted = options.with(Environment::of_process()).transfers;
        if constexpr (detail::told_of_devices<Network>) {
            if (wanted != DeviceTransfers::staged) this->move_device_memory(detail::wish_without_probe(this->device()));
        } else {
            if (wanted == DeviceTransfers::direct && this->size() != 1 && !goes_directly()) refuse_transfers();
        }
    }

    static int place_of_thread(int rank, const Options& options) {
        const detail::CudaCard card = detail::cuda_card(0, options.device);
        return detail::place_of(std::vector<detail::CudaCard>(static_cast<std::size_t>(rank) + 1, card),
                                static_cast<std::size_t>(rank));
    }
    static std::shared_ptr<detail::CudaCopies> begin(int device) {
        const detail::CudaDeviceGuard here(device);
        return std::make_shared<detail::CudaCopies>(device);
    }

    [[noreturn, gnu::cold]] void refuse_transfers() const {
        std::string why;
        if constexpr (detail::reaches_device_memory<Network>) why = this->device_memory_problem();
        else why = concat({"over ", std::string(Network::name), " only memory of the host is moved"});
        throw error(ErrorCode::refused,
                    concat({"direct transfers of memory of devices are asked for, but rank ", this->rank(),
                            " cannot: ", why.empty() ? "its network was made without them" : why}));
    }

    /// The ranks agree on whether the network gets their device memory, so they also learn of a
    /// rank without a device.
    static std::shared_ptr<detail::CudaCopies> begin_with(Network& network, int device, const Options& options) {
        if constexpr (detail::told_of_devices<Network>) {
            std::shared_ptr<detail::CudaCopies> made;
            DeviceTransfers wish = DeviceTransfers::automatic;
            std::string problem;
            try {
                wish = options.with(Environment::of_process()).transfers;
                made = begin(device);
            } catch (const error& failed) {
                problem = failed.why().message;
            }
            network.agree_on_devices(wish, problem);
            return made;
        } else {
            return begin(device);
        }
    }

    std::size_t piece_bytes_;
};

UNISONO_NAMESPACE_END
