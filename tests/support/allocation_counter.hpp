// Counts calls of global operator new, so that a test can assert that a piece of code does not
// allocate. Link it by a line in tests/<room>/room.cmake:
//   target_link_libraries(${room_target} PRIVATE unisono_allocation_counter)
#pragma once

#include <cstddef>

namespace unisono_test {

/// Allocations by all threads since the start of the process.
std::size_t allocations_of_process() noexcept;

/// Allocations by the calling thread since its start.
std::size_t allocations_of_thread() noexcept;

/// From now on the calling thread gets no memory of more than `bytes` at once; 0: any.
void refuse_above(std::size_t bytes) noexcept;

/// Bytes that the process holds now, and the most that it held since `forget_peak`.
std::size_t live_bytes_of_process() noexcept;
std::size_t peak_bytes_of_process() noexcept;
void forget_peak() noexcept;

} // namespace unisono_test
