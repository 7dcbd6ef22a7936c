#pragma once

/// \file
/// Paths that users give, and the ends of files.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The path from the root, so that it stays valid if the program changes its folder. An empty path
/// stays empty. \throws error refused: the program's folder no longer exists
inline std::string absolute_path(const std::string& path) {
    if (path.empty() || path.front() == '/') return path;
    char* const here = ::getcwd(nullptr, 0); // allocates as much as is needed
    if (here == nullptr)
        throw error(ErrorCode::refused, concat({"cannot find the folder of this process, in which '", path,
                                                "' would be: ", std::generic_category().message(errno)}));
    std::string all = here;
    std::free(here);
    if (all.back() != '/') all += '/';
    return all += path;
}

/// The reason for which a file was not opened for writing. Opening does not wait for a pipe's
/// reader.
inline std::string why_not_opened(int number) {
    if (number == ENXIO) return "no process reads from this pipe; expected that its reader opens it first";
    return std::generic_category().message(number);
}

inline std::int64_t size_of_file(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_size : 0;
}

/// The bytes of a file from `from` on, but at most the last `most` bytes.
inline std::string end_of_file(const std::string& path, std::int64_t from, std::int64_t most) {
    const std::int64_t size = size_of_file(path), first = size - from > most ? size - most : from;
    if (size <= first) return {}; // also for a pipe, which could block when it is opened
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return {};
    std::string text(static_cast<std::size_t>(size - first), '\0');
    if (std::fseek(file, static_cast<long>(first), SEEK_SET) != 0) text.clear();
    text.resize(std::fread(text.data(), 1, text.size(), file));
    static_cast<void>(std::fclose(file)); // an error does not matter, since the file was only read
    return text;
}

/// Removes `bytes` bytes at the end of a file. Returns false if that fails.
inline bool cut_off_end(const std::string& path, std::size_t bytes) {
    return ::truncate(path.c_str(), size_of_file(path) - static_cast<std::int64_t>(bytes)) == 0;
}

} // namespace detail
UNISONO_NAMESPACE_END
