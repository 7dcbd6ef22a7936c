#pragma once

/// \file
/// MPI's calls as the transport makes them.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/time.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// MPI's own words.
inline std::string mpi_error_text(int code, const char* call) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return concat({call, ": ", std::string(text, static_cast<std::size_t>(length))});
}
/// Throws `refused` with them.
inline void check_mpi(int code, const char* call) {
    if (code != MPI_SUCCESS) throw error(ErrorCode::refused, mpi_error_text(code, call));
}

inline constexpr std::size_t most_mpi_bytes = std::size_t{1} << 30; ///< of one message: MPI counts by int
template <class Visit>
void for_each_mpi_piece(std::size_t bytes, std::size_t most, Visit visit) {
    for (std::size_t at = 0; at < bytes; at += most) visit(at, static_cast<int>(std::min(most, bytes - at)));
}

inline bool mpi_is_finalized() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
}

/// A receive; waits a second at the most.
inline void cancel_receive(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    const nanoseconds until = steady_now() + 1'000'000'000;
    for (int done = 0; done == 0 && steady_now() < until;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

} // namespace detail
UNISONO_NAMESPACE_END
