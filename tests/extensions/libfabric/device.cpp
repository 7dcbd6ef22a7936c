// Memory of a device over libfabric, over the stand-in for CUDA: the data pass through the host, so
// that the bits are those of the host's collectives.
#include "../nccl/stand_in/stand_in.hpp"

#include <unisono/cuda.hpp>
#include <unisono/libfabric.hpp>

#include "support.hpp"

#include <cstddef>
#include <vector>

namespace libfabric_device_tests {

namespace un = unisono;
using World = un::Group<un::Cuda<un::Libfabric>>;

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

BOOST_AUTO_TEST_SUITE(libfabric_device)

BOOST_AUTO_TEST_CASE(through_the_host) {
    const stand_in::Counts before = stand_in::counts();
    const test::Variable provider("UNISONO_PROVIDER", "net");
    const test::Variable pieces("UNISONO_PIECE_BYTES", "100000");
    test::Findings findings;
    un::run<un::Cuda<un::Libfabric>>(
        3,
        [&](World& world) {
            constexpr std::size_t count = 120'000; // 480 kB: several pieces
            const auto own = oracle::contribution<float>(world.rank(), count);
            auto sum = own;
            un::all_reduce(world, sum, un::Sum{}, un::RingSchedule{.chunk_bytes = 100'000});
            const auto data = upload(world, own);
            un::all_reduce(world, data.span(), un::Sum{}, un::RingSchedule{.chunk_bytes = 100'000});
            findings.expect(download(data.span()) == sum, "all_reduce");
            const auto all = upload(world, std::vector<float>(3 * count));
            const auto mine = upload(world, own);
            un::all_gather(world, mine.span(), all.span());
            std::vector<float> expected(3 * count);
            un::all_gather(world, std::span<const float>(own), std::span<float>(expected));
            findings.expect(download(all.span()) == expected, "all_gather");
            un::broadcast(world, mine.span(), 2);
            findings.expect(download(mine.span()) == oracle::contribution<float>(2, count), "broadcast");
        },
        {.timeout = std::chrono::seconds(60)});
    BOOST_TEST(stand_in::counts().device_bytes == before.device_bytes);
    BOOST_TEST(stand_in::counts().pinned_bytes == before.pinned_bytes);
}

BOOST_AUTO_TEST_SUITE_END()

} // namespace libfabric_device_tests
