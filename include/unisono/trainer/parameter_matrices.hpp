#pragma once

/// \file
/// The shapes of a model's parameters as matrices, for compressions that need them.

#include "unisono/compression/compression.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/layout/layout.hpp"
#include "unisono/model/model.hpp"

#include <cstddef>

UNISONO_NAMESPACE_BEGIN
namespace detail {

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
