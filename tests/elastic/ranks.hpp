// Trainings of which the test says which ranks die, and when.
#pragma once

#include "striking.hpp"
#include "support/heap.hpp"

namespace unisono_test {

/// Ranks that a sanitizer slows down end the training before a newcomer has got anywhere.
inline bool too_slow() {
#if defined(UNISONO_TEST_HAS_SANITIZED_HEAP)
    BOOST_TEST_MESSAGE("skipped: under a sanitizer");
    return true;
#else
    return false;
#endif
}

inline void await_end(un::Processes& processes) {
    while (const auto end = processes.wait_any(un::steady_now() + 40'000'000'000)) static_cast<void>(end);
    BOOST_REQUIRE_MESSAGE(processes.running() == 0, "a rank hangs");
}

/// Runs ranks to their end.
template <class Transport, class MakeBody>
void run_ranks(int ranks, const Shared& told, MakeBody make_body) {
    const Folder folder;
    un::Processes processes;
    for (int rank = 0; rank < ranks; ++rank)
        processes.start(
            [&] { return be_rank<Transport>(rank, ranks, folder.path(), patient(), told[rank], make_body(rank)); });
    await_end(processes);
}

} // namespace unisono_test
