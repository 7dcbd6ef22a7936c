// Prints at the end how many combinations ran, and how many the rules refused, and why.
#include "matrix.hpp"

#include <cstdio>

namespace {

struct Report {
    Report() = default;
    Report(const Report&) = delete;
    Report& operator=(const Report&) = delete;
    ~Report() {
        const auto& all = unisono_matrix::counts();
        int refused = 0;
        for (const auto& [reason, count] : all.refused) refused += count;
        std::printf("policy matrix: %d combinations ran, on threads%s; %d were refused at compile time\n", all.ran,
                    test::under_thread_sanitizer ? "" : " and on processes", refused);
        for (const auto& [reason, count] : all.refused) std::printf("  %3d refused: %s\n", count, reason.c_str());
    }
};

} // namespace

BOOST_TEST_GLOBAL_FIXTURE(Report);
