#include "unisono/core/streamed_copy.hpp"

#include <boost/test/unit_test.hpp>

#include <cstddef>
#include <vector>

namespace un = unisono;

BOOST_AUTO_TEST_SUITE(core_streamed_copy)

// Every alignment of both sides, and every remainder of a line. Nothing is written beside the
// target.
BOOST_AUTO_TEST_CASE(copies_what_memcpy_copies) {
    constexpr std::size_t most = 300, edge = 64;
    std::vector<std::byte> source(most + edge);
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
    for (std::size_t begin = 0; begin < edge; begin += 3)
        for (std::size_t ahead = 0; ahead < edge; ahead += 5)
            for (std::size_t bytes = 0; bytes <= most; bytes += bytes < 70 ? 1 : 13) {
                std::vector<std::byte> target(most + 2 * edge, std::byte{0}), expected = target;
                un::detail::copy_past_caches(target.data() + ahead, source.data() + begin, bytes);
                for (std::size_t i = 0; i < bytes; ++i) expected[ahead + i] = source[begin + i];
                BOOST_TEST_REQUIRE((target == expected), begin << ", " << ahead << ", " << bytes);
            }
}

BOOST_AUTO_TEST_SUITE_END()
