// Compressions are certified, and their mutants are reported.
#include "../../../examples/own_compression/sign_compression.hpp"
#include "support.hpp"

#include "unisono/extensions/compression/adasum.hpp"
#include "unisono/extensions/compression/cast.hpp"
#include "unisono/extensions/compression/fp8.hpp"
#include "unisono/extensions/compression/int8.hpp"
#include "unisono/extensions/compression/one_bit.hpp"
#include "unisono/extensions/compression/power_sgd.hpp"
#include "unisono/extensions/compression/top_k.hpp"
#include "unisono/testing/compression_laws.hpp"

#include <cstring>

namespace un = unisono;
using namespace unisono_test;
using un::testing::compression_laws;

BOOST_AUTO_TEST_SUITE(certified_compressions)

BOOST_AUTO_TEST_CASE(the_librarys_own, *boost::unit_test::label("slow")) {
    expect_lawful(compression_laws(un::testing::ArchetypeCompression{}));
    // A cast's sum is rounded, too, and the remainder is not kept: half a unit of 8 or 11 bits in
    // each of three updates.
    expect_lawful(compression_laws(un::Bf16Wire{}, {.tolerance = 1.5 * 0x1p-8}));
    expect_lawful(compression_laws(un::Fp16Wire{}, {.tolerance = 1.5 * 0x1p-11}));
    expect_lawful(compression_laws(un::Int8Wire{}));
    expect_lawful(compression_laws(un::Int8Wire{.block = 3}));
    expect_lawful(compression_laws(un::Fp8Wire{}));
    expect_lawful(compression_laws(un::Fp8Wire{.format = un::Fp8Format::e5m2, .block = 7}));
    // Signs send small values slowly: a thousandth is left after this many updates.
    expect_lawful(compression_laws(un::OneBit{.block = 16}, {.updates_until_all = 300, .tolerance = 1e-3}));
    expect_lawful(compression_laws(un::TopK{.fraction = 0.05}));
    expect_lawful(compression_laws(un::PowerSgd{.rank = 2}));
    expect_lawful(compression_laws(un::PowerSgd{.rank = 1, .warm_up = 2}));
    expect_lawful(compression_laws(un::Adasum{}, {.loses_nothing = false}));
    expect_lawful(compression_laws(un::Int8Wire{.error_feedback = false}, {.loses_nothing = false}));
}

namespace gathered { // not anonymous, or clang would call the comparison unneeded

/// Messages of floats, for GatheredRun. The mutant does not say that the message was sent.
template <bool Subtracts>
struct Floats {
    static constexpr std::string_view name = "floats";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = true;
    friend bool operator==(const Floats&, const Floats&) = default;
    void check() const {}

    template <class T, class World>
    [[nodiscard]] auto start(World& world, std::span<const un::Slice> buckets) const {
        return un::GatheredRun<Floats, World, T>(*this, world, buckets);
    }
    static std::size_t message_bytes(std::size_t count) { return count * sizeof(float); }
    template <class T>
    static void encode(std::span<T> rest, std::span<std::byte> message) {
        for (std::size_t i = 0; i < rest.size(); ++i) {
            const auto sent = static_cast<float>(rest[i]);
            std::memcpy(message.data() + i * sizeof sent, &sent, sizeof sent);
            if (Subtracts) rest[i] -= static_cast<T>(sent);
        }
    }
    template <class T>
    static void add(std::span<const std::byte> message, std::span<T> sum) {
        for (std::size_t i = 0; i < sum.size(); ++i) {
            float sent = 0;
            std::memcpy(&sent, message.data() + i * sizeof sent, sizeof sent);
            sum[i] += static_cast<T>(sent);
        }
    }
};

/// Its last float is written behind the message.
struct Short : Floats<true> {
    friend bool operator==(const Short&, const Short&) = default;
    static std::size_t message_bytes(std::size_t count) { return count * sizeof(float) - 1; }
};

} // namespace gathered

BOOST_AUTO_TEST_CASE(messages_that_all_ranks_get) {
    expect_lawful(compression_laws(gathered::Floats<true>{}));
    expect_reported(compression_laws(gathered::Floats<false>{}), {"floats", "adds up to"});
    expect_reported(compression_laws(gathered::Short{}),
                    {"floats: encode() writes behind a message of 7 elements; its message_bytes() is 27"});
    // Where magnitudes differ, signs send small values slowly.
    expect_lawful(compression_laws(SignCompression{}, {.most_ranks = 2, .updates_until_all = 1000, .tolerance = 0.01}));
}

namespace {

/// A wire with a fault in its run.
template <class Spoil>
struct Mutant {
    static constexpr std::string_view name = "mutant compression";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    static constexpr bool own_exchange = false;
    friend bool operator==(const Mutant&, const Mutant&) = default;
    void check() const {}

    template <class World, class T>
    struct Run {
        World* world;
        std::vector<un::Slice> buckets;
        un::Int8Wire::Run<World, T> wire;
        std::vector<T*> values = std::vector<T*>(buckets.size());
        int updates = 0;

        template <class Reduction>
        void begin(std::size_t b, T* first, Reduction& reduction) {
            values[b] = first;
            Spoil::before(*world, first, buckets[b].count, updates);
            wire.begin(b, first, reduction);
        }
        void finish() {
            wire.finish();
            for (std::size_t b = 0; b < buckets.size(); ++b) Spoil::after(*world, values[b], buckets[b].count, updates);
            ++updates;
        }
        void forget() {
            if (Spoil::forgets) wire.forget();
        }
        void rescale(double factor) { wire.rescale(Spoil::rescaled(factor)); }
        void correct(double factor) { wire.correct(Spoil::corrected(factor)); }
        [[nodiscard]] std::size_t bytes() const { return wire.bytes(); }
    };
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const un::Slice> buckets) const {
        return {&world, {buckets.begin(), buckets.end()}, {world, buckets, un::Int8Wire{}}};
    }
};

struct Nothing {
    static constexpr bool forgets = true;
    static void before(auto&, auto*, std::size_t, int) {}
    static void after(auto&, auto*, std::size_t, int) {}
    static double rescaled(double factor) { return factor; }
    static double corrected(double factor) { return factor; }
};
struct RescalesWrongly : Nothing {
    static double rescaled(double factor) { return 42 * factor; }
};
struct CorrectsNothing : Nothing {
    static double corrected(double) { return 1; }
};
struct KeepsAfterForget : Nothing {
    static constexpr bool forgets = false;
};
struct OtherBits : Nothing {
    static void after(auto& world, auto* values, std::size_t count, int) {
        if (world.rank() == 1) values[count - 1] *= 1.0001f;
    }
};
struct DropsTheSmall : Nothing {
    static void before(auto&, auto* values, std::size_t count, int) {
        for (std::size_t i = 0; i < count; ++i)
            if (values[i] * values[i] < 0.01f) values[i] = 0;
    }
};
struct AddsABit : Nothing {
    static void after(auto&, auto* values, std::size_t, int) { values[0] += 1e-3f; }
};

} // namespace

BOOST_AUTO_TEST_CASE(mutants) {
    expect_lawful(compression_laws(Mutant<Nothing>{}));
    expect_reported(compression_laws(Mutant<KeepsAfterForget>{}), {"mutant compression", "after forget", "expected 0"});
    expect_reported(compression_laws(Mutant<OtherBits>{}), {"on 2 ranks", "on rank 1 and"});
    expect_reported(compression_laws(Mutant<DropsTheSmall>{}), {"the gradients add up to"});
    expect_reported(compression_laws(Mutant<RescalesWrongly>{}), {"after rescale(0.5", "left over counts 0.5"});
    expect_reported(compression_laws(Mutant<CorrectsNothing>{}),
                    {"after rescale(0.5", "and correct(2", "left over counts 1.0"});
    expect_reported(compression_laws(Mutant<AddsABit>{}), {"of zeros element", "expected 0"});
    expect_reported(compression_laws(un::Int8Wire{.error_feedback = false}), {"the gradients add up to"});
    expect_reported(compression_laws(un::Int8Wire{.block = 0}), {"check() threw", "block is 0"});
}

BOOST_AUTO_TEST_SUITE_END()
