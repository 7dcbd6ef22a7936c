// Run by mpirun of each MPI: ranks with devices, whose data pass through the host. The devices are
// a stand-in (tests/extensions/nccl/stand_in), whose memory the host must not touch. Rank 0 prints
// "ok", or each rank what is wrong.
//     device               everything that ends well
//     device absent        rank 1 has no such device: it says so
//     device mismatch      ranks sum different numbers of elements: all ranks fail
#include <unisono/cuda.hpp>
#include <unisono/mpi.hpp>
#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Cuda<unisono::Mpi>
#include "extensions/device/on_device.hpp"

#include "base/trainer/models.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

namespace un = unisono;
using test::download;
using test::Group;
using test::upload;
using Device = un::Cuda<un::Mpi>;

void require(bool condition, const std::string& what) {
    if (!condition) throw std::runtime_error("wrong: " + what);
}

template <class T>
std::vector<T> values(int rank, std::size_t count) {
    std::vector<T> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = static_cast<T>((i + static_cast<std::size_t>(rank)) % 3 + 1);
    return made;
}

template <class T, class Op>
void reductions(Group& world, const Op& op, std::size_t block) {
    const auto p = static_cast<std::size_t>(world.size()), me = static_cast<std::size_t>(world.rank());
    const std::size_t count = block * p;
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
    un::all_reduce(world, in.span(), out.span(), op);
    require(download(out.span()) == sum && download(in.span()) == mine, "all_reduce");
    un::reduce_scatter(world, in.span(), own_part.span(), op, {});
    require(download(own_part.span()) == part, "reduce_scatter");
    for (int root = 0; root < world.size(); ++root) {
        const auto at_root = upload(world, std::vector<T>(count));
        un::reduce(world, in.span(), at_root.span(), root, op);
        require(download(at_root.span()) == (world.rank() == root ? sum : std::vector<T>(count)), "reduce");
    }
    un::all_reduce(world, in.span(), op);
    require(download(in.span()) == sum, "all_reduce in place");
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
    un::all_gather(world, mine.span(), all.span(), table);
    require(download(all.span()) == expected, "all_gather");
    const auto inside = upload(world, nothing); // input and output overlap
    const un::DeviceSpan<std::int32_t> place = inside.span().subspan(begins[me], counts[me]);
    un::detail::check_cuda(cudaMemcpy(place.data(), part.data(), part.size() * 4, cudaMemcpyHostToDevice),
                           "cudaMemcpy");
    un::all_gather(world, place, inside.span(), table);
    require(download(inside.span()) == expected, "all_gather in place");
    for (int root = 0; root < world.size(); ++root) {
        const bool is_root = world.rank() == root;
        const auto gathered = upload(world, nothing), got = upload(world, std::vector<std::int32_t>(counts[me]));
        un::gather(world, mine.span(), gathered.span(), root, table);
        require(download(gathered.span()) == (is_root ? expected : nothing), "gather");
        un::scatter(world, gathered.span(), got.span(), root, table);
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
    un::all_to_all(world, from.span(), arrived.span(), {}, {});
    const std::vector<Odd> found = download(arrived.span());
    for (std::size_t i = 0; i < found.size(); ++i) require(found[i].bytes[4] == 16 * (i / 3) + me, "all_to_all");
    for (int root = 0; root < world.size(); ++root) {
        const auto data = upload(world, values<double>(world.rank(), 1000));
        un::broadcast(world, data.span(), root);
        require(download(data.span()) == values<double>(root, 1000), "broadcast");
    }
    const auto data = upload(world, std::vector<float>(1000, 1.0f));
    const auto half = upload(world, std::vector<un::bfloat16>(1000, un::bfloat16(1.0f)));
    un::all_reduce(world, half.span(), un::Sum{});
    un::all_reduce(world, data.span(), un::Max{});
    un::all_reduce(world, data.span(), un::Sum{}, un::RingSchedule{});
    un::all_reduce(world, data.span());
    require(download(data.span()) == std::vector<float>(1000, static_cast<float>(p * p)), "two sums");
    const auto mean = upload(world, std::vector<double>(1000, world.rank() + 1.0));
    un::all_reduce(world, mean.span(), un::WeightedMean{.weight = world.rank() == 0 ? 1.0 : 0.0});
    require(download(mean.span())[999] == 1.0, "a weighted mean");
    Group part = world.split(world.rank() % 2, world.rank());
    const auto ones = upload(world, std::vector<float>(1000, 1.0f));
    un::all_reduce(part, ones.span(), un::Sum{});
    require(download(ones.span())[999] == static_cast<float>(part.size()), "half of the world");
}

std::vector<float> numbers(std::size_t count) {
    std::vector<float> made(count);
    un::Mt19937 generator(static_cast<std::uint32_t>(count));
    un::torch_rand(generator, std::span<float>(made));
    return made;
}

constexpr std::size_t width = 20000, rows = 16; // 80 kB

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
        fit(on_device);
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

Group make(int device = 0) {
    Group world(Device(un::Mpi::adopt(MPI_COMM_WORLD), device));
    world.set_timeout(std::chrono::seconds(30));
    return world;
}

void everything() {
    {
        Group world = make();
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
        training(world);
    }
    require(stand_in::counts().device_bytes == 0 && stand_in::counts().pinned_bytes == 0, "something is left");
}

/// Each rank prints its error.
void failing(const std::string& what, int rank) {
    if (what == "absent") return static_cast<void>(make(rank == 1 ? 99 : 0));
    Group world = make();
    const std::size_t count = what == "mismatch" && rank == 1 ? 100'001 : 2'000'000;
    const auto data = upload(world, std::vector<float>(count, 1.0f));
    un::Operation sum = un::start_all_reduce(world, data.span());
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
