#include <unisono/observe/progress.hpp>

#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

using namespace unisono;

namespace {

constexpr nanoseconds second = 1'000'000'000;

/// A screen and a clock that the test controls.
struct Screen {
    std::vector<std::string> written;
    nanoseconds time = 0;
    bool terminal = true;
    int width = 80;
};

struct ScreenOutput {
    Screen* screen = nullptr;
    void write(std::string_view text) { screen->written.emplace_back(text); }
    nanoseconds now() { return screen->time; }
    bool is_terminal() { return screen->terminal; }
    int columns() { return screen->width; }
};
static_assert(progress_output<ScreenOutput>);

using Reporter = ProgressReporter<ScreenOutput>;

/// The text of a redraw without its control characters.
std::string shown(const std::string& written) {
    BOOST_REQUIRE(written.size() >= 4);
    BOOST_TEST(written.front() == '\r');
    BOOST_TEST(written.substr(written.size() - 3) == "\x1b[K");
    return written.substr(1, written.size() - 4);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

} // namespace

BOOST_AUTO_TEST_SUITE(progress)

BOOST_AUTO_TEST_CASE(a_bar_shows_speed_loss_and_time_left) {
    Screen screen;
    Reporter reporter(Progress{}, true, {&screen});
    BOOST_CHECK(reporter.style() == ProgressStyle::bar);
    reporter.begin({.epochs = 2, .samples_total = 1000});
    screen.time = 5 * second;
    reporter.update({.epochs = 2, .samples = 500, .samples_total = 1000, .loss = 0.6931});
    BOOST_REQUIRE_EQUAL(screen.written.size(), 1U);
    const std::string line = shown(screen.written[0]);
    BOOST_TEST(line == "epoch 1/2: [===========>          ]  50%, 100 samples/s, loss 0.6931, 0:15 left");
    BOOST_TEST(line.size() <= 79U);
}

BOOST_AUTO_TEST_CASE(the_bar_is_redrawn_ten_times_a_second_at_most) {
    Screen screen;
    {
        Reporter reporter(Progress{}, true, {&screen});
        reporter.begin({.samples_total = 10'000});
        for (std::uint64_t update = 1; update <= 10'000; ++update) {
            screen.time += second / 10'000;
            reporter.update({.samples = update, .samples_total = 10'000});
        }
        BOOST_TEST(screen.written.size() <= 11U);
        BOOST_TEST(screen.written.size() >= 9U);
    }
    BOOST_TEST(screen.written.back() == "\n"); // the destructor leaves the line
}

BOOST_AUTO_TEST_CASE(the_line_fits_any_width) {
    for (int width = 1; width < 130; ++width) {
        Screen screen{.written = {}, .time = 0, .terminal = true, .width = width};
        Reporter reporter(Progress{}, true, {&screen});
        reporter.begin({.epochs = 3, .samples_total = 1000});
        screen.time = second;
        reporter.update({.epochs = 3, .samples = 999, .samples_total = 1000, .loss = -1.5e-7});
        reporter.epoch_end({.epochs = 3, .samples = 1000, .samples_total = 1000});
        BOOST_REQUIRE(!screen.written.empty());
        BOOST_TEST(shown(screen.written[0]).size() < static_cast<std::size_t>(width));
        BOOST_TEST(contains(shown(screen.written[0]), "[") == (width >= 70), width);
    }
}

BOOST_AUTO_TEST_CASE(elsewhere_there_is_a_line_an_epoch) {
    Screen screen;
    screen.terminal = false;
    {
        Reporter reporter(Progress{}, true, {&screen});
        BOOST_CHECK(reporter.style() == ProgressStyle::lines);
        reporter.begin({.epochs = 2, .samples_total = 96});
        for (std::uint64_t epoch = 0; epoch < 2; ++epoch) {
            for (std::uint64_t samples = 8; samples <= 96; samples += 8) {
                screen.time += second / 10;
                reporter.update({.epoch = epoch, .epochs = 2, .samples = samples, .samples_total = 96, .loss = 1});
            }
            reporter.epoch_end({.epoch = epoch, .epochs = 2, .samples = 96, .samples_total = 96, .loss = 0.25});
        }
    }
    const std::vector<std::string> expected = {"epoch 1/2: 96 samples in 1.2 s, 80.0 samples/s, loss 0.25\n",
                                               "epoch 2/2: 96 samples in 1.2 s, 80.0 samples/s, loss 0.25\n"};
    BOOST_TEST(screen.written == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(and_a_line_whenever_so_much_time_went_by) {
    Screen screen;
    screen.terminal = false;
    Reporter reporter(Progress{.line_seconds = 10}, true, {&screen});
    reporter.begin({.samples_total = 1000});
    for (std::uint64_t samples = 10; samples <= 400; samples += 10) {
        screen.time += second;
        reporter.update({.samples = samples, .samples_total = 1000});
    }
    BOOST_REQUIRE_EQUAL(screen.written.size(), 4U);
    BOOST_TEST(screen.written[3] == "epoch 1/1:  40%, 10.0 samples/s, 1:00 left\n");
    for (const std::string& line : screen.written) BOOST_TEST(!contains(line, "\x1b"));
}

BOOST_AUTO_TEST_CASE(a_resumed_run_estimates_from_what_it_did_itself) {
    Screen screen;
    screen.terminal = false;
    Reporter reporter(Progress{.line_seconds = 10}, true, {&screen});
    reporter.begin({.epoch = 1, .epochs = 2, .samples = 500, .samples_total = 1000});
    screen.time = 10 * second;
    reporter.update({.epoch = 1, .epochs = 2, .samples = 600, .samples_total = 1000});
    reporter.epoch_end({.epoch = 1, .epochs = 2, .samples = 1000, .samples_total = 1000});
    BOOST_REQUIRE_EQUAL(screen.written.size(), 2U);
    BOOST_TEST(screen.written[0] == "epoch 2/2:  60%, 10.0 samples/s, 0:40 left\n");
    BOOST_TEST(screen.written[1] == "epoch 2/2: 500 samples in 10.0 s, 50.0 samples/s\n");
}

BOOST_AUTO_TEST_CASE(an_epoch_of_unknown_size_has_no_bar) {
    Screen screen;
    Reporter reporter(Progress{}, true, {&screen});
    reporter.begin({});
    screen.time = second;
    reporter.update({.samples = 1234});
    BOOST_TEST(shown(screen.written.at(0)) == "epoch 1/1: 1,234 samples, 1,234 samples/s");
}

BOOST_AUTO_TEST_CASE(silence) {
    Screen screen;
    for (const bool prints : {false, true}) {
        Reporter reporter(Progress{.style = prints ? ProgressStyle::off : ProgressStyle::bar}, prints, {&screen});
        reporter.begin({.samples_total = 10});
        screen.time += second;
        reporter.update({.samples = 5, .samples_total = 10});
        reporter.epoch_end({.samples = 10, .samples_total = 10});
    }
    BOOST_TEST(screen.written.empty());
}

BOOST_AUTO_TEST_CASE(no_time_and_no_samples_do_no_harm) {
    Screen screen;
    Reporter reporter(Progress{.columns = 200}, true, {&screen});
    reporter.begin({.epochs = 0});
    reporter.update({.epochs = 0});
    reporter.epoch_end({.epochs = 0});
    reporter.update({.epochs = 0, .samples = 7, .samples_total = 3});
    for (const std::string& line : screen.written) BOOST_TEST(!contains(line, "inf"));
}

BOOST_AUTO_TEST_CASE(durations) {
    BOOST_TEST(duration_text(0) == "0:00");
    BOOST_TEST(duration_text(75.4) == "1:15");
    BOOST_TEST(duration_text(3599.6) == "1:00:00");
    BOOST_TEST(duration_text(172'800) == "48:00:00");
    BOOST_TEST(duration_text(-1) == "?");
    BOOST_TEST(duration_text(std::numeric_limits<double>::quiet_NaN()) == "?");
}

BOOST_AUTO_TEST_CASE(bad_parameters_are_refused_by_name) {
    const auto refused = [](const Progress& policy, const std::string& parameter) {
        BOOST_CHECK_EXCEPTION(policy.check(), error, [&](const error& e) {
            return e.code() == ErrorCode::bad_input && contains(e.what(), "Progress." + parameter);
        });
    };
    for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        refused(Progress{.redraw_seconds = bad}, "redraw_seconds");
        refused(Progress{.line_seconds = bad}, "line_seconds");
    }
    refused(Progress{.columns = -1}, "columns");
}

BOOST_AUTO_TEST_SUITE_END()
