#pragma once

/// \file
/// Turns processes that share a control plane, or a communicator of NCCL, into the ranks of a world
/// over NCCL.

#include "unisono/extensions/hosts/hosts.hpp"
#include "unisono/extensions/launch/rendezvous/rendezvous.hpp"
#include "unisono/extensions/nccl/nccl.hpp"
#include "unisono/extensions/tcp/tcp.hpp"

#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
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
    return {.host = all[0].host, .port = all[0].port, .further_ports = 20, .token = JobToken(token)};
}

} // namespace detail

template <control_plane Control>
Nccl Nccl::join(Control control, nanoseconds deadline, const NcclOptions& options) {
    const int rank = control.rank();
    const Environment environment = Environment::of_process();
    const NcclOptions all = options.with(environment);
    const detail::NcclCard mine =
        detail::card_of_process(detail::host_number(), all, detail::devices_are_shared(environment));
    const std::vector<detail::NcclCard> cards = detail::gather_cards(control, mine, deadline);
    const std::vector<int> places = detail::place_ranks(cards);
    Hosts<Tcp> messages = Hosts<Tcp>::join(std::move(control), deadline, {.network = all.network});
    const std::shared_ptr<detail::NetworkWorld> world = messages.network().shared_world();
    std::shared_ptr<detail::NcclDevice> device;
    try {
        device = begin_device(places[static_cast<std::size_t>(rank)], world->size(), cards[0].id, rank);
    } catch (const error& failed) { // the other ranks wait for this one in NCCL
        Fault fault = failed.why();
        fault.rank = rank;
        fault.message = concat({"rank ", rank, ": ", fault.message});
        world->abort(rank, fault);
        throw error(fault);
    }
    Nccl made(std::move(messages), device, all);
    wait_for_world(*world, rank, *device, deadline);
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
        for (const NcclCard& card : gather_cards(control, mine, until)) {
            if (card.staged_bytes != mine.staged_bytes || card.check_every != mine.check_every)
                throw error(ErrorCode::refused,
                            "adopt: NcclOptions::staged_bytes or check_every differs between ranks");
        }
        Hosts<Tcp> messages = Hosts<Tcp>::join(std::move(control), until, {.network = all.network});
        device->begin_world(std::move(own));
        return {std::move(messages), device, all};
    } catch (...) {
        NcclCommunicator::abort({&own}, abort_within);
        throw;
    }
}

UNISONO_NAMESPACE_END
