// Clipping and loss scaling.
#include "support.hpp"

#include "unisono/guard/clipping.hpp"
#include "unisono/testing/clipping_laws.hpp"
#include "unisono/testing/loss_scaling_laws.hpp"

#include <algorithm>
#include <limits>

namespace un = unisono;
using namespace un::testing;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

BOOST_AUTO_TEST_SUITE(certified_clipping)

namespace mutants { // not anonymous, or clang would call their comparisons unneeded

struct Clips {
    static constexpr std::string_view name = "mutant clipping";
    static constexpr un::Family family = un::Family::clipping;
    static constexpr bool measures_norm = true;
    static constexpr bool changes_elements = true;
    friend bool operator==(const Clips&, const Clips&) = default;
    void check() const {}
    [[nodiscard]] double factor(double) const { return 1; }
    template <class T>
    void clip(std::span<T> values, double scale) const {
        for (T& x : values) x = static_cast<T>(x * static_cast<T>(scale));
    }
};
struct ByItsOwnPart : Clips { // the norm of the rank's own part
    friend bool operator==(const ByItsOwnPart&, const ByItsOwnPart&) = default;
    template <class T>
    void clip(std::span<T> values, double scale) const {
        T squares = 0;
        for (const T x : values) squares += x * x;
        for (T& x : values) x = static_cast<T>(x * static_cast<T>(scale) / (1 + squares));
    }
};
struct ForgetsTheRest : Clips { // of what exceeds its buffer
    friend bool operator==(const ForgetsTheRest&, const ForgetsTheRest&) = default;
    template <class T>
    void clip(std::span<T> values, double scale) const {
        Clips::clip(values.first(std::min<std::size_t>(values.size(), 1024)), scale);
    }
};
struct Infinite : Clips {
    friend bool operator==(const Infinite&, const Infinite&) = default;
    [[nodiscard]] double factor(double norm) const { return 1 / norm; }
};
struct Secret : Clips {
    static constexpr bool measures_norm = false;
    static constexpr bool changes_elements = false;
    friend bool operator==(const Secret&, const Secret&) = default;
    [[nodiscard]] double factor(double) const { return 0.5; }
};
struct Enlarges : Clips {
    friend bool operator==(const Enlarges&, const Enlarges&) = default;
    template <class T>
    void clip(std::span<T> values, double) const {
        for (T& x : values) x = x < 0 ? T(-1) : T(1); // the sign
    }
};

} // namespace mutants

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(clipping_laws(ArchetypeClipping{}));
    expect_lawful(clipping_laws(un::NoClipping{}));
    for (const double limit : {0.01, 1.0, 1e30}) {
        expect_lawful(clipping_laws(un::ClipByNorm{.max_norm = limit}));
        expect_lawful(clipping_laws(un::ClipByValue{.limit = limit}));
    }
    expect_lawful(clipping_laws(un::ClipByNorm{.max_norm = std::numeric_limits<double>::infinity()}));
}

BOOST_AUTO_TEST_CASE(mutants_of_clipping) {
    expect_reported(clipping_laws(mutants::ByItsOwnPart{}), {"in pieces of 1 became"});
    expect_reported(clipping_laws(mutants::ForgetsTheRest{}), {"element 1024", "in pieces of 1 became"});
    expect_reported(clipping_laws(mutants::Infinite{}), {"the factor of the norm 0 is inf"});
    expect_reported(clipping_laws(mutants::Secret{}),
                    {"although `measures_norm` is false", "`changes_elements` is false"});
    expect_reported(clipping_laws(mutants::Enlarges{}), {"which is larger"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_loss_scaling)

namespace mutants {

struct NeverTells : ArchetypeLossScaling {
    friend bool operator==(const NeverTells&, const NeverTells&) = default;
    bool back_off(un::LossScale& state) const {
        state.scale *= 0.999999;
        return true;
    }
};
struct SaysNothing : ArchetypeLossScaling {
    friend bool operator==(const SaysNothing&, const SaysNothing&) = default;
    bool back_off(un::LossScale& state) const { return ArchetypeLossScaling::back_off(state), false; }
};
struct Unbounded : ArchetypeLossScaling {
    friend bool operator==(const Unbounded&, const Unbounded&) = default;
    void grow(un::LossScale& state) const { state.scale *= 2; }
};
struct OwnWay : ArchetypeLossScaling { // depends on the number of calls, not on the state
    mutable int asked = 0;
    friend bool operator==(const OwnWay&, const OwnWay&) = default;
    OwnWay() = default;
    OwnWay(const OwnWay&) : asked(7) {}
    OwnWay& operator=(const OwnWay&) = default;
    void grow(un::LossScale& state) const {
        if (++asked % 50 == 0) state.scale += 1;
    }
};
struct Denies : ArchetypeLossScaling {
    static constexpr bool scales = false;
    friend bool operator==(const Denies&, const Denies&) = default;
};

} // namespace mutants

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(loss_scaling_laws(ArchetypeLossScaling{}));
    expect_lawful(loss_scaling_laws(un::NoLossScaling{}));
    expect_lawful(loss_scaling_laws(un::LossScaling{}));
    expect_lawful(loss_scaling_laws(un::LossScaling{.initial = 3, .growth = 7, .backoff = 0.9, .growth_interval = 1}));
}

BOOST_AUTO_TEST_CASE(mutants_of_loss_scaling) {
    expect_reported(loss_scaling_laws(mutants::NeverTells{}), {"for ever"});
    expect_reported(loss_scaling_laws(mutants::SaysNothing{}), {"`back_off` returned false"});
    expect_reported(loss_scaling_laws(mutants::Unbounded{}), {"is inf"});
    expect_reported(loss_scaling_laws(mutants::OwnWay{}), {"a copy has another scale"});
    expect_reported(loss_scaling_laws(mutants::Denies{}), {"although `scales` is false"});
}

BOOST_AUTO_TEST_SUITE_END()
