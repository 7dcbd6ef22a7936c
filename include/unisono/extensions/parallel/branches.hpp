#pragma once

/// \file
/// A layer of independent branches (such as an Inception module): all have the same input, and
/// their outputs are concatenated. Each rank of a group computes one branch or several. The ranks
/// communicate twice: for the outputs, and for the sum of the gradients with respect to the input.

#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/schedule/families.hpp"
#include "unisono/trainer/failure.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Distributes branches over the ranks of `world`. Each rank gets consecutive branches, as evenly
/// as possible, or as many as `counts` says. A rank holds the parameters of its own branches; all
/// ranks have the input and all outputs.
///
/// Determinism: outputs have the bits of one rank. So have gradients with one branch per rank;
/// otherwise the gradient with respect to the input is a sum of the ranks' sums. Cost: an
/// all_gather of the outputs, an all_reduce of the gradient with respect to the input.
/// Errors: bad_input for no branch, an empty one, different inputs, fewer branches than ranks,
/// `counts` that do not match; if only some ranks have an error, all get it.
template <class World, floating_element T>
class Branches {
public:
    Branches(World& world, std::vector<Layers<T>> branches, std::vector<std::size_t> counts = {})
        : world_(&world), branches_(std::move(branches)), counts_(std::move(counts)) {
        detail::telling_all(world, "Branches", [&] { place(); });
    }

    [[nodiscard]] std::size_t inputs() const { return branches_[0][0].inputs; }
    [[nodiscard]] std::size_t outputs() const { return outputs_; }
    [[nodiscard]] std::size_t parameters() const { return parameters_; } ///< parameters of this rank's branches
    [[nodiscard]] std::size_t kept() const { return kept_; }
    void most_over_ranks(std::span<double> values) const {
        if (world_->size() > 1) all_reduce(*world_, values, Max{});
    }
    void initialise(std::span<T> values) {
        for (std::size_t b = first_; b < last_; ++b)
            for (std::size_t l = 0; l < branches_[b].size(); ++l) {
                branches_[b][l].initialise(values.first(branches_[b][l].parameters));
                values = values.subspan(branches_[b][l].parameters);
            }
    }

    void forward(LayerForward<T>& call) {
        const std::size_t n = call.samples;
        mine_.clear();
        std::size_t parameter = 0, place = 0;
        for (std::size_t b = first_; b < last_; ++b) {
            std::span<const T> input = call.input;
            for (std::size_t l = 0; l < branches_[b].size(); ++l) {
                AnyLayer& layer = branches_[b][l];
                LayerForward<T> inner{n,
                                      call.parameters.subspan(parameter, layer.parameters),
                                      input,
                                      call.kept.subspan(n * (place + layer.kept), n * layer.outputs),
                                      call.kept.subspan(n * place, n * layer.kept),
                                      call.pass,
                                      call.first_sample};
                layer.forward(inner);
                input = inner.output;
                parameter += layer.parameters;
                place += layer.kept + layer.outputs;
            }
            mine_.insert(mine_.end(), input.begin(), input.end());
        }
        // Gathered data are ordered by branch, and then by sample; the output is ordered by sample.
        sizes_.clear();
        std::size_t b = 0;
        for (const std::size_t count : counts_) {
            std::size_t width = 0;
            for (std::size_t i = 0; i < count; ++i) width += outputs_of(b++);
            sizes_.push_back(n * width);
        }
        all_.resize(n * outputs_);
        if (world_->size() > 1) all_gather(*world_, mine_, all_, sizes_);
        const T* from = world_->size() > 1 ? all_.data() : mine_.data();
        std::size_t column = 0;
        for (b = 0; b < branches_.size(); column += outputs_of(b++))
            for (std::size_t s = 0; s < n; ++s, from += outputs_of(b))
                std::copy_n(from, outputs_of(b), call.output.data() + s * outputs_ + column);
    }

    void backward(LayerBackward<T>& call) {
        const std::size_t n = call.samples;
        for (std::vector<T>& one : slopes_) one.resize(n * widest_);
        std::size_t parameter = 0, place = 0, column = 0;
        for (std::size_t b = 0; b < first_; ++b) column += outputs_of(b);
        for (std::size_t b = first_; b < last_; column += outputs_of(b++)) {
            // The branch's layers are computed one after another. Their outputs are kept for the
            // backward pass.
            for (std::size_t l = 0; l < branches_[b].size(); ++l) {
                parameter += branches_[b][l].parameters;
                place += branches_[b][l].kept + branches_[b][l].outputs;
            }
            const std::size_t parameter_end = parameter, place_end = place;
            std::span<T> above(slopes_[0].data(), n * outputs_of(b));
            for (std::size_t s = 0; s < n; ++s)
                std::copy_n(call.output_gradient.data() + s * outputs_ + column, outputs_of(b),
                            above.data() + s * outputs_of(b));
            for (std::size_t l = branches_[b].size(); l-- > 0;) {
                AnyLayer& layer = branches_[b][l];
                parameter -= layer.parameters;
                place -= layer.kept + layer.outputs;
                const std::size_t before = l == 0 ? 0 : branches_[b][l - 1].outputs;
                std::vector<T>& other = above.data() == slopes_[0].data() ? slopes_[1] : slopes_[0];
                const bool wanted = l != 0 || !call.input_gradient.empty();
                const std::span<T> below(other.data(), wanted ? n * layer.inputs : 0);
                LayerBackward<T> inner{n,
                                       call.parameters.subspan(parameter, layer.parameters),
                                       l == 0 ? call.input : call.kept.subspan(n * (place - before), n * before),
                                       call.kept.subspan(n * (place + layer.kept), n * layer.outputs),
                                       call.kept.subspan(n * place, n * layer.kept),
                                       above,
                                       below,
                                       call.gradient.subspan(parameter, layer.parameters)};
                layer.backward(inner);
                above = below;
            }
            for (std::size_t i = 0; i < call.input_gradient.size(); ++i) {
                if (b == first_) call.input_gradient[i] = above[i];
                else detail::add_to(call.input_gradient[i], above[i]);
            }
            parameter = parameter_end;
            place = place_end;
        }
        // Adds in rank order, over any transport.
        if (world_->size() > 1 && !call.input_gradient.empty())
            all_reduce(*world_, call.input_gradient, Sum{}, DirectSchedule{});
    }

private:
    using AnyLayer = detail::AnyLayer<T>;
    [[nodiscard]] std::size_t outputs_of(std::size_t b) const { return branches_[b][branches_[b].size() - 1].outputs; }
    /// Checks the branches, and determines those of this rank.
    void place() {
        const auto ranks = static_cast<std::size_t>(world_->size());
        if (branches_.size() < ranks)
            refuse_input(
                {"Branches: found ", branches_.size(), " branches for ", ranks, " ranks, expected one per rank"});
        for (std::size_t b = 0; b < branches_.size(); ++b) {
            if (branches_[b].size() == 0) refuse_input({"Branches: branch ", b, " has no layers"});
            if (branches_[b][0].inputs != inputs())
                refuse_input({"Branches: branch ", b, " has ", branches_[b][0].inputs, " inputs, but branch 0 has ",
                              inputs(), "; expected the same number"});
            outputs_ += outputs_of(b);
        }
        if (counts_.empty())
            for (std::size_t r = 0; r < ranks; ++r)
                counts_.push_back(branches_.size() / ranks + (r < branches_.size() % ranks ? 1 : 0));
        std::size_t all = 0;
        for (std::size_t r = 0; r < counts_.size(); ++r) {
            if (counts_[r] == 0) refuse_input({"Branches: rank ", r, " has no branch, expected at least one"});
            if (r == static_cast<std::size_t>(world_->rank())) first_ = all;
            all += counts_[r];
        }
        if (counts_.size() != ranks || all != branches_.size())
            refuse_input({"Branches: found counts for ", counts_.size(), " ranks and ", all, " branches, expected ",
                          ranks, " and ", branches_.size()});
        last_ = first_ + counts_[static_cast<std::size_t>(world_->rank())];
        for (std::size_t b = first_; b < last_; ++b)
            for (std::size_t l = 0; l < branches_[b].size(); ++l) {
                parameters_ += branches_[b][l].parameters;
                kept_ += branches_[b][l].kept + branches_[b][l].outputs;
                widest_ = std::max({widest_, branches_[b][l].inputs, branches_[b][l].outputs});
            }
    }

    World* world_;
    std::vector<Layers<T>> branches_;
    std::vector<std::size_t> counts_;  ///< number of branches of each rank
    std::size_t first_ = 0, last_ = 0; ///< this rank's branches
    std::size_t outputs_ = 0, parameters_ = 0, kept_ = 0, widest_ = 0;
    std::vector<T> mine_, all_;
    std::array<std::vector<T>, 2> slopes_;
    std::vector<std::size_t> sizes_;
};

UNISONO_NAMESPACE_END
