#pragma once

/// \file
/// Paths that users give.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"

#include <cerrno>
#include <cstdlib>
#include <string>
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

} // namespace detail
UNISONO_NAMESPACE_END
