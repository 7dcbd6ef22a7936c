#pragma once

/// \file
/// The base of updates in which each rank trains on its own between synchronisations.
///
/// A rank makes updates of its own, with its own gradients, which it does not exchange. At a
/// *synchronisation* the ranks combine their parameters; afterwards all hold the same parameters.
/// All ranks make the same number of updates, unless the policy is `asynchronous`.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/update/update.hpp"

#include <cstddef>
#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline void check_steps(std::string_view name, std::uint64_t steps) {
    if (steps == 0) refuse_input({name, ".steps is 0; expected at least one update between two synchronisations"});
}

/// A state without arrays.
struct NoState {
    [[nodiscard]] static constexpr std::size_t size() { return 0; }
    [[nodiscard]] static constexpr std::size_t bytes() { return 0; }
};

} // namespace detail

/// The base of runs in which ranks make updates of their own, after `warm_up` synchronous ones. It
/// counts the updates, and has the functions that checkpoints need.
template <class Training>
class LocalRun : public UpdateRun<Training> {
public:
    explicit LocalRun(Training& training, std::uint64_t warm_up = 0)
        : UpdateRun<Training>(training), warm_up_(warm_up) {}

    [[nodiscard]] static constexpr bool agrees() { return false; }
    [[nodiscard]] bool alone(std::uint64_t updates) const { return updates >= warm_up_; }

    /// The number of this rank's own updates since the last synchronisation. A checkpoint requires
    /// 0.
    [[nodiscard]] std::uint64_t own() const { return own_; }
    /// Number of synchronisations so far.
    [[nodiscard]] std::uint64_t synchronisations() const { return synchronisations_; }
    /// The common state beside the parameters: arrays that are the same on all ranks, with the
    /// interface of OptimizerState.
    [[nodiscard]] static detail::NoState& state() {
        static detail::NoState none;
        return none;
    }
    /// Restores a run after `synchronisations` of them. All ranks hold the same parameters and the
    /// same `state()`, which the caller has written before.
    void restore(std::uint64_t synchronisations) {
        own_ = 0;
        synchronisations_ = synchronisations;
    }

protected:
    /// Counts an update of this rank's own, and returns their number. Called in each `after`,
    /// whatever the verdict: ranks with equal counts synchronise together.
    std::uint64_t count_update() { return ++own_; }
    /// True if a synchronisation has work to do: a rank has made an update since the last one.
    [[nodiscard]] bool begin_synchronisation() {
        const bool some = own_ != 0;
        own_ = 0;
        return some;
    }
    void count_synchronisation() { ++synchronisations_; }
    void set_synchronisations(std::uint64_t synchronisations) { synchronisations_ = synchronisations; }

    /// Zeroed memory for one element per element of the parameters. The group can sum it in place.
    [[nodiscard]] auto allocate_array() const {
        using Element = typename Training::Element;
        return this->training().kernels().template allocate<Element>(this->training().flat().count());
    }
    /// Calls body(element, a, b, ...) for each element of the parameters, with those at its
    /// position in such arrays. On the host only.
    template <class Body, class... Arrays>
    void for_each_element(Body body, Arrays&... arrays) const {
        this->training().flat().visit({0, this->training().flat().count()}, [&](const auto& one) {
            for (std::size_t i = 0; i < one.count; ++i) body(one.parameters[i], arrays.data()[one.flat + i]...);
        });
    }
    /// Starts to sum an array over all ranks.
    template <class Array>
    [[nodiscard]] auto start_sum(Array& array) const {
        return this->training().start_sum(array.data(), array.size());
    }

private:
    std::uint64_t warm_up_;
    std::uint64_t own_ = 0;
    std::uint64_t synchronisations_ = 0;
};

UNISONO_NAMESPACE_END
