#pragma once

/// \file
/// Runs a model in units with all its memory on every rank, for policies that do not shard
/// gradients.
///
///     un::ResidentUnits model(world, network);
///     un::Trainer trainer{world, model, un::StateSharding{}, un::Adam{}};

#include "unisono/core/error.hpp"
#include "unisono/core/memory.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/sharded/unit_pass.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <concepts>
#include <cstddef>
#include <span>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Holds the parameters of a model in units, one parameter per unit, in the group's memory. The
/// model in units must outlive it. Its checkpoints equal those of the model in units. It does not
/// check the order in which the model asks for units.
template <unit_model M>
class ResidentUnits : public detail::WrappedModel<M> {
    using T = typename M::Element;
    static_assert(!unit_model_on_device<M>,
                  "unisono::ResidentUnits: found a model in units on a device. Required: the model itself, with "
                  "GradientSharding or ParameterSharding. Why: ResidentUnits holds memory of the host.");
    static_assert(std::same_as<T, pass_element_t<M>>,
                  "unisono::ResidentUnits: found a model that computes with another type than it is trained in. "
                  "Required: MasterWeights of the ResidentUnits, and not the other way round. Why: ResidentUnits holds "
                  "the elements that the model computes with.");

public:
    using detail::WrappedModel<M>::wrapped;

    /// \throws error bad_input: no unit, or an empty one
    template <class World>
    ResidentUnits(World& world, M& model) : detail::WrappedModel<M>(model) {
        std::size_t count = 0;
        std::size_t units = 0;
        for (const auto& one : model.units()) {
            const auto n = static_cast<std::size_t>(one);
            if (n == 0) refuse_input({"unit ", units, " has no elements; expected at least one"});
            count += n;
            ++units;
        }
        if (units == 0) refuse_input("the model has no units; expected at least one");
        values_ = world.template allocate<T>(count);
        slopes_ = world.template allocate<T>(count);
        std::size_t at = 0;
        for (const auto& one : model.units()) {
            const auto n = static_cast<std::size_t>(one);
            parameters_.push_back({values_.data() + at, n});
            gradients_.push_back({slopes_.data() + at, n});
            at += n;
        }
        for (std::size_t u = 0; u < parameters_.size(); ++u) model.initialise(u, parameters_[u]);
    }
    ResidentUnits(const ResidentUnits&) = delete;
    ResidentUnits& operator=(const ResidentUnits&) = delete;

    [[nodiscard]] std::span<const std::span<T>> parameters() { return parameters_; }
    [[nodiscard]] std::span<const std::span<T>> gradients() { return gradients_; }

    template <class Batch>
        requires trainable_on<M, Batch>
    double operator()(const Batch& batch, Pass& pass) {
        Call call(*this, &pass);
        const double loss = static_cast<double>(wrapped()(batch, call.pass()));
        call.tell();
        return loss;
    }
    template <class Batch, class... Metrics>
        requires requires(M& m, const Batch& batch, UnitPass<T>& pass, Metrics&... all) {
            m.evaluate(batch, pass, all...);
        }
    void evaluate(const Batch& batch, Metrics&... metrics) {
        Call call(*this, nullptr);
        wrapped().evaluate(batch, call.pass(), metrics...);
    }
    template <class Batch>
        requires requires(M& m, const Batch& batch, UnitPass<T>& pass) { m.predict(batch, pass); }
    decltype(auto) predict(const Batch& batch) {
        Call call(*this, nullptr);
        return wrapped().predict(batch, call.pass());
    }

private:
    /// One call of the model, with the trainer's pass; null if nothing is trained.
    class Call final : private detail::UnitKeeper<T> {
    public:
        Call(ResidentUnits& of, Pass* outer)
            : of_(&of), outer_(outer), pass_(outer != nullptr ? outer->facts() : PassFacts{}, *this) {}

        [[nodiscard]] UnitPass<T>& pass() { return pass_; }
        /// Reports to the trainer what the model has reported so far.
        void tell() { detail::report_to(*outer_, pass_); }

    private:
        std::span<const T> acquire(std::size_t unit) override { return checked(of_->parameters_, unit); }
        void release() noexcept override {}
        std::span<T> gradient(std::size_t unit) override { return checked(of_->gradients_, unit); }
        void complete(std::size_t unit) override { // also called with no_parameter, for progress
            if (outer_ == nullptr) return;
            tell();
            outer_->ready(unit);
        }
        static std::span<T> checked(const std::vector<std::span<T>>& all, std::size_t unit) {
            if (unit >= all.size())
                refuse_input({"unit ", unit, " was asked for: the model has ", all.size(), " units"});
            return all[unit];
        }

        ResidentUnits* of_;
        Pass* outer_;
        UnitPass<T> pass_;
    };

    Memory<T> values_, slopes_;
    std::vector<std::span<T>> parameters_, gradients_;
};

UNISONO_NAMESPACE_END
