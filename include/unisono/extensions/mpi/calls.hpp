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
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// MPI's text for an error.
inline std::string mpi_error_text(int code, const char* call) {
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    return concat({call, ": ", std::string(text, static_cast<std::size_t>(length))});
}
/// Throws `refused` with MPI's text.
inline void check_mpi(int code, const char* call) {
    if (code != MPI_SUCCESS) throw error(ErrorCode::refused, mpi_error_text(code, call));
}

inline constexpr std::size_t most_mpi_bytes = std::size_t{1} << 30; ///< of one message: MPI counts in int
template <class Visit>
void for_each_mpi_piece(std::size_t bytes, std::size_t most, Visit visit) {
    for (std::size_t at = 0; at < bytes; at += most) visit(at, static_cast<int>(std::min(most, bytes - at)));
}

inline bool mpi_is_finalized() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    return finalized != 0;
}

/// A communicator of the library's own, which is freed unless it is taken.
class MpiCommunicator {
public:
    explicit MpiCommunicator(MPI_Comm communicator) : communicator_(communicator) {}
    MpiCommunicator(MpiCommunicator&& other) noexcept
        : communicator_(std::exchange(other.communicator_, MPI_COMM_NULL)) {}
    MpiCommunicator& operator=(MpiCommunicator&&) = delete;
    ~MpiCommunicator() {
        if (communicator_ != MPI_COMM_NULL) MPI_Comm_free(&communicator_);
    }
    [[nodiscard]] MPI_Comm get() const { return communicator_; }
    [[nodiscard]] MPI_Comm take() { return std::exchange(communicator_, MPI_COMM_NULL); }

private:
    MPI_Comm communicator_;
};

/// A duplicate of a communicator whose errors are codes. Collective. Errors of MPI_Comm_dup go to
/// the handler of the original communicator, which by default ends the job; so it is replaced
/// during the call.
inline MpiCommunicator copy_of(MPI_Comm communicator) {
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    check_mpi(MPI_Comm_get_errhandler(communicator, &before), "MPI_Comm_get_errhandler");
    MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN);
    MPI_Comm made = MPI_COMM_NULL;
    const int code = MPI_Comm_dup(communicator, &made);
    MPI_Comm_set_errhandler(communicator, before);
    MPI_Errhandler_free(&before);
    check_mpi(code, "MPI_Comm_dup");
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    return MpiCommunicator(made);
}

/// Cancels a receive; waits for at most one second.
inline void cancel_receive(MPI_Request& request) {
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    const nanoseconds until = steady_now() + 1'000'000'000;
    for (int done = 0; done == 0 && steady_now() < until;) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

} // namespace detail
UNISONO_NAMESPACE_END
