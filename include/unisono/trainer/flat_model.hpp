#pragma once

/// \file
/// A model's memory in flat order: parameter 0's elements, then parameter 1's, ..., wherever the
/// model's spans are.

#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/function_ref.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/layout/owners.hpp"
#include "unisono/model/model.hpp"
#include "unisono/model/own_memory.hpp"
#include "unisono/optimizer/optimizer.hpp"
#include "unisono/trainer/kernels.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

namespace detail {

/// A range of the flat order that is contiguous in memory, both as parameters and as gradients. The
/// addresses may be a device's: access elements by the trainer's kernels (kernels.hpp).
template <class T>
struct Stretch {
    std::size_t flat = 0;
    std::size_t count = 0;
    T* parameters = nullptr;
    T* gradients = nullptr;

    [[nodiscard]] Stretch part(std::size_t begin, std::size_t length) const {
        return {flat + begin, length, parameters + begin, gradients + begin};
    }
};

/// The model's spans are read once, when the trainer is made; they must not move.
template <class T>
class FlatModel {
public:
    using Element = T;

    template <model M>
        requires std::same_as<parameter_element_t<M>, T>
    FlatModel(M& source, const Buckets& buckets) {
        List<std::span<T>> parameters;
        List<std::span<T>> gradients;
        for_each_span(source.parameters(), [&](auto one) { parameters.push_back({one.data(), one.size()}); });
        for_each_span(source.gradients(), [&](auto one) { gradients.push_back({one.data(), one.size()}); });
        adopt(parameters, gradients, buckets, ParameterLabels(source));
    }

    [[nodiscard]] const Layout& layout() const { return layout_; }
    [[nodiscard]] std::size_t count() const { return layout_.count(); }
    [[nodiscard]] const List<Stretch<T>>& stretches() const { return stretches_; }
    /// True if the whole model is contiguous in memory.
    [[nodiscard]] bool contiguous() const { return stretches_.size() == 1; }

    [[nodiscard]] const List<Slice>& buckets() const { return buckets_; }
    /// A bucket in flat order: consecutive whole parameters.
    [[nodiscard]] const Slice& bucket(std::size_t index) const { return buckets_[index]; }

    /// Calls visit(stretch) for the memory of [first, first + count) of the flat order.
    template <class Visit>
    void visit(const Slice& slice, Visit&& visit) const {
        const Stretch<T>* const end_of_all = stretches_.end();
        const Stretch<T>* one = contiguous() ? stretches_.begin() : stretch_at(slice.first);
        for (; one != end_of_all && one->flat < slice.end(); ++one) {
            const std::size_t begin = std::max(one->flat, slice.first);
            const std::size_t end = std::min(one->flat + one->count, slice.end());
            if (begin < end) visit(one->part(begin - one->flat, end - begin));
        }
    }

    /// Calls visit(p, stretch) once for each parameter in the slice, even if parameters are
    /// contiguous in memory. So the calls are the same on all ranks.
    void visit_by_parameter(const Slice& slice, FunctionRef<void(std::size_t, const Stretch<T>&)> visit) const;

    void zero_gradients(const Kernels<T>& kernels) const {
        for (const Stretch<T>& one : stretches_) kernels.zero(one.gradients, one.count);
    }

    /// Checks that the model's memory has not moved since the trainer was made. \throws error
    /// bad_input that names the first parameter that has moved, or says how many parameters there
    /// are if their number has changed
    template <model M>
    void check_in_place(M& source) const {
        check_in_place(source, source.parameters(), &Stretch<T>::parameters, "parameters()");
        check_in_place(source, source.gradients(), &Stretch<T>::gradients, "gradients()");
    }
    /// True if some gradient is not zero. For host memory, and while no bucket is in flight.
    [[nodiscard]] bool any_gradient() const;

private:
    /// The last stretch that begins at or before `flat`, or the first stretch if there is none.
    [[nodiscard]] const Stretch<T>* stretch_at(std::size_t flat) const;

    template <class M, class R>
    void check_in_place(M& source, R&& spans, T* Stretch<T>::*memory, std::string_view name) const {
        const ParameterShape* shape = layout_.shapes().begin();
        const ParameterShape* const end = layout_.shapes().end();
        const Stretch<T>* stretch = stretches_.begin();
        const T* expected = stretch->*memory;
        std::size_t left = stretch->count; // elements left of the stretch; a parameter never spans two
        std::size_t parameter = 0;
        for_each_span(spans, [&](auto one) {
            const std::size_t count = shape != end ? shape++->count : 0;
            if (count != 0 && left == 0) {
                expected = (++stretch)->*memory;
                left = stretch->count;
            }
            if (one.size() != count || (count != 0 && one.data() != expected)) [[unlikely]]
                refuse_moved(source, parameter, name, one.size(), count);
            expected += count;
            left -= count;
            ++parameter;
        });
        if (parameter != layout_.parameters()) refuse_number(name, parameter, layout_.parameters());
    }
    template <class M>
    [[noreturn, gnu::cold, gnu::noinline]] static void
    refuse_moved(M& source, std::size_t parameter, std::string_view name, std::size_t found, std::size_t expected) {
        refuse_moved(parameter_label(source, parameter), name, found, expected);
    }
    [[noreturn]] static void refuse_number(std::string_view name, std::size_t found, std::size_t expected);
    [[noreturn]] static void refuse_moved(const std::string& parameter, std::string_view name, std::size_t found,
                                          std::size_t expected);
    void adopt(const List<std::span<T>>& parameters, const List<std::span<T>>& gradients, const Buckets& buckets,
               const ParameterLabels& labels);
    void join(std::span<T> parameter, std::span<T> gradient, std::size_t flat);

    Layout layout_;
    List<Slice> buckets_;
    List<Stretch<T>> stretches_;
};

template <class T>
const Stretch<T>* FlatModel<T>::stretch_at(std::size_t flat) const {
    const Stretch<T>* const one = partition_point(stretches_.begin(), stretches_.end(),
                                                  [&](const Stretch<T>& other) { return other.flat <= flat; });
    return one == stretches_.begin() ? one : one - 1;
}

template <class T>
[[gnu::noinline]] void FlatModel<T>::visit_by_parameter(const Slice& slice,
                                                        FunctionRef<void(std::size_t, const Stretch<T>&)> visit) const {
    if (slice.count == 0) return;
    for (std::size_t p = layout_.element_at(slice.first).parameter; p < layout_.parameters(); ++p) {
        const std::size_t begin = std::max(layout_.start_of(p), slice.first);
        const std::size_t end = std::min(layout_.start_of(p) + layout_.shapes()[p].count, slice.end());
        if (layout_.start_of(p) >= slice.end()) return;
        if (begin < end) this->visit({begin, end - begin}, [&](const Stretch<T>& one) { visit(p, one); });
    }
}

template <class T>
bool FlatModel<T>::any_gradient() const {
    for (const Stretch<T>& one : stretches_)
        for (std::size_t i = 0; i < one.count; ++i)
            if (!(static_cast<float>(one.gradients[i]) == 0)) return true;
    return false;
}

template <class T>
void FlatModel<T>::refuse_number(std::string_view name, std::size_t found, std::size_t expected) {
    refuse_input({"the model's ", name, " has ", found, " spans; expected ", expected,
                  ", as when the trainer was made (make another trainer for a model that has grown or shrunk)"});
}

template <class T>
void FlatModel<T>::refuse_moved(const std::string& parameter, std::string_view name, std::size_t found,
                                std::size_t expected) {
    constexpr std::string_view advice = " elements at the address that they had when the trainer was made (a "
                                        "std::vector that is resized or move-assigned gets another address: copy "
                                        "elements into it, or do so before the trainer is made)";
    const std::string_view moved = found == expected ? " at another address" : "";
    refuse_input({parameter, ": ", name, " has ", found, " elements", moved, "; expected the ", expected, advice});
}

template <class T>
[[gnu::cold]] void FlatModel<T>::adopt(const List<std::span<T>>& parameters, const List<std::span<T>>& gradients,
                                       const Buckets& buckets, const ParameterLabels& labels) {
    check_pairs("", parameters, gradients, labels);
    List<ParameterShape> shapes;
    for (const std::span<T>& one : parameters) shapes.push_back(shape_of(one));
    layout_ = Layout::of(std::move(shapes), buckets);
    if (layout_.count() == 0) refuse_input("the model has no parameters; expected at least one element");
    refuse_shared_memory(parameters, gradients, labels);
    for (std::size_t i = 0; i < parameters.size(); ++i) join(parameters[i], gradients[i], layout_.start_of(i));
    for (const Bucket& bucket : layout_.buckets()) {
        const std::size_t first = layout_.pieces(bucket).back().parameter; // from the last parameter to the first
        buckets_.push_back({layout_.start_of(first), bucket.count});
    }
}

template <class T>
void FlatModel<T>::join(std::span<T> parameter, std::span<T> gradient, std::size_t flat) {
    if (parameter.empty()) return;
    if (!stretches_.empty()) {
        Stretch<T>& last = stretches_.back();
        if (last.parameters + last.count == parameter.data() && last.gradients + last.count == gradient.data()) {
            last.count += parameter.size();
            return;
        }
    }
    stretches_.push_back({flat, parameter.size(), parameter.data(), gradient.data()});
}

/// The matrices in flat order. \throws error bad_input: the number of `parameter_shapes()`, or the
/// elements of one, differ from the parameters
template <class M>
List<ParameterMatrix> parameter_matrices(M& model, const Layout& layout) {
    List<ParameterMatrix> all;
    for (std::size_t p = 0; p < layout.parameters(); ++p)
        all.push_back({{layout.start_of(p), layout.shapes()[p].count}, 0});
    if constexpr (requires { std::begin(*std::begin(model.parameter_shapes())); }) {
        std::size_t p = 0;
        auto&& shapes = model.parameter_shapes();
        for (const auto& shape : shapes) {
            if (p == all.size()) refuse_input({"the model has more parameter_shapes than its ", p, " parameters"});
            std::size_t rows = 1, columns = 1, dimensions = 0;
            bool fits = true;   // without overflow
            bool empty = false; // as of a layer without outputs, whatever the other dimensions are
            for (const auto dimension : shape) {
                const auto size = static_cast<std::size_t>(dimension);
                std::size_t& to = dimensions++ == 0 ? rows : columns;
                empty = empty || size == 0;
                fits = fits && !__builtin_mul_overflow(to, size, &to);
            }
            std::size_t count = 0;
            if (!empty && (!fits || __builtin_mul_overflow(rows, columns, &count))) count = ~all[p].slice.count;
            if (count != all[p].slice.count)
                refuse_input({"the shape of ", parameter_label(model, p), " does not match its ", all[p].slice.count,
                              " elements"});
            all[p++].columns = dimensions < 2 || empty ? count : columns;
        }
        if (p != all.size()) refuse_input({"the model has ", p, " parameter_shapes for ", all.size(), " parameters"});
    }
    return all;
}

} // namespace detail

UNISONO_NAMESPACE_END
