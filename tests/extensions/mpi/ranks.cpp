// Run by mpirun of each MPI: worlds of MPI's ranks do what worlds of threads do. Rank 0 prints
// "ok", or each rank what is wrong.
//     ranks            everything that ends well
//     ranks mismatch   ranks call different collectives: all ranks fail
//     ranks throws     rank 1 throws: all ranks fail
//     ranks silent     rank 1 takes no part: timeout
//     ranks mismatch_large, silent_large  the same with payloads that follow their headers
//     ranks silent_inside  rank 1 begins a large sum and polls no more: timeout
#include "unisono/mpi.hpp"
#include "unisono/unisono.hpp"

#include "base/trainer/models.hpp"

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

template <class T>
T value(std::size_t i, int rank) {
    return static_cast<T>(static_cast<float>((i + static_cast<std::size_t>(rank)) % 3 + 1));
}

template <class T>
bool same(const T& a, const T& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Sums of small whole numbers are exact in any order.
template <class T, class Op>
void reductions(un::Group<un::Mpi>& world, const Op& op, std::size_t block) {
    const auto p = static_cast<std::size_t>(world.size());
    const std::size_t count = block * p;
    const auto sum = [&](std::size_t i) {
        T all = value<T>(i, 0);
        for (int rank = 1; rank < world.size(); ++rank) all = op(all, value<T>(i, rank));
        return all;
    };
    std::vector<T> in(count), out(count), mine(block);
    un::Memory<T> memory = world.allocate<T>(count);
    const std::span<T> shared(memory.data(), count);
    for (std::size_t i = 0; i < count; ++i) in[i] = value<T>(i, world.rank());
    un::all_reduce(world, in, out, op);
    for (std::size_t i = 0; i < count; ++i) require(same(out[i], sum(i)), "all_reduce");
    std::copy(in.begin(), in.end(), shared.begin());
    un::all_reduce(world, shared, op);
    for (std::size_t i = 0; i < count; ++i) require(same(shared[i], sum(i)), "all_reduce in place, in shared memory");
    un::reduce_scatter(world, in, mine, op);
    for (std::size_t i = 0; i < block; ++i)
        require(same(mine[i], sum(i + block * static_cast<std::size_t>(world.rank()))), "reduce_scatter");
    for (int root = 0; root < world.size(); ++root) {
        std::fill(out.begin(), out.end(), T{});
        un::reduce(world, in, out, root, op);
        for (std::size_t i = 0; i < count; ++i) require(same(out[i], world.rank() == root ? sum(i) : T{}), "reduce");
    }
}

/// Blocks of one size, or of rank r's own (r + 1 times `block`): in memory of the program, and in
/// place in the group's.
void blocks(un::Group<un::Mpi>& world, std::size_t block, bool equal) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<std::size_t> counts, begins{0};
    for (std::size_t rank = 0; rank < p; ++rank) {
        counts.push_back(equal ? block : (rank + 1) * block);
        begins.push_back(begins.back() + counts.back());
    }
    const std::span<const std::size_t> table = equal ? std::span<const std::size_t>() : counts;
    const std::size_t total = begins.back();
    std::vector<std::int32_t> own(counts[me]), all(total);
    const auto element = [](std::size_t i) { return static_cast<std::int32_t>(7 * i + 1); };
    for (std::size_t i = 0; i < counts[me]; ++i) own[i] = element(begins[me] + i);
    un::all_gather(world, own, all, table);
    for (std::size_t i = 0; i < total; ++i) require(all[i] == element(i), "all_gather");
    un::Memory<std::int32_t> memory = world.allocate<std::int32_t>(total); // in place
    const std::span<std::int32_t> shared(memory.data(), total);
    const std::span<std::int32_t> inside = shared.subspan(begins[me], counts[me]);
    std::copy(own.begin(), own.end(), inside.begin());
    un::all_gather(world, inside, shared, table);
    for (std::size_t i = 0; i < total; ++i) require(shared[i] == element(i), "all_gather in place");
    un::reduce_scatter(world, shared, inside, un::Sum{}, table);
    for (std::size_t i = 0; i < counts[me]; ++i)
        require(inside[i] == world.size() * element(begins[me] + i), "reduce_scatter in place");
    for (int root = 0; root < world.size(); ++root) {
        std::fill(all.begin(), all.end(), 0);
        un::gather(world, own, all, root, table);
        for (std::size_t i = 0; i < total; ++i) require(all[i] == (world.rank() == root ? element(i) : 0), "gather");
        std::vector<std::int32_t> got(counts[me]);
        un::scatter(world, all, got, root, table);
        require(got == own, "scatter");
    }
}

/// A type that no library knows.
struct Odd {
    std::uint8_t bytes[5];
};

void all_to_all_of(un::Group<un::Mpi>& world, std::size_t block) {
    const auto p = static_cast<std::size_t>(world.size());
    const auto me = static_cast<std::size_t>(world.rank());
    std::vector<Odd> to(block * p), from(block * p);
    for (std::size_t i = 0; i < to.size(); ++i)
        to[i].bytes[4] = static_cast<std::uint8_t>(16 * me + i / block); // sender and receiver
    un::all_to_all(world, to, from);
    for (std::size_t i = 0; i < from.size(); ++i)
        require(from[i].bytes[4] == static_cast<std::uint8_t>(16 * (i / block) + me), "all_to_all");
}

/// Blocks whose payloads travel with their headers, and blocks whose payloads follow them.
void all_sizes(un::Group<un::Mpi>& world) {
    for (const std::size_t block : {std::size_t{1}, std::size_t{333}, std::size_t{20000}}) {
        reductions<float>(world, un::Sum{}, block);
        reductions<float>(world, un::Max{}, block);
        reductions<double>(world, un::Product{}, block);
        reductions<std::int64_t>(world, un::Sum{}, block);
        reductions<std::uint8_t>(world, un::Min{}, block);
        reductions<un::bfloat16>(world, un::Sum{}, block);
        blocks(world, block, true);
        blocks(world, block, false);
        all_to_all_of(world, block);
    }
    std::vector<double> mean(10, world.rank() + 1.0);
    un::all_reduce(world, mean, un::WeightedMean{.weight = static_cast<double>(world.rank() + 1)});
    double sum = 0, weights = 0;
    for (int rank = 1; rank <= world.size(); ++rank) sum += rank * rank, weights += rank;
    require(std::abs(mean[9] - sum / weights) < 1e-12, "weighted mean");
    // Many in flight, waited for in another order on each rank.
    std::vector<std::vector<std::int64_t>> many;
    std::vector<un::Operation> operations;
    for (std::size_t i = 0; i < 20; ++i) many.emplace_back(i % 4 == 0 ? 20000 : 500, 1);
    for (std::size_t i = 0; i < many.size(); ++i)
        operations.push_back(i % 3 == 0 ? un::start_all_reduce(world, many[i], un::Sum{}, un::RingSchedule{})
                                        : un::start_all_reduce(world, many[i]));
    for (std::size_t i = many.size(); i-- > 0;) operations[world.rank() % 2 == 0 ? i : many.size() - 1 - i].wait();
    for (const auto& one : many) require(one.front() == world.size() && one.back() == world.size(), "many in flight");
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

/// A sum of numbers that differ on each rank and whose sums are rounded.
template <class World, class Schedule>
std::vector<float> summed(World& world, std::size_t count, const Schedule& schedule) {
    std::vector<float> values(count);
    un::Mt19937 generator(static_cast<std::uint32_t>(world.rank()) + 1);
    un::torch_rand(generator, std::span<float>(values));
    un::all_reduce(world, values, un::Sum{}, schedule);
    return values;
}

/// The schedule `ours` over MPI has the bits of `theirs` on the same number of threads.
template <class Ours, class Theirs>
void same_sums(un::Group<un::Mpi>& world, std::size_t count, const Ours& ours, const Theirs& theirs) {
    const std::vector<float> found = summed(world, count, ours);
    std::vector<float> expected;
    un::run<un::InProcess>(world.size(), [&](auto& threads) {
        const auto mine = summed(threads, count, theirs);
        if (threads.rank() == 0) expected = mine;
    });
    require(std::memcmp(found.data(), expected.data(), count * sizeof(float)) == 0, "the bits of a sum");
}

void bits_of_sums(un::Group<un::Mpi>& world) {
    const un::NativeSchedule native;
    for (const std::size_t count : {250u, 16384u, 65537u, 500000u}) { // 16384 floats are 64 KiB
        same_sums(world, count, un::RingSchedule{}, un::RingSchedule{});
        same_sums(world, count, un::HalvingDoublingSchedule{}, un::HalvingDoublingSchedule{});
        same_sums(world, count, un::TreeSchedule{}, un::TreeSchedule{});
        // Threads have mapped memory, whose native schedule is another one than over messages.
        if (count * sizeof(float) / static_cast<std::size_t>(world.size()) < native.ring_bytes)
            same_sums(world, count, native, un::HalvingDoublingSchedule{});
        else same_sums(world, count, native, un::RingSchedule{});
    }
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
        all_sizes(world);
        bits_of_sums(world);
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
        if (what == "silent_inside") {
            std::vector<float> values(2'000'000, 1.0f);
            un::Operation sum = un::start_all_reduce(world, values);
            if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(5));
            sum.wait();
            std::printf("rank %d saw nothing\n", world.rank());
            return 0;
        }
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
