// How a call is refused. May be used on any rank: nothing is reported to Boost.Test.
#pragma once

#include <unisono/core/error.hpp>

#include <string>

namespace test {

/// The text of the error with which call() ends; empty if there is none.
template <class Call>
std::string error_text(Call call) {
    try {
        call();
    } catch (const unisono::error& failed) {
        return failed.what();
    }
    return {};
}

/// The text of the `bad_input` error with which body() ends; otherwise what happened in its place.
template <class Body>
std::string refusal_of(Body body) {
    try {
        body();
    } catch (const unisono::error& failed) {
        return failed.code() == unisono::ErrorCode::bad_input ? failed.what()
                                                              : std::string("another code: ") + failed.what();
    }
    return "nothing was refused";
}

/// True if body() ends with a `bad_input` error.
template <class Body>
bool is_refused(Body body) {
    try {
        body();
    } catch (const unisono::error& failed) {
        return failed.code() == unisono::ErrorCode::bad_input;
    }
    return false;
}

} // namespace test
