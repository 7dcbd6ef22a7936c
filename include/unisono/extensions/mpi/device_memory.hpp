#pragma once

/// \file
/// Device memory that MPI's messages are sent from and received into directly, if MPI reports that
/// it is CUDA-aware.

#include "unisono/extensions/network/device_memory.hpp"

#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// True if this MPI accepts CUDA's addresses in its messages. Open MPI and MPICH are asked at run
/// time, since both are built with or without it; other MPIs are assumed to be without.
inline bool mpi_is_cuda_aware() {
#if defined(MPIX_GPU_SUPPORT_CUDA) // MPICH 4 and its derivatives
    int supported = 0;
    return MPIX_GPU_query_support(MPIX_GPU_SUPPORT_CUDA, &supported) == MPI_SUCCESS && supported != 0;
#elif defined(OPEN_MPI) && defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

/// The ranges of device memory that messages may use now. Addresses that are passed to MPI are
/// looked up here.
class MpiDeviceMemory {
public:
    /// Requests direct transfers; before this call they are off. Later calls add nothing.
    void want(const DeviceMemoryWish& wish) {
        on_ = wish.of_host || mpi_is_cuda_aware();
        problem_ = on_ ? "" : "this MPI is not CUDA-aware";
        seen_ = wish.seen;
    }
    [[nodiscard]] bool is_on() const { return on_; }
    [[nodiscard]] const std::string& problem() const { return problem_; }

    /// Adds a range, for as long as the returned object lives.
    [[nodiscard]] std::shared_ptr<void> reach(const std::byte* data, std::size_t bytes) {
        std::erase_if(parts_, [](const Part& one) { return one.used.expired(); });
        auto use = std::make_shared<char>();
        parts_.push_back({data, bytes, use});
        return use;
    }
    /// True if this address is in a range.
    [[nodiscard]] bool has(const std::byte* data) const {
        for (const Part& one : parts_)
            if (data >= one.begin && data < one.begin + one.bytes && !one.used.expired()) return true;
        return false;
    }
    /// The address under which MPI finds it.
    [[nodiscard]] std::byte* seen(const std::byte* data) const {
        return seen_ == nullptr ? const_cast<std::byte*>(data) : seen_(data);
    }

private:
    struct Part {
        const std::byte* begin = nullptr;
        std::size_t bytes = 0;
        std::weak_ptr<void> used;
    };

    bool on_ = false;
    std::string problem_ = "its network was made without them";
    std::byte* (*seen_)(const std::byte*) = nullptr;
    std::vector<Part> parts_;
};

} // namespace detail
UNISONO_NAMESPACE_END
