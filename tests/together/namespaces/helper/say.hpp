// What the programs of this folder tell the test.
#pragma once

#include <cstdio>
#include <string>

/// Prints a line at once.
inline void say(const std::string& text) {
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
}
