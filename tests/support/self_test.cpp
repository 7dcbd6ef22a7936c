#include "support/allocation_counter.hpp"
#include "support/reference.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdint>
#include <new>
#include <stdexcept>
#include <thread>

using namespace unisono_test;

BOOST_AUTO_TEST_SUITE(support)

// Calls operator new instead of new expressions, which a compiler may elide.
BOOST_AUTO_TEST_CASE(allocations_are_counted_by_process_and_by_thread) {
    const auto process_before = allocations_of_process();
    const auto thread_before = allocations_of_thread();
    std::thread([] { ::operator delete(::operator new(4)); }).join();
    const auto by_this_thread = allocations_of_thread() - thread_before;
    const auto by_all = allocations_of_process() - process_before;
    BOOST_TEST(by_all > by_this_thread);

    const auto before = allocations_of_thread();
    void* plain = ::operator new(4);
    void* wide = ::operator new(100, std::align_val_t{128});
    const auto after = allocations_of_thread();
    BOOST_TEST(after - before == 2u);
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(wide) % 128 == 0u);
    ::operator delete(wide, std::align_val_t{128});
    ::operator delete(plain);
}

BOOST_AUTO_TEST_CASE(hex_floats_are_exact) {
    BOOST_TEST(parse_hex("0x1.8p-1") == 0.75);
    BOOST_TEST(parse_hex("-0x1.5555555555555p-2") == -1.0 / 3.0);
    BOOST_CHECK_THROW(parse_hex(""), std::invalid_argument);
    BOOST_CHECK_THROW(parse_hex("0x1.8p-1 and more"), std::invalid_argument);
    BOOST_CHECK_THROW(parse_hex_array<float>({"0x1.0000000000001p0"}), std::invalid_argument);
}

BOOST_AUTO_TEST_CASE(the_reference_is_complete) {
    for (const char* section : {"article", "rand", "randperm", "sampler", "optimizer", "ddp"}) {
        BOOST_TEST(reference().contains(section), section);
    }
    const auto weights = parse_hex_array<float>(reference()["article"][0]["weights_after_epoch"][1]);
    BOOST_TEST(weights.size() == 8u);
    BOOST_TEST(weights[0] == 0x1.e4f518p-1f);
}

BOOST_AUTO_TEST_SUITE_END()
