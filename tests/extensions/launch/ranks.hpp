#pragma once

// Ranks of a job as threads of the test. To a control plane they are processes with the same
// process ID.

#include <unisono/extensions/launch/rendezvous/rendezvous.hpp>
#include <unisono/extensions/launch/sockets/socket.hpp>

#include <boost/test/unit_test.hpp>

#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace test {

namespace un = unisono;
using namespace std::chrono_literals;

inline un::RendezvousOptions patience(std::chrono::nanoseconds timeout = 30s) {
    return {.timeout = timeout, .linger = 10s};
}

inline un::nanoseconds in(std::chrono::nanoseconds duration) { return un::deadline_after(un::steady_now(), duration); }

/// A port that was free just now.
inline std::uint16_t free_port() { return un::detail::listen_at(true, 0).port; }

inline un::RendezvousPoint local_point(std::uint16_t port = free_port()) {
    un::RendezvousPoint point;
    point.host = "127.0.0.1";
    point.port = port;
    point.token = un::JobToken::random();
    return point;
}

inline un::Blob blob(const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
}
inline std::string text_of(const un::Blob& bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The result of each rank: "" or the error's text. Boost's checks are not safe in several threads.
struct Outcome {
    un::ErrorCode code = un::ErrorCode::none;
    int rank = -1;
    int peer = -1;
    std::string text = {};
};

inline bool contains(const Outcome& outcome, const std::string& word) {
    return outcome.text.find(word) != std::string::npos;
}
/// The rank ended with this error, whose text has all of `words`. `peer`: its peer; -2: any.
inline void failed_with(const Outcome& outcome, un::ErrorCode code, const std::vector<std::string>& words,
                        int peer = -2) {
    bool as_expected = outcome.code == code && (peer == -2 || outcome.peer == peer);
    for (const std::string& word : words) as_expected = as_expected && contains(outcome, word);
    BOOST_CHECK_MESSAGE(as_expected, outcome.text);
}

using Body = std::function<void(int rank)>;

inline std::vector<Outcome> run_ranks(const std::vector<int>& ranks, const Body& body) {
    std::vector<Outcome> outcomes(ranks.size());
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        threads.emplace_back([&, i] {
            try {
                body(ranks[i]);
            } catch (const un::error& failed) {
                outcomes[i] = {failed.code(), failed.rank(), failed.peer(), failed.what()};
            } catch (const std::exception& failed) {
                outcomes[i] = {un::ErrorCode::aborted, -1, -1, failed.what()};
            }
        });
    }
    for (auto& thread : threads) thread.join();
    return outcomes;
}

inline std::vector<int> all_ranks(int world) {
    std::vector<int> ranks;
    for (int rank = 0; rank < world; ++rank) ranks.push_back(rank);
    return ranks;
}

inline void all_well(const std::vector<Outcome>& outcomes) {
    for (std::size_t i = 0; i < outcomes.size(); ++i)
        BOOST_CHECK_MESSAGE(outcomes[i].text.empty(), i << ": " << outcomes[i].text);
}

} // namespace test
