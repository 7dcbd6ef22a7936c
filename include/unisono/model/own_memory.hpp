#pragma once

/// \file
/// Checks that each parameter has a gradient of its size, and that both have memory of their own.

#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/model/model.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The memory of all parameters and gradients. It is not read, so it may be a device's.
class OwnMemory {
public:
    /// Adds contiguous memory of a parameter, or of its gradient.
    void add(const void* first, std::size_t bytes, std::size_t parameter, bool gradient) {
        const auto begin = reinterpret_cast<std::uintptr_t>(first);
        if (bytes != 0) pieces_.push_back({begin, begin + bytes, parameter, gradient});
    }
    /// Adds a range of spans, one for each parameter.
    template <class Spans>
    void add_all(const Spans& spans, bool gradients) {
        std::size_t parameter = 0;
        for (const auto& one : spans) add(one.data(), one.size() * sizeof(*one.data()), parameter++, gradients);
    }
    /// \throws error bad_input that names two parameters or gradients that share memory
    void check(const ParameterLabels& labels);

private:
    struct Piece {
        std::uintptr_t begin, end;
        std::size_t parameter;
        bool gradient;
    };
    static int by_address(const void* a, const void* b);
    /// Sorts the ranges by address. Returns a range that begins before the end of the one before
    /// it, preferably one of parameters; 0: there is none.
    std::size_t find_overlap();

    List<Piece> pieces_;
};

/// Refuses parameters and gradients of different numbers or sizes. `who` begins the messages.
template <class Parameters, class Gradients>
[[gnu::cold]] void check_pairs(std::string_view who, const Parameters& parameters, const Gradients& gradients,
                               const ParameterLabels& labels) {
    if (parameters.size() != gradients.size())
        refuse_input({who, "the model has ", parameters.size(), " parameters and ", gradients.size(),
                      " gradients; expected the same number"});
    for (std::size_t p = 0; p < parameters.size(); ++p)
        if (parameters[p].size() != gradients[p].size())
            refuse_input({who, labels[p], " has ", parameters[p].size(), " elements and its gradient ",
                          gradients[p].size(), "; expected the same number"});
}

template <class Parameters, class Gradients>
void refuse_shared_memory(const Parameters& parameters, const Gradients& gradients, const ParameterLabels& labels) {
    OwnMemory all;
    all.add_all(parameters, false);
    all.add_all(gradients, true);
    all.check(labels);
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION int OwnMemory::by_address(const void* a, const void* b) {
    const Piece &left = *static_cast<const Piece*>(a), &right = *static_cast<const Piece*>(b);
    return left.begin < right.begin ? -1 : left.begin > right.begin ? 1 : 0;
}

[[gnu::cold]] UNISONO_DEFINITION std::size_t OwnMemory::find_overlap() {
    // Not std::sort, since its instantiation would slow every program that includes this header. If
    // two ranges overlap, then two neighbours in the order of addresses do.
    if (!pieces_.empty()) ::qsort(pieces_.data(), pieces_.size(), sizeof(Piece), &OwnMemory::by_address);
    std::size_t found = 0;
    const auto gradients = [&](std::size_t i) { return int{pieces_[i - 1].gradient} + int{pieces_[i].gradient}; };
    for (std::size_t i = 1; i < pieces_.size(); ++i)
        if (pieces_[i].begin < pieces_[i - 1].end && (found == 0 || gradients(i) < gradients(found))) found = i;
    return found;
}

[[gnu::cold]] UNISONO_DEFINITION void OwnMemory::check(const ParameterLabels& labels) {
    const std::size_t found = find_overlap();
    if (found == 0) return;
    const Piece &a = pieces_[found - 1], &b = pieces_[found];
    const auto name = [&](const Piece& one) {
        return concat({one.gradient ? "the gradient of " : "", labels[one.parameter]});
    };
    const bool in_order = a.gradient == b.gradient ? a.parameter < b.parameter : b.gradient;
    refuse_input({name(in_order ? a : b), " and ", name(in_order ? b : a),
                  " share memory; expected memory of its own for each (name a tied weight once: the model may use it "
                  "in several places, and adds to one gradient)"});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
