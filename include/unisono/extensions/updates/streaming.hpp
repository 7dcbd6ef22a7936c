#pragma once

/// \file
/// The run of StreamingDiloco: the ranks train while a fragment of the parameters is summed.

#include "unisono/core/standard.hpp"
#include "unisono/update/averaging.hpp"
#include "unisono/update/in_flight.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

template <class Training, class Policy>
class Streaming : public Averaging<Training, Policy> {
    using Base = Averaging<Training, Policy>;
    using typename Base::T;

public:
    Streaming(Training& training, const Policy& policy) : Base(training, policy), synchronised_(policy.fragments) {}

    [[nodiscard]] bool after(Verdict) {
        const std::uint64_t own = this->count_update();
        if (under_way_.count != 0) {
            if (own == arrives_) land();
            else this->world().progress();
        }
        if (this->policy().sets_out_after(own)) set_out_after(own);
        return false;
    }
    void synchronise() {
        land();
        if (this->own() == 0) return;
        Base::synchronise();
        std::fill(synchronised_.begin(), synchronised_.end(), this->synchronisations());
    }
    void restore(std::uint64_t synchronisations) {
        sum_.wait(); // the sum of a fragment in flight is not used any more
        under_way_ = {};
        std::fill(synchronised_.begin(), synchronised_.end(), synchronisations);
        Base::restore(synchronisations);
    }

private:
    void set_out_after(std::uint64_t own) {
        fragment_ = this->policy().fragment_after(own);
        const std::size_t parts = this->policy().fragments;
        const std::size_t count = this->flat().count();
        const std::size_t begin = count * fragment_ / parts;
        under_way_ = {begin, count * (fragment_ + 1) / parts - begin};
        if (under_way_.count == 0) return; // there are fewer elements than fragments
        this->allocate_sum();
        this->flat().visit(under_way_, [&](const auto& one) { this->set_out(one); });
        if (this->world().size() > 1) sum_ = this->training().start_sum(this->sum() + begin, under_way_.count);
        arrives_ = own + this->policy().overlap;
        if (this->policy().overlap == 0) land();
    }
    /// Completes the fragment in flight, if there is one.
    void land() {
        if (under_way_.count == 0) return;
        if (this->world().size() > 1) sum_.wait();
        const std::uint64_t number = ++synchronised_[fragment_];
        this->set_synchronisations(
            std::max(this->synchronisations(), number)); // all fragments count this as their next synchronisation
        const double mix = this->policy().mix;
        this->flat().visit(under_way_, [&](const auto& one) {
            this->step_outside(one, number);
            const std::span<const T> common(this->common().data() + one.flat, one.count);
            using W = accumulator_t<T>;
            if (mix == 0) this->copy(one.parameters, common.data(), one.count);
            else
                this->place().arithmetic().apply(Mix<T>{static_cast<W>(mix), static_cast<W>(1 - mix)},
                                                 std::span<T>(one.parameters, one.count), common);
            this->place().follow(one.parameters, one.count);
        });
        under_way_ = {};
    }

    std::vector<std::uint64_t> synchronised_; ///< number of synchronisations of each fragment
    Slice under_way_ = {};                    ///< the fragment in flight; empty: none
    std::size_t fragment_ = 0;                ///< number of the fragment in flight
    std::uint64_t arrives_ = 0;               ///< the number of own updates after which it is completed
    OperationInFlight sum_;
};

} // namespace detail
UNISONO_NAMESPACE_END
