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

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/cuda/device.hpp"
#include "unisono/extensions/cuda/places.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/cores.hpp"
#include "unisono/launch/host.hpp"
#include "unisono/transport/endpoint.hpp"
#include "unisono/transport/transport.hpp"

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

// Options of ranks with a device over another transport, from the program or the environment.

template <class Network>
concept has_options = requires { typename Network::Options; };

/// The options of a network without options.
struct NoOptions {
    /// The most memory that a rank may allocate for sharing with its peers; 0: as much as the
    /// machine has.
    std::size_t arena_bytes = 0;

    friend bool operator==(const NoOptions&, const NoOptions&) = default;
};
template <class Network>
struct OptionsOf {
    using type = NoOptions;
};
template <has_options Network>
struct OptionsOf<Network> {
    using type = typename Network::Options;
};

} // namespace detail

/// Options of `Cuda<Network>`: those of its network, and more.
template <class Network>
struct CudaOptions {
    typename detail::OptionsOf<Network>::type network = {};
    /// As this process numbers them; -1: the rank's number on its host, modulo the number of
    /// devices here, or, if other ranks of the host name theirs, the one that the fewest have.
    int device = -1;
    /// The size of the chunks in which device data pass through the host. Up to three chunks of an
    /// operation are in flight: one comes from the device, one is on the network, one goes back.
    /// Equal on all ranks. 0: UNISONO_PIECE_BYTES; else the chunks of the network's native schedule
    /// for host data, which gives the same bits; else 1 MiB. Chosen, not measured: at 16 to 25 GB/s
    /// a copy of 1 MiB takes 40 to 65 us, many times the few us that starting it costs, and three
    /// chunks fit a core's caches of a few MiB.
    std::size_t piece_bytes = 0;
    /// Set by an elastic world: this is a membership after the first one, where an error of this
    /// rank's device is no other rank's.
    bool is_later = false;

    friend bool operator==(const CudaOptions&, const CudaOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] CudaOptions with(const Environment& environment) const {
        CudaOptions all = *this;
        if (device < -1) refuse_input({"CudaOptions::device is ", device, "; expected -1 or a device's number"});
        if (all.piece_bytes != 0) return all;
        if constexpr (detail::chunk_bytes<Network> != 0) all.piece_bytes = detail::chunk_bytes<Network>;
        else all.piece_bytes = 1048576;
        const std::string* const said = environment.find("UNISONO_PIECE_BYTES");
        if (said == nullptr) return all;
        int number = 0;
        if (!detail::parse_count(*said, 1 << 30, number) || number == 0)
            refuse_input({"UNISONO_PIECE_BYTES must be a number from 1 to 2^30, found ", detail::quoted(*said)});
        all.piece_bytes = static_cast<std::size_t>(number);
        return all;
    }

    /// The network's transport of a thread.
    template <class World>
    [[nodiscard]] Network begin(const std::shared_ptr<World>& shared, int rank) const {
        if constexpr (std::constructible_from<Network, const std::shared_ptr<World>&, int, decltype((network))>)
            return Network(shared, rank, network);
        else return Network(shared, rank);
    }
};

namespace detail {

/// A network whose ranks may be processes that share only a control plane. It takes options, or the
/// most memory that it may share.
template <class Network, class Control>
concept joins_by = requires(Control control, nanoseconds deadline, const CudaOptions<Network>& options) {
    Network::join(std::move(control), deadline, options.network);
} || requires(Control control, nanoseconds deadline, const CudaOptions<Network>& options) {
    Network::join(std::move(control), deadline, options.network.arena_bytes);
};

/// A rank's resources on its device if another transport moves its bytes: beside those of
/// CudaDevice two streams of copies, one in each direction. Only `settle` waits.
class CudaCopies : public CudaDevice {
public:
    /// On the thread's current device. Errors: refused.
    explicit CudaCopies(int ordinal) : CudaDevice(ordinal), out_(CudaStream::make()), back_(CudaStream::make()) {}
    CudaCopies(const CudaCopies&) = delete;
    CudaCopies& operator=(const CudaCopies&) = delete;
    ~CudaCopies() {
        if (settle(std::chrono::seconds(5))) free_blocks();
        free_events();
    }

    /// The stream of copies from the device. Work that is enqueued here precedes the copies of
    /// later operations.
    [[nodiscard]] cudaStream_t stream() const { return out_.get(); }

    void fetch(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, out_.get()), "cudaMemcpyAsync");
    }
    void put(std::byte* to, const std::byte* from, std::size_t bytes) {
        expect(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, back_.get()), "cudaMemcpyAsync");
    }
    /// Marks everything that was fetched (`outward`) or put so far.
    [[nodiscard]] std::uint32_t mark(bool outward) {
        ++marks_;
        const std::uint32_t made = take_event();
        expect(record(made, outward ? out_.get() : back_.get()), "cudaEventRecord");
        return made;
    }
    /// True once, when the marked copies have finished; then the mark is free.
    [[nodiscard]] bool passed(std::uint32_t mark) {
        if (!is_over(mark)) return false;
        --marks_;
        return true;
    }
    /// True if no marked copies are known to be in flight.
    [[nodiscard]] bool is_quiet() const { return marks_ == 0; }

    void order_puts() { follow_all_of(out_.get(), back_.get()); }
    void follow_puts(void* stream) { follow_all_of(back_.get(), static_cast<cudaStream_t>(stream)); }

    [[nodiscard]] Awaited take_awaited() { return std::exchange(awaited_, {}); }
    [[nodiscard]] bool reached(Awaited& awaited) {
        while (!awaited.empty()) {
            if (!is_over(awaited.back())) return false;
            awaited.pop_back();
        }
        return true;
    }

    /// Waits until no copy is in flight; false if some still are after `within`.
    bool settle(std::chrono::nanoseconds within) {
        const nanoseconds until = deadline_after(steady_now(), within);
        while (goes_on(cudaStreamQuery(out_.get())) || goes_on(cudaStreamQuery(back_.get()))) {
            if (steady_now() >= until) return false;
            std::this_thread::yield();
        }
        return true;
    }

private:
    /// True once, when the event has passed; then the event is free.
    bool is_over(std::uint32_t number) {
        if (failed() || !has_passed(event(number))) return false;
        give_event(number);
        return true;
    }

    CudaStream out_, back_;
    std::uint32_t marks_ = 0;
};

} // namespace detail

/// The transport of one rank with a device over `Network`. It is made by `run<Cuda<Network>>`
/// (group/run.hpp) for threads of this process, by `join<Cuda<Network>>` (unisono/join.hpp) for
/// processes that a launcher has started, or from a transport of the network.
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

    /// A world of this rank alone, on the same device. Errors: refused.
    [[nodiscard]] Cuda alone() const
        requires std::default_initializable<Network>
    {
        return {Network(), this->device(), Options{.piece_bytes = piece_bytes_}};
    }

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
        Network::abort(this->told(fault));
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

    [[nodiscard]] std::unique_ptr<detail::TransportExecutor> transport_executor() override {
        return detail::transport_executor_for(*this);
    }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, as above; those of the network's `join`.
    template <control_plane Control>
        requires detail::joins_by<Network, Control>
    [[nodiscard]] static Cuda join(Control control, nanoseconds deadline, const Options& options);

private:
    template <class World>
    Cuda(const std::shared_ptr<World>& shared, int rank, const Options& options, int place)
        : Cuda{begin(place), options.begin(shared, rank), options} {}
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

template <transport Network>
template <control_plane Control>
    requires detail::joins_by<Network, Control>
Cuda<Network> Cuda<Network>::join(Control control, nanoseconds deadline, const Options& options) {
    const auto rank = static_cast<std::size_t>(control.rank());
    static_cast<void>(options.with(Environment::of_process())); // reports errors in the options before anything else
    const detail::CudaCard mine = detail::cuda_card(detail::host_number(), options.device);
    if (options.is_later) detail::check_own(mine, rank);
    const int place = detail::place_of(detail::gather_cards(control, mine, deadline), rank);
    // First: a rank that fails here is in no network, and the others learn that it has ended.
    std::shared_ptr<detail::CudaCopies> copies =
        detail::on_own_device(options.is_later, rank, [&] { return begin(place); });
    auto network = [&] {
        if constexpr (detail::has_options<Network>) return Network::join(std::move(control), deadline, options.network);
        else return Network::join(std::move(control), deadline, options.network.arena_bytes);
    }();
    return {std::move(copies), std::move(network), options};
}

UNISONO_NAMESPACE_END
