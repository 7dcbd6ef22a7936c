// Calls that must fail with an error, and texts that must have certain words.
#pragma once

#include <unisono/core/error.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace test {

/// The text must have these words.
inline void says(const std::string& text, const std::string& words) {
    BOOST_TEST((text.find(words) != text.npos), "'" + words + "' not in: " + text);
}

/// `body` must throw a unisono::error with this code (none: any) whose text has all of `words`.
template <class Body>
void fails(unisono::ErrorCode code, const std::vector<std::string>& words, Body body) {
    try {
        body();
        std::string expected = code == unisono::ErrorCode::none ? "an error" : std::string(unisono::name_of(code));
        for (const auto& word : words) expected += " '" + word + "'";
        BOOST_ERROR("nothing was thrown; expected " + expected);
    } catch (const unisono::error& failed) {
        const std::string text = failed.what();
        BOOST_CHECK_MESSAGE(code == unisono::ErrorCode::none || failed.code() == code, text);
        for (const auto& word : words) says(text, word);
    }
}

template <class Body>
void fails(const std::vector<std::string>& words, Body body) {
    fails(unisono::ErrorCode::none, words, body);
}

} // namespace test
