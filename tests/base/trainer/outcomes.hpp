// The outcome of each rank of a world: no error, or which error.
#pragma once

#include "support/ranks.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

namespace unisono_test {

struct Outcome {
    bool failed = false;
    bool ours = false; ///< an unisono::error
    unisono::ErrorCode code = unisono::ErrorCode::none;
    int rank = -1;
    std::string what = {};

    [[nodiscard]] bool says(const std::string& text) const { return what.find(text) != std::string::npos; }
};

namespace detail {

struct Told { // by ranks that may be processes
    bool failed, ours;
    unisono::ErrorCode code;
    int rank;
    char what[1000];
    void tell(bool of_ours, unisono::ErrorCode found, int who, const std::string& text) {
        failed = true;
        ours = of_ours;
        code = found;
        rank = who;
        text.copy(what, sizeof what - 1);
    }
};

inline std::vector<Outcome> outcomes(int ranks, unisono::detail::RankBody<test::Transport> body) {
    const test::Shared<std::array<Told, 8>> told;
    const auto run = [&] {
        test::run(ranks,
                  [&](auto& world) {
                      Told& mine = told->at(static_cast<std::size_t>(world.rank()));
                      try {
                          body(world);
                      } catch (const unisono::error& found) {
                          mine.tell(true, found.code(), found.rank(), found.what());
                      } catch (const std::exception& found) {
                          mine.tell(false, unisono::ErrorCode::none, -1, found.what());
                      }
                  },
                  {.timeout = std::chrono::seconds(30)});
    };
    if (test::will_be_processes()) {
        try {
            run();
        } catch (const unisono::error&) {
            // The world's error, which each rank has reported.
            bool any = false;
            for (const Told& one : *told) any = any || one.failed;
            if (!any) throw;
        }
    } else {
        run();
    }
    std::vector<Outcome> all;
    for (int rank = 0; rank < ranks; ++rank) {
        const Told& one = told->at(static_cast<std::size_t>(rank));
        all.push_back({one.failed, one.ours, one.code, one.failed ? one.rank : -1, one.what});
    }
    return all;
}

} // namespace detail

/// Runs body(world) on each rank. An exception on a rank is its outcome. Waits end after half a
/// minute.
template <class Body>
std::vector<Outcome> outcomes(int ranks, Body body) {
    return detail::outcomes(ranks, body);
}

/// For `body`: its rank fails unless this holds.
inline void expect(bool holds, const std::string& what) {
    if (!holds) throw std::runtime_error(what);
}

/// No rank has failed.
inline void check_clean(const std::vector<Outcome>& all) {
    for (std::size_t rank = 0; rank < all.size(); ++rank)
        BOOST_TEST(!all[rank].failed, "rank " << rank << ": " << all[rank].what);
}

} // namespace unisono_test
