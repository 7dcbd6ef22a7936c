#pragma once

/// \file
/// The laws of guard/clipping.hpp for any clipping, and a minimal clipping.

#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"
#include "unisono/guard/clipping.hpp"
#include "unisono/testing/testing.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace testing {

/// The minimal clipping: a gradient longer than 1 is halved.
struct ArchetypeClipping {
    static constexpr std::string_view name = "archetype clipping";
    static constexpr Family family = Family::clipping;
    static constexpr bool measures_norm = true;
    static constexpr bool changes_elements = false;
    static constexpr bool needs_agreement = true;
    friend bool operator==(const ArchetypeClipping&, const ArchetypeClipping&) = default;

    void check() const {}
    [[nodiscard]] double factor(double norm) const { return norm > 1 ? 0.5 : 1; }
    template <class T>
    void clip(std::span<T>, double) const {}
};
static_assert(clipping_policy<ArchetypeClipping>);

namespace detail {

template <class T, clipping_policy Clipping>
void clipping_laws_of(const Clipping& policy, Violations& found) {
    using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
    const std::string kind = sizeof(T) == 4 ? "float" : "double";
    const auto same = [](T a, T b) { return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b); };
    std::vector<T> values;
    for (int i = 0; i < 5003; ++i) values.push_back(static_cast<T>(std::sin(0.7 * i + 1) * std::exp2(i % 23 - 11)));
    for (const double edge : {0.0, -0.0, 0x1p-140, 0x1p120, -0x1p120, 1.0, -1.0})
        values.push_back(static_cast<T>(edge));
    for (const double scale : {1.0, 0.125, 1.0 / 3, 700.0}) {
        std::vector<T> whole = values;
        policy.clip(std::span<T>(whole), scale);
        const std::string by = concat({" of ", kind, ", scaled by ", number_text(scale)});
        for (std::size_t i = 0; i < values.size() && !Clipping::changes_elements; ++i)
            if (!same(whole[i], values[i]))
                return found.add(concat({"changed ", number_text(static_cast<double>(values[i])), by,
                                         ", although `changes_elements` is false"}));
        for (const std::size_t cut :
             {std::size_t{1}, std::size_t{3}, std::size_t{16}, std::size_t{64}, std::size_t{1000}}) {
            std::vector<T> pieces = values;
            for (std::size_t at = 0; at < pieces.size(); at += cut)
                policy.clip(std::span<T>(pieces).subspan(at, std::min(cut, pieces.size() - at)), scale);
            for (std::size_t i = 0; i < values.size(); ++i)
                if (!same(whole[i], pieces[i]))
                    return found.add(concat({"element ", i, by, " in pieces of ", cut, " became ",
                                             exact_text(static_cast<double>(pieces[i])), " and ",
                                             exact_text(static_cast<double>(whole[i])), " in one piece"}));
        }
        for (std::size_t i = 0; i < values.size() && Clipping::changes_elements; ++i)
            if (!(std::abs(static_cast<double>(whole[i])) <=
                  std::abs(static_cast<double>(values[i])) * scale * (1 + 1e-6) + 1e-40))
                return found.add(concat({"changed ", number_text(static_cast<double>(values[i])), by, ", to ",
                                         number_text(static_cast<double>(whole[i])), ", which is larger"}));
    }
}

} // namespace detail

/// `factor` and `clip` are pure functions; those of a copy are the same. The factor of a finite
/// norm is a finite number of at least 0; it is 1 if no norm is measured. `clip` scales, and then
/// treats each element separately, so slices that are cut anywhere have the same bits. It makes no
/// element larger, and changes nothing if it says so.
template <clipping_policy Clipping>
Violations clipping_laws(const Clipping& policy) {
    Violations found{std::string(Clipping::name)};
    policy.check();
    const Clipping copy = policy;
    for (const double norm : {0.0, 0x1p-1000, 1e-6, 0.3, 1.0, 2.0, 1e6, 0x1p1000}) {
        const double factor = policy.factor(norm);
        const std::string of = concat({"the factor of the norm ", number_text(norm), " "});
        if (!(factor >= 0) || !unisono::detail::is_finite(factor)) found.add(concat({of, "is ", number_text(factor)}));
        if (factor != policy.factor(norm)) found.add(of + "differs from call to call");
        if (factor != copy.factor(norm)) found.add(of + "differs from a copy's");
        if (!Clipping::measures_norm && factor != 1)
            found.add(concat({of, "is ", number_text(factor), ", although `measures_norm` is false"}));
    }
    detail::clipping_laws_of<float>(policy, found);
    detail::clipping_laws_of<double>(copy, found);
    return found;
}

} // namespace testing
UNISONO_NAMESPACE_END
