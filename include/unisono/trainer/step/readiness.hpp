#pragma once

/// \file
/// Which buckets a backward pass has filled.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Tracks which buckets are complete while the backward pass reports gradients as ready.
class Readiness {
public:
    explicit Readiness(const Layout& layout) : layout_(&layout) {
        waiting_.resize(layout.buckets().size());
        ready_in_.resize(layout.parameters());
    }

    /// Starts a pass: no gradient is ready yet.
    void expect();
    /// Returns the parameter's bucket; Layout::none for one without elements. \throws error
    /// bad_input: no such parameter, or twice
    std::size_t note(std::size_t parameter);
    [[nodiscard]] bool complete(std::size_t bucket) const { return waiting_[bucket] == 0; }

private:
    const Layout* layout_;
    List<std::size_t> waiting_;    ///< parameters of each bucket that are not ready yet
    List<std::uint64_t> ready_in_; ///< the pass in which each parameter was last reported as ready
    std::uint64_t pass_ = 0;
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION void Readiness::expect() {
    ++pass_;
    for (std::size_t b = 0; b < waiting_.size(); ++b) waiting_[b] = layout_->buckets()[b].piece_count;
}

UNISONO_DEFINITION std::size_t Readiness::note(std::size_t parameter) {
    if (parameter >= layout_->parameters())
        refuse_input(concat({"pass.ready(", parameter, "): the model has ", layout_->parameters(),
                             " parameters; expected an index below that"}));
    const std::size_t bucket = layout_->bucket_of(parameter);
    if (bucket == Layout::none) return bucket;
    if (std::exchange(ready_in_[parameter], pass_) == pass_)
        refuse_input({"pass.ready(", parameter, ") was called twice in one micro-batch"});
    --waiting_[bucket];
    return bucket;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
