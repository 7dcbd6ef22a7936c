#pragma once

/// \file
/// Models whose parameters are tensors with strides (un::StridedTensor): views, transposed tensors,
/// padded tensors. Not in the umbrella.
///
///     Network network;                     // parameter_tensors(), gradient_tensors(): ranges
///     un::WithStrides model(network);
///     un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.1}};
///     trainer.fit(data, {.epochs = 10});   // writes the trained parameters to the network

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/own_memory.hpp"
#include "unisono/model/wrapped_model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Memory of a tensor that another object owns: element (i, j, ...) is data[i * strides[0] + j *
/// strides[1] + ...]. A scalar has no sizes. Strides may be negative; no two elements may share
/// memory, as they do in a broadcast view.
template <floating_element T>
struct StridedTensor {
    using Element = T;
    T* data = nullptr;
    std::vector<std::size_t> sizes = {};
    std::vector<std::ptrdiff_t> strides = {}; ///< in elements, one for each size

    [[nodiscard]] std::size_t count() const {
        std::size_t product = 1;
        for (const std::size_t size : sizes) product *= size;
        return product;
    }
    /// True if the rows follow one another without gaps, so that the memory is one span in the
    /// order of the elements.
    [[nodiscard]] bool contiguous() const {
        std::size_t expected = 1;
        for (std::size_t i = sizes.size(); i-- > 0;) {
            if (sizes[i] != 1 && strides[i] != static_cast<std::ptrdiff_t>(expected)) return false;
            expected *= sizes[i];
        }
        return true;
    }
    /// The lowest address of an element.
    [[nodiscard]] T* first() const {
        std::ptrdiff_t back = 0;
        for (std::size_t i = 0; i < sizes.size() && count() != 0; ++i)
            if (strides[i] < 0) back += static_cast<std::ptrdiff_t>(sizes[i] - 1) * strides[i];
        return data + back;
    }
    /// The number of bytes from `first()` to the end of the last element.
    [[nodiscard]] std::size_t reach() const {
        if (count() == 0) return 0;
        std::size_t elements = 1;
        for (std::size_t i = 0; i < sizes.size(); ++i)
            elements += (sizes[i] - 1) * static_cast<std::size_t>(strides[i] < 0 ? -strides[i] : strides[i]);
        return elements * sizeof(T);
    }
    /// Calls visit(first, stride, n) for each of the innermost rows, in order.
    template <class Visit>
    void for_each_row(Visit&& visit) const {
        if (count() == 0) return;
        const std::size_t outer = sizes.empty() ? 0 : sizes.size() - 1;
        const std::size_t row = sizes.empty() ? 1 : sizes.back();
        const std::ptrdiff_t stride = sizes.empty() ? 1 : strides.back();
        std::vector<std::size_t> at(outer, 0);
        std::ptrdiff_t offset = 0;
        for (;;) {
            visit(data + offset, stride, row);
            std::size_t i = outer;
            for (; i > 0; --i) {
                offset += strides[i - 1];
                if (++at[i - 1] < sizes[i - 1]) break;
                offset -= static_cast<std::ptrdiff_t>(sizes[i - 1]) * strides[i - 1];
                at[i - 1] = 0;
            }
            if (i == 0) return;
        }
    }
};

namespace detail {

/// True if no two elements can share memory: each stride is longer than the extent of all smaller
/// strides. (Also refuses some interleaved tensors that do not overlap; no library makes such
/// tensors.)
template <class T>
bool elements_apart(const StridedTensor<T>& tensor) {
    std::vector<std::pair<std::size_t, std::size_t>> dimensions; // stride, size
    for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
        const std::ptrdiff_t stride = tensor.strides[i];
        if (tensor.sizes[i] == 0) return true;
        if (tensor.sizes[i] > 1)
            dimensions.emplace_back(static_cast<std::size_t>(stride < 0 ? -stride : stride), tensor.sizes[i]);
    }
    std::sort(dimensions.begin(), dimensions.end());
    std::size_t reach = 0;
    for (const auto& [stride, size] : dimensions) {
        if (stride <= reach) return false;
        reach += stride * (size - 1);
    }
    return true;
}

} // namespace detail

/// Makes a model for the trainer from a model whose `parameter_tensors()` and `gradient_tensors()`
/// are ranges of StridedTensor, all of one element type, and whose call (batch, pass) adds to its
/// gradients. A tensor that is contiguous, and whose gradient is, is trained in place. Other
/// tensors have a contiguous copy here. Each call (training, `evaluate`, `predict`, `refresh`)
/// writes the model's tensors from the copies, so other writes to them are lost. The model's
/// tensors are current whenever a call of a trainer returns, throws, or calls `on_update`. After
/// other code writes to `parameters()`, the trainer sees the change at its next call, and the model
/// at the next `parameters()` or `refresh()`. The model must outlive this object, and its memory
/// must not move.
///
/// Memory: two elements for each element of a tensor that is not contiguous. Cost of a call: those
/// tensors are written once, and their gradients are read once, added and zeroed. Checkpoints have
/// the tensors' sizes, in row-major order. Names and buffers are the model's own.
/// Errors: bad_input (sizes and strides, or a parameter and its gradient, that do not match;
/// overlapping elements of one tensor or of several).
template <class M>
class WithStrides : public detail::ConvertedModel<WithStrides<M>, M> {
    using Frame = detail::ConvertedModel<WithStrides<M>, M>;
    friend Frame; // take, zero
    template <class Tensors>
    using element_of = typename std::remove_cvref_t<decltype(*std::begin(std::declval<Tensors&>()))>::Element;

public:
    using Element = element_of<decltype(std::declval<M&>().parameter_tensors())>;

    explicit WithStrides(M& model) : detail::ConvertedModel<WithStrides<M>, M>(model) {
        for (const StridedTensor<Element>& one : model.parameter_tensors()) tensors_.push_back({one, {}, {}, {}});
        std::size_t at = 0;
        for (const StridedTensor<Element>& one : model.gradient_tensors()) {
            if (at < tensors_.size()) tensors_[at].gradient = one;
            ++at;
        }
        if (at != tensors_.size())
            refuse_input({"WithStrides: the model has ", tensors_.size(), " parameters and ", at,
                          " gradients; expected the same number"});
        for (std::size_t p = 0; p < tensors_.size(); ++p) set_up(p);
        refuse_shared_elements();
        this->expect(tensors_.size());
    }

    [[nodiscard]] std::span<const std::span<Element>> parameters() {
        this->age_copy();
        return parameter_spans_;
    }
    [[nodiscard]] std::span<const std::span<Element>> gradients() { return gradient_spans_; }
    [[nodiscard]] std::vector<std::vector<std::size_t>> parameter_shapes() {
        std::vector<std::vector<std::size_t>> shapes;
        for (const Tensor& one : tensors_) shapes.push_back(one.parameter.sizes);
        return shapes;
    }

    /// Writes the model's tensors from `parameters()`. Call it after code other than a trainer
    /// wrote to `parameters()`, before you use the model by itself.
    void refresh() {
        for (const Tensor& one : tensors_) {
            const Element* from = one.own_parameter.data();
            if (one.copied())
                one.parameter.for_each_row([&](Element* first, std::ptrdiff_t stride, std::size_t n) {
                    for (std::size_t i = 0; i < n; ++i) first[static_cast<std::ptrdiff_t>(i) * stride] = *from++;
                });
        }
    }

private:
    struct Tensor {
        StridedTensor<Element> parameter = {}, gradient = {};
        std::vector<Element> own_parameter = {}, own_gradient = {}; ///< empty if the tensors are trained in place
        [[nodiscard]] bool copied() const { return !own_parameter.empty(); }
    };

    void set_up(std::size_t p) {
        Tensor& one = tensors_[p];
        check(p, one.parameter, "parameter");
        check(p, one.gradient, "gradient");
        if (one.parameter.sizes != one.gradient.sizes)
            refuse_input({"WithStrides: ", parameter_label(*this, p), " has sizes (", sizes_text(one.parameter),
                          ") and its gradient (", sizes_text(one.gradient), "); expected the same"});
        const std::size_t count = one.parameter.count();
        if (one.parameter.contiguous() && one.gradient.contiguous()) {
            parameter_spans_.emplace_back(one.parameter.data, count);
            gradient_spans_.emplace_back(one.gradient.data, count);
            return;
        }
        one.own_gradient.assign(count, Element{});
        one.own_parameter.reserve(count);
        one.parameter.for_each_row([&](const Element* first, std::ptrdiff_t stride, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i)
                one.own_parameter.push_back(first[static_cast<std::ptrdiff_t>(i) * stride]);
        });
        zero(p);
        parameter_spans_.emplace_back(one.own_parameter);
        gradient_spans_.emplace_back(one.own_gradient);
    }

    /// A tensor's memory from its first element to its last.
    struct Box {
        const StridedTensor<Element>* tensor;
        std::size_t parameter;
        bool gradient;
        std::uintptr_t begin, end;
    };

    /// Refuses tensors that share elements. Tensors may be interleaved, as the columns of a matrix
    /// are, so elements are compared, but only if their boxes overlap. Parameters are checked
    /// first, so that an error names them rather than their gradients.
    void refuse_shared_elements() {
        std::vector<Box> boxes;
        const auto add = [&](std::size_t p, const StridedTensor<Element>& tensor, bool gradient) {
            const auto begin = reinterpret_cast<std::uintptr_t>(tensor.first());
            if (tensor.reach() != 0) boxes.push_back({&tensor, p, gradient, begin, begin + tensor.reach()});
        };
        for (std::size_t p = 0; p < tensors_.size(); ++p) add(p, tensors_[p].parameter, false);
        refuse_shared_elements(boxes);
        for (std::size_t p = 0; p < tensors_.size(); ++p) add(p, tensors_[p].gradient, true);
        refuse_shared_elements(boxes);
    }
    void refuse_shared_elements(std::vector<Box> boxes) {
        std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) { return a.begin < b.begin; });
        for (std::size_t i = 0, next = 0; i < boxes.size(); i = next) {
            std::uintptr_t end = boxes[i].end;
            for (next = i + 1; next < boxes.size() && boxes[next].begin < end; ++next)
                end = std::max(end, boxes[next].end);
            if (next - i > 1) refuse_shared_within(std::span(boxes).subspan(i, next - i), end);
        }
    }
    /// Memory: one bit for each element from the begin of the first box to `end`.
    void refuse_shared_within(std::span<const Box> boxes, std::uintptr_t end) {
        const std::uintptr_t begin = boxes.front().begin;
        const bool aligned = std::all_of(boxes.begin(), boxes.end(),
                                         [&](const Box& one) { return (one.begin - begin) % sizeof(Element) == 0; });
        const std::size_t unit = aligned ? sizeof(Element) : 1;
        std::vector<bool> taken((end - begin) / unit);
        const auto each_element = [](const Box& box, auto visit) {
            box.tensor->for_each_row([&](const Element* first, std::ptrdiff_t stride, std::size_t n) {
                for (std::size_t i = 0; i < n; ++i)
                    visit(reinterpret_cast<std::uintptr_t>(first + static_cast<std::ptrdiff_t>(i) * stride));
            });
        };
        std::uintptr_t shared = 0;
        for (const Box& box : boxes)
            each_element(box, [&](std::uintptr_t address) {
                for (std::size_t at = (address - begin) / unit, left = sizeof(Element) / unit; left != 0;
                     ++at, --left) {
                    if (taken[at] && shared == 0) shared = begin + at * unit;
                    taken[at] = true;
                }
            });
        if (shared == 0) return;
        detail::OwnMemory both;
        for (const Box& box : boxes)
            each_element(box, [&](std::uintptr_t address) {
                if (shared >= address && shared < address + sizeof(Element))
                    both.add(
                        reinterpret_cast<const void*>(address), // NOLINT(performance-no-int-to-ptr): compared alone
                        sizeof(Element), box.parameter, box.gradient);
            });
        both.check(detail::ParameterLabels(*this));
    }

    void check(std::size_t p, const StridedTensor<Element>& tensor, std::string_view which) {
        if (tensor.sizes.size() != tensor.strides.size())
            refuse_input({"WithStrides: the ", which, " of ", parameter_label(*this, p), " has ", tensor.sizes.size(),
                          " sizes and ", tensor.strides.size(), " strides; expected the same number"});
        if (tensor.data == nullptr && tensor.count() != 0)
            refuse_input({"WithStrides: the ", which, " of ", parameter_label(*this, p), " has no memory"});
        if (!detail::elements_apart(tensor))
            refuse_input({"WithStrides: elements of the ", which, " of ", parameter_label(*this, p), " with sizes (",
                          sizes_text(tensor), ") overlap; expected strides that keep them apart"});
    }

    /// Adds a gradient to the copy, and zeroes it in the model.
    void take(std::size_t p) {
        Tensor& one = tensors_[p];
        Element* to = one.own_gradient.data();
        if (!one.copied()) return;
        using Wide = std::conditional_t<sizeof(Element) == 2, float, Element>;
        one.gradient.for_each_row([&](Element* first, std::ptrdiff_t stride, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i, ++to) {
                Element& found = first[static_cast<std::ptrdiff_t>(i) * stride];
                *to = static_cast<Element>(static_cast<Wide>(*to) + static_cast<Wide>(found));
                found = Element{};
            }
        });
    }
    void zero(std::size_t p) {
        const Tensor& one = tensors_[p];
        if (!one.copied()) return;
        one.gradient.for_each_row([&](Element* first, std::ptrdiff_t stride, std::size_t n) {
            for (std::size_t i = 0; i < n; ++i) first[static_cast<std::ptrdiff_t>(i) * stride] = Element{};
        });
    }

    [[nodiscard]] static std::string sizes_text(const StridedTensor<Element>& tensor) {
        std::string text;
        for (const std::size_t size : tensor.sizes) text += concat({text.empty() ? "" : ", ", size});
        return text;
    }

    std::vector<Tensor> tensors_;
    std::vector<std::span<Element>> parameter_spans_, gradient_spans_;
};

UNISONO_NAMESPACE_END
