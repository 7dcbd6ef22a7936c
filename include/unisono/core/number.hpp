#pragma once

/// \file
/// Numbers from users and launchers: command lines, environment variables, files. All of the
/// library's programs read them here, so that none clamps, truncates or wraps around.
///
///     // throws for "18446744073709551616", "-1", "1e3", "7 "
///     const auto seed = un::read_number<std::uint64_t>(text, "--seed");
///     int ranks = 0;
///     if (!un::parse_number(text, 1, 4096, ranks)) ... // or your own message

#include "unisono/core/error.hpp"
#include "unisono/core/math.hpp"
#include "unisono/core/text.hpp"

#include <charconv>
#include <concepts>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// True if the text begins like a number: with a digit (a real number also with a point), after a
/// minus only if negative numbers are allowed.
template <class T>
bool begins_number(std::string_view text, T least) {
    if constexpr (std::is_signed_v<T>) {
        if (least < 0 && text.starts_with('-')) text.remove_prefix(1);
    }
    if (std::floating_point<T> && text.starts_with('.')) text.remove_prefix(1);
    return !text.empty() && text.front() >= '0' && text.front() <= '9';
}

} // namespace detail

/// Reads a number that is all of `text`, from `least` to `most`; otherwise returns false and leaves
/// `value` unchanged. Decimal digits only: no space, no plus, no hexadecimal, and a minus only if
/// `least` is negative. Overflow gives false, as does any text after the number. Independent of the
/// locale.
template <std::integral T>
[[nodiscard]] bool parse_number(std::string_view text, std::type_identity_t<T> least, std::type_identity_t<T> most,
                                T& value) {
    T found{};
    if (!detail::begins_number<T>(text, least)) return false;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), found);
    if (problem != std::errc{} || end != text.data() + text.size() || found < least || found > most) return false;
    value = found;
    return true;
}
/// As above, for "2", "0.5" and, unless `how` is fixed, "1e-6". Neither infinite nor NaN.
template <std::floating_point T>
[[nodiscard]] bool parse_number(std::string_view text, std::type_identity_t<T> least, std::type_identity_t<T> most,
                                T& value, std::chars_format how = std::chars_format::general) {
    T found{};
    if (!detail::begins_number<T>(text, least)) return false;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), found, how);
    if (problem != std::errc{} || end != text.data() + text.size() || !detail::is_finite(found)) return false;
    if (!(found >= least && found <= most)) return false;
    value = found;
    return true;
}

/// "a whole number from 0 to 65535", "a number from 0.5 to 2".
template <class T>
    requires std::is_arithmetic_v<T>
[[nodiscard]] std::string expected_number(T least, T most) {
    const auto shown = [](T one) {
        if constexpr (std::integral<T>) return concat({one});
        else return detail::number_text(static_cast<double>(one), std::chars_format::general, 6);
    };
    return concat({std::integral<T> ? "a whole number from " : "a number from ", shown(least), " to ", shown(most)});
}

/// The number that `parse_number` reads. \throws error bad_input: "`where` is '-1', expected a
/// whole number from 0 to 65535"
template <class T>
    requires std::is_arithmetic_v<T>
[[nodiscard]] T read_number(std::string_view text, std::string_view where,
                            std::type_identity_t<T> least = std::numeric_limits<T>::lowest(),
                            std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
    T value{};
    if (!parse_number(text, least, most, value))
        refuse_input({where, " is ", detail::quoted(text), ", expected ", expected_number<T>(least, most)});
    return value;
}

UNISONO_NAMESPACE_END
