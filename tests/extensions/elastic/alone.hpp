#pragma once

/// \file
/// The part of a medium of members (extensions/elastic/forming.hpp) that deals with applicants,
/// greetings and the end of a training, for media by hand that have none of these.

#include <unisono/extensions/elastic/forming.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace test {

struct Alone {
    static std::uint64_t job() { return 1; }
    static bool knows(int) { return true; }
    static bool is_connected(int) { return true; }
    static unisono::detail::Conclusion reach(int, const unisono::detail::Applicant&) {
        return unisono::detail::Conclusion::none;
    }
    static void all_are_here() {}
    static void listen(bool, bool) {}
    static bool look() { return false; }
    static std::vector<unisono::detail::Applicant> applicants() { return {}; }
    static void forget(const std::vector<unisono::detail::Applicant>&) {}
    static void refuse(const std::vector<unisono::detail::Applicant>&, const std::string&) {}
    static void end_training() {}
    static void hear_refusal() {}
    static void apply(unisono::nanoseconds) {}
    static unisono::error not_added() { return {unisono::ErrorCode::timeout, ""}; }
};

} // namespace test
