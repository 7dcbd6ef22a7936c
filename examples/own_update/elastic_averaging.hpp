#pragma once

#include <unisono/update/local.hpp>

template <class Training, class Policy>
class ElasticRun : public unisono::LocalRun<Training> {
    using T = typename Training::Element;

public:
    ElasticRun(Training& training, const Policy& policy)
        : unisono::LocalRun<Training>(training), policy_(policy), centre_(this->allocate_array()),
          distance_(this->allocate_array()) {}

    void before() {
        if (this->own() != 0) return; // else the ranks have just synchronised
        this->for_each_element([](T& parameter, T& centre) { centre = parameter; }, centre_);
    }
    [[nodiscard]] bool after(unisono::Verdict) {
        if (this->count_update() % policy_.steps == 0) average();
        return false;
    }
    void synchronise() {
        if (!this->begin_synchronisation()) return;
        average();
        this->for_each_element([](T& parameter, T& centre) { parameter = centre; }, centre_);
        this->count_synchronisation();
    }
    [[nodiscard]] std::size_t bytes() const { return 2 * centre_.size() * sizeof(T); }

private:
    void average() {
        const T strength = static_cast<T>(policy_.strength);
        const auto move_rank = [=](T& parameter, T& centre, T& distance) {
            distance = parameter - centre;
            parameter -= strength * distance;
        };
        this->for_each_element(move_rank, centre_, distance_);
        this->start_sum(distance_).wait();
        const auto move_centre = [=](T&, T& centre, T& distances) { centre += strength * distances; };
        this->for_each_element(move_centre, centre_, distance_);
    }

    Policy policy_;
    typename Training::Array centre_, distance_;
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
