// A call that must fail, and with which error.
#pragma once

#include <unisono/core/error.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

namespace test {

/// `body` must throw a unisono::error with this code (none: any) whose text has all of `words`.
template <class Body>
void fails(unisono::ErrorCode code, const std::vector<std::string>& words, Body body) {
    try {
        body();
        BOOST_ERROR("nothing was thrown; expected " + std::string(unisono::name_of(code)));
    } catch (const unisono::error& failed) {
        const std::string text = failed.what();
        BOOST_CHECK_MESSAGE(code == unisono::ErrorCode::none || failed.code() == code, text);
        for (const auto& word : words)
            BOOST_CHECK_MESSAGE(text.find(word) != std::string::npos, "'" + word + "' not in: " + text);
    }
}

template <class Body>
void fails(const std::vector<std::string>& words, Body body) {
    fails(unisono::ErrorCode::none, words, body);
}

} // namespace test
