// Ranks on hosts that are namespaces. They are started by hand, each on its host, with MASTER_ADDR.
#pragma once

#include "../../extensions/launch/command.hpp"
#include "../../support/skip.hpp"
#include "lab.hpp"

#include <boost/test/unit_test.hpp>

#include <memory>
#include <string>
#include <vector>

namespace test {

/// A job of ranks, started in the namespaces of a lab.
class Job {
public:
    using Variables = std::map<std::string, std::string>;

    /// `host_of`: the host of each rank. `arguments`: the transport, and its mode, of the rank
    /// program. `contained`: each host has process IDs of its own, so that ranks cannot look for
    /// processes of other hosts.
    Job(const Lab& lab, const std::vector<int>& host_of, const std::vector<std::string>& arguments,
        const Variables& more = {}, bool contained = false, const char* program = UNISONO_HOST_RANK) {
        std::string names;
        for (const int host : host_of) names += (names.empty() ? "h" : ",h") + std::to_string(host);
        for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
            Variables variables{{"UNISONO_RANK", std::to_string(rank)},
                                {"UNISONO_WORLD_SIZE", std::to_string(host_of.size())},
                                // The namespaces of one machine could share memory.
                                {"UNISONO_HOSTS", names},
                                {"MASTER_ADDR", Lab::address(host_of[0])},
                                {"MASTER_PORT", "29500"},
                                {"UNISONO_TOKEN", "000102030405060708090a0b0c0d0e0f"}};
            for (const auto& [name, value] : more) variables[name] = value;
            std::vector<std::string> line{program};
            if (contained) line.insert(line.begin(), {"unshare", "--pid", "--fork", "--kill-child"});
            line.insert(line.end(), arguments.begin(), arguments.end());
            commands_.push_back(std::make_unique<Command>(lab.on(host_of[rank], line), variables));
        }
    }

    [[nodiscard]] int ranks() const { return static_cast<int>(commands_.size()); }
    [[nodiscard]] const Command& rank(int number) const { return *commands_[static_cast<std::size_t>(number)]; }
    [[nodiscard]] Command& rank(int number) { return *commands_[static_cast<std::size_t>(number)]; }

    /// Waits until all ranks have printed the text.
    void wait_for(const std::string& text, std::chrono::nanoseconds limit = 50s) {
        for (const auto& each : commands_) BOOST_TEST_REQUIRE(each->says(text, limit), "no '" << text << "'");
    }

    /// The ends of all ranks, by rank. Those in `stopped` are killed after the others have ended.
    std::vector<Result> end(const std::vector<int>& stopped = {}, std::chrono::nanoseconds limit = 50s) {
        std::vector<Result> results(commands_.size());
        const auto is_stopped = [&](std::size_t rank) {
            return std::find(stopped.begin(), stopped.end(), static_cast<int>(rank)) != stopped.end();
        };
        for (std::size_t rank = 0; rank < commands_.size(); ++rank)
            if (!is_stopped(rank)) results[rank] = commands_[rank]->end(limit);
        for (std::size_t rank = 0; rank < commands_.size(); ++rank)
            if (is_stopped(rank)) results[rank] = commands_[rank]->end(0s);
        for (const auto& each : commands_) BOOST_TEST(each->left_behind() == 0);
        return results;
    }

    /// Expects that all ranks end well with the same output, and returns it.
    std::string agree() {
        const auto results = end();
        for (const Result& one : results) {
            BOOST_TEST(one.status == 0, one.all());
            BOOST_TEST(one.out == results[0].out, one.all());
        }
        return results[0].out;
    }

private:
    std::vector<std::unique_ptr<Command>> commands_;
};

/// If the machine supports no labs: skips the case, with the reason, and returns true.
inline bool skipped() {
    static const std::string why = Lab::why_not();
    if (!why.empty()) test::skip("hosts that are name spaces: " + why);
    return !why.empty();
}

inline std::vector<std::string> transports() {
    std::vector<std::string> all{"tcp", "hosts"};
#ifdef UNISONO_TEST_LIBFABRIC
    all.insert(all.end(), {"libfabric", "hosts_libfabric"});
#endif
    return all;
}

} // namespace test
