// Gloo over TCP, its only transport for processors: on the loopback, or between the hosts that the
// script made. All its ways to do a collective are tried on each size, and the best is measured:
// the functions (ring, bcube), which sleep while they wait, and the older classes, which also sleep
// or, with a core per rank, poll. Two of the classes are not always safe. AllgatherRing sometimes
// gives wrong results with more than two ranks, and is left out there. ReduceScatterHalvingDoubling
// overwrites what it may still be sending, unless it polls. A way with a wrong result is not
// measured.

#include "contenders/contender.hpp"

#include <functional>
#include <gloo/allgather.h>
#include <gloo/allgather_ring.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/broadcast.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>
#include <memory>

namespace {

using Context = std::shared_ptr<gloo::Context>;

class Gloo {
public:
    Gloo(const bench::Invitation& invitation, int rank) : rank_(rank), ranks_(invitation.ranks) {
        gloo::rendezvous::FileStore files(invitation.place);
        const auto connect = [&](const char* name, bool polls) {
            gloo::transport::tcp::attr where(bench::host_of(rank_, ranks_).address.c_str());
            auto device = gloo::transport::tcp::CreateDevice(where);
            gloo::rendezvous::PrefixStore store(name, files);
            auto context = std::make_shared<gloo::rendezvous::Context>(rank_, ranks_);
            context->connectFullMesh(store, device);
            for (int peer = 0; polls && peer < ranks_; ++peer) {
                if (peer != rank_) context->getPair(peer)->setSync(true, true);
            }
            return context;
        };
        sleeping_ = connect("sleeping", false);
        if (static_cast<std::size_t>(ranks_) <= bench::cores().size()) polling_ = connect("polling", true);
    }
    static std::shared_ptr<float> allocate(std::size_t count, int number) { return bench::own_memory(count, number); }

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int ranks() const { return ranks_; }

    std::vector<std::string> begin(const bench::Work& work) {
        add_classes(work, sleeping_, "");
        add_functions(work);
        // A polling class writes until everything is written. Two ranks that send each other more
        // than sockets hold would never end.
        if (polling_ && work.in.size_bytes() <= most_polled_bytes) add_classes(work, polling_, ", polling");
        std::vector<std::string> names;
        for (const Way& way : ways_) names.push_back(way.name);
        return names;
    }
    void keep(int way, bool wanted) {
        if (!wanted) ways_[static_cast<std::size_t>(way)].call = nullptr;
    }
    void call(bench::Work& work, int number, int root) const {
        const Way& way = ways_[static_cast<std::size_t>(number)];
        if (!way.out.empty()) work.out = way.out;
        way.call(root);
    }
    void end() { ways_.clear(); }

private:
    static constexpr std::size_t most_polled_bytes = 1 << 20;

    struct Way {
        std::string name;
        std::function<void(int root)> call;
        std::span<float> out{}; ///< of reduce_scatter: where the result is
    };

    void add_functions(const bench::Work& work) {
        float* const in = work.in.data();
        float* const out = work.out.data();
        switch (work.what) {
        // Gloo has no function for it. all_reduce is what remains.
        case bench::Collective::reduce_scatter:
        case bench::Collective::all_reduce:
            for (const auto& [name, algorithm] : {std::pair{"ring", gloo::AllreduceOptions::Algorithm::RING},
                                                  std::pair{"bcube", gloo::AllreduceOptions::Algorithm::BCUBE}}) {
                ways_.push_back({name, [this, in, count = work.count, algorithm = algorithm](int) {
                                     gloo::AllreduceOptions options(sleeping_);
                                     options.setAlgorithm(algorithm);
                                     options.setOutput(in, count);
                                     using Sum = void (*)(void*, const void*, const void*, std::size_t);
                                     options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
                                     gloo::allreduce(options);
                                 }});
                if (work.what == bench::Collective::reduce_scatter)
                    ways_.back().out = work.in.subspan(static_cast<std::size_t>(rank_) * work.block, work.block);
            }
            break;
        case bench::Collective::all_gather:
            ways_.push_back({"ring", [this, in, out, count = work.count, block = work.block](int) {
                                 gloo::AllgatherOptions options(sleeping_);
                                 options.setInput(in, block);
                                 options.setOutput(out, count);
                                 gloo::allgather(options);
                             }});
            break;
        case bench::Collective::broadcast:
            ways_.push_back({"tree", [this, in, count = work.count](int root) {
                                 gloo::BroadcastOptions options(sleeping_);
                                 options.setOutput(in, count);
                                 options.setRoot(root);
                                 gloo::broadcast(options);
                             }});
            break;
        case bench::Collective::barrier:
            ways_.push_back({"dissemination", [this](int) {
                                 gloo::BarrierOptions options(sleeping_);
                                 gloo::barrier(options);
                             }});
            break;
        case bench::Collective::send: {
            using Buffer = std::shared_ptr<gloo::transport::UnboundBuffer>;
            const Buffer from = sleeping_->createUnboundBuffer(in, work.in.size_bytes());
            const Buffer to = sleeping_->createUnboundBuffer(out, work.out.size_bytes());
            ways_.push_back({"unbound buffers", [this, from, to, bytes = work.in.size_bytes()](int root) {
                                 constexpr std::uint64_t slot = 7;
                                 const int next = (root + 1) % ranks_;
                                 if (rank_ == root) {
                                     from->send(next, slot, 0, bytes);
                                     from->waitSend();
                                 } else if (rank_ == next) {
                                     to->recv(root, slot, 0, bytes);
                                     to->waitRecv();
                                 }
                             }});
            break;
        }
        default: break;
        }
    }

    template <class Algorithm>
    void add(const std::string& name, std::shared_ptr<Algorithm> algorithm) {
        ways_.push_back({name, [algorithm = std::move(algorithm)](int) { algorithm->run(); }});
    }

    void add_classes(const bench::Work& work, const Context& context, const std::string& manner) {
        const std::vector<float*> in{work.in.data()};
        const auto count = static_cast<int>(work.count);
        const auto block = static_cast<int>(work.block);
        switch (work.what) {
        case bench::Collective::all_reduce:
            add("ring chunked" + manner, std::make_shared<gloo::AllreduceRingChunked<float>>(context, in, count));
            add("halving and doubling" + manner,
                std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context, in, count));
            break;
        case bench::Collective::reduce_scatter: {
            const std::vector<int> blocks(static_cast<std::size_t>(ranks_), block);
            add("halving" + manner,
                std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(context, in, count, blocks));
            ways_.back().out = work.in.first(work.block);
            break;
        }
        case bench::Collective::all_gather:
            if (ranks_ > 2) break;
            add("ring, class" + manner, std::make_shared<gloo::AllgatherRing<float>>(
                                            context, std::vector<const float*>{in.front()}, work.out.data(), block));
            break;
        case bench::Collective::broadcast: {
            std::vector<std::shared_ptr<gloo::Algorithm>> roots;
            for (int root = 0; root < ranks_; ++root)
                roots.push_back(std::make_shared<gloo::BroadcastOneToAll<float>>(context, in, work.count, root));
            ways_.push_back({"one to all" + manner,
                             [roots = std::move(roots)](int root) { roots[static_cast<std::size_t>(root)]->run(); }});
            break;
        }
        case bench::Collective::barrier: {
            Context same = context; // its constructor requires one that it may change
            add("all to all" + manner, std::make_shared<gloo::BarrierAllToAll>(same));
            break;
        }
        case bench::Collective::send: break; // there is only one way
        case bench::Collective::copy: bench::give_up("only the floor copies");
        }
    }

    int rank_;
    int ranks_;
    Context sleeping_;
    Context polling_;
    std::vector<Way> ways_;
};

} // namespace

int main(int argc, char** argv) {
    const bench::Invitation invitation = bench::invitation(argc, argv);
    return bench::run_forked(invitation.ranks, [&](int rank) {
        try {
            Gloo gloo(invitation, rank);
            bench::Contender(gloo, invitation.place).serve();
        } catch (const std::exception& failed) {
            bench::give_up(failed.what());
        }
    });
}
