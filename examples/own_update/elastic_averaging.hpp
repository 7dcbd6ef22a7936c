#pragma once

#include <unisono/core/text.hpp>
#include <unisono/update/local.hpp>

#include <vector>

template <class Training, class Policy>
class ElasticRun : public unisono::LocalRun<Training> {
    using T = typename Training::Element;

public:
    ElasticRun(Training& training, const Policy& policy)
        : unisono::LocalRun<Training>(training), policy_(policy), centre_(training.flat().count()),
          distance_(training.kernels().template allocate<T>(centre_.size())) {}

    void before() {
        // The ranks have just synchronised.
        if (this->own() == 0) each([](T& parameter, T& centre, T&) { centre = parameter; });
    }
    [[nodiscard]] bool after(unisono::Verdict) {
        if (this->count_update() % policy_.steps == 0) average();
        return false;
    }
    void synchronise() {
        if (!this->begin_synchronisation()) return;
        average();
        each([](T& parameter, T& centre, T&) { parameter = centre; });
        this->count_synchronisation();
    }
    [[nodiscard]] std::size_t bytes() const { return 2 * centre_.size() * sizeof(T); }

private:
    void average() {
        const T strength = static_cast<T>(policy_.strength);
        each([=](T& parameter, T& centre, T& distance) {
            distance = parameter - centre;
            parameter -= strength * distance;
        });
        this->training().start_sum(distance_.data(), centre_.size()).wait();
        each([=](T&, T& centre, T& distances) { centre += strength * distances; });
    }
    template <class Body>
    void each(Body body) {
        this->training().flat().visit({0, centre_.size()}, [&](const auto& one) {
            for (std::size_t i = 0; i < one.count; ++i)
                body(one.parameters[i], centre_[one.flat + i], distance_.data()[one.flat + i]);
        });
    }

    Policy policy_;
    std::vector<T> centre_;
    typename Training::Array distance_; // the group sums it in place
};

/// Elastic averaging SGD: each rank explores by itself, held by a spring to a centre that all ranks
/// share. After every `steps` updates the centre moves towards the ranks, and each rank towards the
/// centre, both by `strength` x their distance. The centre is the result: the ranks take it when
/// they synchronise. Memory: two copies of the parameters. Bytes: one all_reduce every `steps`
/// updates. Source: Zhang, Choromanska & LeCun 2015, "Deep learning with elastic averaging SGD",
/// equations 5 and 6, in the synchronous form.
struct ElasticAveraging {
    std::uint64_t steps = 10;
    double strength = 0.1; ///< alpha; above 1 / ranks the centre oscillates

    static constexpr std::string_view name = "elastic averaging";
    static constexpr unisono::Family family = unisono::Family::update;
    static constexpr bool agrees = false;
    friend bool operator==(const ElasticAveraging&, const ElasticAveraging&) = default;

    void check() const {
        if (steps == 0 || !(strength > 0 && strength <= 1))
            unisono::refuse_input({name, ": .steps is ", steps, " and .strength is ", strength,
                                   "; expected at least 1, and more than 0 and at most 1"});
    }

    template <class Training>
    ElasticRun<Training, ElasticAveraging> start(Training& training) const {
        return {training, *this};
    }
};
