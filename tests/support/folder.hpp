#pragma once

// A folder for one test, and what is in its files.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace unisono_test {

/// A new folder that only this user can enter. Its destructor removes it and its contents.
class Folder {
public:
    Folder() {
        char name[] = "/tmp/unisono-test-XXXXXX";
        if (::mkdtemp(name) == nullptr) std::abort();
        path_ = name;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    [[nodiscard]] const std::string& path() const { return path_; }
    [[nodiscard]] bool is_empty() const { return std::filesystem::is_empty(path_); }
    /// The names of the files and folders in it, without hidden ones.
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(path_))
            if (const std::string name = entry.path().filename(); name.front() != '.') found.push_back(name);
        return found;
    }
    [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

/// What is in the file; nothing if there is none.
inline std::string content(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path, std::ios::binary).rdbuf();
    return all.str();
}

/// Makes the file anew, with this mode.
inline void write_file(const std::string& path, const std::string& text, mode_t mode = 0600) {
    ::unlink(path.c_str());
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file || ::chmod(path.c_str(), mode) != 0) std::abort();
}

} // namespace unisono_test
