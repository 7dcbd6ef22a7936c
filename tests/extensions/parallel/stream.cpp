// Requests go through stages or to replicas. Results come out in order.
#include "network.hpp"

#include <unisono/extensions/parallel/stream.hpp>

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <functional>
#include <thread>

using namespace unisono_test;
using test::Group;

namespace {

constexpr std::size_t requests = 60;

std::vector<float> request_of(std::size_t number) {
    std::vector<float> values((1 + number % 4) * width);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>((number * 31 + i * 7) % 19) / 19;
    return values;
}

/// The answers of one rank, layer by layer.
struct Whole {
    std::vector<float> parameters, now, next;
    un::Layers<float> all = layers<float>(false);
    std::vector<std::size_t> at;

    Whole() {
        for (std::size_t l = 0; l < all.size(); ++l) {
            at.push_back(parameters.size());
            parameters.resize(parameters.size() + all[l].parameters);
            all[l].initialise(std::span(parameters).subspan(at[l], all[l].parameters));
        }
    }
    std::span<const float> operator()(std::span<const float> values, std::size_t samples) {
        now.assign(values.begin(), values.end());
        for (std::size_t l = 0; l < all.size(); ++l) {
            std::vector<float> kept(samples * all[l].kept);
            next.resize(samples * all[l].outputs);
            un::LayerForward<float> call{
                samples, std::span<const float>(parameters).subspan(at[l], all[l].parameters), now, next, kept, nullptr,
                0};
            all[l].forward(call);
            now.swap(next);
        }
        return now;
    }
};

/// Sends all requests, with pauses, and checks the results.
class Client {
public:
    Client(test::Findings& findings, bool pauses) : findings_(findings), pauses_(pauses) {}
    un::Request operator()(std::vector<float>& request) {
        if (given_ == requests) return un::Request::last;
        if (pauses_ && ++calls_ % 3 == 0) return un::Request::none;
        request = request_of(given_++);
        return un::Request::ready;
    }
    void take(std::span<const float> outputs) {
        const std::vector<float> request = request_of(taken_++);
        const auto expected = whole_(request, request.size() / width);
        findings_.expect(std::vector<float>(outputs.begin(), outputs.end()) ==
                             std::vector<float>(expected.begin(), expected.end()),
                         "result " + std::to_string(taken_ - 1));
    }
    ~Client() { findings_.expect(taken_ == requests, "results are missing"); }

private:
    test::Findings& findings_;
    bool pauses_;
    Whole whole_;
    std::size_t given_ = 0, taken_ = 0, calls_ = 0;
};

void check_stages(int ranks, const un::StreamOptions& options, bool pauses) {
    test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
        un::PipelineModel model{world, layers<float>(false), Distance<float>{results}, un::OneForwardOneBackward{},
                                un::PipelineOptions{.placement = even_placement(static_cast<std::size_t>(ranks))}};
        if (world.rank() != 0) {
            un::serve(
                model, [](std::vector<float>&) { return un::Request::last; }, [](std::span<const float>) {}, options);
            return;
        }
        Client client(findings, pauses);
        un::serve(
            model, [&](std::vector<float>& request) { return client(request); },
            [&](std::span<const float> outputs) { client.take(outputs); }, options);
    });
}

} // namespace

BOOST_AUTO_TEST_SUITE(streams)

BOOST_AUTO_TEST_CASE(through_stages_in_order) {
    for (const int ranks : {1, 2, 3, 4})
        for (const std::size_t in_flight : {0u, 1u, 7u})
            for (const bool pauses : {false, true}) check_stages(ranks, {.in_flight = in_flight}, pauses);
    const OnProcesses processes;
    for (const int ranks : {2, 4}) check_stages(ranks, {}, true);
}

BOOST_AUTO_TEST_CASE(by_replicas_in_order) {
    for (const int ranks : {1, 2, 3}) {
        test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
            Whole whole;
            if (world.rank() != 0) {
                un::serve_replicas<float>(
                    world, width, results, std::ref(whole), [](std::vector<float>&) { return un::Request::last; },
                    [](std::span<const float>) {});
                return;
            }
            Client client(findings, true);
            un::serve_replicas<float>(
                world, width, results, std::ref(whole), [&](std::vector<float>& request) { return client(request); },
                [&](std::span<const float> outputs) { client.take(outputs); });
        });
    }
}

BOOST_AUTO_TEST_CASE(nobody_gives_up_while_there_is_nothing_to_do) {
    test::on_ranks(2, [&](Group& world, test::Findings& findings) {
        un::PipelineModel model{world, layers<float>(false), Distance<float>{results}};
        // No request arrives for longer than a rank would wait for anything else.
        world.set_timeout(std::chrono::seconds(5));
        const auto begin = std::chrono::steady_clock::now();
        std::size_t answered = 0;
        un::serve(
            model,
            [&](std::vector<float>& request) {
                if (answered == 1) return un::Request::last;
                if (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(6500))
                    return un::Request::none;
                if (!request.empty()) return un::Request::none;
                request = request_of(3);
                ++answered;
                return un::Request::ready;
            },
            [&](std::span<const float> outputs) { findings.expect(outputs.size() == 4 * results, "outputs"); });
        findings.expect(answered == (world.rank() == 0 ? 1u : 0u), "requests");
    });
}

/// All ranks but the one that answers are idle for longer than they would wait for anything else.
BOOST_AUTO_TEST_CASE(no_rank_gives_up_while_others_are_busy) {
    constexpr int ranks = 6;
    test::on_ranks(ranks, [&](Group& world, test::Findings& findings) {
        world.set_timeout(std::chrono::seconds(2));
        int asked = 0, answered = 0;
        float out = 0;
        un::serve_replicas<float>(
            world, 1, 1,
            [&](std::span<const float> in, std::size_t) {
                std::this_thread::sleep_for(std::chrono::milliseconds(500));
                out = in[0] + 1;
                return std::span<const float>(&out, 1);
            },
            [&](std::vector<float>& request) {
                if (asked == ranks + 1) return un::Request::last;
                request = {static_cast<float>(asked++)};
                return un::Request::ready;
            },
            [&](std::span<const float> outputs) {
                findings.expect(outputs[0] == static_cast<float>(++answered), "a result");
            },
            {.in_flight = 1});
        findings.expect(answered == (world.rank() == 0 ? ranks + 1 : 0), "results are missing");
    });
}

BOOST_AUTO_TEST_CASE(what_is_no_request_ends_it_for_all) {
    std::array<std::string, 2> told;
    try {
        test::run(
            2,
            [&](Group& world) {
                try { // rank 0 may have failed before this rank has its model
                    un::PipelineModel model{world, layers<float>(false), Distance<float>{results}};
                    un::serve(
                        model,
                        [&](std::vector<float>& request) {
                            request.assign(width + 1, 0);
                            return un::Request::ready;
                        },
                        [](std::span<const float>) {});
                } catch (const un::error& failed) {
                    told[static_cast<std::size_t>(world.rank())] = failed.what();
                    throw;
                }
            },
            test::limit);
        BOOST_TEST(false);
    } catch (const un::error&) {
    }
    BOOST_TEST(told[0].find("found a request of 7 numbers, expected 1 to 1024 samples of 6") != std::string::npos);
    BOOST_TEST(told[1].find("rank 0 failed") != std::string::npos, told[1]);
}

BOOST_AUTO_TEST_SUITE_END()
