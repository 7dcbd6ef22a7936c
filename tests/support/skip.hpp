// How a test says that it does not run, or runs in part. main.cpp prints what was skipped, and why.
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>
#include <vector>

namespace test {

/// What the cases of this program have skipped.
struct Skips {
    struct Line {
        std::string name;
        std::string why;
        bool whole; ///< otherwise a part of the case
    };
    std::vector<Line> lines;
};
inline Skips skips;

/// Says why the running case does not run: `if (!is_root()) return test::skip("only root ...");`. A
/// case that returns without a check and without this is listed.
inline void skip(const std::string& why) {
    skips.lines.push_back({boost::unit_test::framework::current_test_unit().full_name(), why, true});
}

/// Says why a part of the running case is left out.
inline void skip_part(const std::string& why) {
    skips.lines.push_back({boost::unit_test::framework::current_test_unit().full_name(), why, false});
}

/// A decorator for a case or a suite: `*test::only_if(is_root(), "only root can ...")`.
inline boost::unit_test::decorator::precondition only_if(bool possible, const std::string& why) {
    return boost::unit_test::decorator::precondition([=](boost::unit_test::test_unit_id) {
        boost::test_tools::assertion_result found(possible);
        found.message() << why;
        return found;
    });
}

} // namespace test
