#include <unisono/arithmetic/operations.hpp>
#include <unisono/core/version.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <typeinfo>

BOOST_AUTO_TEST_SUITE(version)

// CMake and the packages read the header.
BOOST_AUTO_TEST_CASE(the_project_has_the_version_of_the_header) {
    const std::string header = std::to_string(UNISONO_VERSION_MAJOR) + "." + std::to_string(UNISONO_VERSION_MINOR) +
                               "." + std::to_string(UNISONO_VERSION_PATCH);
    BOOST_TEST(header == UNISONO_TEST_PROJECT_VERSION);
}

BOOST_AUTO_TEST_CASE(names_are_in_the_inline_namespace_of_the_major_version) {
    const std::string version = "v" + std::to_string(UNISONO_VERSION_MAJOR);
    const std::string mangled = "7unisono" + std::to_string(version.size()) + version + "3Sum";
    BOOST_TEST(std::string(typeid(unisono::Sum).name()).find(mangled) != std::string::npos,
               typeid(unisono::Sum).name());
}

BOOST_AUTO_TEST_SUITE_END()
