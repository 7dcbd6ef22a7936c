// How this room reports violations.
#pragma once

#include "unisono/testing/testing.hpp"

#include <boost/test/unit_test.hpp>

#include <initializer_list>
#include <string>

namespace unisono_test {

inline void expect_lawful(const unisono::testing::Violations& found) {
    BOOST_CHECK_MESSAGE(found.lawful(), found.text());
}

/// Expects that a mutant is reported, in words that describe its fault.
inline void expect_reported(const unisono::testing::Violations& found, std::initializer_list<const char*> words) {
    BOOST_CHECK_MESSAGE(!found.lawful(), "a mutant was taken for lawful");
    for (const char* word : words)
        BOOST_CHECK_MESSAGE(found.text().find(word) != std::string::npos, "\"" << word << "\" is not in:\n"
                                                                               << found.text());
}

} // namespace unisono_test
