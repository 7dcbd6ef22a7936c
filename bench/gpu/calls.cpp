// NCCL's collectives on memory of the device, raw and through Unisono (NativeSchedule), one rank
// per GPU, each a thread.
//
// Both have communicators of their own over the same devices and the same memory, and
// take turns. A call is timed from a moment that all ranks know until the last rank knows that its
// device is done; the raw version asks an event. "in a row": several calls are started, then waited
// for. Inputs are rewritten before each call, and all results are compared.
//
// CMake compiles it over instant/, without a GPU. Then the figures are only the host's part of a
// call.
#include "support/meeting.hpp"
#include "support/report.hpp"

#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace un = unisono;
using World = un::Group<un::Nccl>;

namespace {

constexpr std::size_t row = 16; ///< calls in a row
constexpr std::size_t variants = 61;
constexpr std::size_t at_the_ends = 4096; ///< elements of a large result that are verified

#ifdef BENCH_INSTANT
constexpr bool instant = true;
#else
constexpr bool instant = false;
#endif

void check(ncclResult_t code, const char* call) {
    if (code == ncclSuccess) return;
    std::fprintf(stderr, "%s: %s\n", call, ncclGetErrorString(code));
    std::exit(1);
}
void check(cudaError_t code, const char* call) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
    std::exit(1);
}

/// The calls of a program that uses NCCL alone.
class Raw {
public:
    Raw(int ranks, const ncclUniqueId& id, int rank, cudaStream_t stream) : stream_(stream) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        const ncclResult_t answer = ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config);
        for (ncclResult_t now = answer; now == ncclInProgress;)
            check(ncclCommGetAsyncError(communicator_, &now), "ncclCommGetAsyncError");
        check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    }
    Raw(const Raw&) = delete;
    Raw& operator=(const Raw&) = delete;
    ~Raw() {
        static_cast<void>(cudaEventDestroy(event_));
        static_cast<void>(ncclCommFinalize(communicator_));
        static_cast<void>(ncclCommDestroy(communicator_));
    }
    void wait() {
        check(cudaEventRecord(event_, stream_), "cudaEventRecord");
        cudaError_t now = cudaErrorNotReady;
        while ((now = cudaEventQuery(event_)) == cudaErrorNotReady) {
        }
        check(now, "cudaEventQuery");
    }
    [[nodiscard]] ncclComm_t communicator() const { return communicator_; }
    [[nodiscard]] cudaStream_t stream() const { return stream_; }

private:
    ncclComm_t communicator_ = nullptr;
    cudaStream_t stream_;
    cudaEvent_t event_ = nullptr;
};

/// Small integers, so that sums are exact in any order.
float value(int rank, std::size_t i) {
    const auto mixed = (static_cast<std::uint32_t>(i) * 2654435761u) >> 20;
    return static_cast<float>((mixed + static_cast<std::uint32_t>(rank) * 5u) % 64u);
}

struct Case {
    const char* name;
    un::Collective what;
};
constexpr Case cases[] = {{"all_reduce", un::Collective::all_reduce},
                          {"reduce_scatter", un::Collective::reduce_scatter},
                          {"all_gather", un::Collective::all_gather},
                          {"broadcast", un::Collective::broadcast}};

/// One collective on vectors of `count` elements. reduce_scatter leaves, and all_gather gives, one
/// part per rank.
class Subject {
public:
    Subject(World& world, Raw& raw, un::Collective what, std::size_t count)
        : world_(&world), raw_(&raw), what_(what), count_(count), part_(count / static_cast<std::size_t>(world.size())),
          in_(un::allocate_on_device<float>(world, count)), out_(un::allocate_on_device<float>(world, count)),
          pattern_(world.allocate<float>(count + variants)), result_(world.allocate<float>(count)),
          wanted_(count + variants) {
        for (std::size_t i = 0; i < pattern_.size(); ++i) {
            pattern_[i] = value(world.rank(), i);
            for (int rank = 0; rank < world.size(); ++rank) wanted_[i] += value(rank, i);
        }
    }

    /// Writes a new input.
    void rewrite(std::size_t repetition) {
        repetition_ = repetition % variants;
        check(cudaMemcpy(in_.data(), pattern_.data() + repetition_, count_ * sizeof(float), cudaMemcpyHostToDevice),
              "cudaMemcpy");
        if (what_ == un::Collective::broadcast) // in place, from rank 0
            check(
                cudaMemcpy(out_.data(), pattern_.data() + repetition_, count_ * sizeof(float), cudaMemcpyHostToDevice),
                "cudaMemcpy");
    }

    void start_raw() {
        float* const in = in_.data();
        float* const out = out_.data();
        const auto on = raw_->communicator();
        const auto stream = raw_->stream();
        switch (what_) {
        case un::Collective::all_reduce:
            return check(ncclAllReduce(in, out, count_, ncclFloat32, ncclSum, on, stream), "ncclAllReduce");
        case un::Collective::reduce_scatter:
            return check(ncclReduceScatter(in, out, part_, ncclFloat32, ncclSum, on, stream), "ncclReduceScatter");
        case un::Collective::all_gather:
            return check(ncclAllGather(in, out, part_, ncclFloat32, on, stream), "ncclAllGather");
        default: return check(ncclBroadcast(out, out, count_, ncclFloat32, 0, on, stream), "ncclBroadcast");
        }
    }
    void run_raw() {
        start_raw();
        raw_->wait();
    }

    [[nodiscard]] un::Operation start() {
        const auto in = in_.span();
        const auto out = out_.span();
        switch (what_) {
        case un::Collective::all_reduce: return un::start_all_reduce(*world_, in, out);
        case un::Collective::reduce_scatter: return un::start_reduce_scatter(*world_, in, out.subspan(0, part_));
        case un::Collective::all_gather: return un::start_all_gather(*world_, in.subspan(0, part_), out);
        default: return un::start_broadcast(*world_, out, 0);
        }
    }

    /// Else the ends of the result: a look at all of it would empty the caches before the next
    /// call.
    void verify(const char* who, bool everything) {
        const bool scatters = what_ == un::Collective::reduce_scatter;
        const bool sums = scatters || what_ == un::Collective::all_reduce;
        const std::size_t elements = scatters ? part_ : count_;
        const std::size_t first = scatters ? static_cast<std::size_t>(world_->rank()) * part_ : 0;
        const auto look = [&](std::size_t begin, std::size_t end) {
            check(cudaMemcpy(result_.data() + begin, out_.data() + begin, (end - begin) * sizeof(float),
                             cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
            for (std::size_t i = begin; i < end; ++i) {
                const float expected = sums ? wanted_[repetition_ + first + i]
                                       : what_ == un::Collective::all_gather
                                           ? value(static_cast<int>(i / part_), repetition_ + i % part_)
                                           : value(0, repetition_ + i);
                if (result_[i] == expected) continue;
                std::fprintf(stderr, "%s: element %zu is %g, expected %g\n", who, i, static_cast<double>(result_[i]),
                             static_cast<double>(expected));
                std::exit(1);
            }
        };
        if (everything || elements <= 2 * at_the_ends) return look(0, elements);
        look(0, at_the_ends);
        look(elements - at_the_ends, elements);
    }

private:
    World* world_;
    Raw* raw_;
    un::Collective what_;
    std::size_t count_, part_;
    un::DeviceMemory<float> in_, out_;
    un::Memory<float> pattern_, result_;
    std::vector<float> wanted_;
    std::size_t repetition_ = 0;
};

struct Times {
    bench::Series ours{"unisono", {}}, raw{"raw NCCL", {}};
};
struct Both {
    Times call, row;
};

void measure(World& world, Raw& raw, bench::Meeting& meeting, const Case& one, std::size_t bytes, int rounds,
             Both& times) {
    const int me = world.rank();
    Subject subject(world, raw, one.what, bytes / sizeof(float));
    std::vector<un::Operation> pending(row);
    const bool small = bytes <= 65536;
    for (int round = -2; round < rounds; ++round) { // the first ones are not counted
        const auto repetition = static_cast<std::size_t>(round + 2) * 4;
        double seconds[4] = {};
        for (std::size_t k = 0; k < (small ? 4u : 2u); ++k) {
            // They take turns at being first.
            const bool ours = (k + static_cast<std::size_t>(round + 2)) % 2 == 0;
            const bool in_a_row = k >= 2;
            subject.rewrite(repetition + k);
            un::barrier(world);
            seconds[(in_a_row ? 2 : 0) + (ours ? 0 : 1)] = meeting.time_together(me, [&] {
                if (ours && in_a_row) {
                    for (un::Operation& operation : pending) operation = subject.start();
                    for (un::Operation& operation : pending) operation.wait();
                } else if (ours) {
                    subject.start().wait();
                } else if (in_a_row) {
                    for (std::size_t i = 0; i < row; ++i) subject.start_raw();
                    raw.wait();
                } else {
                    subject.run_raw();
                }
            });
            subject.verify(ours ? "unisono" : "raw NCCL", round < 0);
        }
        if (me != 0 || round < 0) continue;
        times.call.ours.add(seconds[0]);
        times.call.raw.add(seconds[1]);
        if (!small) continue;
        times.row.ours.add(seconds[2] / static_cast<double>(row));
        times.row.raw.add(seconds[3] / static_cast<double>(row));
    }
}

void compare(int ranks, const bench::Options& options, bench::Report& report) {
    std::vector<std::size_t> sizes{8, 64, 1024, 8192, 65536};
    if (!instant)
        for (const std::size_t mebibytes : {1u, 4u, 16u, 64u, 256u}) sizes.push_back(mebibytes * 1048576);
    report.header({std::to_string(ranks) + (ranks == 1 ? " rank, us" : " ranks, us"), "unisono", "spread", "raw NCCL",
                   "ratio", "paired", "best quarter", "more", "goal"});
    for (const Case& one : cases) {
        if (!options.only.empty() && options.only != one.name) continue;
        for (const std::size_t size : sizes) {
            if (options.quick && size > 1048576) continue;
            const std::size_t bytes = std::max(size, static_cast<std::size_t>(ranks) * sizeof(float));
            const int rounds = options.quick ? 5 : size <= 65536 ? 200 : size <= 16777216 ? 40 : 12;
            bench::Meeting meeting(ranks);
            Both times;
            ncclUniqueId id;
            check(ncclGetUniqueId(&id), "ncclGetUniqueId");
            const auto body = [&](World& world) {
                const un::detail::CudaDeviceGuard here(world.endpoint().device());
                const un::detail::CudaStream stream = un::detail::CudaStream::make();
                Raw raw(ranks, id, world.rank(), stream.get());
                measure(world, raw, meeting, one, bytes, rounds, times);
            };
            un::run<un::Nccl>(ranks, body);
            const bool small = size <= 65536;
            const std::string what = std::string(one.name) + " " + bench::in_words(bytes);
            report.compare(what, times.call.ours, {times.call.raw}, small ? 2.0 : 1.01, small ? "us" : "x");
            if (small) report.compare(what + ", row", times.row.ours, {times.row.raw}, 2.0, "us");
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "%s: no GPU is here, so there is nothing to measure\n", argv[0]);
        return 2;
    }
    bench::Report report(instant ? "gpu, calls over an instant stand-in (no GPU: the host's part alone)" : "gpu, calls",
                         options);
    if (instant) compare(1, options, report);
    compare(instant ? 2 : devices, options, report);
}
