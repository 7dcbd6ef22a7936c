#pragma once

/// \file
/// Messages, and numbers for people. Plain ASCII, independent of the locale.

#include "unisono/core/config.hpp"
#include "unisono/core/math.hpp"

#include <charconv>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

inline constexpr std::size_t longest_number = 352; ///< a double in %f has up to 309 digits before the point

/// True also for a program's own class that is derived from one of the two.
template <class T>
inline constexpr bool is_text = __is_base_of(std::string, T) || __is_base_of(std::string_view, T);

/// A part of a message: text, a character, or a number that becomes text when the message is made.
/// Two words, since every message stores several.
struct TextPart {
    static constexpr std::size_t longest = ~std::size_t{0} / 2; ///< greater lengths encode the other kinds
    enum Kind : std::size_t { character_kind = longest + 1, natural_kind, integer_kind, real_kind };
    union {
        const char* text;
        char character;
        unsigned long long natural;
        long long integer;
        double real;
    };
    std::size_t size_or_kind;

    /// A template, so that a compiler does not test whether a literal converts to a std::string.
    template <class T>
        requires is_text<T>
    constexpr TextPart(const T& value) : text(value.data()), size_or_kind(value.size()) {}
    /// A null pointer, which a user's own `what()` may return, is "(null)". That of a literal is
    /// known to the compiler, which then stores two numbers and compiles no call.
    constexpr TextPart(const char* value)
        : text(value != nullptr ? value : "(null)"), size_or_kind(value != nullptr ? __builtin_strlen(value) : 6) {}
    constexpr TextPart(char value) : character(value), size_or_kind(character_kind) {}
    template <std::unsigned_integral T>
    constexpr TextPart(T value) : natural(value), size_or_kind(natural_kind) {}
    template <std::signed_integral T>
    constexpr TextPart(T value) : integer(value), size_or_kind(integer_kind) {}
    template <std::floating_point T>
    constexpr TextPart(T value) : real(static_cast<double>(value)), size_or_kind(real_kind) {}

    void append_to(std::string& all) const;
};

/// Takes the part before the first `end`, or all, and drops that character.
inline std::string_view take_until(std::string_view& text, char end) {
    const std::string_view part = text.substr(0, text.find(end));
    text.remove_prefix(part.size() == text.size() ? part.size() : part.size() + 1);
    return part;
}

/// A number as printf writes it in the C locale, with %f, %e or %g and `digits` digits. Independent
/// of the program's locale, since files must be readable elsewhere.
std::string number_text(double value, std::chars_format how, int digits);
/// As printf's %a: all of its bits. Any NaN is "nan", since its sign depends on the order of
/// operands.
std::string hexadecimal_text(double value);

} // namespace detail

/// The texts of the parts (strings, characters, numbers), concatenated: concat({"rank ", rank, " of
/// ", world}). All messages are made with it: a chain of operator+, or a template, would cost the
/// including programs code and compile time.
std::string concat(std::initializer_list<detail::TextPart> parts);

/// `digits` decimals after the point: 1.5 with one digit is "1.5".
std::string fixed_text(double value, int digits);

/// A size in bytes: "0 B", "1023 B", "1.0 KiB", "25.0 MiB".
std::string bytes_text(std::size_t bytes);

/// A count with separated thousands: "1,234,567".
std::string count_text(std::size_t count);

namespace detail {

/// Quotes foreign text in a message: long text is cut, and unprintable characters are replaced.
std::string quoted(std::string_view text);

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::cold]] UNISONO_DEFINITION void TextPart::append_to(std::string& all) const {
    if (size_or_kind <= longest) all.append(text, size_or_kind);
    else if (size_or_kind == character_kind) all.append(&character, 1);
    else {
        char number[longest_number];
        char* const limit = number + sizeof number;
        const auto end = size_or_kind == natural_kind ? std::to_chars(number, limit, natural).ptr
                         : size_or_kind == integer_kind
                             ? std::to_chars(number, limit, integer).ptr
                             : std::to_chars(number, limit, real, std::chars_format::fixed, 6).ptr;
        all.append(number, static_cast<std::size_t>(end - number));
    }
}

[[gnu::cold]] UNISONO_DEFINITION std::string number_text(double value, std::chars_format how, int digits) {
    char text[longest_number];
    return {text, std::to_chars(text, text + sizeof text, value, how, digits).ptr};
}

[[gnu::cold]] UNISONO_DEFINITION std::string hexadecimal_text(double value) {
    if (is_nan(value)) return "nan";
    char text[longest_number];
    const char* const end = std::to_chars(text, text + sizeof text, value, std::chars_format::hex).ptr;
    std::string_view digits(text, static_cast<std::size_t>(end - text));
    const bool negative = digits.front() == '-';
    if (negative) digits.remove_prefix(1);
    const bool finite = digits.front() <= '9'; // else "inf"
    return std::string(negative ? "-" : "").append(finite ? "0x" : "").append(digits);
}

} // namespace detail

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION std::string concat(std::initializer_list<detail::TextPart> parts) {
    std::size_t about = 0;
    for (const detail::TextPart& part : parts)
        about += part.size_or_kind <= detail::TextPart::longest ? part.size_or_kind : 20;
    std::string all;
    all.reserve(about);
    for (const detail::TextPart& part : parts) part.append_to(all);
    return all;
}

[[gnu::cold]] UNISONO_DEFINITION std::string fixed_text(double value, int digits) {
    return detail::number_text(value, std::chars_format::fixed, digits < 0 ? 0 : (digits > 30 ? 30 : digits));
}

[[gnu::cold]] UNISONO_DEFINITION std::string bytes_text(std::size_t bytes) {
    static constexpr std::string_view units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) return concat({bytes, " B"});
    double value = static_cast<double>(bytes) / 1024.0;
    std::size_t unit = 0;
    while (value >= 1023.95 && unit < 5) {
        value /= 1024.0;
        ++unit;
    }
    return concat({fixed_text(value, 1), " ", units[unit]});
}

[[gnu::cold]] UNISONO_DEFINITION std::string count_text(std::size_t count) {
    char text[32];
    char* const end = text + sizeof text;
    char* at = end;
    for (int digits = 0; digits == 0 || count != 0; ++digits, count /= 10) {
        if (digits != 0 && digits % 3 == 0) *--at = ',';
        *--at = static_cast<char>('0' + count % 10);
    }
    return {at, end};
}

namespace detail {

[[gnu::cold]] UNISONO_DEFINITION std::string quoted(std::string_view text) {
    char shown[80];
    std::size_t count = 0;
    for (const char c : text.substr(0, sizeof shown)) shown[count++] = c >= ' ' && c <= '~' ? c : '?';
    return concat({"'", std::string_view(shown, count), text.size() > sizeof shown ? "...'" : "'"});
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
