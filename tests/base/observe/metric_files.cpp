// Metrics in files: rank 0 writes what it is told, and a file that cannot be written is an error.
#include "unisono/extensions/observe/metric_files.hpp"
#include "unisono/core/error.hpp"
#include "unisono/extensions/observe/tensorboard.hpp"
#include "unisono/observe/hash_log.hpp"

#include "support/folder.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <clocale>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <vector>

namespace un = unisono;
using unisono_test::content;

namespace {

struct Rank {
    int number = 0;
    [[nodiscard]] int rank() const { return number; }
};

/// Like the trainer's report, which this room does not know.
struct Report {
    bool committed = true;
    double loss = 0.5;
    double learning_rate = 0.1;
    double gradient_norm = 0;
    double loss_scale = 1;
    std::uint64_t number = 1;
    std::int64_t samples = 32;
    std::int64_t tokens = 0;
};

std::vector<std::string> lines(const std::string& path) {
    std::istringstream all(content(path));
    std::vector<std::string> found;
    for (std::string line; std::getline(all, line);) found.push_back(line);
    return found;
}

bool refused(const un::error& e) {
    return e.code() == un::ErrorCode::refused && std::string(e.what()).find("No such file") != std::string::npos &&
           std::string(e.what()).find("'/nowhere/at/all") != std::string::npos;
}

} // namespace

BOOST_AUTO_TEST_SUITE(metric_files)

BOOST_AUTO_TEST_CASE(a_line_of_json_for_each_update) {
    const unisono_test::Folder folder;
    {
        un::JsonLinesFile log(Rank{}, folder / "run.jsonl");
        log(Report{});
        ::usleep(2000);
        log(Report{.committed = false,
                   .loss = std::numeric_limits<double>::quiet_NaN(),
                   .gradient_norm = 3,
                   .loss_scale = 1024,
                   .number = 1,
                   .tokens = 77});
        log.write(1, {{"a \"name\"\\", 1.0 / 3}});
    }
    // A run that continues.
    un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(2, {{"more", -1e300}});
    const auto all = lines(folder / "run.jsonl");
    BOOST_REQUIRE(all.size() == 4u);
    const auto first = nlohmann::json::parse(all[0]), second = nlohmann::json::parse(all[1]);
    BOOST_TEST(first.size() == 4u); // no speed yet, and no empty entries
    BOOST_TEST(first["step"] == 1);
    BOOST_TEST(first["loss"] == 0.5);
    BOOST_TEST(first["learning_rate"] == 0.1);
    BOOST_TEST(first["seconds"] >= 0);
    BOOST_TEST(second["loss"].is_null());
    BOOST_TEST(second["samples_per_second"] > 0);
    BOOST_TEST(second["samples_per_second"] < 32 / 0.002);
    BOOST_TEST(second["gradient_norm"] == 3);
    BOOST_TEST(second["loss_scale"] == 1024);
    BOOST_TEST(second["tokens"] == 77);
    BOOST_TEST(second["skipped"] == 1);
    BOOST_TEST(nlohmann::json::parse(all[2])["a \"name\"\\"] == 1.0 / 3); // all digits
    BOOST_TEST(nlohmann::json::parse(all[3])["more"] == -1e300);
}

BOOST_AUTO_TEST_CASE(a_line_of_csv_for_each_number) {
    const unisono_test::Folder folder;
    for (const std::uint64_t step : {1u, 2u})
        un::CsvFile(Rank{}, folder / "run.csv").write(step, {{"loss", 0.25}, {"a,\"b\"", 0.1}});
    const auto all = lines(folder / "run.csv");
    BOOST_REQUIRE(all.size() == 5u); // one heading
    BOOST_TEST(all[0] == "step,seconds,name,value");
    BOOST_TEST(all[1].starts_with("1,"));
    BOOST_TEST(all[1].ends_with(",loss,0.25"));
    BOOST_TEST(all[4].starts_with("2,"));
    BOOST_TEST(all[4].ends_with(",\"a,\"\"b\"\"\",0.10000000000000001"));
}

// The remains of a line of a killed process are no line, and no part of the next one.
BOOST_AUTO_TEST_CASE(a_part_of_a_line_is_cut_off) {
    const unisono_test::Folder folder;
    std::ofstream(folder / "run.jsonl") << "{\"step\":1,\"seconds\":2}\n{\"step\":2,\"sec";
    std::ofstream(folder / "run.csv") << "step,seconds,name,value\n1,0.5,loss,2\n2,0.";
    un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(3, {{"loss", 1}});
    un::CsvFile(Rank{}, folder / "run.csv").write(3, {{"loss", -std::numeric_limits<double>::quiet_NaN()}});
    const auto json = lines(folder / "run.jsonl"), csv = lines(folder / "run.csv");
    BOOST_REQUIRE(json.size() == 2u);
    BOOST_TEST(nlohmann::json::parse(json[1])["step"] == 3);
    BOOST_REQUIRE(csv.size() == 3u);
    BOOST_TEST(csv[2].starts_with("3,"));
    BOOST_TEST(csv[2].ends_with(",loss,nan"));
    un::CsvFile(Rank{}, "/dev/null").write(1, {{"loss", 1}}); // nothing to cut off
    // A pipe, which cannot seek, has the heading, too.
    const std::string pipe = folder / "pipe";
    BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    // Neither end waits for the other.
    const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
    BOOST_REQUIRE(reader >= 0);
    un::CsvFile(Rank{}, pipe).write(1, {{"loss", 1}});
    char arrived[256];
    const auto bytes = ::read(reader, arrived, sizeof arrived);
    ::close(reader);
    const std::string told(arrived, bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
    BOOST_TEST(told.rfind("step,seconds,name,value\n1,", 0) == 0u, told);
}

/// Wherever a full disk has cut it.
BOOST_AUTO_TEST_CASE(each_part_of_a_line_of_json_is_cut_off) {
    const unisono_test::Folder folder;
    const std::string whole = "{\"step\":2,\"seconds\":3}";
    for (std::size_t bytes = 1; bytes <= whole.size(); ++bytes) {
        std::ofstream(folder / "run.jsonl") << "{\"step\":1,\"seconds\":2}\n" << whole.substr(0, bytes);
        un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(3, {{"loss", 1}});
        const auto json = lines(folder / "run.jsonl");
        BOOST_REQUIRE_EQUAL(json.size(), bytes == whole.size() ? 3u : 2u);
        BOOST_TEST(nlohmann::json::parse(json.back())["step"] == 3);
    }
}

/// The file has no whole line.
BOOST_AUTO_TEST_CASE(a_part_of_the_first_line_is_cut_off) {
    const unisono_test::Folder folder;
    const std::string line = "{\"step\":1,\"seconds\":2}", heading = "step,seconds,name,value";
    for (std::size_t bytes = 1; bytes <= line.size(); ++bytes) {
        std::ofstream(folder / "run.jsonl") << line.substr(0, bytes);
        un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(3, {{"loss", 1}});
        const auto json = lines(folder / "run.jsonl");
        BOOST_REQUIRE_EQUAL(json.size(), bytes == line.size() ? 2u : 1u);
        for (const std::string& one : json) BOOST_TEST(nlohmann::json::accept(one), one);
    }
    for (std::size_t bytes = 1; bytes <= heading.size(); ++bytes) {
        std::ofstream(folder / "run.csv") << heading.substr(0, bytes);
        un::CsvFile(Rank{}, folder / "run.csv").write(3, {{"loss", 1}});
        const auto csv = lines(folder / "run.csv");
        BOOST_REQUIRE_EQUAL(csv.size(), 2u);
        BOOST_TEST(csv[0] == heading);
    }
    std::ofstream(folder / "notes") << "1, 2"; // text that is not of such a file
    un::CsvFile(Rank{}, folder / "notes").write(3, {{"loss", 1}});
    BOOST_TEST(lines(folder / "notes")[0] == "1, 2");
}

// A last line that lacks only its end is kept. So is text that is not a line of such a file.
BOOST_AUTO_TEST_CASE(a_whole_line_without_its_end_is_kept) {
    const unisono_test::Folder folder;
    const std::string notes(100'000, 'x');
    std::ofstream(folder / "run.jsonl") << "{\"step\":1,\"seconds\":2}\n{\"step\":2,\"seconds\":3}";
    std::ofstream(folder / "run.csv") << "step,seconds,name,value\n2,0.5,loss,1";
    std::ofstream(folder / "notes") << notes;
    un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(3, {{"loss", 1}});
    un::CsvFile(Rank{}, folder / "run.csv").write(3, {{"loss", 1}});
    un::JsonLinesFile(Rank{}, folder / "notes").write(3, {{"loss", 1}});
    const auto json = lines(folder / "run.jsonl"), csv = lines(folder / "run.csv"), other = lines(folder / "notes");
    BOOST_REQUIRE(json.size() == 3u);
    BOOST_TEST(nlohmann::json::parse(json[1])["seconds"] == 3);
    BOOST_REQUIRE(csv.size() == 3u);
    BOOST_TEST(csv[1] == "2,0.5,loss,1");
    BOOST_REQUIRE(other.size() == 2u);
    BOOST_TEST((other[0] == notes));
}

// Each line already has these two names.
/// The steps of the reports in a file, in order, and of the lines with an accuracy.
struct Steps {
    std::vector<std::uint64_t> reports, others;
};
Steps steps_of(const std::string& path) {
    Steps found;
    for (const std::string& line : lines(path)) {
        if (line.starts_with("{")) {
            const auto one = nlohmann::json::parse(line);
            (one.contains("loss") ? found.reports : found.others).push_back(one["step"]);
        } else if (line.find(",loss,") != line.npos || line.find(",accuracy,") != line.npos) {
            (line.find(",loss,") != line.npos ? found.reports : found.others).push_back(std::stoull(line));
        }
    }
    return found;
}
std::vector<std::uint64_t> from_to(std::uint64_t first, std::uint64_t last) {
    std::vector<std::uint64_t> all;
    for (; first <= last; ++first) all.push_back(first);
    return all;
}
/// A run that makes the updates from `first` to `last`, with an accuracy at every fourth.
template <class File>
void make_updates(File& log, std::uint64_t first, std::uint64_t last) {
    for (; first <= last; ++first) {
        log(Report{.number = first});
        if (first % 4 == 0) log.write(first, {{"accuracy", 0.5}});
    }
}

using LineFiles = std::tuple<un::JsonLinesFile, un::CsvFile>;
// The first run was killed at update 10; its last checkpoint was made after update 6.
BOOST_AUTO_TEST_CASE_TEMPLATE(after_a_resume_each_step_is_there_once, File, LineFiles) {
    const unisono_test::Folder folder;
    const std::string path = folder / "run";
    {
        File log(Rank{}, path);
        make_updates(log, 1, 10);
    }
    {
        File log(Rank{}, path);
        log.write(6, {{"accuracy", 0.25}}); // evaluated before it continues
        make_updates(log, 7, 12);
    }
    BOOST_TEST(steps_of(path).reports == from_to(1, 12), boost::test_tools::per_element());
    BOOST_TEST((steps_of(path).others == std::vector<std::uint64_t>{4, 6, 8, 12}));
    {
        File log(Rank{}, path);
        log(Report{.committed = false, .number = 12}); // left out: update 13 is the first to be made again
        make_updates(log, 13, 13);
    }
    std::vector<std::uint64_t> all = from_to(1, 13);
    all.insert(all.begin() + 12, 12);
    BOOST_TEST(steps_of(path).reports == all, boost::test_tools::per_element());
    {
        File log(Rank{}, path); // another training: nothing is lost
        make_updates(log, 1, 9);
    }
    {
        File log(Rank{}, path);
        make_updates(log, 3, 3);
    }
    all.insert(all.end(), {1, 2, 3});
    BOOST_TEST(steps_of(path).reports == all, boost::test_tools::per_element());
}

// More than what is read at once; and a line that a killed process has not ended.
BOOST_AUTO_TEST_CASE_TEMPLATE(a_long_part_of_a_file_is_made_again, File, LineFiles) {
    const unisono_test::Folder folder;
    const std::string path = folder / "run";
    {
        File log(Rank{}, path);
        make_updates(log, 1, 60'000);
    }
    BOOST_TEST(std::filesystem::file_size(path) > 4u << 20);
    std::ofstream(path, std::ios::app) << (lines(path)[0][0] == '{' ? "{\"step\":60001,\"sec" : "60001,0.5,lo");
    {
        File log(Rank{}, path);
        make_updates(log, 20, 25);
    }
    BOOST_TEST(steps_of(path).reports == from_to(1, 25), boost::test_tools::per_element());
}

// Two trainers that report to one file, as of a generative adversarial network, have made different
// numbers of updates.
BOOST_AUTO_TEST_CASE(two_trainers_resume_one_file) {
    const unisono_test::Folder folder;
    const auto round = [&](un::JsonLinesFile& log, std::uint64_t number) {
        make_updates(log, number, number);
        make_updates(log, 5 * number, 5 * number + 2);
    };
    {
        un::JsonLinesFile log(Rank{}, folder / "run.jsonl");
        for (std::uint64_t i = 1; i <= 9; ++i) round(log, i);
    }
    un::JsonLinesFile log(Rank{}, folder / "run.jsonl");
    for (std::uint64_t i = 7; i <= 8; ++i) round(log, i);
    std::vector<std::uint64_t> expected;
    for (std::uint64_t i = 1; i <= 8; ++i) expected.insert(expected.end(), {i, 5 * i, 5 * i + 1, 5 * i + 2});
    BOOST_TEST(steps_of(folder / "run.jsonl").reports == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(tensorboard_is_told_what_is_made_again) {
    const unisono_test::Folder folder;
    un::TensorBoardFile first(Rank{}, folder.path()); // its name has the time
    make_updates(first, 1, 3);
    const auto events = [&] {
        std::string all;
        for (const std::string& name : folder.names()) all += content(folder / name);
        return all;
    };
    const std::string start("\x10\x03\x3a\x02\x08\x01", 6); // step 3; session_log { status: START }
    BOOST_TEST(events().find(start) == std::string::npos);
    un::TensorBoardFile again(Rank{}, folder.path());
    make_updates(again, 3, 4);
    BOOST_TEST(events().find(start) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_program_may_change_its_folder) {
    const unisono_test::Folder folder, other;
    const std::string before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path());
    {
        un::JsonLinesFile log(Rank{}, "run.jsonl");
        make_updates(log, 1, 5);
    }
    {
        un::JsonLinesFile log(Rank{}, "run.jsonl");
        std::filesystem::current_path(other.path());
        make_updates(log, 3, 4);
    }
    std::filesystem::current_path(before);
    BOOST_TEST(steps_of(folder / "run.jsonl").reports == from_to(1, 4), boost::test_tools::per_element());
    BOOST_TEST(other.is_empty());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_pipe_that_nobody_reads_is_an_error, File, LineFiles) {
    const unisono_test::Folder folder;
    const std::string pipe = folder / "pipe";
    BOOST_REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
    BOOST_CHECK_EXCEPTION(File(Rank{}, pipe), un::error, [&](const un::error& e) {
        return e.code() == un::ErrorCode::refused &&
               std::string(e.what()).find("cannot open '" + pipe + "': no process reads from this pipe") !=
                   std::string::npos;
    });
}

BOOST_AUTO_TEST_CASE(names_that_lines_of_json_have) {
    const unisono_test::Folder folder;
    for (const char* name : {"step", "seconds"}) {
        un::JsonLinesFile file(Rank{}, folder / "run.jsonl");
        BOOST_CHECK_EXCEPTION(file.write(1, {{name, 1}}), un::error, [](const un::error& e) {
            return e.code() == un::ErrorCode::bad_input &&
                   std::string(e.what()).find("expected another one") != std::string::npos;
        });
    }
    BOOST_TEST(content(folder / "run.jsonl").empty());
}

// A file must not take the descriptor of a closed standard stream, because output would go there.
BOOST_AUTO_TEST_CASE(closed_streams_stay_closed) {
    const unisono_test::Folder folder;
    const int kept = ::dup(STDIN_FILENO);
    ::close(STDIN_FILENO);
    bool taken = false;
    {
        un::JsonLinesFile file(Rank{}, folder / "run.jsonl");
        taken = ::fcntl(STDIN_FILENO, F_GETFD) != -1;
        file.write(1, {{"loss", 1}});
    }
    if (kept >= 0) {
        ::dup2(kept, STDIN_FILENO);
        ::close(kept);
    }
    BOOST_TEST(!taken);
    BOOST_TEST(lines(folder / "run.jsonl").size() == 1u);
}

// JSON and TensorBoard require UTF-8. All files refuse a name that is not UTF-8, and write nothing
// of its call.
BOOST_AUTO_TEST_CASE(names_are_utf8) {
    const unisono_test::Folder folder;
    un::JsonLinesFile json(Rank{}, folder / "run.jsonl");
    un::CsvFile csv(Rank{}, folder / "run.csv");
    un::TensorBoardFile board(Rank{}, folder / "board");
    const auto write = [&](const std::string& name) {
        const un::Scalar all[] = {{"good", 1}, {name, 2}};
        const auto refused = [&](auto& file) {
            try {
                file.write(1, std::span<const un::Scalar>(all));
            } catch (const un::error& e) {
                BOOST_TEST((e.code() == un::ErrorCode::bad_input));
                return std::string(e.what()).find("not UTF-8") != std::string::npos;
            }
            return false;
        };
        const bool by_json = refused(json);
        BOOST_TEST(refused(csv) == by_json);
        BOOST_TEST(refused(board) == by_json);
        return by_json;
    };
    for (const char* bad : {"caf\xe9", "\xff", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe2\x82", "a\x80"})
        BOOST_TEST(write(bad), bad);
    BOOST_TEST(lines(folder / "run.jsonl").empty());
    const std::vector<std::string> good = {"caf\xc3\xa9", "\xf0\x9f\x93\x88", "a\tb\nc", std::string("nul\0", 4),
                                           "\x7f"};
    for (const std::string& name : good) BOOST_TEST(!write(name), name);
    const auto all = lines(folder / "run.jsonl");
    BOOST_REQUIRE(all.size() == good.size());
    for (std::size_t i = 0; i < good.size(); ++i) BOOST_TEST(nlohmann::json::parse(all[i]).at(good[i]) == 2);
}

BOOST_AUTO_TEST_CASE(checksums_of_event_files) {
    BOOST_TEST(un::detail::crc32c("123456789") == 0xe3069283u); // the check value of CRC-32C
    BOOST_TEST(un::detail::masked_crc32c("123456789") == 0xc78ab0e5u);
    BOOST_TEST(un::detail::crc32c("") == 0u);
}

BOOST_AUTO_TEST_CASE(records_of_an_event_file) {
    BOOST_TEST(un::detail::crc32c("123456789") == 0xe3069283u); // the check value of CRC-32C
    const unisono_test::Folder folder;
    un::TensorBoardFile log(Rank{}, folder / "runs");
    log.write(300, {{"loss", 0.5}});
    BOOST_TEST(folder.names().size() == 1u);
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "runs"))
        if (entry.path().filename().string().starts_with("events.out.tfevents.")) path = entry.path();
    const std::string bytes = content(path);
    std::size_t at = 0;
    std::vector<std::string> events;
    while (at < bytes.size()) {
        std::uint64_t length = 0;
        std::uint32_t of_length = 0, of_event = 0;
        BOOST_REQUIRE(at + 12 <= bytes.size());
        std::memcpy(&length, bytes.data() + at, 8);
        std::memcpy(&of_length, bytes.data() + at + 8, 4);
        BOOST_REQUIRE(at + 16 + length <= bytes.size());
        events.push_back(bytes.substr(at + 12, length));
        std::memcpy(&of_event, bytes.data() + at + 12 + length, 4);
        BOOST_TEST(of_length == un::detail::masked_crc32c(std::string_view(bytes).substr(at, 8)));
        BOOST_TEST(of_event == un::detail::masked_crc32c(events.back()));
        at += 16 + length;
    }
    BOOST_REQUIRE(events.size() == 2u);
    BOOST_TEST(events[0].substr(9) == "\x1a\x0d"
                                      "brain.Event:2");
    // step = 300; summary { value { tag = "loss" simple_value = 0.5 } }
    BOOST_TEST(events[1].substr(9) == std::string("\x10\xac\x02\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 18));
}

BOOST_AUTO_TEST_CASE(folders_of_event_files_are_made) {
    const unisono_test::Folder folder;
    for (const char* name : {"runs/first", "runs/second/", "runs//third"}) {
        un::TensorBoardFile board(Rank{}, folder / name);
        board.write(1, {{"loss", 1}});
        BOOST_TEST(::access((folder / name).c_str(), W_OK) == 0, name);
    }
}

BOOST_AUTO_TEST_CASE(other_ranks_write_nothing) {
    const unisono_test::Folder folder;
    un::JsonLinesFile json(Rank{1}, folder / "run.jsonl");
    un::CsvFile csv(Rank{2}, folder / "run.csv");
    un::TensorBoardFile board(Rank{3}, folder / "runs");
    json(Report{});
    csv(Report{});
    board.write(1, {{"loss", 1}});
    BOOST_TEST(folder.names().empty());
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_an_error) {
    BOOST_CHECK_EXCEPTION(un::JsonLinesFile(Rank{}, "/nowhere/at/all.jsonl"), un::error, refused);
    BOOST_CHECK_EXCEPTION(un::CsvFile(Rank{}, "/nowhere/at/all.csv"), un::error, refused);
    BOOST_CHECK_EXCEPTION(un::TensorBoardFile(Rank{}, "/dev/null/at/all"), un::error, [](const un::error& e) {
        return e.code() == un::ErrorCode::refused &&
               std::string(e.what()).find("'/dev/null/at/all/events") != std::string::npos;
    });
    if (::access("/dev/full", W_OK) == 0) {
        un::JsonLinesFile full(Rank{}, "/dev/full");
        BOOST_CHECK_EXCEPTION(full(Report{}), un::error, [](const un::error& e) {
            return std::string(e.what()).find("cannot write '/dev/full'") != std::string::npos;
        });
    }
    const unisono_test::Folder folder;
    un::JsonLinesFile log(Rank{}, folder / "run.jsonl");
    BOOST_CHECK_EXCEPTION(log.write(3, {{"", 1}}), un::error,
                          [](const un::error& e) { return e.code() == un::ErrorCode::bad_input; });
}

// A program in a locale that writes 0,5 for a half writes files that others can read.
BOOST_AUTO_TEST_CASE(numbers_do_not_mind_the_locale) {
    const unisono_test::Folder folder;
    BOOST_REQUIRE(::mkdir((folder / "comma").c_str(), 0700) == 0);
    {
        // LC_NUMERIC of a locale of its own, in the C library's format: a magic number, six
        // entries, the offset of each, and the entries: decimal point, separator, grouping, both as
        // wide characters, and the encoding.
        const std::uint32_t words[] = {0x20031115u ^ LC_NUMERIC, 6, 32, 34, 36, 40, 44, 48};
        std::ofstream file(folder / "comma/LC_NUMERIC", std::ios::binary);
        file.write(reinterpret_cast<const char*>(words), sizeof words);
        file.write(",\0.\0\3\0\0\0,\0\0\0.\0\0\0ASCII\0", 22);
    }
    ::setenv("LOCPATH", (folder / "").c_str(), 1);
    const bool has = std::setlocale(LC_NUMERIC, "comma") != nullptr;
    ::unsetenv("LOCPATH");
    BOOST_REQUIRE(has);
    char half[8];
    static_cast<void>(std::snprintf(half, sizeof half, "%.1f", 0.5));
    un::JsonLinesFile(Rank{}, folder / "run.jsonl").write(1, {{"half", 0.5}});
    un::CsvFile(Rank{}, folder / "run.csv").write(1, {{"half", 0.5}});
    const std::string line = un::hash_line(1, -0.75, {});
    const std::string message = un::concat({0.5, " ", un::fixed_text(2.25, 2)});
    std::setlocale(LC_NUMERIC, "C");
    BOOST_TEST(half == "0,5"); // the locale was active
    BOOST_TEST(nlohmann::json::parse(lines(folder / "run.jsonl").at(0))["half"] == 0.5);
    BOOST_TEST(lines(folder / "run.csv").at(1).ends_with(",half,0.5"));
    BOOST_TEST(line.starts_with("1 loss -0x1.8p-1 "));
    BOOST_TEST(message == "0.500000 2.25");
}

BOOST_AUTO_TEST_SUITE_END()
