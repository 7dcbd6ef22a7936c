// Run by mpirun of each MPI: worlds of MPI's ranks do what worlds of threads do. Rank 0 prints
// "ok", or each rank what is wrong.
//     ranks            everything that ends well
//     ranks mismatch   ranks call different collectives: all ranks fail
//     ranks throws     rank 1 throws: all ranks fail
//     ranks silent     rank 1 takes no part: timeout
//     ranks mismatch_large, silent_large  the same with payloads that follow their headers
#include "unisono/mpi.hpp"
#include "unisono/unisono.hpp"

#include "trainer/models.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

namespace un = unisono;
using unisono_test::LeastSquares;

void require(bool condition, const char* what) {
    if (!condition) throw std::runtime_error(std::string("wrong: ") + what);
}

template <class Schedule>
void sums(un::Group<un::Mpi>& world, std::size_t count, const Schedule& schedule) {
    std::vector<std::int64_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int64_t>(i % 1000) * (world.rank() + 1);
    un::all_reduce(world, values, un::Sum{}, schedule);
    const std::int64_t ranks = world.size();
    for (std::size_t i = 0; i < count; ++i)
        require(values[i] == static_cast<std::int64_t>(i % 1000) * ranks * (ranks + 1) / 2, "a sum");
}

void collectives(un::Group<un::Mpi>& world) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto me = static_cast<std::size_t>(world.rank());
    for (const std::size_t count : {0u, 1u, 7u, 1000u, 2000u, 300000u}) {
        sums(world, count, un::NativeSchedule{});
        sums(world, count, un::RingSchedule{.chunk_bytes = 65536});
        sums(world, count, un::TreeSchedule{});
    }
    std::vector<std::int32_t> all(5 * p), own(5, world.rank());
    un::all_gather(world, own, all);
    for (std::size_t i = 0; i < all.size(); ++i) require(all[i] == static_cast<int>(i / 5), "all_gather");
    std::vector<std::int32_t> to(p), from(p);
    for (std::size_t i = 0; i < p; ++i) to[i] = static_cast<int>(10 * me + i);
    un::all_to_all(world, to, from);
    for (std::size_t i = 0; i < p; ++i) require(from[i] == static_cast<int>(10 * i + me), "all_to_all");
    for (int root = 0; root < world.size(); ++root) {
        std::vector<double> values(3000, world.rank() == root ? root + 0.5 : 0.0);
        un::broadcast(world, values, root);
        require(values.front() == root + 0.5 && values.back() == root + 0.5, "broadcast");
    }
    // Several in flight, waited for in another order, in different groups.
    auto halves = world.split(world.rank() % 2, world.rank());
    std::vector<float> first(50000, 1.0f), second(10, 2.0f);
    un::Operation a = un::start_all_reduce(world, first);
    un::Operation b = un::start_all_reduce(halves, second);
    b.wait();
    a.wait();
    require(first[49999] == static_cast<float>(p) && second[0] == 2.0f * static_cast<float>(halves.size()),
            "in flight");
    if (p > 1) {
        std::vector<std::int32_t> message(20000, world.rank()), other(20000);
        const int next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
        un::Operation sent = un::start_send(world, message, next, 3);
        un::receive(world, other, previous, 3);
        sent.wait();
        require(other[19999] == previous, "send and receive");
    }
    un::barrier(world);
}

std::vector<double> numbers(std::size_t count) {
    std::vector<double> made(count);
    un::Mt19937 generator(count);
    un::torch_rand(generator, std::span<double>(made));
    return made;
}

/// A training has the same bits as on the same number of threads.
template <class World>
std::vector<double> trained(World& world) {
    LeastSquares<double> model(5, 3);
    un::Trainer trainer{world, model, un::DistributedSampler{.shuffle = true, .seed = 1}, un::RingReducer{},
                        un::Adam{.learning_rate = 0.05}};
    const std::vector<double> values = numbers(40 * 5), targets = numbers(40);
    trainer.fit(un::RowData(values, 5, targets), {.epochs = 2, .batch_size = 4, .progress = false});
    trainer.verify_replicas();
    return model.values();
}

void training(un::Group<un::Mpi>& world) {
    const std::vector<double> found = trained(world);
    std::vector<double> expected;
    un::run<un::InProcess>(world.size(), [&](auto& threads) {
        const auto mine = trained(threads);
        if (threads.rank() == 0) expected = mine;
    });
    require(std::memcmp(found.data(), expected.data(), expected.size() * sizeof(double)) == 0,
            "the bits of a training");
}

int work(const std::string& what) {
    auto world = un::adopt(MPI_COMM_WORLD, std::chrono::seconds(what.starts_with("silent") ? 1 : 30));
    if (what.empty()) {
        collectives(world);
        training(world);
        MPI_Comm pair = MPI_COMM_NULL; // also the program's own communicators
        MPI_Comm_split(MPI_COMM_WORLD, world.rank() / 2, 0, &pair);
        {
            auto small = un::adopt(pair);
            sums(small, 4000, un::NativeSchedule{});
        }
        MPI_Comm_free(&pair);
        if (world.rank() == 0) std::puts("ok");
        return 0;
    }
    try {
        if (what == "throws" && world.rank() == 1) throw std::runtime_error("a model of rank 1's own");
        if (what.starts_with("silent") && world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
        const std::size_t count = what.ends_with("_large") ? 100000 : 10;
        std::vector<float> values(what.starts_with("mismatch") && world.rank() == 1 ? count + 1 : count);
        un::all_reduce(world, values);
        un::barrier(world);
        std::printf("rank %d saw nothing\n", world.rank());
    } catch (const un::error& found) {
        std::printf("rank %d told: %s\n", world.rank(), found.what());
    }
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    ::alarm(120);
    int level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    int status = 1;
    try {
        status = work(argc > 1 ? argv[1] : "");
    } catch (const std::exception& failed) {
        std::printf("failed: %s\n", failed.what());
    }
    std::fflush(stdout);
    MPI_Finalize();
    return status;
}
