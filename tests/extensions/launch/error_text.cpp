// The text of an errno, by either kind of strerror_r.

#include <unisono/core/descriptor.hpp>

#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <cstring>
#include <string>

BOOST_AUTO_TEST_SUITE(launch_error_text)

BOOST_AUTO_TEST_CASE(is_that_of_strerror) {
    for (const int number : {ENOENT, EAGAIN, ECONNREFUSED, 123456})
        BOOST_TEST(unisono::detail::errno_text(number) == std::string(std::strerror(number)));
}

BOOST_AUTO_TEST_CASE(gnu_returns_it_and_posix_writes_it) {
    BOOST_TEST(unisono::detail::error_text_of("returned", "written") == std::string("returned"));
    BOOST_TEST(unisono::detail::error_text_of(0, "written") == std::string("written"));
}

BOOST_AUTO_TEST_SUITE_END()
