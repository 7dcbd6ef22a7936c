#pragma once

/// \file
/// A strict reader and a writer of JSON (RFC 8259) with what manifests and headers of tensors need.
///
/// Strict: one value and nothing after it, valid UTF-8, no member twice, numbers as in the
/// standard, at most `most_depth` levels and `most_values` values. So the memory for a hostile file
/// is at most a constant multiple of its length. Numbers keep their text, so an integer is never
/// rounded.

#include "unisono/core/error.hpp"
#include "unisono/core/json_text.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"

#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

class Json {
public:
    enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
    static constexpr std::size_t most_depth = 16;
    /// The most values that a text of `bytes` bytes may have. Manifests and headers have at least 7
    /// bytes per value, except for tensors of very many dimensions.
    static constexpr std::size_t most_values(std::size_t bytes) { return std::max(std::size_t{1} << 16, bytes / 6); }

    Kind kind = Kind::null;
    bool truth = false;
    std::string text = {};               ///< the decoded text of a string; the text of a number
    std::vector<Json> items = {};        ///< the elements of an array, or the values of an object
    std::vector<std::string> names = {}; ///< the names of an object's members, in order

    /// \throws error bad_input: names `where`, the byte, what was found there and what was expected
    static Json parse(std::string_view text, const std::string& where);

    // The following functions refuse a value of another type; the message names `where`.

    [[nodiscard]] const Json& member(std::string_view name, const std::string& where) const;
    [[nodiscard]] bool has(std::string_view name) const;
    /// Requires an object with these members and no others, except optional ones.
    void expect_members(std::initializer_list<std::string_view> expected, const std::string& where,
                        std::initializer_list<std::string_view> optional = {}) const;
    [[nodiscard]] const std::vector<Json>& array(const std::string& where) const;
    [[nodiscard]] const std::string& string(const std::string& where) const;
    [[nodiscard]] bool boolean(const std::string& where) const;
    template <std::integral T>
    [[nodiscard]] T integer(const std::string& where) const {
        expect(Kind::number, where);
        T value{};
        const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (problem != std::errc{} || end != text.data() + text.size())
            refuse_input({where, ": found ", text, "; expected an integer of ", 8 * sizeof(T), " bits",
                          std::unsigned_integral<T> ? ", at least 0" : ""});
        return value;
    }

private:
    void expect(Kind wanted, const std::string& where) const;
};

/// [elements] as text; `write` writes each.
template <class Range, class Write>
std::string json_array(const Range& range, Write&& write, std::string_view between = ",") {
    std::string all = "[";
    for (const auto& one : range) {
        if (all.size() > 1) all += between;
        all += write(one);
    }
    return all += ']';
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include <algorithm>

UNISONO_NAMESPACE_BEGIN
namespace detail {

UNISONO_DEFINITION const Json& Json::member(std::string_view name, const std::string& where) const {
    expect(Kind::object, where);
    for (std::size_t i = 0; i < names.size(); ++i)
        if (names[i] == name) return items[i];
    refuse_input({where, ": found no member \"", name, "\""});
}

UNISONO_DEFINITION bool Json::has(std::string_view name) const {
    return std::find(names.begin(), names.end(), name) != names.end();
}

UNISONO_DEFINITION void Json::expect_members(std::initializer_list<std::string_view> expected, const std::string& where,
                                             std::initializer_list<std::string_view> optional) const {
    for (const std::string_view one : expected) static_cast<void>(member(one, where));
    for (const std::string& found : names)
        if (std::find(expected.begin(), expected.end(), found) == expected.end() &&
            std::find(optional.begin(), optional.end(), found) == optional.end())
            refuse_input({where, ": found a member \"", found, "\" that is not known"});
}

UNISONO_DEFINITION const std::vector<Json>& Json::array(const std::string& where) const {
    expect(Kind::array, where);
    return items;
}

UNISONO_DEFINITION const std::string& Json::string(const std::string& where) const {
    expect(Kind::string, where);
    return text;
}

UNISONO_DEFINITION bool Json::boolean(const std::string& where) const {
    expect(Kind::boolean, where);
    return truth;
}

UNISONO_DEFINITION void Json::expect(Kind wanted, const std::string& where) const {
    constexpr std::string_view what[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    if (kind != wanted)
        refuse_input({where, ": found ", what[static_cast<std::size_t>(kind)], "; expected ",
                      what[static_cast<std::size_t>(wanted)]});
}

class JsonReader {
public:
    JsonReader(std::string_view text, const std::string& where)
        : text_(text), where_(where), most_values_(Json::most_values(text.size())) {}

    Json document() {
        Json value = this->value(0);
        skip_space();
        if (at_ != text_.size()) refuse("the end");
        return value;
    }

private:
    [[noreturn]] void refuse(std::string_view expected) const {
        std::string found = "the end";
        if (at_ < text_.size()) {
            const auto code = static_cast<unsigned char>(text_[at_]);
            found = code > 0x20 && code < 0x7f ? concat({"'", text_[at_], "'"}) : concat({"the byte ", int{code}});
        }
        refuse_input({where_, ": found ", found, " at byte ", at_, "; expected ", expected});
    }
    void skip_space() {
        while (at_ < text_.size() &&
               (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
            ++at_;
    }
    [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
    bool take(char wanted) {
        skip_space();
        if (peek() != wanted || at_ == text_.size()) return false;
        ++at_;
        return true;
    }
    bool take_word(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    Json value(std::size_t depth) {
        if (depth > Json::most_depth) refuse(concat({"at most ", Json::most_depth, " levels"}));
        if (++values_ > most_values_) refuse(concat({"at most ", most_values_, " values"}));
        Json one;
        skip_space();
        if (peek() == '{') object(one, depth);
        else if (peek() == '[') array(one, depth);
        else if (peek() == '"') one.kind = Json::Kind::string, one.text = string();
        else if (take_word("true")) one.kind = Json::Kind::boolean, one.truth = true;
        else if (take_word("false")) one.kind = Json::Kind::boolean;
        else if (!take_word("null")) one.kind = Json::Kind::number, one.text = number();
        return one;
    }
    void array(Json& one, std::size_t depth) {
        one.kind = Json::Kind::array;
        ++at_;
        if (take(']')) return;
        do one.items.push_back(value(depth + 1));
        while (take(','));
        if (!take(']')) refuse("',' or ']'");
    }
    void object(Json& one, std::size_t depth) {
        one.kind = Json::Kind::object;
        ++at_;
        if (take('}')) return;
        do {
            skip_space();
            if (peek() != '"') refuse("a member's name");
            one.names.push_back(string());
            if (!take(':')) refuse("':'");
            one.items.push_back(value(depth + 1));
        } while (take(','));
        if (!take('}')) refuse("',' or '}'");
        std::vector<std::string_view> sorted(one.names.begin(), one.names.end());
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        if (twice != sorted.end()) refuse_input({where_, ": found the member \"", *twice, "\" twice in one object"});
    }
    std::string number() {
        const std::size_t begin = at_;
        const auto digits = [&] {
            if (peek() < '0' || peek() > '9') refuse(at_ == begin ? "a value" : "a digit");
            while (peek() >= '0' && peek() <= '9') ++at_;
        };
        if (peek() == '-') ++at_;
        if (peek() == '0') ++at_;
        else digits();
        if (peek() == '.') ++at_, digits();
        if (peek() == 'e' || peek() == 'E') {
            ++at_;
            if (peek() == '+' || peek() == '-') ++at_;
            digits();
        }
        return std::string(text_.substr(begin, at_ - begin));
    }
    std::string string() {
        std::string all;
        ++at_;
        while (peek() != '"') {
            if (static_cast<unsigned char>(peek()) < 0x20) refuse("a string's next character");
            if (peek() == '\\') {
                ++at_;
                escaped(all);
                continue;
            }
            const std::size_t length = utf8_length(text_.substr(at_));
            if (length == 0) refuse("valid UTF-8");
            all += text_.substr(at_, length);
            at_ += length;
        }
        ++at_;
        return all;
    }
    void escaped(std::string& all) {
        constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
        if (const std::size_t which = peek() == '\0' ? from.npos : from.find(peek()); which != from.npos) {
            all += to[which];
            ++at_;
            return;
        }
        if (peek() != 'u') refuse("one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
        ++at_;
        unsigned code = hexadecimal();
        if (code >= 0xd800 && code < 0xdc00) { // the first half of a surrogate pair
            if (!take_word("\\u")) refuse("the second half of a surrogate pair");
            const unsigned low = hexadecimal();
            if (low < 0xdc00 || low > 0xdfff) refuse("the second half of a surrogate pair before here");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xdc00 && code < 0xe000) {
            refuse("the first half of a surrogate pair before here");
        }
        const auto put = [&](unsigned byte) { all += static_cast<char>(byte); };
        if (code < 0x80) return put(code);
        if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
        if (code < 0x10000) put(0xe0 | code >> 12);
        else put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
    }
    unsigned hexadecimal() {
        unsigned code = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            const char c = peek();
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
            if (digit < 0) refuse("four hexadecimal digits");
            code = code << 4 | static_cast<unsigned>(digit);
        }
        return code;
    }

    std::string_view text_;
    const std::string& where_;
    std::size_t at_ = 0;
    std::size_t most_values_;
    std::size_t values_ = 0;
};

UNISONO_DEFINITION Json Json::parse(std::string_view text, const std::string& where) {
    return JsonReader(text, where).document();
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
