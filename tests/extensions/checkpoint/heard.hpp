// What a test writes to standard error.
#pragma once

#include "../../support/folder.hpp"

#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

namespace unisono_test {

/// Records standard error.
class Heard {
public:
    Heard() {
        std::fflush(stderr);
        before_ = ::dup(2);
        const int file = ::open((folder_ / "text").c_str(), O_RDWR | O_CREAT, 0600);
        ::dup2(file, 2);
        ::close(file);
    }
    ~Heard() { end(); }
    std::string end() {
        if (before_ < 0) return text_;
        std::fflush(stderr);
        ::dup2(before_, 2);
        ::close(before_);
        before_ = -1;
        std::ifstream file(folder_ / "text");
        return text_ = {std::istreambuf_iterator<char>(file), {}};
    }

private:
    Folder folder_;
    int before_ = -1;
    std::string text_;
};

inline std::size_t times(const std::string& text, const std::string& words) {
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++count;
    return count;
}

} // namespace unisono_test
