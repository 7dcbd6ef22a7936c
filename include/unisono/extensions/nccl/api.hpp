#pragma once

/// \file
/// NCCL as this library uses it: versions, and the text of its errors. No other header includes
/// NCCL's headers.

#include "unisono/extensions/cuda/api.hpp"

#include <nccl.h>

#include <string>

#if !defined(NCCL_VERSION_CODE) || NCCL_VERSION_CODE < 21900
#define UNISONO_TEXT_OF(x) #x
#define UNISONO_VALUE_OF(x) UNISONO_TEXT_OF(x)
#pragma message("found: NCCL_VERSION_CODE is " UNISONO_VALUE_OF(NCCL_VERSION_CODE) "; required: at least 21900")
#error "Unisono needs the headers of NCCL 2.19 or newer (communicators that do not block, split, registered memory)"
#endif

#if NCCL_VERSION_CODE >= 22700
#define UNISONO_NCCL_WINDOWS 1 ///< memory that all ranks of a communicator register together
#else
#define UNISONO_NCCL_WINDOWS 0
#endif

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// 22809 is "2.28.9"; before 2.9 versions had four digits.
inline std::string nccl_version_text(int code) {
    const int major = code < 10000 ? code / 1000 : code / 10000;
    const int minor = code < 10000 ? code / 100 % 10 : code / 100 % 100;
    return concat({major, ".", minor, ".", code % 100});
}

/// NCCL's name of a result, and its last message.
inline std::string words_of(ncclResult_t code) {
    std::string text = ncclGetErrorString(code);
    const char* const last = ncclGetLastError(nullptr);
    if (last != nullptr && *last != '\0') text += concat({" (", last, ")"});
    return text;
}

[[noreturn, gnu::cold]] inline void refuse_call(const char* call, const std::string& words) {
    throw error(ErrorCode::refused, concat({"NCCL: ", call, ": ", words}));
}

/// Checks a call. Nonblocking communicators answer "in progress", which is no error.
inline void check_nccl(ncclResult_t code, const char* call) {
    if (code != ncclSuccess && code != ncclInProgress) refuse_call(call, words_of(code));
}

/// The version of the loaded library. Errors: refused if it is older than the headers.
inline int loaded_nccl() {
    int loaded = 0;
    check_nccl(ncclGetVersion(&loaded), "ncclGetVersion");
    if (loaded < NCCL_VERSION_CODE) {
        throw error(ErrorCode::refused,
                    concat({"NCCL: the library that was loaded is ", nccl_version_text(loaded), ", older than ",
                            nccl_version_text(NCCL_VERSION_CODE), ", whose headers the program was compiled with"}));
    }
    return loaded;
}

} // namespace detail
UNISONO_NAMESPACE_END
