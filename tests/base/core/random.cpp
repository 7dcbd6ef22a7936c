#include "unisono/core/random.hpp"

#include "support/reference.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <numeric>
#include <random> // the oracle: our generator must be std::mt19937
#include <set>

namespace un = unisono;

using unisono_test::parse_hex_array;
using unisono_test::reference;

BOOST_AUTO_TEST_SUITE(random_numbers)

BOOST_AUTO_TEST_CASE(the_generator_is_the_standards_mt19937) {
    for (const std::uint32_t seed : {0u, 1u, 5489u, 12345u, 0xffffffffu}) {
        un::Mt19937 ours{seed};
        std::mt19937 standard{seed};
        for (int i = 0; i < 3000; ++i) BOOST_REQUIRE_EQUAL(ours(), standard());
    }
    un::Mt19937 ours;
    for (int i = 1; i < 10000; ++i) ours();
    // The C++ standard requires this value of the 10000th draw.
    BOOST_CHECK_EQUAL(ours(), 4123659995u);
}

BOOST_AUTO_TEST_CASE(only_the_lower_half_of_a_seed_counts) {
    un::Mt19937 wide{(std::uint64_t{7} << 32) | 3};
    un::Mt19937 narrow{3};
    BOOST_CHECK(wide == narrow);
}

BOOST_AUTO_TEST_CASE(a_copy_goes_on_where_the_original_stands) {
    un::Mt19937 original{4};
    for (int i = 0; i < 700; ++i) original();
    un::Mt19937 copy = original;
    for (int i = 0; i < 700; ++i) BOOST_REQUIRE_EQUAL(copy(), original());
}

BOOST_AUTO_TEST_CASE(rand_is_pytorchs) {
    const auto& section = reference().at("rand");
    const auto expected = parse_hex_array<float>(section.at("values"));
    const auto ours = un::torch_rand(section.at("seed").get<std::uint64_t>(), expected.size());
    BOOST_CHECK_EQUAL_COLLECTIONS(ours.begin(), ours.end(), expected.begin(), expected.end());
}

BOOST_AUTO_TEST_CASE(rand_in_double_is_pytorchs) {
    const auto& section = reference().at("ddp").at(0);
    un::Mt19937 generator{section.at("seed").get<std::uint64_t>()};
    for (const char* key : {"x", "t"}) {
        const auto expected = parse_hex_array(section.at(key));
        std::vector<double> ours(expected.size());
        un::torch_rand(generator, std::span{ours});
        BOOST_CHECK_EQUAL_COLLECTIONS(ours.begin(), ours.end(), expected.begin(), expected.end());
    }
}

BOOST_AUTO_TEST_CASE(randperm_is_pytorchs) {
    BOOST_REQUIRE(reference().at("randperm").size() > 0);
    for (const auto& section : reference().at("randperm")) {
        un::Mt19937 generator{section.at("seed").get<std::uint64_t>()};
        const auto expected = section.at("values").get<std::vector<std::size_t>>();
        const auto ours = un::torch_randperm(section.at("n").get<std::size_t>(), generator);
        BOOST_CHECK_EQUAL_COLLECTIONS(ours.begin(), ours.end(), expected.begin(), expected.end());
    }
}

BOOST_AUTO_TEST_CASE(randperm_of_nothing_and_of_one_draw_nothing) {
    un::Mt19937 generator{3};
    BOOST_CHECK(un::torch_randperm(0, generator).empty());
    BOOST_CHECK_EQUAL(un::torch_randperm(1, generator).at(0), 0u);
    BOOST_CHECK(generator == un::Mt19937{3});
}

BOOST_AUTO_TEST_CASE(randperm_in_narrow_indices_is_the_same) {
    un::Mt19937 a{11};
    un::Mt19937 b{11};
    std::vector<std::uint32_t> narrow(777);
    un::torch_randperm(a, std::span{narrow});
    const auto wide = un::torch_randperm(777, b);
    BOOST_CHECK(std::equal(narrow.begin(), narrow.end(), wide.begin(), wide.end()));
    BOOST_CHECK(std::is_permutation(wide.begin(), wide.end(),
                                    [] {
                                        std::vector<std::size_t> all(777);
                                        std::iota(all.begin(), all.end(), std::size_t{0});
                                        return all;
                                    }()
                                        .begin()));
}

// The known answers of the authors' Random123.
BOOST_AUTO_TEST_CASE(philox_gives_its_authors_answers) {
    using Block = std::array<std::uint32_t, 4>;
    BOOST_CHECK((un::philox({0, 0, 0, 0}, {0, 0}) == Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    BOOST_CHECK((un::philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
                 Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    BOOST_CHECK((un::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
                 Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

BOOST_AUTO_TEST_CASE(counter_streams_differ_by_each_of_their_names) {
    std::set<std::uint32_t> first;
    for (std::uint64_t seed : {0u, 1u})
        for (std::uint32_t stream : {0u, 1u})
            for (std::uint64_t index : {0u, 1u}) first.insert(un::CounterRandom{seed, stream, index}());
    BOOST_CHECK_EQUAL(first.size(), 8u);

    un::CounterRandom a{5, 6, 7};
    un::CounterRandom b{5, 6, 7};
    double sum = 0;
    for (int i = 0; i < 10000; ++i) {
        const float x = a.uniform();
        BOOST_REQUIRE_EQUAL(x, b.uniform());
        BOOST_REQUIRE(x >= 0 && x < 1);
        sum += static_cast<double>(x);
    }
    BOOST_CHECK_CLOSE(sum / 10000, 0.5, 3.0); // per cent; the standard error is 0.6
}

BOOST_AUTO_TEST_SUITE_END()
