#pragma once

/// \file
/// The parameters of a policy, found without its help: for showing them, and for comparing them over the ranks. A learning
/// rate or a seed that differs between ranks would otherwise let the replicas drift apart in silence.
///
/// A policy that means to differ between ranks declares `static constexpr bool differs_between_ranks = true`.

#include "unisono/core/list.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"

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

/// Converts to any member of T, but not to T itself or a base of it: whose members cannot be told apart.
template <class T>
struct AnyMemberOf {
    template <class U>
        requires(!std::is_base_of_v<U, T>)
    operator U() const; // never defined: for counting only
};

/// Converts to a base of T only.
template <class T>
struct AnyBaseOf {
    template <class U>
        requires(std::is_base_of_v<U, T> && !std::is_same_v<U, T>)
    operator U() const;
};

template <class T>
inline constexpr bool has_base = requires { T{AnyBaseOf<T>{}}; };

template <class T, std::size_t... I>
consteval bool has_fields(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), AnyMemberOf<T>{})...}; };
}

template <class T, std::size_t... Fewer>
consteval std::size_t most_fields(std::index_sequence<Fewer...>) {
    std::size_t most = 0;
    ((most = has_fields<T>(std::make_index_sequence<Fewer + 1>{}) ? Fewer + 1 : most), ...);
    return most;
}

/// Members of an aggregate; 0 where there are none, more than 8, or a base class.
template <class T>
consteval std::size_t field_count() {
    if constexpr (std::is_aggregate_v<T> && !has_base<T>) {
        constexpr std::size_t most = most_fields<T>(std::make_index_sequence<9>{});
        return most <= 8 ? most : 0;
    } else {
        return 0;
    }
}

/// A number, boolean or enumerator of a policy.
struct PolicyField {
    enum class Kind : std::uint8_t { boolean, integer, real };
    Kind kind = Kind::integer;
    std::uint64_t bits = 0;

    [[nodiscard]] std::string text() const {
        if (kind == Kind::boolean) return bits != 0 ? "true" : "false";
        if (kind == Kind::integer) return std::to_string(static_cast<std::int64_t>(bits));
        return number_text(std::bit_cast<double>(bits), std::chars_format::general, 6);
    }
};

/// Appends the fields in order; nested aggregates are entered, anything else is passed over.
template <class T>
void append_fields(List<PolicyField>& list, const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
        list.push_back({PolicyField::Kind::boolean, value ? 1u : 0u});
    } else if constexpr (std::is_floating_point_v<T>) {
        list.push_back({PolicyField::Kind::real, std::bit_cast<std::uint64_t>(static_cast<double>(value))});
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        list.push_back({PolicyField::Kind::integer, static_cast<std::uint64_t>(value)});
    } else {
        constexpr std::size_t count = field_count<T>();
        const auto each = [&](const auto&... field) { (append_fields(list, field), ...); };
        if constexpr (count == 1) {
            const auto& [a] = value;
            each(a);
        } else if constexpr (count == 2) {
            const auto& [a, b] = value;
            each(a, b);
        } else if constexpr (count == 3) {
            const auto& [a, b, c] = value;
            each(a, b, c);
        } else if constexpr (count == 4) {
            const auto& [a, b, c, d] = value;
            each(a, b, c, d);
        } else if constexpr (count == 5) {
            const auto& [a, b, c, d, e] = value;
            each(a, b, c, d, e);
        } else if constexpr (count == 6) {
            const auto& [a, b, c, d, e, f] = value;
            each(a, b, c, d, e, f);
        } else if constexpr (count == 7) {
            const auto& [a, b, c, d, e, f, g] = value;
            each(a, b, c, d, e, f, g);
        } else if constexpr (count == 8) {
            const auto& [a, b, c, d, e, f, g, h] = value;
            each(a, b, c, d, e, f, g, h);
        }
    }
}

/// What is known of a policy without its type.
struct PolicyFacts {
    std::string_view family;
    std::string_view name;
    List<PolicyField> fields = {};
    bool differs_between_ranks = false;

    /// "Sgd(0.01, 0.9, 0, false, 0)"
    [[nodiscard]] std::string text() const {
        std::string all(name);
        for (std::size_t i = 0; i < fields.size(); ++i) all += (i == 0 ? "(" : ", ") + fields[i].text();
        if (!fields.empty()) all += ")";
        return all;
    }
    /// Of what must be equal on all ranks.
    [[nodiscard]] std::uint64_t hash() const {
        std::uint64_t value = 14695981039346656037u; // FNV-1a, over words
        const auto mix = [&](std::uint64_t word) { value = (value ^ word ^ (value >> 29)) * 1099511628211u; };
        for (const char letter : name) mix(static_cast<unsigned char>(letter));
        if (differs_between_ranks) return value;
        for (const PolicyField& field : fields) mix(field.bits);
        return value;
    }
};

template <class P>
PolicyFacts facts_of(const P& policy) {
    if constexpr (requires { policy.visit_held([](const auto&) {}); }) { // it holds another: AnyReducer
        return policy.visit_held([](const auto& held) { return facts_of(held); });
    } else {
        PolicyFacts facts{name_of(P::family), P::name};
        append_fields(facts.fields, policy);
        facts.differs_between_ranks = requires { requires P::differs_between_ranks; };
        return facts;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END
