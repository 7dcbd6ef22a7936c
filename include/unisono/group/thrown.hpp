#pragma once

/// \file
/// Exceptions that a user's code or the transport throws inside an operation. They become the
/// world's fault on every rank; the rank that threw rethrows the exception itself.

#include "unisono/core/text.hpp"
#include "unisono/group/operation_state.hpp"
#include "unisono/group/suspicion.hpp"

#include <exception>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Thrown {
public:
    /// The fault for the exception that is being handled. It names this rank and has the
    /// exception's text. `operation` is nullptr if it is not known. The end of this thread is
    /// passed on; the rank's last handler tells of it.
    [[gnu::noinline, gnu::cold]] Fault note(int rank, const OperationState* operation) {
        pass_on_end_of_thread();
        Fault fault{.code = ErrorCode::aborted, .rank = rank, .message = concat({"rank ", rank, " threw: "})};
        if (operation != nullptr) {
            fault.operation = std::string(name_of(static_cast<Collective>(operation->signature.collective)));
            fault.sequence = operation->sequence;
        }
        exception_ = std::current_exception();
        try {
            throw;
        } catch (const error& failed) {
            if (failed.why().rank >= 0) fault = failed.why(); // the library's own
            else fault.message += failed.why().message;
            fault.code = failed.code();
        } catch (...) {
            fault = fault_of_exception(std::move(fault));
        }
        message_ = fault.message;
        return fault;
    }

    /// Rethrows the exception unchanged if it caused this fault.
    void rethrow(const Fault& first) const {
        if (exception_ && first.message == message_) std::rethrow_exception(exception_);
    }

private:
    std::exception_ptr exception_;
    std::string message_;
};

} // namespace detail
UNISONO_NAMESPACE_END
