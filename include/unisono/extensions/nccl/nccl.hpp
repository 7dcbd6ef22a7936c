#pragma once

/// \file
/// Ranks with a GPU each, over NCCL. Link the target unisono::nccl (NCCL 2.19 or newer and the CUDA
/// runtime; a host's compiler will do).
///
/// Device data travel over NCCL: by native collectives, or by the library's own schedules over
/// NCCL's sends and receives, in the order of one stream. Host data travel message by message as
/// over Hosts<Tcp>: by shared memory within a host and by sockets between hosts. Exception: native
/// collectives on host data from `NcclOptions::staged_bytes` on pass through pinned memory and the
/// device. Each collective that NCCL runs (or every n-th: `NcclOptions::check_every`) is
/// accompanied by ceil(log2 p) empty messages, by which ranks detect a mismatch or a missing rank.
///
/// NCCL's communicators do not block here. They are polled: an asynchronous error of NCCL, or
/// another rank's fault, ends a wait by an abort.

#include "unisono/extensions/hosts/hosts.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/nccl/device.hpp"
#include "unisono/extensions/nccl/places.hpp"
#include "unisono/extensions/tcp/tcp.hpp"
#include "unisono/launch/host.hpp"

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Threads of one process as ranks: they see the same devices, and the first one makes NCCL's
/// unique id.
class NcclWorld : public HostsWorld {
public:
    explicit NcclWorld(int size) : HostsWorld(size) {}

    [[nodiscard]] const NcclCard& card(const NcclOptions& options, bool shares) {
        const std::lock_guard lock(mutex_);
        if (!card_) card_ = card_of_process(host_number(), options, shares);
        return *card_;
    }

private:
    std::mutex mutex_;
    std::optional<NcclCard> card_;
};

inline bool devices_are_shared(const Environment& environment) {
    const std::string* const said = environment.find("NCCL_MULTI_RANK_GPU_ENABLE");
    return said != nullptr && *said == "1";
}

} // namespace detail

/// The transport of one rank over NCCL. It is made by `run<Nccl>` (group/run.hpp) for threads of
/// this process, by `join<Nccl>` (unisono/join.hpp) for processes that a launcher has started, or
/// by `adopt(communicator, stream)` for a program that has a communicator of NCCL
/// (unisono/nccl.hpp).
///
/// Errors: refused, within a second, if there are too few devices, NCCL is older than its headers,
/// or ranks differ in its version or in their options. Afterwards those of Hosts<Tcp>, and NCCL's:
/// peer_lost if it reports that another rank is the cause, else aborted.
class Nccl : public detail::WithDevice<Hosts<Tcp>, detail::NcclDevice> {
    using Base = detail::WithDevice<Hosts<Tcp>, detail::NcclDevice>;

public:
    static constexpr std::string_view name = "nccl";
    /// An elastic world ends a communicator by ncclCommRevoke and makes another one for each
    /// membership.
    static constexpr bool outlives_ranks = UNISONO_NCCL_REVOKES != 0;
    using Options = NcclOptions;
    using World = detail::NcclWorld;

    Nccl() : Nccl(std::make_shared<World>(1), 0) {}
    /// A rank of a world of threads; waits for the other ranks. Errors: refused, bad_input,
    /// timeout.
    Nccl(const std::shared_ptr<World>& shared, int rank, const NcclOptions& options = {})
        : Nccl(shared, rank, options.with(Environment::of_process()), Threads{}) {}
    /// A rank that exchanges messages already, and whose device and communicator are ready.
    Nccl(Hosts<Tcp> messages, std::shared_ptr<detail::NcclDevice> device, const NcclOptions& all)
        : Base(name, std::move(messages), std::move(device),
               [](const Hosts<Tcp>& hosts) { return hosts.network().shared_world()->more_ranks_than_cores(); }),
          staged_bytes_(all.staged_bytes), check_every_(all.check_every) {}
    Nccl(Nccl&&) noexcept = default;
    Nccl& operator=(Nccl&&) = delete;
    ~Nccl() override {
        if (device_ == nullptr || !world().is_here()) return;
        world().report_unwinding(rank()); // first: the others may wait for this rank's device
        if (first_fault() != nullptr) device_->abort(abort_within);
        else device_->close(close_within);
    }

    /// For an elastic world: a world of this rank alone, on the same device. Errors: refused,
    /// timeout.
    [[nodiscard]] Nccl alone() const {
        ncclUniqueId id;
        detail::check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        NcclOptions all{.staged_bytes = staged_bytes_, .check_every = check_every_};
        all = all.with(Environment::of_process());
        return Nccl(std::make_shared<World>(1), 0, begin_device(device(), 1, id, 0), all);
    }
    /// See WithDevice.
    void fail_alone() {
        Base::fail_alone();
        device_->outlive_aborts();
    }

    /// The stream to which everything is enqueued. A collective begins after the work that the
    /// program enqueued there before it. Work that the program enqueues there after it has waited
    /// for the collective runs after the collective.
    [[nodiscard]] cudaStream_t stream() const { return device_->stream(); }
    /// The size, in bytes, from which on native collectives on host memory pass through the device.
    [[nodiscard]] std::size_t staged_bytes() const { return staged_bytes_; }
    /// The number of NCCL collectives per comparison between the ranks.
    [[nodiscard]] int check_every() const { return check_every_; }
    /// The address at which this rank listens for messages of other hosts.
    [[nodiscard]] std::string address() const { return network().address(); }

    // --- the host's side -------------------------------------------------------------------------

    void progress(EndpointSink& sink) override {
        Base::progress(sink);
        device_->pump();
        if (device_->failed() && first_fault() == nullptr) [[unlikely]]
            report_failure();
    }
    void abort(const Fault& fault) override {
        Base::abort(this->told(fault));
        device_->abort(abort_within);
    }
    /// All memory of the program is equal here: data that peers do not see are copied once.
    [[nodiscard]] bool reaches(const void*, std::size_t) const override { return true; }

    [[nodiscard]] std::string describe(int peer) const override {
        const std::string where = Base::describe(peer);
        const std::string& why = device_->failure().message;
        return why.empty() || why == "aborted" ? where : concat({where, "; here NCCL says: ", why});
    }

    /// Pinned host memory: collectives on it need no further copy. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override {
        return detail::allocate_pinned(device(), device_->pinned(), bytes);
    }
    /// Memory of the device, from ncclMemAlloc. It is not cleared. It is not registered with a
    /// communicator either: NCCL hangs if a rank's memory is and its peer's is not. Freeing it
    /// waits for all work of the device. Errors: refused.
    [[nodiscard]] std::shared_ptr<std::byte> allocate_on_device(std::size_t bytes) {
        const detail::CudaDeviceGuard here(device());
        void* made = nullptr;
        detail::check_nccl(ncclMemAlloc(&made, bytes == 0 ? 1 : bytes), "ncclMemAlloc");
        return {static_cast<std::byte*>(made), [](std::byte* one) { static_cast<void>(ncclMemFree(one)); }};
    }

    /// True if the memory of `allocate_windows` became a window of NCCL's.
    [[nodiscard]] bool has_window(std::uint64_t group) { return device_->has_window(group); }

    [[nodiscard]] std::unique_ptr<detail::TransportExecutor> transport_executor() override {
        return detail::transport_executor_for(*this);
    }

    /// The world of processes that share this control plane, which then belongs to the world.
    /// Collective. Errors, the same on all ranks: refused, as above, or by NCCL.
    template <control_plane Control>
    [[nodiscard]] static Nccl join(Control control, nanoseconds deadline, const NcclOptions& options);
    /// The ranks of a program's own communicator. See `adopt`.
    [[nodiscard]] static Nccl adopt(ncclComm_t communicator, cudaStream_t stream, std::chrono::nanoseconds timeout,
                                    const NcclOptions& options);

private:
    struct Threads {};
    static constexpr std::chrono::nanoseconds close_within = std::chrono::seconds(10);
    static constexpr nanoseconds begins_within = 120'000'000'000; ///< limit for threads that begin
    static constexpr nanoseconds told_within = 1'000'000'000;     ///< limit for the control plane to name a lost rank

    /// A rank that is a thread, whose device has begun.
    Nccl(const std::shared_ptr<World>& shared, int rank, std::shared_ptr<detail::NcclDevice> device,
         const NcclOptions& options)
        : Nccl(Hosts(shared, rank, {.network = options.network}), std::move(device), options) {
        try {
            wait_for_world(*shared->network(), rank, *device_, steady_now() + begins_within, ErrorCode::refused);
        } catch (const error& failed) {
            if (failed.why().rank == rank) throw;
            // Another rank's fault is reported by the first call, as if it had come a moment later.
        }
    }
    Nccl(const std::shared_ptr<World>& shared, int rank, const NcclOptions& options, Threads)
        : Nccl(shared, rank, begin_thread(*shared, rank, options), options) {}

    [[nodiscard]] detail::NetworkWorld& world() const { return *network().shared_world(); }

    static std::shared_ptr<detail::NcclDevice> begin_thread(World& world, int rank, const NcclOptions& options) {
        const bool shares = detail::devices_are_shared(Environment::of_process());
        const detail::NcclCard card = world.card(options, shares);
        const std::vector<int> places =
            detail::place_ranks(std::vector<detail::NcclCard>(static_cast<std::size_t>(world.size()), card));
        return begin_device(places[static_cast<std::size_t>(rank)], world.size(), card.id, rank);
    }

    static std::shared_ptr<detail::NcclDevice> begin_device(int ordinal, int ranks, const ncclUniqueId& id, int rank) {
        const detail::CudaDeviceGuard here(ordinal);
        auto made = std::make_shared<detail::NcclDevice>(ordinal, detail::CudaStream::make());
        made->begin_world(detail::NcclCommunicator::begin(ranks, id, rank));
        return made;
    }

    /// Waits for the world's communicator. Errors: the world's first fault; timeout; `code`, with
    /// NCCL's text.
    static void wait_for_world(detail::NetworkWorld& world, int rank, detail::NcclDevice& device, nanoseconds until,
                               ErrorCode code) {
        Fault mine{.rank = rank, .operation = "join"};
        for (std::uint32_t attempt = 0; !device.world_is_ready(); ++attempt) {
            if (device.failed()) {
                mine.code = code;
                mine.message = concat({"rank ", rank, ": ", device.failure().message});
            } else if (steady_now() >= until) {
                mine.code = ErrorCode::timeout;
                mine.message = concat({"rank ", rank, " waited for NCCL's communicator of ", world.size(), " ranks"});
            }
            if (mine.code != ErrorCode::none) world.abort(rank, mine);
            if (const Fault* const first = world.first_fault(); first != nullptr || mine.code != ErrorCode::none) {
                const Fault told = first != nullptr ? *first : mine;
                device.abort(abort_within);
                throw error(told);
            }
            if (attempt < 64) std::this_thread::yield();
            else std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }

    /// Reports an error of NCCL or CUDA. If another rank's end caused it, the control plane soon
    /// names that rank, and this function waits for that.
    void report_failure() {
        Fault fault = fault_of_device();
        // No rank is known to be the cause, so all form the next membership. A call that CUDA or a
        // kernel has refused would be refused again.
        if (fails_alone() && device_->is_failure_of_nccl()) fault.code = ErrorCode::peer_lost;
        const nanoseconds until = steady_now() + (fault.code == ErrorCode::peer_lost ? told_within : 0);
        while (first_fault() == nullptr && fault.peer < 0 && steady_now() < until) {
            for (int peer = 0; peer < size() && fault.peer < 0; ++peer)
                if (peer != rank() && presence(peer) == Presence::died) fault.peer = peer;
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        abort(fault);
    }

    std::size_t staged_bytes_ = 0;
    int check_every_ = 1;
};

static_assert(transport<Nccl>);

namespace detail {

/// Exchanges a few bytes between ranks that share only a communicator.
class NcclExchange {
public:
    /// On the thread's current device, `device`.
    NcclExchange(NcclCommunicator& communicator, int device, cudaStream_t stream, nanoseconds until)
        : communicator_(&communicator), device_(device), stream_(stream), until_(until) {}

    /// Gathers `bytes` bytes of each rank, from `mine`, into `all` in rank order. Errors: refused,
    /// timeout.
    void all_gather(const void* mine, void* all, std::size_t bytes, int ranks) {
        const std::size_t total = bytes * static_cast<std::size_t>(ranks);
        DevicePool pool(device_);
        const DeviceBlock from = pool.take(bytes, true, true);
        const DeviceBlock to = pool.take(total, true, true);
        std::memcpy(from.pinned, mine, bytes);
        check_cuda(cudaMemcpyAsync(from.device, from.pinned, bytes, cudaMemcpyHostToDevice, stream_),
                   "cudaMemcpyAsync");
        const ncclResult_t answer =
            ncclAllGather(from.device, to.device, bytes, ncclUint8, communicator_->get(), stream_);
        if (!communicator_->note(answer, "ncclAllGather")) refuse_call("adopt", communicator_->why());
        wait_ready();
        check_cuda(cudaMemcpyAsync(to.pinned, to.device, total, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
        const CudaEvent done;
        check_cuda(cudaEventRecord(done.get(), stream_), "cudaEventRecord");
        cudaError_t state = cudaEventQuery(done.get());
        for (; goes_on(state); state = cudaEventQuery(done.get())) pause("for the other ranks' options");
        check_cuda(state, "cudaEventQuery");
        std::memcpy(all, to.pinned, total);
        pool.free_all();
    }
    void wait_ready() {
        while (communicator_->state() != NcclCommunicator::State::ready) {
            if (!communicator_->why().empty()) refuse_call("adopt", communicator_->why());
            pause("for its communicator");
        }
    }

private:
    void pause(const char* what) {
        if (communicator_->look() == NcclCommunicator::State::failed) refuse_call("adopt", communicator_->why());
        if (steady_now() >= until_)
            throw error(ErrorCode::timeout, concat({"adopt: this rank waited until its deadline ", what}));
        std::this_thread::yield();
    }

    NcclCommunicator* communicator_;
    int device_;
    cudaStream_t stream_;
    nanoseconds until_;
};

/// The rendezvous of an adopted communicator: rank 0 sends its address over that communicator.
inline RendezvousPoint rendezvous_over(NcclExchange& exchange, int rank, int ranks, const TcpOptions& options) {
    struct Card {
        std::uint64_t network = 0;
        std::uint16_t port = 0;
        std::uint8_t token[JobToken::bytes] = {};
        char host[96] = {};
    };
    Card mine;
    mine.network = network_space();
    std::vector<Card> all(static_cast<std::size_t>(ranks));
    exchange.all_gather(&mine, all.data(), sizeof mine, ranks);
    bool other_hosts = false;
    for (const Card& one : all) other_hosts = other_hosts || one.network != mine.network;
    if (rank == 0) {
        const TcpEntrance entrance =
            open_entrance(options, other_hosts); // tells the address; the port is free again then
        const std::string host = host_text(entrance.address().socket);
        host.copy(mine.host, sizeof mine.host - 1);
        mine.port = port_of(entrance.address().socket);
        const auto token = JobToken::random().value();
        std::memcpy(mine.token, token.data(), token.size());
    }
    exchange.all_gather(&mine, all.data(), sizeof mine, ranks);
    std::array<std::uint8_t, JobToken::bytes> token{};
    std::memcpy(token.data(), all[0].token, token.size());
    return {.host = all[0].host,
            .port = all[0].port,
            .further_ports = further_ports_of(options.port_range, all[0].port, 20),
            .token = JobToken(token)};
}

} // namespace detail

template <control_plane Control>
Nccl Nccl::join(Control control, nanoseconds deadline, const NcclOptions& options) {
    const int rank = control.rank();
    const Environment environment = Environment::of_process();
    const NcclOptions all = options.with(environment);
    const detail::NcclCard mine =
        detail::card_of_process(detail::host_number(), all, detail::devices_are_shared(environment));
    if (all.is_later) detail::check_own(mine, static_cast<std::size_t>(rank));
    const std::vector<detail::NcclCard> cards = detail::gather_cards(control, mine, deadline);
    const std::vector<int> places = detail::place_ranks(cards);
    // The others form the next membership again.
    const ErrorCode told = all.is_later ? ErrorCode::peer_lost : ErrorCode::refused;
    Hosts<Tcp> messages = Hosts<Tcp>::join(std::move(control), deadline, {.network = all.network});
    const std::shared_ptr<detail::NetworkWorld> world = messages.network().shared_world();
    std::shared_ptr<detail::NcclDevice> device;
    try {
        device = detail::on_own_device(all.is_later, static_cast<std::size_t>(rank), [&] {
            return begin_device(places[static_cast<std::size_t>(rank)], world->size(), cards[0].id, rank);
        });
    } catch (const error& failed) { // the other ranks wait for this one in NCCL
        Fault theirs = failed.why();
        theirs.code = told;
        world->abort(rank, theirs);
        throw;
    }
    Nccl made(std::move(messages), device, all);
    wait_for_world(*world, rank, *device, deadline, told);
    return made;
}

inline Nccl Nccl::adopt(ncclComm_t communicator, cudaStream_t stream, std::chrono::nanoseconds timeout,
                        const NcclOptions& options) {
    using namespace detail;
    if (communicator == nullptr) refuse_input("adopt: found no communicator; expected one that is ready");
    const NcclOptions all = options.with(Environment::of_process());
    static_cast<void>(loaded_nccl());
    int rank = 0;
    int ranks = 0;
    int ordinal = 0;
    check_nccl(ncclCommUserRank(communicator, &rank), "ncclCommUserRank");
    check_nccl(ncclCommCount(communicator, &ranks), "ncclCommCount");
    check_nccl(ncclCommCuDevice(communicator, &ordinal), "ncclCommCuDevice");
    const nanoseconds until = deadline_after(steady_now(), timeout);
    const CudaDeviceGuard here(ordinal);
    NcclCommunicator own = NcclCommunicator::split(communicator, 0, rank);
    const auto device = std::make_shared<NcclDevice>(ordinal, CudaStream(stream));
    try {
        NcclExchange exchange(own, ordinal, stream, until);
        exchange.wait_ready();
        const RendezvousPoint point = rendezvous_over(exchange, rank, ranks, all.network);
        ControlPlane control = rendezvous(identity_of(rank, ranks), point, {.timeout = timeout, .linger = timeout});
        NcclCard mine{{.host = host_number()}};
        mine.loaded = loaded_nccl();
        mine.staged_bytes = all.staged_bytes;
        mine.check_every = static_cast<std::uint32_t>(all.check_every);
        for (const NcclCard& card : gather_cards(control, mine, until))
            if (card.staged_bytes != mine.staged_bytes || card.check_every != mine.check_every)
                throw error(ErrorCode::refused,
                            "adopt: NcclOptions::staged_bytes or check_every differs between ranks");
        Hosts<Tcp> messages = Hosts<Tcp>::join(std::move(control), until, {.network = all.network});
        device->begin_world(std::move(own));
        return {std::move(messages), device, all};
    } catch (...) {
        NcclCommunicator::abort({&own}, abort_within);
        throw;
    }
}

UNISONO_NAMESPACE_END
