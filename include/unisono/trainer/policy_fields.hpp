#pragma once

/// \file
/// Finds the parameters of a policy without a declaration in the policy, to show them and to
/// compare them over the ranks. A learning rate or a seed that differs between ranks would
/// otherwise let the replicas diverge silently.
///
/// A policy that may differ between ranks declares
/// `static constexpr bool differs_between_ranks = true`.

#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"
#include "unisono/trainer/field_names.hpp"

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A number, boolean or enumerator of a policy.
struct PolicyField {
    enum class Kind : std::uint8_t { boolean, integer, real };
    Kind kind = Kind::integer;
    std::uint64_t bits = 0;
    std::string_view name = {};  ///< "momentum"; empty where the compiler does not provide names
    std::string_view group = {}; ///< the aggregate that contains it; empty: the policy itself
    std::string_view word = {};  ///< name of an enumerator for which there is `name_of`

    /// "momentum 0.9"
    [[nodiscard]] std::string text() const;

private:
    [[nodiscard]] std::string value_text() const;
};

/// The names that identify a field.
struct FieldPlace {
    std::string_view name = {};
    const FieldPlace* group = nullptr; ///< the aggregate that contains it
};
void append_boolean(List<PolicyField>& list, bool value, const FieldPlace& place);
void append_integer(List<PolicyField>& list, std::uint64_t value, const FieldPlace& place);
void append_enumerator(List<PolicyField>& list, std::uint64_t value, std::string_view word, const FieldPlace& place);
void append_real(List<PolicyField>& list, double value, const FieldPlace& place);

/// The name of member `Index` of T. `Outer`: the field that holds the T, or `policy_place` if T is
/// the policy.
template <class T, std::size_t Index, const FieldPlace* Outer>
inline constexpr FieldPlace field_place{field_name<T, Index>(), Outer};
inline constexpr FieldPlace policy_place{};

/// Appends the fields in order. Nested aggregates are entered; other types are skipped.
template <const FieldPlace* Place = &policy_place, class T>
void append_fields(List<PolicyField>& list, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
        append_boolean(list, value, *Place);
    } else if constexpr (std::is_floating_point_v<T>) {
        append_real(list, static_cast<double>(value), *Place);
    } else if constexpr (requires { std::string_view(name_of(value)); } && std::is_enum_v<T>) {
        append_enumerator(list, static_cast<std::uint64_t>(value), name_of(value), *Place);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        append_integer(list, static_cast<std::uint64_t>(value), *Place);
    } else {
        with_fields(value, [&](const auto&... fields) {
            [&]<std::size_t... Index>(std::index_sequence<Index...>) {
                (append_fields<&field_place<T, Index, Place>>(list, fields), ...);
            }(std::index_sequence_for<decltype(fields)...>{});
        });
    }
}

/// The facts of a policy without its type.
struct PolicyFacts {
    std::string_view family;
    std::string_view name;
    List<PolicyField> fields = {};
    bool differs_between_ranks = false;

    /// "Sgd(learning_rate 0.01, momentum 0.9, dampening 0, nesterov false, weight_decay 0)"
    [[nodiscard]] std::string text() const;
    /// A hash of the fields that must be equal on all ranks.
    [[nodiscard]] std::uint64_t hash() const;
};

template <class P>
PolicyFacts facts_of(const P& policy) {
    PolicyFacts facts;
    if constexpr (requires { policy.visit_held([](const auto&) {}); }) { // it holds another, as AnyReducer does
        policy.visit_held([&](const auto& held) { facts = facts_of(held); });
    } else {
        facts.family = name_of(P::family);
        facts.name = P::name;
        facts.differs_between_ranks = requires { requires P::differs_between_ranks; };
        append_fields(facts.fields, policy);
    }
    return facts;
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void append_enumerator(List<PolicyField>& list, std::uint64_t value,
                                                                       std::string_view word, const FieldPlace& place) {
    const std::string_view group = place.group == nullptr ? std::string_view() : place.group->name;
    list.push_back({PolicyField::Kind::integer, value, place.name, group, word});
}
[[gnu::cold]] UNISONO_DEFINITION void append_integer(List<PolicyField>& list, std::uint64_t value,
                                                     const FieldPlace& place) {
    append_enumerator(list, value, {}, place);
}
[[gnu::cold]] UNISONO_DEFINITION void append_boolean(List<PolicyField>& list, bool value, const FieldPlace& place) {
    append_integer(list, value ? 1 : 0, place);
    list.back().kind = PolicyField::Kind::boolean;
}
[[gnu::cold]] UNISONO_DEFINITION void append_real(List<PolicyField>& list, double value, const FieldPlace& place) {
    append_integer(list, std::bit_cast<std::uint64_t>(value), place);
    list.back().kind = PolicyField::Kind::real;
}

[[gnu::cold]] UNISONO_DEFINITION std::string PolicyField::text() const {
    std::string value = value_text();
    if (name.empty()) return value;
    return concat({group, group.empty() ? "" : ".", name, " ", value});
}

[[gnu::cold]] UNISONO_DEFINITION std::string PolicyField::value_text() const {
    if (!word.empty()) return std::string(word);
    if (kind == Kind::boolean) return bits != 0 ? "true" : "false";
    if (kind == Kind::integer) return concat({static_cast<std::int64_t>(bits)});
    return number_text(std::bit_cast<double>(bits), std::chars_format::general, 6);
}

[[gnu::cold]] UNISONO_DEFINITION std::string PolicyFacts::text() const {
    std::string all(name);
    for (std::size_t i = 0; i < fields.size(); ++i) all.append(i == 0 ? "(" : ", ").append(fields[i].text());
    if (!fields.empty()) all += ")";
    return all;
}

[[gnu::cold]] UNISONO_DEFINITION std::uint64_t PolicyFacts::hash() const {
    std::uint64_t value = fnv_basis;
    const auto mix = [&](std::uint64_t word) { value = fnv1a(value ^ (value >> 29), word); };
    for (const char letter : name) mix(static_cast<unsigned char>(letter));
    if (differs_between_ranks) return value;
    for (const PolicyField& field : fields) mix(field.bits);
    return value;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
