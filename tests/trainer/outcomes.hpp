// What each rank of a world saw: nothing, or which error.
#pragma once

#include "unisono/group/run.hpp"
#include "unisono/transport/in_process.hpp"

#include <chrono>
#include <exception>
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

/// Runs body(world) on each rank; what a rank throws is its outcome. Waits end after half a minute.
template <class Body>
std::vector<Outcome> outcomes(int ranks, Body body) {
    std::vector<Outcome> all(static_cast<std::size_t>(ranks));
    unisono::run<unisono::InProcess>(ranks,
                                     [&](auto& world) {
                                         Outcome& mine = all[static_cast<std::size_t>(world.rank())];
                                         try {
                                             body(world);
                                         } catch (const unisono::error& found) {
                                             mine = {true, true, found.code(), found.rank(), found.what()};
                                         } catch (const std::exception& found) {
                                             mine = {true, false, unisono::ErrorCode::none, -1, found.what()};
                                         }
                                     },
                                     {.timeout = std::chrono::seconds(30)});
    return all;
}

} // namespace unisono_test
