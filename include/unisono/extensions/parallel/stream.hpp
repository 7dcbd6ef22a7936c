#pragma once

/// \file
/// Inference as a stream: requests arrive on rank 0, and go through the stages of a model that is
/// split over ranks, or to replicas of a small model in turn, several at the same time. The results
/// leave on rank 0 in the order of the requests.
///
///     un::serve(model, source, sink);      // on all ranks of a PipelineModel's group
///     un::serve_replicas<float>(world, 784, 10, answer, source, sink); // each rank has a replica
///
/// - `source(request)` is called on rank 0 while there is room. It fills a vector with the inputs
///   of some samples and returns `Request::ready`; or it returns `none` for now, or `last` after
///   the last request.
/// - `sink(outputs)` is called on rank 0 in order, with the outputs of one request, sample by
///   sample.
/// - `answer(inputs, samples)` is called on every rank with a replica. It returns the outputs,
///   valid until its next call.
///
/// Absent: batches of requests that arrive together; a source may combine requests of several
/// clients.

#include "unisono/collective/point_to_point.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/parallel/layer.hpp"
#include "unisono/group/operation.hpp"
#include "unisono/model/model.hpp"
#include "unisono/trainer/failure.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <thread>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The result of a source's call.
enum class Request : std::uint8_t { ready, none, last };

/// Options of a stream of requests.
struct StreamOptions {
    std::size_t most_samples = 1024; ///< samples of one request
    std::size_t in_flight = 0;       ///< greatest number of requests in flight; 0: two per rank
    friend bool operator==(const StreamOptions&, const StreamOptions&) = default;
};

namespace detail {

/// The header of a request: its number of samples, or one of these values.
inline constexpr std::uint64_t still_there = 0, no_more = std::numeric_limits<std::uint64_t>::max();
inline constexpr int header_tag = 1 << 28, input_tag = header_tag + 1, output_tag = header_tag + 2;

/// Keeps copies of sent data until they have arrived. If there is no room, waits for the oldest.
template <class World, class T>
class Outbox {
public:
    Outbox(World& world, std::size_t places) : world_(&world), places_(places) {}

    void send(std::span<const T> values, int to, bool as_output) {
        Place& one = places_[next_++ % places_.size()];
        wait(one);
        one.header = {samples_};
        one.values.assign(values.begin(), values.end());
        if (!as_output) one.operations[0] = start_send(*world_, one.header, to, header_tag);
        one.operations[1] = start_send(*world_, one.values, to, as_output ? output_tag : input_tag);
    }
    void tell(std::uint64_t word, int to) {
        Place& one = places_[next_++ % places_.size()];
        wait(one);
        one.header = {word};
        one.operations[0] = start_send(*world_, one.header, to, header_tag);
    }
    Outbox& of(std::size_t samples) {
        samples_ = samples;
        return *this;
    }
    void wait_all() {
        for (Place& one : places_) wait(one);
    }

private:
    struct Place {
        std::array<std::uint64_t, 1> header = {};
        std::vector<T> values;
        std::array<Operation, 2> operations;
    };
    static void wait(Place& one) {
        for (Operation& operation : one.operations) operation.wait();
    }
    World* world_;
    std::vector<Place> places_;
    std::size_t next_ = 0, samples_ = 0;
};

/// Words that rank 0 sends, beside requests, to the ranks that wait for its requests.
template <class World>
class Words {
public:
    Words(World& world, std::span<const int> told)
        : world_(&world), told_(told), latest_(told.size()), last_(told.size()) {}

    /// Never waits. A rank that has not received the latest word still has requests before it, and
    /// gets no other word.
    void say_still_there() {
        for (std::size_t i = 0; i < told_.size(); ++i) {
            if (!latest_[i].poll()) continue;
            latest_[i].wait();
            latest_[i] = start_send(*world_, still_there_, told_[i], header_tag);
        }
        said_ = steady_now();
    }
    void say_no_more() {
        for (std::size_t i = 0; i < told_.size(); ++i) last_[i] = start_send(*world_, no_more_, told_[i], header_tag);
    }
    [[nodiscard]] nanoseconds said() const { return said_; }
    void wait_all() {
        for (auto* const words : {&latest_, &last_})
            for (Operation& one : *words) one.wait();
    }

private:
    World* world_;
    std::span<const int> told_;
    std::array<std::uint64_t, 1> still_there_ = {still_there}, no_more_ = {no_more};
    std::vector<Operation> latest_, last_; ///< sends to each of `told_`
    nanoseconds said_ = steady_now();
};

/// The loop of a rank that answers: receives requests from `from`, and sends the result of `answer`
/// to `to`. `passes_on`: `to` is another rank that answers.
template <class T, class World, class Answer>
void answer_requests(World& world, std::size_t inputs, int from, int to, bool passes_on, Answer& answer) {
    Outbox<World, T> out(world, 2);
    std::vector<T> values;
    for (;;) {
        std::array<std::uint64_t, 1> header = {};
        receive(world, header, from, header_tag);
        const std::uint64_t samples = header[0];
        if (samples == still_there || samples == no_more) {
            if (passes_on) out.tell(samples, to);
            if (samples == no_more) break;
            continue;
        }
        values.resize(static_cast<std::size_t>(samples) * inputs);
        receive(world, values, from, input_tag);
        out.of(static_cast<std::size_t>(samples))
            .send(answer(std::span<const T>(values), static_cast<std::size_t>(samples)), to, !passes_on);
    }
    out.wait_all();
}

/// The loop of rank 0. `submit(number, inputs, samples, out)` sends a request to a rank; or answers
/// it at once and returns true. `from(number)` is the rank that sends the result.
template <class T, class World, class Source, class Sink, class Submit, class From>
void stream_requests(World& world, std::size_t inputs, std::size_t outputs, const StreamOptions& options,
                     std::span<const int> told, Source& source, Sink& sink, const Submit& submit, const From& from) {
    const std::size_t places = options.in_flight != 0 ? options.in_flight : 2 * static_cast<std::size_t>(world.size());
    struct Pending {
        std::uint64_t number;
        std::vector<T> result;
        bool there;
    };
    Outbox<World, T> out(world, places);
    Words<World> words(world, told);
    std::deque<Pending> pending; // in the order of the requests
    std::vector<T> request;
    Operation arriving;
    bool arrives = false, ended = false;
    std::uint64_t number = 0;
    nanoseconds posted = 0;
    int idle_rounds = 0;
    const nanoseconds often = world.timeout().count() / 8;
    const auto say_still_there = [&] { // with any number of requests in flight: some ranks may have none
        if (!ended && steady_now() - words.said() > often) words.say_still_there();
    };
    while (!ended || !pending.empty()) {
        bool idle = true;
        if (!ended && pending.size() < places) {
            request.clear();
            switch (source(request)) {
            case Request::none: break;
            case Request::last:
                words.say_no_more();
                ended = true;
                break;
            case Request::ready: {
                const std::size_t samples = request.size() / inputs;
                if (samples == 0 || samples * inputs != request.size() || samples > options.most_samples)
                    refuse_input({"serve: found a request of ", request.size(), " numbers, expected 1 to ",
                                  options.most_samples, " samples of ", inputs});
                say_still_there(); // this rank may be the one that answers the request
                pending.push_back({number, std::vector<T>(samples * outputs), false});
                pending.back().there = submit(number, std::span<const T>(request), samples, out, pending.back().result);
                ++number;
                idle = false;
            }
            }
        }
        if (!pending.empty()) {
            Pending& first = pending.front();
            if (!first.there && !arrives) {
                arriving = start_receive(world, first.result, from(first.number), output_tag);
                arrives = true;
                posted = steady_now();
            }
            if (arrives && !arriving.poll()) {
                // There is no other work; or the deadline has passed, which the wait reports.
                if (ended) arriving.wait();
                else if (steady_now() - posted > world.timeout().count()) arriving.wait(std::chrono::nanoseconds(1));
            }
            if (arrives && arriving.poll()) {
                arriving.wait();
                first.there = true;
                arrives = false;
            }
            if (first.there) {
                sink(std::span<const T>(first.result));
                pending.pop_front();
                idle = false;
            }
        }
        say_still_there();
        idle_rounds = idle ? idle_rounds + 1 : 0;
        if (!idle || ended) continue;
        world.check();
        if (idle_rounds < 50) std::this_thread::yield();
        else std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    out.wait_all();
    words.wait_all();
}

} // namespace detail

/// Serves requests by a model that is split over the ranks of its group, one part per stage.
/// Collective: returns on all ranks when the source has returned `last` and all results are out. A
/// result has the bits of `predict` if micro-batches are as large as requests.
///
/// Waits: the other ranks wait for requests without a limit, since rank 0 tells them every eighth
/// of the group's timeout that it is alive. So source and sink must return within that time, and a
/// request must take less than three quarters of the timeout.
/// Errors: bad_input on rank 0, and aborted on the others, for a request that is not whole samples
/// or is too large: a server for untrusted clients must check requests first. Exceptions of source,
/// sink or a layer, which all ranks report with the rank; timeout, peer_lost.
template <class Model, class Source, class Sink>
void serve(Model& model, Source source, Sink sink, const StreamOptions& options = {}) {
    using T = parameter_element_t<Model>;
    auto& world = model.world();
    using World = std::remove_cvref_t<decltype(world)>;
    detail::telling_all(world, "serve", [&] {
        const int ranks = world.size(), rank = world.rank();
        const auto& layers = model.layers();
        auto part = [&](std::span<const T> inputs, std::size_t samples) { return model.forward_part(inputs, samples); };
        if (rank != 0) {
            const int to = rank + 1 == ranks ? 0 : rank + 1;
            return detail::answer_requests<T>(world, model.part_inputs(), rank - 1, to, to != 0, part);
        }
        const std::array<int, 1> next = {1};
        detail::stream_requests<T>(
            world, layers[0].inputs, layers[layers.size() - 1].outputs, options,
            std::span<const int>(next).first(ranks > 1 ? 1 : 0), source, sink,
            [&](std::uint64_t, std::span<const T> inputs, std::size_t samples, detail::Outbox<World, T>& out,
                std::vector<T>& result) {
                const std::span<const T> found = part(inputs, samples);
                if (ranks > 1) out.of(samples).send(found, 1, false);
                else result.assign(found.begin(), found.end());
                return ranks == 1;
            },
            [&](std::uint64_t) { return ranks - 1; });
    });
}

/// Serves requests by replicas, one on each rank of `world`, including rank 0: rank (i + 1) modulo
/// the number of ranks answers request i. Otherwise as above. `inputs` and `outputs` are those of a
/// sample.
template <class T, class World, class Answer, class Source, class Sink>
void serve_replicas(World& world, std::size_t inputs, std::size_t outputs, Answer answer, Source source, Sink sink,
                    const StreamOptions& options = {}) {
    detail::telling_all(world, "serve_replicas", [&] {
        if (inputs == 0 || outputs == 0)
            refuse_input({"serve_replicas: found ", inputs, " inputs and ", outputs, " outputs, expected 1 or more"});
        if (world.rank() != 0) return detail::answer_requests<T>(world, inputs, 0, 0, false, answer);
        std::vector<int> others;
        for (int rank = 1; rank < world.size(); ++rank) others.push_back(rank);
        const auto ranks = static_cast<std::uint64_t>(world.size());
        detail::stream_requests<T>(
            world, inputs, outputs, options, others, source, sink,
            [&](std::uint64_t number, std::span<const T> values, std::size_t samples, detail::Outbox<World, T>& out,
                std::vector<T>& result) {
                // The last request of a round is this rank's own. The others have received theirs
                // by then.
                if ((number + 1) % ranks != 0) {
                    out.of(samples).send(values, static_cast<int>((number + 1) % ranks), false);
                    return false;
                }
                const std::span<const T> found = answer(values, samples);
                result.assign(found.begin(), found.end());
                return true;
            },
            [&](std::uint64_t number) { return static_cast<int>((number + 1) % ranks); });
    });
}

UNISONO_NAMESPACE_END
