// Structs of c.h by callers that were compiled for other versions of it.

#include <unisono/extensions/any_group/c_values.hpp>
#include <unisono/unisono.hpp>

#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <cstring>
#include <string>

namespace un = unisono;

namespace {

/// One struct in its first version, in the next one, and in a later one.
struct First {
    std::size_t size = sizeof(First);
    long a = 0;
};
struct Second {
    std::size_t size = sizeof(Second);
    long a = 0, b = 0;
};
struct Third {
    std::size_t size = sizeof(Third);
    long a = 0, b = 0, c = 0;
};

/// The library of the second version, given a caller's struct.
template <class Callers>
Second received(const Callers& callers) {
    alignas(Second) unsigned char memory[64];
    std::memset(memory, 7, sizeof memory); // what lies behind is not the struct's
    std::memcpy(memory, &callers, sizeof callers);
    const void* const given = memory;
    return un::detail::c_edge::of_caller<Second>(given, sizeof(First), "options");
}

template <class Callers>
std::string refusal_of(const Callers& callers) {
    return test::refusal_of([&] { static_cast<void>(received(callers)); });
}

} // namespace

BOOST_AUTO_TEST_SUITE(c_structs)

BOOST_AUTO_TEST_CASE(an_older_struct_has_zeros_in_members_that_it_lacks) {
    const Second own = received(First{.a = 5});
    BOOST_TEST(own.a == 5);
    BOOST_TEST(own.b == 0);
}

BOOST_AUTO_TEST_CASE(a_newer_struct_is_read_if_what_it_has_more_is_not_used) {
    const Second own = received(Third{.a = 5, .b = 6});
    BOOST_TEST(own.a == 5);
    BOOST_TEST(own.b == 6);
    BOOST_TEST(refusal_of(Third{.a = 5, .c = 1}).find("byte 24 of options is not 0, but this library has 24 bytes") !=
               std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_size_that_no_version_has_is_refused) {
    for (const std::size_t size :
         {std::size_t{0}, sizeof(First) - 1, std::size_t{60}, std::size_t{600}, ~std::size_t{0}}) {
        const std::string text = refusal_of(Second{.size = size});
        BOOST_TEST(text.find("options.size is " + std::to_string(size) + ", expected 24") != std::string::npos, text);
    }
}

BOOST_AUTO_TEST_SUITE_END()
