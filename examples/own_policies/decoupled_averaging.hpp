#pragma once

#include <unisono/update/in_flight.hpp>
#include <unisono/update/local.hpp>

#include <vector>

template <class Training, class Policy>
class DecoupledRun : public unisono::LocalRun<Training> {
    using T = typename Training::Element;

public:
    DecoupledRun(Training& training, const Policy& policy)
        : unisono::LocalRun<Training>(training), policy_(policy), sent_(training.flat().count()),
          sum_(training.place().template allocate<T>(sent_.size())) {}

    void before() {
        if (this->own() == 0) send(); // the ranks have met
    }
    [[nodiscard]] bool after(unisono::Verdict) {
        if (this->count_update() % policy_.steps == 0) receive(), send();
        return false;
    }
    void meet() {
        if (!this->begin_meeting()) return;
        receive(); // of a period that ends early
        send();
        receive();
        this->count_meeting();
    }
    [[nodiscard]] std::size_t bytes() const { return 2 * sent_.size() * sizeof(T); }

private:
    /// Starts the sum of all ranks' parameters. It goes on while this rank trains.
    void send() {
        in_flight_.wait(); // for one that is of no use any more, where a training goes back
        each([](T& parameter, T& sent, T& sum) { sum = sent = parameter; });
        in_flight_ = this->training().start_sum(sum_.data(), sent_.size());
    }
    /// The mean of what all ranks sent, moved as far as this rank has moved since.
    void receive() {
        in_flight_.wait();
        const T ranks = static_cast<T>(this->training().world().size());
        each([=](T& parameter, T& sent, T& sum) { parameter = sum / ranks + (parameter - sent); });
    }
    template <class Body>
    void each(Body body) {
        this->training().flat().visit({0, sent_.size()}, [&](const auto& one) {
            for (std::size_t i = 0; i < one.count; ++i)
                body(one.parameters[i], sent_[one.flat + i], sum_.data()[one.flat + i]);
        });
    }

    Policy policy_;
    std::vector<T> sent_;
    typename Training::Place::template Array<T> sum_; // the group sums it where it lies
    unisono::OperationInFlight in_flight_;
};

/// Local SGD whose communication overlaps with training: each rank sends its parameters, trains
/// `steps` updates while they are summed, and adds its own movement to their mean.
/// Memory: two images of the parameters. Bytes: those of one all_reduce every `steps` updates.
/// Source: Shen et al. 2019, "Faster distributed deep net training" (CoCoD-SGD), algorithm 1.
struct DecoupledAveraging {
    std::uint64_t steps = 8;

    static constexpr std::string_view name = "decoupled averaging";
    static constexpr unisono::Family family = unisono::Family::update;
    static constexpr bool agrees = false;
    friend bool operator==(const DecoupledAveraging&, const DecoupledAveraging&) = default;

    void check() const {
        if (steps == 0) unisono::refuse_input({name, ": .steps is 0; expected at least 1"});
    }
    template <class Training>
    DecoupledRun<Training, DecoupledAveraging> start(Training& training) const {
        return {training, *this};
    }
};
