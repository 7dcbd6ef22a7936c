#pragma once

/// \file
/// Finds the parameters of a policy without a declaration in the policy, to show them and to
/// compare them over the ranks. A learning rate or a seed that differs between ranks would
/// otherwise let the replicas diverge silently.
///
/// A policy that may differ between ranks declares
/// `static constexpr bool differs_between_ranks = true`.
///
/// The number and names of an aggregate's members are found without a declaration in the aggregate.
/// The names are those in the source, as the compiler spells them (g++ and clang; none when nvcc
/// compiles). Tests detect a change of that spelling.

#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/policy.hpp"
#include "unisono/core/text.hpp"

#include <bit>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Converts to any member of T, but not to T itself or a base of T: the members of a base cannot be
/// told apart.
template <class T>
struct AnyMemberOf {
    template <class U>
        requires(!__is_base_of(U, T))
    operator U() const; // never defined: for counting only
};

/// Converts to a base of T only.
template <class T>
struct AnyBaseOf {
    template <class U>
        requires(__is_base_of(U, T) && !std::is_same_v<U, T>)
    operator U() const;
};

template <class T>
inline constexpr bool has_base = requires { T{AnyBaseOf<T>{}}; };

template <class T, std::size_t... Index>
consteval bool has_fields(std::index_sequence<Index...>) {
    return requires { T{(static_cast<void>(Index), AnyMemberOf<T>{})...}; };
}

template <class T, std::size_t... Fewer>
consteval std::size_t most_fields(std::index_sequence<Fewer...>) {
    std::size_t most = 0;
    ((most = has_fields<T>(std::make_index_sequence<Fewer + 1>{}) ? Fewer + 1 : most), ...);
    return most;
}

/// The number of members of an aggregate; 0 if there are none, more than 8, or a base class.
template <class T>
consteval std::size_t field_count() {
    if constexpr (__is_empty(T)) return 0; // NOLINT(bugprone-branch-clone): half of the policies, asked nothing more
    else if constexpr (std::is_aggregate_v<T> && !has_base<T>) {
        constexpr std::size_t most = most_fields<T>(std::make_index_sequence<9>{});
        return most <= 8 ? most : 0;
    } else {
        return 0;
    }
}

/// Calls visit(members...), or visit() if `field_count` is 0.
template <class T, class Visit>
constexpr decltype(auto) with_fields(const T& value, Visit visit) {
    constexpr std::size_t count = field_count<T>();
    if constexpr (count == 1) {
        const auto& [a] = value;
        return visit(a);
    } else if constexpr (count == 2) {
        const auto& [a, b] = value;
        return visit(a, b);
    } else if constexpr (count == 3) {
        const auto& [a, b, c] = value;
        return visit(a, b, c);
    } else if constexpr (count == 4) {
        const auto& [a, b, c, d] = value;
        return visit(a, b, c, d);
    } else if constexpr (count == 5) {
        const auto& [a, b, c, d, e] = value;
        return visit(a, b, c, d, e);
    } else if constexpr (count == 6) {
        const auto& [a, b, c, d, e, f] = value;
        return visit(a, b, c, d, e, f);
    } else if constexpr (count == 7) {
        const auto& [a, b, c, d, e, f, g] = value;
        return visit(a, b, c, d, e, f, g);
    } else if constexpr (count == 8) {
        const auto& [a, b, c, d, e, f, g, h] = value;
        return visit(a, b, c, d, e, f, g, h);
    } else {
        return visit();
    }
}

#if defined(__GNUC__) && !defined(__CUDACC__)
/// An object of which only the members' addresses are used: no T is ever constructed.
template <class T>
union NamedObject {
    constexpr NamedObject() : none() {}
    constexpr ~NamedObject() {}
    char none;
    T object;
};
template <class T>
inline constexpr NamedObject<T> named_object{};
/// An address as a template argument: clang accepts a member's address only within a class.
template <class T>
struct MemberAddress {
    const T* address;
};
template <std::size_t Index, class First, class... Rest>
constexpr const auto& field_at(const First& first, const Rest&... rest) {
    if constexpr (Index == 0) return first;
    else return field_at<Index - 1>(rest...);
}
template <class T, std::size_t Index>
consteval auto address_of_field() {
    return with_fields(named_object<T>.object, [](const auto&... fields) {
        const auto& field = field_at<Index>(fields...);
        return MemberAddress<std::remove_cvref_t<decltype(field)>>{std::addressof(field)};
    });
}
template <auto Address>
constexpr const char* spelt() {
    return __PRETTY_FUNCTION__;
}

/// The last name in "[with auto Address = MemberAddress<double>{(&
/// NamedObject<Sgd>::object.Sgd::momentum)}]", and in clang's spelling.
template <class T, std::size_t Index>
constexpr std::string_view field_name() {
    std::string_view text = spelt<address_of_field<T, Index>()>();
    const auto in_name = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (!text.empty() && !in_name(text.back())) text.remove_suffix(1);
    std::size_t length = 0;
    while (length < text.size() && in_name(text[text.size() - 1 - length])) ++length;
    return text.substr(text.size() - length);
}

#else
template <class T, std::size_t Index>
constexpr std::string_view field_name() {
    return {};
}
#endif

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
/// `word`: the enumerator's name, or empty.
void append_field(List<PolicyField>& list, PolicyField::Kind kind, std::uint64_t bits, std::string_view word,
                  const FieldPlace& place);

/// The name of member `Index` of T. `Outer`: the field that holds the T, or `policy_place` if T is
/// the policy.
template <class T, std::size_t Index, const FieldPlace* Outer>
inline constexpr FieldPlace field_place{field_name<T, Index>(), Outer};
inline constexpr FieldPlace policy_place{};

/// Appends the fields in order. Nested aggregates are entered; other types are skipped.
template <const FieldPlace* Place = &policy_place, class T>
void append_fields(List<PolicyField>& list, const T& value) {
    using Kind = PolicyField::Kind;
    if constexpr (std::is_same_v<T, bool>) {
        append_field(list, Kind::boolean, value ? 1 : 0, {}, *Place);
    } else if constexpr (std::is_floating_point_v<T>) {
        append_field(list, Kind::real, std::bit_cast<std::uint64_t>(static_cast<double>(value)), {}, *Place);
    } else if constexpr (requires { std::string_view(name_of(value)); } && std::is_enum_v<T>) {
        append_field(list, Kind::integer, static_cast<std::uint64_t>(value), name_of(value), *Place);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
        append_field(list, Kind::integer, static_cast<std::uint64_t>(value), {}, *Place);
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

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void append_field(List<PolicyField>& list, PolicyField::Kind kind,
                                                                  std::uint64_t bits, std::string_view word,
                                                                  const FieldPlace& place) {
    const std::string_view group = place.group == nullptr ? std::string_view() : place.group->name;
    list.push_back({kind, bits, place.name, group, word});
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
