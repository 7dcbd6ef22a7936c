// unisono-run as users run it: a program that runs programs.

#include "command.hpp"
#include "support/fails.hpp"
#include "support/folder.hpp"
#include "unisono_run/options.hpp"
#include "unisono_run/output.hpp"

#include <thread>
#include <unisono/extensions/launch/rendezvous/elastic_folder.hpp>

#include <sys/stat.h>

namespace un = unisono;
using namespace std::chrono_literals;
using test::Command;
using test::Result;
using unisono_test::Folder;

namespace {

const std::string launcher = UNISONO_RUN;
const std::string rank_program = UNISONO_LAUNCH_RANK;

std::vector<std::string> line(std::vector<std::string> options, std::vector<std::string> command) {
    options.insert(options.begin(), launcher);
    options.insert(options.end(), command.begin(), command.end());
    return options;
}
std::vector<std::string> shell(const std::string& script) { return {"sh", "-c", script}; }

Result launched(const std::vector<std::string>& options, const std::vector<std::string>& command,
                const std::map<std::string, std::string>& environment = {}) {
    return test::run_command(line(options, command), environment);
}

void expect(const Result& result, int status, const std::vector<std::string>& out,
            const std::vector<std::string>& err = {}) {
    BOOST_CHECK_MESSAGE(result.status == status, status << " expected: " << result.all());
    for (const auto& text : out) BOOST_CHECK_MESSAGE(result.has(text), "'" << text << "' not in: " << result.all());
    for (const auto& text : err)
        BOOST_CHECK_MESSAGE(result.complains(text), "'" << text << "' not in: " << result.all());
}

std::string file(const std::string& path) { return un::detail::read_small_file(path); }

} // namespace

BOOST_AUTO_TEST_SUITE(launch_launcher)

BOOST_AUTO_TEST_CASE(command_lines) {
    const auto parsed = unisono_run::parse_launch({"-n", "3", "--timeout=1.5", "--log-dir", "x", "--bind-to-cores",
                                                   "--no-label", "--grace", "0", "--wait", "9", "prog", "-n", "4"});
    BOOST_CHECK_EQUAL(parsed.status, -1);
    BOOST_CHECK((parsed.options == unisono_run::LaunchOptions{.ranks = 3,
                                                              .bind_to_cores = true,
                                                              .label = false,
                                                              .timeout = 1500ms,
                                                              .grace = 0s,
                                                              .wait = 9s,
                                                              .log_dir = "x",
                                                              .command = {"prog", "-n", "4"}}));
    BOOST_CHECK(
        (unisono_run::parse_launch({"--ranks=2", "--", "-n"}).options.command == std::vector<std::string>{"-n"}));
    BOOST_CHECK_GE(unisono_run::parse_launch({"prog"}).options.ranks, 1);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "2", "--help"}).status, 0);
    for (const std::vector<std::string>& each :
         std::vector<std::vector<std::string>>{{"-np", "3", "p"}, {"-n3", "p"}, {"-np3", "p"}, {"-n", "3", "p"}})
        BOOST_CHECK(unisono_run::parse_launch(each).options == unisono_run::parse_launch({"--ranks=3", "p"}).options);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"--version"}).status, 0);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"--version"}).text.find("unisono-run 0."), 0U);
    const std::vector<std::pair<std::string, std::string>> meant{{"--rank", "--ranks"},
                                                                 {"--rnaks=3", "--ranks"},
                                                                 {"--nproc_per_node=2", "--ranks"},
                                                                 {"--time-out", "--timeout"},
                                                                 {"--logdir", "--log-dir"},
                                                                 {"--no-labels", "--no-label"},
                                                                 {"-c", "-n"},
                                                                 {"--bind-core", "--bind-to"},
                                                                 {"--ntasks", "--ranks"},
                                                                 {"--Version", "--version"}};
    for (const auto& [written, ours] : meant) {
        const auto request = unisono_run::parse_launch({written, "3", "p"});
        BOOST_CHECK_MESSAGE(request.status == 2 && request.text.find("did you mean " + ours) != std::string::npos,
                            request.text);
    }
    BOOST_CHECK(unisono_run::parse_launch({"--frobnicate", "p"}).text.find("did you mean") == std::string::npos);
    const std::vector<std::vector<std::string>> wrong{{},
                                                      {"-np", "p"},
                                                      {"-n0", "p"},
                                                      {"-n", "2"},
                                                      {"-n"},
                                                      {"-n", "0", "p"},
                                                      {"-n", "-1", "p"},
                                                      {"-n", "4097", "p"},
                                                      {"-n", "x", "p"},
                                                      {"-x", "p"},
                                                      {"--timeout", "0", "p"},
                                                      {"--timeout", "nan", "p"},
                                                      {"--timeout", "1e3", "p"},
                                                      {"--timeout", "1.2.3", "p"},
                                                      {"--timeout", "-1", "p"},
                                                      {"--grace", "", "p"},
                                                      {"--wait", "-1", "p"},
                                                      {"--log-dir", "", "p"},
                                                      {"--bind-to-cores=1", "p"},
                                                      {"--ranks", "2 ", "p"},
                                                      {"--", ""}};
    for (const auto& each : wrong) {
        const auto request = unisono_run::parse_launch(each);
        BOOST_CHECK_MESSAGE(request.status == 2 && request.text.find("--help") != std::string::npos,
                            (each.empty() ? "" : each.front()) << request.text);
    }
}

// Options are read from the left, each with its own value alone.
BOOST_AUTO_TEST_CASE(the_first_option_that_is_wrong_is_named) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
        {{"--log-dir=", "--no-label", "-n", "1", "p"}, "--log-dir needs the path of a folder"},
        {{"--timeout=", "-n", "1", "p"}, "--timeout is '', expected seconds above 0"},
        {{"--ranks=", "p"}, "--ranks is '', expected 1 to 4096"},
        {{"--timeout", "x", "--timeout", "5", "p"}, "--timeout is 'x'"},
        {{"--elastic", "1:x", "--elastic", "1", "p"}, "--elastic is '1:x'"},
        {{"-n", "x", "--bogus", "p"}, "-n is 'x'"},
        {{"-n", "x", "--help"}, "-n is 'x'"},
        {{"--bogus", "--help"}, "unknown option '--bogus'"},
        {{"--no-label=1", "p"}, "--no-label takes no value"},
        {{"-help"}, "unknown option '-help'; did you mean --help?"},
        {{"-nproc", "4", "p"}, "unknown option '-nproc'"},
        {{"-n=4", "p"}, "unknown option '-n=4'"},
        {{"-nn", "1", "p"}, "unknown option '-nn'"},
        {{"-n3x", "p"}, "unknown option '-n3x'"},
        {{"-np"}, "-n needs a value"}};
    for (const auto& [each, text] : wrong) {
        const auto request = unisono_run::parse_launch(each);
        BOOST_CHECK_MESSAGE(request.status == 2 && request.text.starts_with("unisono-run: " + text),
                            each.front() << ": " << request.text);
    }
    const std::string help = unisono_run::parse_launch({"--help"}).text;
    const std::string version = unisono_run::parse_launch({"--version"}).text;
    const std::vector<std::pair<std::vector<std::string>, std::string>> first{
        {{"--help", "-n", "x"}, help},     {{"--help", "--bogus"}, help},
        {{"-h", "--timeout"}, help},       {{"--help=1"}, help},
        {{"--help", "--version"}, help},   {{"--version", "--bogus"}, version},
        {{"--version", "--help"}, version}};
    for (const auto& [each, text] : first) {
        const auto request = unisono_run::parse_launch(each);
        BOOST_CHECK_MESSAGE(request.status == 0 && request.text == text, each.front() << ": " << request.text);
    }
    const auto repeated =
        unisono_run::parse_launch({"-n", "2", "--log-dir", "a", "-n3", "--log-dir=b", "--no-label", "p"});
    BOOST_CHECK(
        (repeated.options == unisono_run::LaunchOptions{.ranks = 3, .label = false, .log_dir = "b", .command = {"p"}}));
}

BOOST_AUTO_TEST_CASE(ranks_get_torchruns_variables_and_labelled_lines) {
    const Result result =
        launched({"-n", "3"}, shell("echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE at $MASTER_ADDR; "
                                    "echo to stderr >&2; printf 'no end'"));
    for (int rank = 0; rank < 3; ++rank) {
        const std::string r = std::to_string(rank);
        expect(result, 0, {"[" + r + "] rank " + r + " of 3, " + r + " of 3 at 127.0.0.1\n", "[" + r + "] no end\n"},
               {"[" + r + "] to stderr\n"});
    }
    expect(launched({"-n", "2", "--no-label"}, shell("echo rank $RANK")), 0, {"rank 0\n", "rank 1\n"});
    BOOST_CHECK(!launched({"-n", "2", "--no-label"}, shell("echo rank $RANK")).has("["));
}

BOOST_AUTO_TEST_CASE(ranks_become_one_job) {
    expect(launched({"-n", "4"}, {rank_program, "gather"}), 0,
           {"[0] gathered 0123, host has 4", "[3] gathered 0123, host has 4"});
    // Variables that other launchers may have left in the environment.
    const std::map<std::string, std::string> others{{"SLURM_PROCID", "0"},
                                                    {"SLURM_NTASKS", "7"},
                                                    {"OMPI_COMM_WORLD_RANK", "1"},
                                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                                    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                    {"UNISONO_FOLDER", "/nowhere"}};
    expect(launched({"-n", "2"}, {rank_program, "gather"}, others), 0, {"[1] gathered 01"});
    expect(launched({"-n", "1"}, {rank_program, "gather"}), 0, {"[0] gathered 0"});
}

BOOST_AUTO_TEST_CASE(the_first_failure_is_the_jobs_and_the_others_are_stopped) {
    expect(launched({"-n", "3"}, shell("if [ $RANK = 1 ]; then exit 7; fi; sleep 100")), 7, {},
           {"unisono-run: rank 1 (pid ", "exited with status 7; stopping the others"});
    expect(launched({"-n", "3", "--grace", "0.2"},
                    shell("if [ $RANK = 2 ]; then kill -9 $$; fi; trap '' TERM; while true; do sleep 0.1; done")),
           137, {}, {"rank 2", "killed by signal 9"});
    expect(launched({"-n", "2"},
                    shell("if [ $RANK = 0 ]; then exit 3; fi; trap 'exit 0' TERM; while true; do sleep 0.05; done")),
           3, {});
}

// A parent may ignore SIGCHLD, which outlives exec. Then the system does not keep a child's exit
// status.
BOOST_AUTO_TEST_CASE(a_failure_is_one_also_where_sigchld_is_ignored) {
    const auto run = [](const std::vector<std::string>& command) {
        return test::run_command(line({"-n", "2"}, command), {}, {SIGCHLD});
    };
    expect(run(shell("exit 3")), 3, {}, {"exited with status 3"});
    expect(run(shell("kill -9 $$")), 137, {}, {"killed by signal 9"});
    expect(run({"no-such-program"}), 127, {}, {"cannot start no-such-program"});
    expect(run(shell("exit 0")), 0, {});
    un::Processes processes; // here other code takes the child's status
    processes.start([] { return 0; });
    BOOST_CHECK_EQUAL(::waitpid(processes.pid(0), nullptr, 0), processes.pid(0));
    const auto end = processes.wait_any(un::deadline_after(un::steady_now(), 20s));
    BOOST_REQUIRE(end.has_value());
    BOOST_CHECK(!end->known && !end->good() && end->exit_code() == 1);
}

BOOST_AUTO_TEST_CASE(survivors_name_the_dead_rank_before_they_are_stopped) {
    // The launcher keeps the star, so rank 0 is like the others.
    for (const int victim : {0, 2}) {
        const Result result =
            launched({"-n", "3"}, {rank_program, "signal", std::to_string(victim), std::to_string(SIGKILL)});
        BOOST_CHECK_EQUAL(result.status, 137);
        for (int rank = 0; rank < 3; ++rank) {
            if (rank == victim) continue;
            expect(result, 137, {"[" + std::to_string(rank) + "] fault peer_lost peer " + std::to_string(victim)});
        }
    }
    expect(launched({"-n", "3"}, {rank_program, "throw", "1"}), 5,
           {"[0] fault aborted peer -1: its own reason", "[2] fault aborted"});
    // Rank 1 ends last, but it failed first.
    expect(launched({"-n", "3"}, shell(rank_program + " throw 1; s=$?; if [ $s = 5 ]; then sleep 0.3; fi; exit $s")), 5,
           {}, {"exited with status 1, after this: its own reason; stopping the others"});
    // A rank ends before it has joined. A rank that waits for it is told.
    expect(launched({"-n", "2"}, shell("if [ $RANK = 0 ]; then exit 9; fi; exec " + rank_program + " gather")), 9,
           {"[1] fault peer_lost peer 0: rank 0 (pid"});
}

BOOST_AUTO_TEST_CASE(a_stopped_rank_is_named_under_the_launcher_too) {
    for (const int victim : {0, 1}) {
        const Result result = launched({"-n", "3"}, {rank_program, "stop", std::to_string(victim), "300"});
        const std::string v = std::to_string(victim);
        BOOST_CHECK_MESSAGE(result.status == 1, result.all());
        for (int rank = 0; rank < 3; ++rank) {
            if (rank != victim)
                expect(result, 1,
                       {"[" + std::to_string(rank) + "] fault timeout peer " + v, "rank " + v + " is stopped"});
        }
    }
}

BOOST_AUTO_TEST_CASE(a_program_that_cannot_be_started) {
    expect(launched({"-n", "2"}, {"no-such-program"}), 127, {},
           {"unisono-run: cannot start no-such-program: No such file"});
    expect(launched({"-n", "2"}, {"/etc/passwd"}), 126, {}, {"cannot start /etc/passwd: Permission denied"});
    expect(test::run_command({launcher}), 2, {}, {"no program given"});
    expect(test::run_command({launcher, "--help"}), 0, {"Usage: unisono-run", "--bind-to-cores"});
}

BOOST_AUTO_TEST_CASE(a_time_limit) {
    expect(launched({"-n", "2", "--timeout", "0.3"}, shell("sleep 100")), 124, {}, {"did not end within 0.3 s"});
    expect(launched({"-n", "2", "--timeout", "0.3", "--grace", "0.1"}, shell("trap '' TERM; sleep 100; sleep 100")),
           124, {});
    expect(launched({"-n", "2", "--timeout", "0.3", "--grace", "0.1"}, shell("kill -STOP $$")), 124,
           {}); // SIGTERM alone would not wake the launcher
    expect(launched({"-n", "2", "--timeout", "30"}, shell("exit 0")), 0, {});
}

BOOST_AUTO_TEST_CASE(signals_are_passed_on) {
    const std::string wait = "echo ready; while true; do sleep 0.02; done";
    for (const auto& [number, name] : {std::pair{SIGTERM, "TERM"}, {SIGINT, "INT"}, {SIGHUP, "HUP"}}) {
        Command command(line({"-n", "2"}, shell(std::string("trap 'echo got it; exit 0' ") + name + "; " + wait)));
        BOOST_REQUIRE(command.says("[0] ready") && command.says("[1] ready"));
        command.signal(number);
        const Result result = command.end();
        expect(result, 0, {"[0] got it", "[1] got it"});
        BOOST_CHECK_EQUAL(command.left_behind(), 0);
    }
    Command user(line({"-n", "2"}, shell("trap 'echo user 1' USR1; trap 'exit 0' TERM; " + wait)));
    BOOST_REQUIRE(user.says("[0] ready") && user.says("[1] ready"));
    user.signal(SIGUSR1);
    BOOST_CHECK(user.says("[0] user 1") && user.says("[1] user 1"));
    user.signal(SIGTERM);
    expect(user.end(), 0, {});
    // One request that arrives twice, at the launcher and at its process group, as from timeout(1).
    Command saving(line({"-n", "2"}, shell("trap 'sleep 0.3; echo saved; exit 0' TERM; " + wait)));
    BOOST_REQUIRE(saving.says("[0] ready") && saving.says("[1] ready"));
    saving.signal(SIGTERM);
    std::this_thread::sleep_for(50ms);
    saving.signal(SIGTERM);
    expect(saving.end(), 0, {"[0] saved", "[1] saved"});
    // A rank that has ended on request is no loss to ranks that still work.
    Command asked(line({"-n", "2"}, {rank_program, "asked"}));
    BOOST_REQUIRE(asked.says("[0] ready") && asked.says("[1] ready"));
    asked.signal(SIGTERM);
    expect(asked.end(), 143, {"[0] no fault"});
    // Ranks that ignore the request are killed: after the grace time, or by a second signal.
    Command stubborn(line({"-n", "2", "--grace", "100"}, shell("trap '' TERM INT; " + wait)));
    BOOST_REQUIRE(stubborn.says("[0] ready") && stubborn.says("[1] ready"));
    stubborn.signal(SIGINT);
    std::this_thread::sleep_for(100ms);
    stubborn.signal(SIGINT);
    expect(stubborn.end(), 137, {});
    BOOST_CHECK_EQUAL(stubborn.left_behind(), 0);
}

// nohup ignores SIGHUP. A shell ignores SIGINT and SIGQUIT for its background jobs.
BOOST_AUTO_TEST_CASE(a_signal_that_is_ignored_at_the_start_stays_so) {
    const std::vector<int> ignored{SIGHUP, SIGINT, SIGQUIT, SIGUSR1};
    Command job(line({"-n", "2"}, shell("trap 'exit 9' TERM; echo ready; while true; do sleep 0.02; done")), {},
                ignored);
    BOOST_REQUIRE(job.says("[0] ready") && job.says("[1] ready"));
    for (const int each : ignored) job.signal(each);
    std::this_thread::sleep_for(300ms);
    BOOST_CHECK_EQUAL(::kill(job.pid(), 0), 0);
    job.signal(SIGTERM);
    expect(job.end(), 9, {});
    BOOST_CHECK_EQUAL(job.left_behind(), 0);
}

BOOST_AUTO_TEST_CASE(nothing_is_left) {
    // Background children, in sessions of their own, that hold the output open or ignore signals.
    expect(launched({"-n", "2"}, shell("sleep 1000 & exit 0")), 0, {});
    expect(launched({"-n", "2"},
                    shell("setsid sleep 1000 & setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & exit 0")),
           0, {});
    // The launcher itself is killed.
    Command command(line({"-n", "3"}, shell("echo ready $RANK; exec sleep 1000")));
    for (const char* text : {"ready 0", "ready 1", "ready 2"}) BOOST_REQUIRE(command.says(text));
    command.signal(SIGKILL);
    static_cast<void>(command.end());
    BOOST_CHECK_EQUAL(command.left_behind(), 0);
}

BOOST_AUTO_TEST_CASE(what_ranks_leave_behind_is_reaped_while_they_run) {
    const Result result = launched(
        {"-n", "1", "--no-label"},
        shell("for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 &); done; sleep 0.5; "
              "for each in /proc/[0-9]*/stat; do cat $each; done 2> /dev/null | "
              "awk -v l=$PPID '{ sub(/.*\\) /, \"\"); if ($2 == l) print $1 }' | sort | uniq -c | sed 's/^/child/'"));
    expect(result, 0, {" 1 S"});
    BOOST_CHECK_MESSAGE(!result.has("Z"), result.all());
}

BOOST_AUTO_TEST_CASE(output_comes_whole) {
    // A million bytes without an end of line, many lines from several ranks at once, and bytes that
    // are not text.
    const Result wide = launched({"-n", "1"}, shell("head -c 1000000 /dev/zero | tr '\\0' x"));
    BOOST_CHECK_EQUAL(std::count(wide.out.begin(), wide.out.end(), 'x'), 1'000'000);
    const Result many = launched({"-n", "4"}, shell("seq 1 20000"));
    BOOST_CHECK_EQUAL(std::count(many.out.begin(), many.out.end(), '\n'), 80'000);
    for (int rank = 0; rank < 4; ++rank) BOOST_CHECK(many.has("[" + std::to_string(rank) + "] 20000\n"));
    const Result empty = launched({"-n", "2"}, shell("echo; printf '\\n\\nx\\n'"));
    BOOST_CHECK_EQUAL(std::count(empty.out.begin(), empty.out.end(), '\n'), 8);
    // A reader that closes the pipe ends the job, as it would end a program.
    expect(test::run_command(shell("(" + launcher + " -n 2 yes; echo status $? >&2) | head -2")), 0, {"] y\n"},
           {"status 141"});
    // A full disk loses the output. The job continues.
    for (const auto& [full, other] :
         {std::pair("> /dev/full", "standard output"), std::pair("2> /dev/full", "standard error")}) {
        const Result went_on = test::run_command(shell(
            "(" + launcher + " -n 2 sh -c 'echo out; echo err >&2; sleep 0.2; exit 3' " + full + "); echo status $?"));
        expect(went_on, 0, {"status 3"});
        BOOST_CHECK_MESSAGE(went_on.all().find("cannot write to " + std::string(other)) != std::string::npos,
                            went_on.all());
    }
}

// As after `2>&1 |`: if one output takes the last free page, the other must not wait for the
// reader.
BOOST_AUTO_TEST_CASE(a_full_pipe_holds_up_no_launcher) {
    un::Processes processes;
    processes.start([] {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0 || ::fcntl(ends[1], F_SETPIPE_SZ, 4096) < 0) return 1;
        unisono_run::OutputSink out(ends[1]);
        unisono_run::OutputSink err(::dup(ends[1]));
        out.add(std::string(4096, 'x'));
        err.add(std::string(4096, 'y'));
        out.flush();
        err.flush();
        // O_NONBLOCK would hold for all processes that inherited the pipe.
        const bool changed = (::fcntl(ends[1], F_GETFL) & O_NONBLOCK) != 0;
        return !changed && out.wanted().fd < 0 && err.wanted().fd >= 0 ? 0 : 2;
    });
    const auto end = processes.wait_any(un::deadline_after(un::steady_now(), 10s));
    BOOST_CHECK_MESSAGE(end && end->good(), (end ? end->text() : "it waits"));
}

BOOST_AUTO_TEST_CASE(output_goes_to_files_too) {
    const Folder folder;
    const std::string logs = folder / "a/b";
    expect(launched({"-n", "2", "--log-dir", logs}, shell("echo out $RANK; echo err $RANK >&2")), 0, {"[1] out 1"});
    BOOST_CHECK_EQUAL(file(logs + "/rank_0.out"), "out 0\n");
    BOOST_CHECK_EQUAL(file(logs + "/rank_1.out"), "out 1\n");
    BOOST_CHECK_EQUAL(file(logs + "/rank_1.err"), "err 1\n");
    expect(launched({"-n", "2", "--log-dir", "/proc/no"}, shell("echo out")), 2, {},
           {"cannot make the folder /proc/no"});
}
// Nothing waits for its reader.
BOOST_AUTO_TEST_CASE(a_pipe_instead_of_a_file_for_output) {
    const Folder folder;
    const std::string log = folder / "rank_0.out";
    BOOST_REQUIRE_EQUAL(::mkfifo(log.c_str(), 0600), 0);
    expect(launched({"-n", "1", "--log-dir", folder.path()}, shell("echo out")), 2, {},
           {"cannot write " + log + ": no process reads from this pipe"});
    const un::detail::FileDescriptor reader(::open(log.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    expect(launched({"-n", "1", "--log-dir", folder.path()}, shell("echo out")), 0, {"[0] out"});
    char read[8] = {};
    BOOST_CHECK_EQUAL(::read(reader.get(), read, sizeof read), 4);
}
BOOST_AUTO_TEST_CASE(a_file_that_takes_no_more_output_is_named_once) {
    const Folder folder;
    const std::string log = folder / "rank_0.out";
    BOOST_REQUIRE_EQUAL(::symlink("/dev/full", log.c_str()), 0);
    const Result result = launched({"-n", "1", "--log-dir", folder.path()}, shell("echo one; sleep 0.1; echo two"));
    const std::string told = "cannot write to " + log + ": No space left on device; the job continues without it";
    expect(result, 0, {"[0] one", "[0] two"}, {told});
    const std::size_t first = result.all().find(told);
    BOOST_CHECK_MESSAGE(result.all().find(told, first + 1) == std::string::npos, result.all());
}

BOOST_AUTO_TEST_CASE(binding) {
    const Result result = launched({"-n", "3", "--bind-to-cores"}, shell("grep Cpus_allowed_list /proc/self/status"));
    for (int rank = 0; rank < 3; ++rank) { // a single port, not a range
        const std::string start = "[" + std::to_string(rank) + "] Cpus_allowed_list:\t";
        const std::size_t at = result.out.find(start);
        BOOST_REQUIRE(at != std::string::npos);
        const std::string list = result.out.substr(at + start.size(), result.out.find('\n', at) - at - start.size());
        BOOST_CHECK_MESSAGE(!list.empty() && list.find_first_not_of("0123456789") == std::string::npos, list);
    }
}

BOOST_AUTO_TEST_CASE(standard_input_goes_to_rank_0) {
    expect(test::run_command(shell("printf 'one\\ntwo\\n' | " + launcher + " -n 2 cat")), 0,
           {"[0] one\n", "[0] two\n"});
    BOOST_CHECK(!test::run_command(shell("echo one | " + launcher + " -n 2 cat")).has("[1]"));
}

BOOST_AUTO_TEST_CASE(elastic_jobs_outlive_ranks) {
    const auto script = [](const std::string& dies) {
        return shell(rank_program + " world; case $RANK in " + dies + ") exit 3;; *) sleep 0.3; echo done;; esac");
    };
    const Result goes_on = launched({"-n", "3", "--elastic", "2"}, script("0"));
    expect(goes_on, 0, {"[1] done", "[2] done"}, {"exited with status 3; 2 ranks continue"});
    expect(launched({"-n", "3", "--elastic", "2"}, script("0|2")), 3, {}, {"stopping the others"});
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "2", "--elastic", "3", "prog"}).status, 2);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "2", "--elastic", "0", "prog"}).status, 2);
}

// A shell acts as the worlds and as the processes that join them. `world` makes a world.
const std::string world = "m=$UNISONO_ELASTIC_FOLDER/job.elastic.meet; " + rank_program + " world; ";

BOOST_AUTO_TEST_CASE(command_lines_with_replacements) {
    const unisono_run::LaunchOptions options =
        unisono_run::parse_launch({"-n", "3", "--elastic", "2:4", "--restarts", "7", "p"}).options;
    BOOST_CHECK_EQUAL(options.least, 2);
    BOOST_CHECK_EQUAL(options.most, 4);
    BOOST_CHECK_EQUAL(options.restarts, 7);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "3", "--elastic=2", "p"}).options.most, 0);
    for (const char* wrong : {"2:", ":3", "0:3", "3:2", "2:4097", "2:3:4", "2-3", "2: 3"})
        BOOST_CHECK_MESSAGE(unisono_run::parse_launch({"-n", "2", "--elastic", wrong, "p"}).status == 2, wrong);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "4", "--elastic", "2:3", "p"}).status, 2);
    BOOST_CHECK_EQUAL(unisono_run::parse_launch({"-n", "4", "--restarts", "-1", "p"}).status, 2);
}

BOOST_AUTO_TEST_CASE(lost_ranks_are_replaced) {
    const Folder folder;
    // Ranks of the first world do not join. Replacements do, and the first replacement fails as
    // well.
    const Result result = launched({"-n", "3", "--elastic", "2:3"},
                                   shell(world + "echo $RANK joins=$UNISONO_JOINS of $WORLD_SIZE; " + rank_program +
                                         " alone; case $RANK in 1|3) exit 3;; "
                                         "4) :> $UNISONO_ELASTIC_FOLDER/five;; "
                                         "*) until [ -e $UNISONO_ELASTIC_FOLDER/five ]; do sleep 0.02; done; esac"),
                                   {{"UNISONO_JOINS", "1"}, {"UNISONO_ELASTIC_FOLDER", folder.path()}});
    expect(result, 0, {"[0] 0 joins= of 3", "[1] 1 joins= of 3", "[3] 3 joins=1 of 4", "[4] 4 joins=1 of 5"},
           {"exited with status 3; 2 ranks continue", "starts rank 3 (pid", "starts rank 4 (pid"});
    expect(result, 0, {"[1] rank 1 of 3, local 1 of 3", "[3] rank 3 of 4, local 3 of 4", "[4] rank 4 of 5"});
    BOOST_CHECK_MESSAGE(!result.complains("starts rank 5"), result.all());
}

BOOST_AUTO_TEST_CASE(no_rank_is_replaced_before_there_is_a_world) {
    const Result result =
        launched({"-n", "3", "--elastic", "2:3"}, shell("case $RANK in 1) exit 3;; *) sleep 0.5; esac"));
    expect(result, 0, {}, {"exited with status 3 before all ranks had met"});
    BOOST_CHECK_MESSAGE(!result.complains("starts rank"), result.all());
}

// Ranks that wait for it get the error immediately, and not when their wait times out.
BOOST_AUTO_TEST_CASE(a_rank_that_dies_before_the_others_have_met_it_is_told) {
    for (const char* elastic : {"1", "1:3"}) {
        const Result result = launched({"-n", "3", "--elastic", elastic},
                                       shell("if [ $RANK = 1 ]; then exit 9; fi; exec " + rank_program + " gather"));
        expect(result, 9, {"[0] fault peer_lost peer 1: rank 1 (pid", "[2] fault peer_lost peer 1"},
               {"exited with status 9 before all ranks had met", "after this: rank 1 (pid"});
        BOOST_CHECK_MESSAGE(!result.complains("starts rank"), result.all());
    }
}

BOOST_AUTO_TEST_CASE(replacements_are_limited) {
    const Folder folder;
    const Result result =
        launched({"-n", "3", "--elastic", "2:3", "--restarts", "2"},
                 shell(world + "case $RANK in 0|2) until [ -e $m.4 ]; do sleep 0.02; done; sleep 0.3;; "
                               "4) : > $m.4; exit 3;; *) exit 3;; esac"),
                 {{"UNISONO_ELASTIC_FOLDER", folder.path()}});
    expect(result, 0, {}, {"starts rank 4 (pid", "rank 4 is not replaced, since --restarts is 2"});
    BOOST_CHECK_MESSAGE(!result.complains("starts rank 5"), result.all());
}

// The failure costs no rank that trains. Its cause may pass, for example if the program is being
// built.
BOOST_AUTO_TEST_CASE(a_newcomer_that_cannot_be_started_is_a_lost_one) {
    const Folder folder;
    const std::string program = folder / "program";
    const auto job = [&](const std::string& breaks, const std::string& mends, const std::string& restarts) {
        const std::string script =
            "#!/bin/sh\n" + world + "case $RANK in 1) sleep 0.3; " + breaks +
            "exit 3;; 0) for i in 1 2 3; do sleep 0.5; done; " + mends +
            "for i in 1 2 3; do sleep 0.5; done; echo trained;; *) echo added; sleep 100;; esac\n";
        unisono_test::write_file(program, script, 0700);
        return line({"-n", "2", "--elastic", "1:2", "--restarts", restarts, "--wait", "0.2", "--grace", "0.1",
                     "--log-dir", folder / "logs"},
                    {program});
    };
    const auto gone = test::run_command(job("rm $0; ", "", "2"));
    expect(gone, 0, {"[0] trained"},
           {"cannot start rank 2, which was to be added to the world: " + program + ": No such file",
            "cannot start rank 3, which", "; 1 rank continues", "rank 3 is not replaced, since --restarts is 2"});
    const std::string logs = folder / "logs";
    const auto no_logs =
        test::run_command(job("rm -r " + logs + "; : > " + logs + "; ", "rm " + logs + "; mkdir " + logs + "; ", "10"));
    expect(no_logs, 124, {"[0] trained", "[2] added"},
           {"cannot start rank 2, which was to be added to the world: cannot write " + logs, "starts rank 2 (pid"});
}

// A process cannot be started after the world's last rank has ended. The job is not a success.
BOOST_AUTO_TEST_CASE(a_world_that_is_lost_while_a_newcomer_fails_to_start) {
    const Folder folder;
    const std::string program = folder / "program";
    unisono_test::write_file(
        program, "#!/bin/sh\n" + world + "case $RANK in 1) rm $0; exit 3;; 0) sleep 0.3; exit 4;; esac\n", 0700);
    const Result result = test::run_command(line({"-n", "2", "--elastic", "1:2"}, {program}));
    expect(result, 4, {}, {"cannot start rank 2, which", "exited with status 4"});
}

// A process that waits to join a world is not one of its ranks.
BOOST_AUTO_TEST_CASE(a_job_ends_with_the_last_rank_of_its_world) {
    const auto job = [](const std::string& newcomer) {
        return launched({"-n", "2", "--elastic", "1:2"},
                        shell(world + "case $RANK in 1) exit 3;; 0) until [ -e $m.two ]; do sleep 0.02; done; " +
                              "rm $m.two; exit 4;; *) " + newcomer + ";; esac"));
    };
    const Result waits = job(": > $m.two; sleep 100");
    expect(waits, 4, {}, {"starts rank 2 (pid", "no rank of the world is left; stopping those that wait"});
    // It has met ranks as one of them.
    const Result is_added = job(rank_program + " fork well; : > $m.two; sleep 0.5; echo trained");
    expect(is_added, 0, {"[2] trained"}, {"exited with status 4; "});
}

BOOST_AUTO_TEST_CASE(a_world_is_where_somebody_listens) {
    const Folder folder;
    const std::string path = folder / "job.elastic.meet";
    auto listener = un::detail::listen_at(true, 0);
    const std::string token = un::JobToken::random().text();
    const std::string there = "unisono1 " + std::to_string(listener.port) + " " + token + " 127.0.0.1\n";
    unisono_test::write_file(path, there);
    const un::detail::ElasticFolder named(folder.path());
    BOOST_CHECK(::access(path.c_str(), F_OK) != 0); // an earlier job's file is removed
    BOOST_CHECK(!named.has_world());
    unisono_test::write_file(path, there);
    BOOST_CHECK(named.has_world());
    unisono_test::write_file(path, there, 0644);
    BOOST_CHECK(!named.has_world());
    unisono_test::write_file(path, "");
    BOOST_CHECK(!named.has_world());
    unisono_test::write_file(path, there);
    listener.socket.close();
    BOOST_CHECK(!named.has_world());
    ::unlink(path.c_str());
}

// A rank that has ended costs neither a descriptor nor an entry of poll, which takes no more
// entries than the files that a process may open.
BOOST_AUTO_TEST_CASE(many_ranks_are_replaced) {
    const std::string ranks = world + "if [ $RANK != 0 ]; then [ $RANK -lt 60 ] || : > $m.last; exit 3; fi; " +
                              "until [ -e $m.last ]; do sleep 0.02; done; rm $m.last; echo heard; sleep 0.3; " +
                              "ls /proc/$PPID/fd | wc -l; ";
    const Result result = test::run_command({"sh", "-c", "ulimit -n 64; exec \"$@\"", "sh", launcher, "-n", "2",
                                             "--elastic", "1:2", "--restarts", "59", "--no-label", "sh", "-c", ranks});
    expect(result, 0, {"heard\n"}, {"rank 60 is not replaced, since --restarts is 59"});
    const std::size_t at = result.out.find("heard\n");
    BOOST_REQUIRE(at != std::string::npos);
    BOOST_CHECK_LT(std::atoi(result.out.c_str() + at + 6), 25);
}

BOOST_AUTO_TEST_CASE(signals_change_the_number_of_ranks) {
    Command job(line({"-n", "2", "--elastic", "1:3"},
                     shell(world + "trap 'echo asked; exit 9' TERM; echo here; while :; do sleep 0.02; done")));
    BOOST_REQUIRE(job.says("[0] here") && job.says("[1] here"));
    job.signal(SIGUSR1);
    BOOST_REQUIRE(job.says("[2] here"));
    job.signal(SIGUSR1);
    BOOST_REQUIRE(job.complains("SIGUSR1: there are 3 ranks, the most that --elastic allows"));
    job.signal(SIGUSR2);
    BOOST_REQUIRE(job.complains("as SIGUSR2 asked; 2 ranks continue"));
    job.signal(SIGUSR2);
    BOOST_REQUIRE(job.complains("as SIGUSR2 asked; 1 rank continues"));
    job.signal(SIGUSR2);
    BOOST_REQUIRE(job.complains("SIGUSR2: there are 1 ranks, the fewest that --elastic allows"));
    job.signal(SIGUSR1);
    BOOST_REQUIRE(job.says("[3] here"));
    job.signal(SIGTERM);
    const Result result = job.end();
    BOOST_CHECK_MESSAGE(result.status == 9, result.all());
    BOOST_CHECK_MESSAGE(result.has("[0] asked") && result.has("[3] asked") && !result.has("[2] asked"), result.all());
    BOOST_CHECK_EQUAL(job.left_behind(), 0);
}

BOOST_AUTO_TEST_CASE(the_folder_of_an_elastic_job) {
    // The launcher removes its own folder. The user's folder stays, and records the end of
    // training, because other processes may wait there.
    const Result own = launched({"-n", "2", "--elastic", "1:2", "--no-label"},
                                shell(world + "[ $RANK = 1 ] || { stat -c %a $UNISONO_ELASTIC_FOLDER; "
                                              "echo $UNISONO_ELASTIC_FOLDER; }"));
    expect(own, 0, {"700\n", "/unisono-elastic-"});
    const std::string path = own.out.substr(own.out.find('/'), own.out.rfind('\n') - own.out.find('/'));
    BOOST_CHECK_MESSAGE(::access(path.c_str(), F_OK) != 0, path);
    const Folder folder;
    const auto job = [&] {
        return launched({"-n", "2", "--elastic", "1:2"},
                        shell("[ ! -e $UNISONO_ELASTIC_FOLDER/job.elastic.meet.ended ] || echo told; sleep 0.1"),
                        {{"UNISONO_ELASTIC_FOLDER", folder.path()}});
    };
    expect(job(), 0, {});
    const std::string told = folder / "job.elastic.meet.ended";
    BOOST_CHECK_EQUAL(::access(told.c_str(), F_OK), 0);
    BOOST_CHECK(!job().has("told")); // the end of an earlier job does not count
    expect(launched({"-n", "2", "--elastic", "1:2"}, shell("true"), {{"TMPDIR", "/nowhere"}}), 2, {},
           {"cannot make the folder /nowhere/", "set UNISONO_ELASTIC_FOLDER"});
}

BOOST_AUTO_TEST_SUITE_END()
