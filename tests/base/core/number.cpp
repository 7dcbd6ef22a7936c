// Numbers in text. Text that is not entirely a number within the range is refused.
#include "unisono/core/number.hpp"

#include <boost/test/unit_test.hpp>

#include <clocale>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace un = unisono;

namespace {

template <class T>
void accepts(std::string_view text, T least, T most, T expected) {
    T value{};
    BOOST_TEST(un::parse_number(text, least, most, value), text);
    BOOST_TEST(value == expected, text);
}
template <class T>
void refuses(std::string_view text, T least, T most) {
    T value{7};
    BOOST_TEST(!un::parse_number(text, least, most, value), text);
    BOOST_TEST(value == T{7}, text); // unchanged
}

} // namespace

BOOST_AUTO_TEST_SUITE(number)

BOOST_AUTO_TEST_CASE(whole_numbers) {
    constexpr auto least = std::numeric_limits<std::int64_t>::min();
    constexpr auto most = std::numeric_limits<std::int64_t>::max();
    constexpr auto largest = std::numeric_limits<std::uint64_t>::max();
    accepts<std::uint64_t>("18446744073709551615", 0, largest, largest);
    refuses<std::uint64_t>("18446744073709551616", 0, largest); // 2^64
    refuses<std::uint64_t>("99999999999999999999999999", 0, largest);
    accepts<std::int64_t>("-9223372036854775808", least, most, least);
    accepts<std::int64_t>("9223372036854775807", least, most, most);
    refuses<std::int64_t>("9223372036854775808", least, most);
    refuses<std::int64_t>("-9223372036854775809", least, most);
    accepts("007", 0, 10, 7);
    accepts("0", 0, 10, 0);
    accepts("-3", -5, 5, -3);
    for (const char* text :
         {"", " ", "-", "+1", "-1", " 1", "1 ", "1,", "1.0", "1e3", "0x10", "1_0", "one", "--1", "1\n", "11"})
        refuses(text, 0, 10);
    refuses(std::string_view("1\0", 2), 0, 10);
    refuses("-6", -5, 5);
    refuses("-", -5, 5);
    refuses("--2", -5, 5);
    refuses("- 2", -5, 5);
    refuses<unsigned char>("256", 0, 255);
}

BOOST_AUTO_TEST_CASE(real_numbers) {
    accepts("2", 0.0, 9.0, 2.0);
    accepts("0.5", 0.0, 9.0, 0.5);
    accepts(".5", 0.0, 9.0, 0.5);
    accepts("1e-6", 0.0, 9.0, 1e-6);
    accepts("-1.5", -9.0, 9.0, -1.5);
    for (const char* text :
         {"", ".", "-", "-1", "+1", " 1", "1 ", "1,5", "1.5.", "inf", "nan", "1e999", "0x1p3", "9.5", "1e", "-nan"})
        refuses(text, 0.0, 9.0);
    for (const char* text : {"inf", "nan", "-inf", "-nan", "1e999"})
        refuses(text, -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
    double value = 0;
    BOOST_TEST(!un::parse_number("1e3", 0, 1e9, value, std::chars_format::fixed));
}

BOOST_AUTO_TEST_CASE(the_locale_changes_nothing) {
    const std::string before = std::setlocale(LC_NUMERIC, nullptr);
    if (std::setlocale(LC_NUMERIC, "de_DE.UTF-8") == nullptr) std::setlocale(LC_NUMERIC, "C.UTF-8");
    accepts("0.5", 0.0, 9.0, 0.5);
    refuses("0,5", 0.0, 9.0);
    std::setlocale(LC_NUMERIC, before.c_str());
}

BOOST_AUTO_TEST_CASE(an_error_says_what_was_found_expected_and_where) {
    const auto says = [](auto read, const std::string& words) {
        BOOST_CHECK_EXCEPTION(static_cast<void>(read()), un::error, [&](const un::error& e) {
            BOOST_TEST(e.what() == words);
            return e.code() == un::ErrorCode::bad_input;
        });
    };
    says(
        [] { return un::read_number<std::uint64_t>("18446744073709551616", "--seed"); },
        "unisono: bad_input: --seed is '18446744073709551616', expected a whole number from 0 to 18446744073709551615");
    says([] { return un::read_number<int>("-1", "RANK", 0, 7); },
         "unisono: bad_input: RANK is '-1', expected a whole number from 0 to 7");
    says([] { return un::read_number<double>("fast", "--bandwidth", 0.5, 2); },
         "unisono: bad_input: --bandwidth is 'fast', expected a number from 0.5 to 2");
    BOOST_TEST(un::read_number<std::uint16_t>("65535", "port", 1) == 65535);
}

BOOST_AUTO_TEST_CASE(texts_of_all_kinds_are_parts_of_a_message) {
    struct Name : std::string { // a program's own
        using std::string::string;
    };
    const Name name("mine");
    const std::string_view view = "view";
    const char letters[] = "letters";
    BOOST_TEST(un::concat({name, ' ', std::string("string"), ' ', view, ' ', letters, ' ', 3, ' ', 2u}) ==
               "mine string view letters 3 2");
    BOOST_CHECK_EXCEPTION(un::refuse_input(name), un::error,
                          [](const un::error& thrown) { return thrown.why().message == "mine"; });
}

BOOST_AUTO_TEST_SUITE_END()
