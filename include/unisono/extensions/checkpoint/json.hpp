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

/// The place of a value, for messages. Its text is made only for a message.
struct JsonPlace {
    std::string_view file, part = {};

    template <class T>
        requires is_text<T>
    JsonPlace(const T& file_and_part) : file(file_and_part) {}
    JsonPlace(const char* file_and_part) : file(file_and_part) {}
    JsonPlace(std::string_view in, std::string_view at) : file(in), part(at) {}
};

/// A value of a `JsonText`, which keeps its memory. The values inside it follow it in memory.
class Json {
public:
    enum class Kind : std::uint8_t { null, boolean, number, string, array, object };
    static constexpr std::size_t most_depth = 16;
    /// The most values that a text of `bytes` bytes may have. Manifests and headers have at least 7
    /// bytes per value, except for tensors of very many dimensions.
    static constexpr std::size_t most_values(std::size_t bytes) { return std::max(std::size_t{1} << 16, bytes / 6); }

    /// The elements of an array, or the values of an object.
    class Items {
    public:
        class Iterator {
        public:
            explicit Iterator(const Json* at) : at_(at) {}
            const Json& operator*() const { return *at_; }
            const Json* operator->() const { return at_; }
            Iterator& operator++() {
                at_ += at_->extent_;
                return *this;
            }
            friend bool operator==(const Iterator&, const Iterator&) = default;

        private:
            const Json* at_;
        };
        explicit Items(const Json& of) : of_(&of) {}
        [[nodiscard]] Iterator begin() const { return Iterator(of_ + 1); }
        [[nodiscard]] Iterator end() const { return Iterator(of_ + of_->extent_); }
        /// Counts them.
        [[nodiscard]] std::size_t size() const;

    private:
        const Json* of_;
    };

    Kind kind = Kind::null;
    bool truth = false;

    /// The name of an object's member.
    [[nodiscard]] std::string_view name() const { return {name_, name_length_}; }
    /// The decoded text of a string; the text of a number.
    [[nodiscard]] std::string_view text() const { return {text_, text_length_}; }
    [[nodiscard]] Items items() const { return Items(*this); }

    // The following functions refuse a value of another type; the message names `where`.

    [[nodiscard]] const Json& member(std::string_view wanted, const JsonPlace& where) const;
    [[nodiscard]] bool has(std::string_view wanted) const;
    /// Requires an object with these members and no others, except optional ones.
    void expect_members(std::initializer_list<std::string_view> expected, const JsonPlace& where,
                        std::initializer_list<std::string_view> optional = {}) const;
    [[nodiscard]] Items array(const JsonPlace& where) const {
        expect(Kind::array, where);
        return items();
    }
    [[nodiscard]] std::string_view string(const JsonPlace& where) const {
        expect(Kind::string, where);
        return text();
    }
    [[nodiscard]] bool boolean(const JsonPlace& where) const {
        expect(Kind::boolean, where);
        return truth;
    }
    template <std::integral T>
    [[nodiscard]] T integer(const JsonPlace& where) const {
        expect(Kind::number, where);
        T value{};
        const auto [end, problem] = std::from_chars(text_, text_ + text_length_, value);
        if (problem != std::errc{} || end != text_ + text_length_)
            refuse_input({where.file, where.part, ": found ", text(), "; expected an integer of ", 8 * sizeof(T),
                          " bits", std::unsigned_integral<T> ? ", at least 0" : ""});
        return value;
    }

private:
    friend class JsonReader;
    void expect(Kind wanted, const JsonPlace& where) const;
    [[nodiscard]] bool has_in_order(std::initializer_list<std::string_view> exactly) const;

    std::uint32_t extent_ = 1; ///< number of values in it, itself included
    std::uint32_t name_length_ = 0, text_length_ = 0;
    const char* name_ = nullptr;
    const char* text_ = nullptr;
};

/// A name that is in `names` twice, the first in their order; null: there is none. May sort them.
const std::string_view* find_twice(std::vector<std::string_view>& names);

/// A text of less than 4 GiB and its values: all in one array, since a manifest of a large model
/// has millions.
class JsonText {
public:
    /// \throws error bad_input: names `where`, the byte, what was found there and what was expected
    JsonText(std::string text, const std::string& where);
    JsonText(const JsonText&) = delete;
    JsonText& operator=(const JsonText&) = delete;

    [[nodiscard]] const Json& root() const { return values_.front(); }

private:
    std::string text_; ///< its strings are decoded in place
    std::vector<Json> values_;
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
#include "unisono/core/hash.hpp"

#include <algorithm>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Without a call for most names that differ.
inline bool same_name(std::string_view a, std::string_view b) {
    return a.size() == b.size() && (a.empty() || a.front() == b.front()) && a == b;
}

UNISONO_DEFINITION std::size_t Json::Items::size() const {
    std::size_t count = 0;
    for (auto at = begin(); at != end(); ++at) ++count;
    return count;
}

UNISONO_DEFINITION const Json& Json::member(std::string_view wanted, const JsonPlace& where) const {
    expect(Kind::object, where);
    for (const Json& one : items())
        if (same_name(one.name(), wanted)) return one;
    refuse_input({where.file, where.part, ": found no member \"", wanted, "\""});
}

UNISONO_DEFINITION bool Json::has(std::string_view wanted) const {
    for (const Json& one : items())
        if (one.name() == wanted) return true;
    return false;
}

UNISONO_DEFINITION bool Json::has_in_order(std::initializer_list<std::string_view> exactly) const {
    const auto* wanted = exactly.begin();
    for (const Json& one : items())
        if (wanted == exactly.end() || !same_name(one.name(), *wanted++)) return false;
    return wanted == exactly.end();
}

UNISONO_DEFINITION void Json::expect_members(std::initializer_list<std::string_view> expected, const JsonPlace& where,
                                             std::initializer_list<std::string_view> optional) const {
    if (kind == Kind::object && has_in_order(expected)) return; // as this library writes them
    for (const std::string_view one : expected) static_cast<void>(member(one, where));
    for (const Json& found : items())
        if (std::find(expected.begin(), expected.end(), found.name()) == expected.end() &&
            std::find(optional.begin(), optional.end(), found.name()) == optional.end())
            refuse_input({where.file, where.part, ": found a member \"", found.name(), "\" that is not known"});
}

UNISONO_DEFINITION void Json::expect(Kind wanted, const JsonPlace& where) const {
    constexpr std::string_view what[] = {"null", "true or false", "a number", "a string", "an array", "an object"};
    if (kind != wanted)
        refuse_input({where.file, where.part, ": found ", what[static_cast<std::size_t>(kind)], "; expected ",
                      what[static_cast<std::size_t>(wanted)]});
}

UNISONO_DEFINITION const std::string_view* find_twice(std::vector<std::string_view>& names) {
    bool maybe = false;
    if (names.size() <= 8) { // an object of a manifest
        for (std::size_t i = 0; i < names.size(); ++i)
            for (std::size_t j = 0; j < i; ++j) maybe |= same_name(names[i], names[j]);
    } else { // numbers are sorted several times faster than texts
        std::vector<std::uint64_t> hashes;
        hashes.reserve(names.size());
        for (const std::string_view one : names) hashes.push_back(fnv1a(fnv_basis, one));
        std::sort(hashes.begin(), hashes.end());
        maybe = std::adjacent_find(hashes.begin(), hashes.end()) != hashes.end();
    }
    if (!maybe) return nullptr;
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    return twice == names.end() ? nullptr : &*twice;
}

class JsonReader {
public:
    JsonReader(std::string& text, std::vector<Json>& values, const std::string& where)
        : text_(text), values_(values), where_(where), most_values_(Json::most_values(text.size())) {
        values_.reserve(text.size() / 12); // about as many as a manifest has
    }

    void document() {
        value(0, {});
        skip_space();
        if (at_ != text_.size()) refuse("the end");
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
        if (peek() != word.front() || std::string_view(text_).substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    void value(std::size_t depth, std::string_view name) {
        if (depth > Json::most_depth) refuse(concat({"at most ", Json::most_depth, " levels"}));
        if (values_.size() == most_values_) refuse(concat({"at most ", most_values_, " values"}));
        const std::size_t mine = values_.size();
        Json one;
        one.name_ = name.data(), one.name_length_ = static_cast<std::uint32_t>(name.size());
        skip_space();
        if (peek() == '{') one.kind = Json::Kind::object;
        else if (peek() == '[') one.kind = Json::Kind::array;
        else if (peek() == '"') one.kind = Json::Kind::string, take_text(one, string());
        else if (take_word("true")) one.kind = Json::Kind::boolean, one.truth = true;
        else if (take_word("false")) one.kind = Json::Kind::boolean;
        else if (!take_word("null")) one.kind = Json::Kind::number, take_text(one, number());
        values_.push_back(one);
        if (one.kind == Json::Kind::object) object(mine, depth);
        if (one.kind == Json::Kind::array) array(depth);
        values_[mine].extent_ = static_cast<std::uint32_t>(values_.size() - mine);
    }
    static void take_text(Json& one, std::string_view text) {
        one.text_ = text.data(), one.text_length_ = static_cast<std::uint32_t>(text.size());
    }
    void array(std::size_t depth) {
        ++at_;
        if (take(']')) return;
        do value(depth + 1, {});
        while (take(','));
        if (!take(']')) refuse("',' or ']'");
    }
    void object(std::size_t mine, std::size_t depth) {
        ++at_;
        if (take('}')) return;
        do {
            skip_space();
            if (peek() != '"') refuse("a member's name");
            const std::string_view name = string();
            if (!take(':')) refuse("':'");
            value(depth + 1, name);
        } while (take(','));
        if (!take('}')) refuse("',' or '}'");
        names_.clear();
        for (std::size_t i = mine + 1; i < values_.size(); i += values_[i].extent_) names_.push_back(values_[i].name());
        if (const std::string_view* const twice = find_twice(names_); twice != nullptr)
            refuse_input({where_, ": found the member \"", *twice, "\" twice in one object"});
    }
    std::string_view number() {
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
        return std::string_view(text_).substr(begin, at_ - begin);
    }
    /// Decodes in place: no text is longer than its form in JSON.
    std::string_view string() {
        const std::size_t begin = ++at_;
        while (at_ < text_.size() && is_plain(text_[at_])) ++at_; // all of most strings
        end_ = at_;
        while (peek() != '"') {
            const auto code = static_cast<unsigned char>(peek());
            if (code < 0x20) refuse("a string's next character");
            if (code == '\\') {
                ++at_;
                escaped();
                continue;
            }
            std::size_t length = code < 0x80 ? 1 : utf8_length(std::string_view(text_).substr(at_));
            if (length == 0) refuse("valid UTF-8");
            for (; length != 0; --length) text_[end_++] = text_[at_++];
        }
        ++at_;
        return std::string_view(text_).substr(begin, end_ - begin);
    }
    static bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }
    void escaped() {
        constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
        if (const std::size_t which = peek() == '\0' ? from.npos : from.find(peek()); which != from.npos) {
            text_[end_++] = to[which];
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
        const auto put = [&](unsigned byte) { text_[end_++] = static_cast<char>(byte); };
        if (code < 0x80) return put(code);
        if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
        if (code < 0x10000) put(0xe0 | code >> 12);
        else put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f));
        put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
    }
    unsigned hexadecimal() {
        unsigned code = 0;
        const char* const begin = text_.data() + at_;
        const char* const end =
            std::from_chars(begin, begin + std::min<std::size_t>(4, text_.size() - at_), code, 16).ptr;
        at_ += static_cast<std::size_t>(end - begin);
        if (end != begin + 4) refuse("four hexadecimal digits");
        return code;
    }

    std::string& text_;
    std::vector<Json>& values_;
    const std::string& where_;
    std::size_t at_ = 0;
    std::size_t end_ = 0; ///< of the string that is being decoded
    std::size_t most_values_;
    std::vector<std::string_view> names_; ///< of an object's members
};

UNISONO_DEFINITION JsonText::JsonText(std::string text, const std::string& where) : text_(std::move(text)) {
    JsonReader(text_, values_, where).document();
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
