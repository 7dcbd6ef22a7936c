// Run by mpirun of each MPI: ranks with devices, whose memory is given to MPI's own collectives as
// it is. The devices are a stand-in (tests/nccl/stand_in), whose memory must not be touched until a
// test opens it, as for a CUDA-aware MPI. No MPI in the tests is CUDA-aware, so the ranks claim
// that MPI accesses device memory. Rank 0 prints "ok", or each rank what is wrong.
//     device               everything that ends well
//     device asked         what the ranks' MPIs report, and unsuitable requests: each rank fails
//     device absent        rank 1 has no such device: each rank fails
//     device mismatch      ranks sum different numbers of elements: all ranks fail
//     device silent_inside rank 1 begins MPI's own collective with all others and polls no more:
//                          timeout
//     device no_room       memory that the group did not allocate needs room on the full device
#include <unisono/cuda.hpp>
#include <unisono/mpi.hpp>
#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Mpi>
#include "device/on_device.hpp"

#include "trainer/models.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

namespace un = unisono;
using test::download;
using test::Group;
using test::upload;
using Device = un::Cuda<un::Mpi>;
using Wish = un::DeviceTransfers;

constexpr un::NativeSchedule own{.transports_own_bytes = 0}; // MPI's, at any size

void require(bool condition, const std::string& what) {
    if (!condition) throw std::runtime_error("wrong: " + what);
}

/// Opens the device's memory, and reports which way the data of `body` took.
void goes(bool direct, std::size_t within, const std::string& what, const std::function<void()>& body) {
    stand_in::open_to_all(direct);
    const stand_in::Counts before = stand_in::counts();
    body();
    const stand_in::Counts after = stand_in::counts();
    stand_in::open_to_all(false);
    const std::size_t bus = after.bytes_to_host - before.bytes_to_host + after.bytes_to_device - before.bytes_to_device;
    require((bus == 0) == direct, what + (direct ? ": bytes crossed the bus" : ": no byte crossed the bus"));
    if (direct)
        require(after.bytes_within - before.bytes_within == within,
                what + ": " + std::to_string(after.bytes_within - before.bytes_within) +
                    " bytes moved on the device, not " + std::to_string(within));
}

/// Memory of the device that the group does not know.
template <class T>
class Unknown {
public:
    explicit Unknown(const std::vector<T>& values) : count_(values.size()) {
        un::detail::check_cuda(cudaMalloc(&memory_, count_ * sizeof(T)), "cudaMalloc");
        un::detail::check_cuda(cudaMemcpy(memory_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
                               "cudaMemcpy");
    }
    Unknown(const Unknown&) = delete;
    Unknown& operator=(const Unknown&) = delete;
    ~Unknown() { cudaFree(memory_); }
    [[nodiscard]] un::DeviceSpan<T> span() const { return {static_cast<T*>(memory_), count_}; }

private:
    void* memory_ = nullptr;
    std::size_t count_;
};

template <class T>
std::vector<T> values(int rank, std::size_t count) {
    std::vector<T> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<T>((i + static_cast<std::size_t>(rank)) % 3 + 1);
    return made;
}

template <class T, class Op>
void reductions(Group& world, const Op& op, std::size_t block) {
    const auto p = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    const std::size_t count = block * p, bytes = count * sizeof(T);
    const std::vector<T> mine = values<T>(world.rank(), count);
    std::vector<T> sum = values<T>(0, count);
    for (int rank = 1; rank < world.size(); ++rank) {
        const std::vector<T> other = values<T>(rank, count);
        for (std::size_t i = 0; i < count; ++i) sum[i] = op(sum[i], other[i]);
    }
    const std::vector<T> part(sum.begin() + static_cast<std::ptrdiff_t>(block * me),
                              sum.begin() + static_cast<std::ptrdiff_t>(block * (me + 1)));
    const auto in = upload(world, mine), out = upload(world, std::vector<T>(count)),
               own_part = upload(world, std::vector<T>(block));
    goes(true, bytes, "all_reduce", [&] { un::all_reduce(world, in.span(), out.span(), op, own); });
    require(download(out.span()) == sum && download(in.span()) == mine, "all_reduce");
    goes(true, 0, "reduce_scatter", [&] { un::reduce_scatter(world, in.span(), own_part.span(), op, {}, own); });
    require(download(own_part.span()) == part, "reduce_scatter");
    for (int root = 0; root < world.size(); ++root) {
        const auto at_root = upload(world, std::vector<T>(count));
        goes(true, world.rank() == root ? bytes : 0, "reduce",
             [&] { un::reduce(world, in.span(), at_root.span(), root, op, own); });
        require(download(at_root.span()) == (world.rank() == root ? sum : std::vector<T>(count)), "reduce");
    }
    goes(true, 0, "all_reduce in place", [&] { un::all_reduce(world, in.span(), op, own); });
    require(download(in.span()) == sum, "all_reduce in place");
    const Unknown<T> unknown(mine);
    goes(true, 2 * bytes, "all_reduce of unknown memory", [&] { un::all_reduce(world, unknown.span(), op, own); });
    require(download(unknown.span()) == sum, "all_reduce of unknown memory");
}

/// Blocks of one size, or of rank r's own: r times `block`.
void blocks(Group& world, std::size_t block, bool equal) {
    const auto p = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    std::vector<std::size_t> counts, begins{0};
    for (std::size_t rank = 0; rank < p; ++rank) {
        counts.push_back(equal ? block : rank * block);
        begins.push_back(begins.back() + counts.back());
    }
    const std::span<const std::size_t> table = equal ? std::span<const std::size_t>() : counts;
    const std::vector<std::int32_t> expected = values<std::int32_t>(7, begins.back());
    const std::vector<std::int32_t> part(expected.begin() + static_cast<std::ptrdiff_t>(begins[me]),
                                         expected.begin() + static_cast<std::ptrdiff_t>(begins[me + 1]));
    const std::vector<std::int32_t> nothing(expected.size());
    const auto mine = upload(world, part), all = upload(world, nothing);
    goes(true, 0, "all_gather", [&] { un::all_gather(world, mine.span(), all.span(), table, own); });
    require(download(all.span()) == expected, "all_gather");
    const auto inside = upload(world, nothing); // MPI forbids that input and output overlap
    const un::DeviceSpan<std::int32_t> place = inside.span().subspan(begins[me], counts[me]);
    un::detail::check_cuda(cudaMemcpy(place.data(), part.data(), part.size() * 4, cudaMemcpyHostToDevice),
                           "cudaMemcpy");
    goes(true, counts[me] * 4, "all_gather in place", [&] { un::all_gather(world, place, inside.span(), table, own); });
    require(download(inside.span()) == expected, "all_gather in place");
    for (int root = 0; root < world.size(); ++root) {
        const bool is_root = world.rank() == root;
        const auto gathered = upload(world, nothing), got = upload(world, std::vector<std::int32_t>(counts[me]));
        goes(true, 0, "gather", [&] { un::gather(world, mine.span(), gathered.span(), root, table, own); });
        require(download(gathered.span()) == (is_root ? expected : nothing), "gather");
        goes(true, 0, "scatter", [&] { un::scatter(world, gathered.span(), got.span(), root, table, own); });
        require(download(got.span()) == part, "scatter");
    }
}

void others(Group& world) {
    const auto p = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    struct Odd { // a type that no library knows
        std::uint8_t bytes[5];
    };
    std::vector<Odd> to(3 * p);
    for (std::size_t i = 0; i < to.size(); ++i) to[i].bytes[4] = static_cast<std::uint8_t>(16 * me + i / 3);
    const auto from = upload(world, to), arrived = upload(world, std::vector<Odd>(3 * p));
    goes(true, 0, "all_to_all", [&] { un::all_to_all(world, from.span(), arrived.span(), {}, {}, own); });
    const std::vector<Odd> found = download(arrived.span());
    for (std::size_t i = 0; i < found.size(); ++i) require(found[i].bytes[4] == 16 * (i / 3) + me, "all_to_all");
    for (int root = 0; root < world.size(); ++root) {
        const auto data = upload(world, values<double>(world.rank(), 1000));
        goes(true, 0, "broadcast", [&] { un::broadcast(world, data.span(), root, own); });
        require(download(data.span()) == values<double>(root, 1000), "broadcast");
    }
    const Unknown<float> unknown(values<float>(world.rank(), 1000)), block(std::vector<float>(1000 / p * p / p));
    const std::size_t cut = block.span().size() * p;
    goes(true, 4 * cut + 8 * block.span().size() - 4 * block.span().size(), "reduce_scatter of unknown memory",
         [&] { un::reduce_scatter(world, unknown.span().subspan(0, cut), block.span(), un::Sum{}, {}, own); });
    // Through the host: what MPI could do only with host code, a schedule that is named, and small
    // data.
    const auto data = upload(world, std::vector<float>(1000, 1.0f));
    const auto half = upload(world, std::vector<un::bfloat16>(1000, un::bfloat16(1.0f)));
    goes(false, 0, "bf16", [&] { un::all_reduce(world, half.span(), un::Sum{}, own); });
    goes(false, 0, "greatest of floats", [&] { un::all_reduce(world, data.span(), un::Max{}, own); });
    goes(false, 0, "a ring", [&] { un::all_reduce(world, data.span(), un::Sum{}, un::RingSchedule{}); });
    goes(false, 0, "small data", [&] { un::all_reduce(world, data.span()); });
    require(download(data.span()) == std::vector<float>(1000, static_cast<float>(p * p)), "two sums");
    const auto mean = upload(world, std::vector<double>(1000, world.rank() + 1.0));
    goes(false, 0, "a weighted mean",
         [&] { un::all_reduce(world, mean.span(), un::WeightedMean{.weight = world.rank() == 0 ? 1.0 : 0.0}, own); });
    require(download(mean.span())[999] == 1.0, "a weighted mean");
    Group part = world.split(world.rank() % 2, world.rank());
    const auto ones = upload(world, std::vector<float>(1000, 1.0f));
    if (part.size() > 1)
        goes(false, 0, "half of the world", [&] { un::all_reduce(part, ones.span(), un::Sum{}, own); });
}

/// MPI knows no streams. It begins after the work on them, and their later work begins after it.
void streams(Group& world) {
    const un::detail::CudaStream mine = un::detail::CudaStream::make();
    const auto data = upload(world, std::vector<float>(2000, 1.0f)),
               other = upload(world, std::vector<float>(2000, 1.0f));
    const Unknown<float> unknown(std::vector<float>(2000, 1.0f));
    auto* const seen = reinterpret_cast<float*>(stand_in::seen_by_host(data.data()));
    const auto p = static_cast<float>(world.size());
    std::atomic<bool> open = false;
    stand_in::open_to_all(true);
    const auto add = [&](cudaStream_t stream, float number, bool waits) {
        stand_in::launch(stream, [&open, seen, number, waits] {
            for (int i = 0; i < 6000 && waits && !open; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
            for (std::size_t i = 0; i < 2000; ++i) seen[i] += number;
        });
    };
    add(mine.get(), 2, true);
    un::Operation before = un::start_all_reduce(world, other.span(), un::Sum{}, own);
    un::after(world, mine.get());
    un::Operation sum = un::start_all_reduce(world, data.span(), un::Sum{}, own);
    un::Operation ring = un::start_all_reduce(world, data.span(), un::Sum{}, un::RingSchedule{.chunk_bytes = 1000});
    // Of what the other two leave.
    un::Operation again = un::start_all_reduce(world, data.span(), un::Sum{}, own);
    before.wait(); // not after a later operation
    require(download(other.span())[1999] == p, "the one before");
    for (int i = 0; i < 300; ++i) require(!sum.poll() && !ring.poll() && !again.poll(), "done before its time");
    open = true;
    again.then(mine.get());
    add(mine.get(), 1, false);
    un::detail::check_cuda(cudaStreamSynchronize(mine.get()), "cudaStreamSynchronize");
    require(download(data.span()) == std::vector<float>(2000, 3 * p * p * p + 1), "sums of sums, between kernels");
    again.wait();
    ring.wait();
    sum.wait();
    open = false;
    add(world.endpoint().stream(), 1, true); // on the library's own stream
    un::Operation last = un::start_all_reduce(world, data.span(), un::Sum{}, own);
    un::Operation copied = un::start_all_reduce(world, unknown.span(), un::Sum{}, own);
    for (int i = 0; i < 300; ++i) require(!last.poll() && !copied.poll(), "not behind the library's stream");
    open = true;
    copied.then(mine.get());
    copied.wait();
    last.wait();
    require(download(data.span())[0] == (3 * p * p * p + 2) * p && download(unknown.span())[1999] == p,
            "behind kernels");
    un::detail::check_cuda(cudaStreamSynchronize(mine.get()), "cudaStreamSynchronize");
    stand_in::open_to_all(false);
}

std::vector<float> numbers(std::size_t count) {
    std::vector<float> made(count);
    un::Mt19937 generator(static_cast<std::uint32_t>(count));
    un::torch_rand(generator, std::span<float>(made));
    return made;
}

constexpr std::size_t width = 20000, rows = 16; // 80 kB: large enough for MPI's own collective
constexpr std::size_t updates = 2 * rows / 2 / 2;

template <class World>
std::vector<float> trained(World& world) {
    unisono_test::LeastSquares<float> model(width, 7000);
    const std::vector<float> x = numbers(rows * width), y = numbers(rows);
    const un::RowData data(x, width, y);
    const auto fit = [&](auto& any) {
        un::Trainer trainer{world, any, un::DistributedSampler{.shuffle = true, .seed = 1},
                            un::Adam{.learning_rate = 0.05}};
        trainer.fit(data, {.epochs = 2, .batch_size = 2, .progress = false});
        trainer.verify_replicas();
    };
    if constexpr (un::streaming_transport<typename World::transport_type>) {
        test::OnDevice on_device(world, model);
        stand_in::open_to_all(true);
        const stand_in::Counts before = stand_in::counts();
        fit(on_device);
        const stand_in::Counts after = stand_in::counts();
        stand_in::open_to_all(false);
        require(after.bytes_to_host - before.bytes_to_host < updates * width * sizeof(float),
                "gradients crossed the bus");
        return on_device.values();
    } else {
        fit(model);
        return model.values();
    }
}

/// A sum of two ranks has only one order, so a training has the same bits as on the host.
void training(Group& world) {
    const std::vector<float> found = trained(world);
    auto host = un::adopt(MPI_COMM_WORLD);
    const std::vector<float> expected = trained(host);
    require(found.size() == expected.size() && found != std::vector<float>(found.size()), "a training");
    if (world.size() <= 2)
        require(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0,
                "the bits of a training");
}

Group make(Wish wish, int device = 0) {
    Group world(Device(un::Mpi::adopt(MPI_COMM_WORLD), device, {.transfers = wish}));
    world.set_timeout(std::chrono::seconds(30));
    return world;
}

/// The conclusion of all ranks from what each one reports.
void verdicts() {
    using Card = un::detail::MpiDeviceCard;
    const auto card = [](Wish wish, bool able, const char* library, const char* why, const char* problem) {
        Card made{.wish = wish, .able = able};
        Card::write(made.library, library);
        Card::write(made.why, why);
        Card::write(made.problem, problem);
        return made;
    };
    const Card yes = card(Wish::automatic, true, "A", "", ""), no = card(Wish::automatic, false, "B", "not aware", "");
    const Card asks = card(Wish::direct, false, "C", "", ""), staged = card(Wish::staged, true, "D", "", "");
    const Card broken = card(Wish::direct, true, "E", "", "no device");
    const auto verdict = [](const std::vector<Card>& cards) -> std::string {
        try {
            return un::detail::takes_device_memory(std::span<const Card>(cards)) ? "direct" : "staged";
        } catch (const un::error& refused) {
            return refused.what();
        }
    };
    require(verdict({yes, yes}) == "direct" && verdict({asks, asks}) == "direct" && verdict({asks, yes}) == "direct",
            "direct");
    require(verdict({yes, no}) == "staged" && verdict({yes, staged}) == "staged", "staged");
    require(test::mentions(verdict({no, asks}), {"rank 1 (C) asks", "rank 0 has B: not aware"}), "one cannot");
    require(test::mentions(verdict({asks, staged}), {"rank 0 asks", "rank 1 for staged"}), "two wishes");
    require(test::mentions(verdict({asks, broken}), {"rank 1: no device"}), "one is broken");
    require(un::CudaOptions<un::Mpi>{}.with({{"UNISONO_DEVICE_TRANSFERS", "direct"}}).transfers == Wish::direct,
            "environment");
    try {
        static_cast<void>(un::CudaOptions<un::Mpi>{}.with({{"UNISONO_DEVICE_TRANSFERS", "sometimes"}}));
        require(false, "sometimes");
    } catch (const un::error& refused) {
        require(test::mentions(refused.what(), {"UNISONO_DEVICE_TRANSFERS", "sometimes"}), "sometimes");
    }
}

void everything() {
    verdicts();
    {
        Group world = make(Wish::direct);
        if (world.size() > 1) {
            for (const std::size_t block : {std::size_t{1}, std::size_t{333}}) {
                reductions<float>(world, un::Sum{}, block);
                reductions<std::int32_t>(world, un::Max{}, block);
                blocks(world, block, true);
                blocks(world, block, false);
            }
            reductions<double>(world, un::Product{}, 5);
            others(world);
        }
        streams(world);
        training(world);
    }
    require(stand_in::counts().device_bytes == 0 && stand_in::counts().pinned_bytes == 0, "something is left");
}

/// Each rank prints its error.
void failing(const std::string& what, int rank) {
    if (what == "asked") { // an MPI that does not accept device memory gets none
        Group world = make(Wish::automatic);
        const auto data = upload(world, std::vector<float>(100'000, 1.0f));
        goes(false, 0, "a sum", [&] { un::all_reduce(world, data.span()); });
        require(download(data.span())[99'999] == static_cast<float>(world.size()), "a sum");
    }
    if (what == "asked") return static_cast<void>(make(rank == 1 ? Wish::direct : Wish::automatic));
    if (what == "absent") return static_cast<void>(make(Wish::direct, rank == 1 ? 99 : 0));
    Group world = make(Wish::direct);
    if (what == "silent_inside") world.set_timeout(std::chrono::seconds(1));
    stand_in::open_to_all(true);
    if (what == "no_room") {
        const Unknown<float> unknown(std::vector<float>(100'000, 1.0f));
        const stand_in::Scene scene({.memory = rank == 1 ? std::size_t{1000} : std::size_t{1} << 30});
        un::all_reduce(world, unknown.span());
        un::barrier(world);
        return;
    }
    const std::size_t count = what == "mismatch" && rank == 1 ? 100'001 : 2'000'000;
    const auto data = upload(world, std::vector<float>(count, 1.0f));
    un::Operation sum = un::start_all_reduce(world, data.span());
    if (what == "silent_inside" && rank == 1) {
        // Until it has begun the first, after the agreement.
        while (!world.endpoint().is_turn_of(2)) sum.poll();
        std::this_thread::sleep_for(std::chrono::seconds(5));
    }
    sum.wait();
    std::printf("rank %d saw nothing\n", rank);
}

} // namespace

int main(int argc, char** argv) {
    ::alarm(120);
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int status = 1;
    try {
        if (argc > 1) failing(argv[1], rank);
        else everything();
        if (argc == 1 && rank == 0) std::puts("ok");
        status = 0;
    } catch (const un::error& told) {
        std::printf("rank %d told: %s\n", rank, told.what());
        status = argc > 1 ? 0 : 1;
    } catch (const std::exception& failed) {
        std::printf("failed: %s\n", failed.what());
    }
    std::fflush(stdout);
    MPI_Finalize();
    return status;
}
