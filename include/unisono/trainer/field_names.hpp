#pragma once

/// \file
/// Finds the number and names of an aggregate's members without a declaration in the aggregate. The
/// names are those in the source, as the compiler spells them (g++ and clang; none when nvcc
/// compiles). Tests detect a change of that spelling.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <memory>
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

} // namespace detail
UNISONO_NAMESPACE_END
