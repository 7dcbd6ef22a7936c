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
          sum_(training.kernels().template allocate<T>(sent_.size())) {}

    void before() {
        if (this->own() == 0) send(); // the ranks have just synchronised
    }
    [[nodiscard]] bool after(unisono::Verdict) {
        if (this->count_update() % policy_.steps == 0) receive(), send();
        return false;
    }
    void synchronise() {
        if (!this->begin_synchronisation()) return;
        receive(); // of a period that ends early
        send();
        receive();
        this->count_synchronisation();
    }
    [[nodiscard]] std::size_t bytes() const { return 2 * sent_.size() * sizeof(T); }

private:
    /// Starts the sum of all ranks' parameters, which runs while this rank trains.
    void send() {
        in_flight_.wait(); // an obsolete sum, if the training went back
        each([](T& parameter, T& sent, T& sum) { sum = sent = parameter; });
        in_flight_ = this->training().start_sum(sum_.data(), sent_.size());
    }
    /// Takes the mean of what all ranks sent, and adds what this rank has learned since.
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
    typename Training::Array sum_; // the group sums it in place
    unisono::OperationInFlight in_flight_;
};

/// Local SGD whose communication overlaps with training: each rank sends its parameters, trains for
/// `steps` updates during the sum, and adds its own change to the mean. Memory: two copies of the
/// parameters. Bytes: one all_reduce every `steps` updates. Source: Shen et al. 2019, "Faster
/// distributed deep net training" (CoCoD-SGD), algorithm 1.
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
