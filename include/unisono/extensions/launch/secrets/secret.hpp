#pragma once

/// \file
/// The secret that a user gives to a job: UNISONO_TOKEN, or a file that UNISONO_TOKEN_FILE names.

#include "unisono/core/error.hpp"
#include "unisono/core/text.hpp"
#include "unisono/extensions/launch/secrets/token.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/launch/descriptor.hpp"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Reads 32 hexadecimal digits, followed by white space. The file must belong to this user or root,
/// and no other user may be able to read it; a link to it may belong to another user, as in
/// Kubernetes. Errors: refused, bad_input.
inline JobToken read_token_file(const std::string& path) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.valid())
        throw error(ErrorCode::refused,
                    concat({"cannot read UNISONO_TOKEN_FILE=", detail::quoted(path), ": ", errno_text(errno)}));
    struct stat about = {};
    if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
        (about.st_uid != ::geteuid() && about.st_uid != 0) || (about.st_mode & 077) != 0) {
        throw error(
            ErrorCode::refused,
            concat({"UNISONO_TOKEN_FILE=", detail::quoted(path),
                    " is not a file that this user alone can read; expected one that this user owns, with mode 0600"}));
    }
    char text[256];
    const ssize_t got = ::read(file.get(), text, sizeof text);
    std::string_view digits(text, got > 0 ? static_cast<std::size_t>(got) : 0);
    while (!digits.empty() && (digits.back() == '\n' || digits.back() == '\r' || digits.back() == ' '))
        digits.remove_suffix(1);
    return JobToken::parse(digits, "UNISONO_TOKEN_FILE's file");
}

/// Returns nothing if no secret was given. Errors: refused, bad_input.
inline std::optional<JobToken> given_secret(const Environment& environment) {
    const std::string* const text = environment.find("UNISONO_TOKEN");
    const std::string* const file = environment.find("UNISONO_TOKEN_FILE");
    if (text != nullptr && file != nullptr)
        refuse_input("UNISONO_TOKEN and UNISONO_TOKEN_FILE are both set, expected one of them");
    if (text != nullptr) return JobToken::parse(*text);
    if (file != nullptr) return read_token_file(*file);
    return std::nullopt;
}

/// True if the environment says that the job needs no secret. Errors: bad_input.
inline bool trusts_network(const Environment& environment) {
    const std::string* const said = environment.find("UNISONO_TRUSTED_NETWORK");
    if (said == nullptr || *said == "0") return false;
    if (*said != "1") refuse_input({"UNISONO_TRUSTED_NETWORK is ", detail::quoted(*said), ", expected 0 or 1"});
    return true;
}

/// The advice for jobs without a secret.
inline constexpr std::string_view how_to_give_a_secret =
    "set UNISONO_TOKEN to the same 32 hexadecimal digits on all ranks (od -An -N16 -tx1 /dev/urandom | tr -d ' ' draws "
    "some), or UNISONO_TOKEN_FILE to a file of mode 0600 that has them; or, where only machines that you trust reach "
    "this network, UNISONO_TRUSTED_NETWORK=1 (RendezvousOptions::trusted_network in a program)";

} // namespace detail
UNISONO_NAMESPACE_END
