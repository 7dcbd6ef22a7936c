// Ranks with a device over libfabric, over the stand-in for CUDA.
#pragma once

#include "../nccl/stand_in/stand_in.hpp"

#include <unisono/extensions/network/device_memory.hpp>

/// libfabric finds the stand-in's memory where the stand-in does.
template <>
struct unisono::detail::SightOfDevice<cudaStream_t> {
    static constexpr bool of_host = true;
    static constexpr std::byte* (*seen)(const std::byte*) = [](const std::byte* data) {
        return stand_in::seen_by_host(data);
    };
};

#include <unisono/cuda.hpp>
#include <unisono/libfabric.hpp>

#include "support.hpp"
#include "support/folder.hpp"

#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>

#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace test::device {

namespace un = unisono;
using World = un::Group<un::Cuda<un::Libfabric>>;
static_assert(un::detail::reaches_device_memory<un::Libfabric> && !un::detail::told_of_devices<un::Libfabric>);

inline constexpr un::RunOptions limit{.timeout = std::chrono::seconds(60)};

template <class T>
un::DeviceMemory<T> upload(World& group, const std::vector<T>& values) {
    un::DeviceMemory<T> made = un::allocate_on_device<T>(group, values.size());
    un::detail::check_cuda(cudaMemcpy(made.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
                           "cudaMemcpy");
    return made;
}
template <class T>
std::vector<T> download(un::DeviceSpan<T> values) {
    std::vector<T> made(values.size());
    un::detail::check_cuda(cudaMemcpy(made.data(), values.data(), values.size_bytes(), cudaMemcpyDeviceToHost),
                           "cudaMemcpy");
    return made;
}

/// The error text of each rank; "nothing" for success.
template <class Body>
std::vector<std::string> told(int ranks, Body body, std::chrono::nanoseconds timeout = std::chrono::seconds(60)) {
    std::vector<std::string> words(static_cast<std::size_t>(ranks), "nothing");
    try {
        un::run<un::Cuda<un::Libfabric>>(ranks,
                                         [&](World& world) {
                                             try {
                                                 body(world);
                                             } catch (const std::exception& failed) {
                                                 words[static_cast<std::size_t>(world.rank())] = failed.what();
                                                 throw;
                                             }
                                         },
                                         {.timeout = timeout});
    } catch (const std::exception&) {
    }
    return words;
}

/// Threads that join a world as processes do. Returns "directly", "staged", or the error text of
/// each.
template <class Transfers>
std::vector<std::string> joined(int ranks, Transfers transfers) {
    static int number = 0;
    const unisono_test::Folder folder;
    const std::string job = "job" + std::to_string(++number);
    std::vector<std::string> ends(static_cast<std::size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            std::string& end = ends[static_cast<std::size_t>(rank)];
            try {
                auto world = un::join<un::Cuda<un::Libfabric>>(
                    un::rendezvous(un::identity_of(rank, ranks), {.folder = folder.path(), .job = job},
                                   {.timeout = std::chrono::seconds(60), .linger = std::chrono::seconds(20)}),
                    {.timeout = std::chrono::seconds(60)}, {.transfers = transfers(rank)});
                const auto data = upload(world, std::vector<int>(100'000, world.rank()));
                un::broadcast(world, data.span(), 1);
                if (download(data.span()) != std::vector<int>(100'000, 1)) throw std::runtime_error("wrong data");
                end = world.endpoint().goes_directly() ? "directly" : "staged";
            } catch (const std::exception& failed) {
                end = failed.what();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
}

/// Expects that nothing is left of what a test made.
class Clean {
public:
    Clean() = default;
    Clean(const Clean&) = delete;
    Clean& operator=(const Clean&) = delete;
    ~Clean() {
        const stand_in::Counts now = stand_in::counts();
        BOOST_TEST(now.streams == before_.streams);
        BOOST_TEST(now.events == before_.events);
        BOOST_TEST(now.device_bytes == before_.device_bytes);
        BOOST_TEST(now.pinned_bytes == before_.pinned_bytes);
    }

private:
    stand_in::Counts before_ = stand_in::counts();
};

} // namespace test::device
