#pragma once

#include <unisono/update/in_flight.hpp>
#include <unisono/update/local.hpp>

template <class Training, class Policy>
class DecoupledRun : public unisono::LocalRun<Training> {
    using T = typename Training::Element;

public:
    DecoupledRun(Training& training, const Policy& policy)
        : unisono::LocalRun<Training>(training), policy_(policy), sent_(this->allocate_array()),
          sum_(this->allocate_array()) {}

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
        this->for_each_element([](T& parameter, T& sent, T& sum) { sum = sent = parameter; }, sent_, sum_);
        in_flight_ = this->start_sum(sum_);
    }
    /// Takes the mean of what all ranks sent, and adds what this rank has learned since.
    void receive() {
        in_flight_.wait();
        const T ranks = static_cast<T>(this->training().world().size());
        const auto take = [=](T& parameter, T& sent, T& sum) { parameter = sum / ranks + (parameter - sent); };
        this->for_each_element(take, sent_, sum_);
    }

    Policy policy_;
    typename Training::Array sent_, sum_;
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
