// Whether combinations of policies have all pairs of them: for tables, and for the code that makes
// tables.
#pragma once

#include <array>
#include <cstddef>

namespace unisono_matrix {

/// The pairs of choices that occur in no row. `rows`: each has one index per family, with `sizes`
/// choices. `is_refused(a, x, b, y)`: choice x of family a may not be combined with choice y of
/// family b (a < b).
template <std::size_t Families, class Rows, class Refused>
constexpr std::size_t missing_pairs(const std::array<std::size_t, Families>& sizes, const Rows& rows,
                                    const Refused& is_refused) {
    std::size_t missing = 0;
    for (std::size_t a = 0; a < Families; ++a)
        for (std::size_t b = a + 1; b < Families; ++b)
            for (std::size_t x = 0; x < sizes[a]; ++x)
                for (std::size_t y = 0; y < sizes[b]; ++y) {
                    bool found = false;
                    for (const auto& row : rows) found = found || (row[a] == x && row[b] == y);
                    missing += found || is_refused(a, x, b, y) ? 0 : 1;
                }
    return missing;
}

} // namespace unisono_matrix
