#include "unisono/core/outcome.hpp"
#include "unisono/core/memory.hpp"

#include <boost/test/unit_test.hpp>

#include <stdexcept>

// A sanitizer ends the program instead.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UNISONO_SANITIZED_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define UNISONO_SANITIZED_MEMORY 1
#endif
#endif
#ifndef UNISONO_SANITIZED_MEMORY
#define UNISONO_SANITIZED_MEMORY 0
#endif

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(core_outcome)

BOOST_AUTO_TEST_CASE(whatever_is_thrown_comes_back_as_a_fault) {
    int calls = 0;
    const un::Fault good = un::outcome_of([&] { ++calls; });
    BOOST_TEST((good.code == un::ErrorCode::none && good.message.empty() && calls == 1));
    const un::Fault lost = un::outcome_of(
        [] { throw un::error(un::Fault{.code = un::ErrorCode::peer_lost, .rank = 2, .peer = 1, .message = "gone"}); });
    BOOST_TEST((lost.code == un::ErrorCode::peer_lost && lost.rank == 2 && lost.peer == 1 && lost.message == "gone"));
    const un::Fault memory = un::outcome_of([] { throw std::bad_alloc(); });
    BOOST_TEST((memory.code == un::ErrorCode::refused && memory.message == "out of memory"));
    const un::Fault other = un::outcome_of([] { throw std::logic_error("user's own"); });
    BOOST_TEST((other.code == un::ErrorCode::aborted && other.message == "user's own"));
    const un::Fault odd = un::outcome_of([] { throw 7; });
    BOOST_TEST((odd.code == un::ErrorCode::aborted));
}

BOOST_AUTO_TEST_CASE(an_exception_is_a_fault_of_the_rank_that_handles_it) {
    const auto fault_of = [](auto thrown) {
        try {
            throw thrown;
        } catch (...) {
            return un::detail::fault_of_exception(
                {.code = un::ErrorCode::aborted, .rank = 3, .operation = "fit", .message = "rank 3 threw: "});
        }
    };
    const un::Fault known = fault_of(un::error({.code = un::ErrorCode::timeout, .rank = 1, .message = "late"}));
    BOOST_TEST((known.code == un::ErrorCode::timeout && known.rank == 1));
    BOOST_TEST((known.operation.empty() && known.message == "late"));
    BOOST_TEST(fault_of(un::error(un::ErrorCode::refused, "no memory")).rank == 3);
    const un::Fault other = fault_of(std::logic_error("user's own"));
    BOOST_TEST((other.code == un::ErrorCode::aborted && other.rank == 3 && other.operation == "fit"));
    BOOST_TEST(other.message == "rank 3 threw: user's own");
    BOOST_TEST(fault_of(7).message == "rank 3 threw: something that is not a std::exception");
}

#if !UNISONO_SANITIZED_MEMORY
BOOST_AUTO_TEST_CASE(memory_that_the_system_does_not_have_is_refused) {
    for (const std::size_t bytes : {std::size_t{1} << 60, ~std::size_t{0} - 4096}) {
        const un::Fault found = un::outcome_of([&] { static_cast<void>(un::detail::memory_for_rank(1, bytes)); });
        BOOST_TEST((found.code == un::ErrorCode::refused || found.code == un::ErrorCode::bad_input), found.message);
        BOOST_TEST(found.message.starts_with("allocate: "), found.message);
    }
}
#endif

BOOST_AUTO_TEST_SUITE_END()
