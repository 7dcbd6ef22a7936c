// Shared by the tests of ranks over NCCL. They run over the stand-in (stand_in/), or, with
// UNISONO_TEST_ON_GPU (on_gpu.sh), over NCCL itself.
#pragma once

#ifndef UNISONO_TEST_ON_GPU
#include "stand_in/kernels.hpp"
#include "stand_in/stand_in.hpp"
#endif

#include <unisono/nccl.hpp>
#include <unisono/unisono.hpp>

#ifndef UNISONO_TEST_TRANSPORT
#define UNISONO_TEST_TRANSPORT unisono::Nccl
#endif
#include "support/joined.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace test {

namespace un = unisono;

/// The number of ranks that a test requests, or a smaller one: NCCL has room for one rank on each
/// device, or for two if ranks may share devices.
inline int at_most(int ranks) {
    int on_each = 1;
#ifdef UNISONO_TEST_ON_GPU
    const char* const said = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
    if (said != nullptr && std::string(said) == "1" && un::detail::loaded_nccl() >= 23000) on_each = 2;
#endif
    return std::min(ranks, on_each * un::detail::visible_devices());
}

/// A precondition of tests whose number of ranks is fixed: the devices can have so many.
struct HasRanks {
    int ranks;
    boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
        const int possible = at_most(ranks);
        boost::test_tools::assertion_result found(possible == ranks);
        found.message() << "needs " << ranks << " ranks, but the devices here can have " << possible;
        return found;
    }
};

/// All data of the host go through the device in native schedules, unless a test sets another
/// limit.
struct EverythingByDevice {
    Variable said{"UNISONO_NCCL_STAGED_BYTES", "1"};
};

/// Returns when the device has the bytes. A copy from memory that is not pinned may return earlier,
/// and no other stream waits for it.
template <class T>
void copy_to_device(un::DeviceSpan<T> to, const std::vector<T>& values) {
    un::detail::check_cuda(cudaMemcpy(to.data(), values.data(), to.size_bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
#ifdef UNISONO_TEST_ON_GPU
    un::detail::check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
#endif
}

/// Works in any world with devices.
template <class T, class World>
un::DeviceMemory<T> upload(World& group, const std::vector<T>& values) {
    un::DeviceMemory<T> made = un::allocate_on_device<T>(group, values.size());
    copy_to_device(made.span(), values);
    return made;
}
template <class T>
std::vector<std::remove_const_t<T>> download(un::DeviceSpan<T> values) {
    std::vector<std::remove_const_t<T>> made(values.size());
    un::detail::check_cuda(cudaMemcpy(made.data(), values.data(), values.size_bytes(), cudaMemcpyDeviceToHost),
                           "cudaMemcpy");
    return made;
}

/// The error text of each rank; "nothing" for success.
template <class Body>
std::vector<std::string> told(int ranks, Body body, std::chrono::nanoseconds timeout = std::chrono::seconds(60)) {
    std::vector<std::string> words(static_cast<std::size_t>(ranks), "nothing");
    try {
        un::run<Transport>(ranks,
                           [&](Group& world) {
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
/// Expects all of these words in each rank's text.
inline void expect_all(const std::vector<std::string>& words, const std::vector<std::string>& wanted) {
    for (const std::string& one : words) BOOST_TEST(mentions(one, wanted), one);
}

#ifndef UNISONO_TEST_ON_GPU
/// Expects that nothing is left of what a test made, and that no call was forbidden.
class Clean {
public:
    Clean() { static_cast<void>(stand_in::take_misuse()); }
    ~Clean() {
        for (const std::string& one : stand_in::take_misuse()) BOOST_ERROR("misuse: " << one);
        const stand_in::Counts now = stand_in::counts();
        BOOST_TEST(now.communicators == before_.communicators);
        BOOST_TEST(now.streams == before_.streams);
        BOOST_TEST(now.events == before_.events);
        BOOST_TEST(now.registrations == before_.registrations);
        BOOST_TEST(now.operations == before_.operations);
        BOOST_TEST(now.graphs == before_.graphs);
        BOOST_TEST(now.windows == before_.windows);
        BOOST_TEST(now.device_bytes == before_.device_bytes);
        BOOST_TEST(now.pinned_bytes == before_.pinned_bytes);
    }

private:
    stand_in::Counts before_ = stand_in::counts();
};
#else
struct Clean {
    Clean() {}
    ~Clean() {}
};
#endif

} // namespace test
