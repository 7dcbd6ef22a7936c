#include <unisono/layout/layout.hpp>
#include <unisono/layout/owners.hpp>

#include <boost/test/unit_test.hpp>

#include <random>
#include <set>
#include <vector>

using namespace unisono;

namespace {

ParameterShape floats(std::size_t count) { return {count, ElementType::float32, 4}; }
ParameterShape doubles(std::size_t count) { return {count, ElementType::float64, 8}; }

bool is_bad_input(const error& e) { return e.code() == ErrorCode::bad_input; }

std::vector<Piece> pieces_of(const Layout& layout, const Bucket& bucket) {
    const auto pieces = layout.pieces(bucket);
    return {pieces.begin(), pieces.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(layout)

BOOST_AUTO_TEST_CASE(shapes_come_from_spans) {
    std::vector<float> a(3);
    const std::vector<double> b(2);
    BOOST_CHECK((shape_of(std::span<float>(a)) == floats(3)));
    BOOST_CHECK((shape_of(std::span<const double>(b)) == doubles(2)));
    BOOST_CHECK((shape_of(std::span<bfloat16>()) == ParameterShape{0, ElementType::bfloat16, 2}));
}

BOOST_AUTO_TEST_CASE(the_last_parameter_comes_first) {
    const ParameterShape shapes[] = {floats(2), floats(3), floats(4)};
    const Layout layout(shapes);
    BOOST_REQUIRE_EQUAL(layout.buckets().size(), 1U);
    const Bucket& bucket = layout.buckets()[0];
    BOOST_TEST(bucket.count == 9U);
    BOOST_TEST(bucket.bytes() == 36U);
    BOOST_CHECK((pieces_of(layout, bucket) == std::vector<Piece>{{2, 0, 4}, {1, 0, 3}, {0, 0, 2}}));
    BOOST_TEST(layout.count() == 9U);
    BOOST_TEST(layout.bytes() == 36U);
    BOOST_TEST(layout.start_of(2) == 5U);
    BOOST_CHECK((layout.place_of({0, 1}) == Layout::Place{0, 8}));
}

BOOST_AUTO_TEST_CASE(a_bucket_closes_when_it_is_full_and_the_first_is_small) {
    // Closes at >= 16 bytes (first), then at >= 40, as in DistributedDataParallel's rule.
    const ParameterShape shapes[] = {floats(1), floats(9), floats(1), floats(3), floats(1)};
    const Layout layout(shapes, {.first_bytes = 16, .bytes = 40});
    BOOST_REQUIRE_EQUAL(layout.buckets().size(), 3U);
    BOOST_CHECK((pieces_of(layout, layout.buckets()[0]) == std::vector<Piece>{{4, 0, 1}, {3, 0, 3}}));
    BOOST_CHECK((pieces_of(layout, layout.buckets()[1]) == std::vector<Piece>{{2, 0, 1}, {1, 0, 9}}));
    BOOST_CHECK((pieces_of(layout, layout.buckets()[2]) == std::vector<Piece>{{0, 0, 1}}));
}

BOOST_AUTO_TEST_CASE(the_default_limits_are_1_and_25_mebibytes) {
    constexpr std::size_t mebi = (std::size_t{1} << 20) / 4;
    const std::vector<ParameterShape> shapes(40, floats(mebi));
    const Layout layout(shapes);
    BOOST_REQUIRE_EQUAL(layout.buckets().size(), 3U);
    BOOST_TEST(layout.buckets()[0].bytes() == std::size_t{1} << 20);
    BOOST_TEST(layout.buckets()[1].bytes() == std::size_t{25} << 20);
    BOOST_TEST(layout.buckets()[2].bytes() == std::size_t{14} << 20);
}

BOOST_AUTO_TEST_CASE(types_do_not_mix) {
    const ParameterShape shapes[] = {doubles(2), floats(3), doubles(4), floats(5)};
    const Layout layout(shapes);
    BOOST_REQUIRE_EQUAL(layout.buckets().size(), 2U);
    // The floats are complete (parameter 1) before the doubles (parameter 0).
    BOOST_CHECK(layout.buckets()[0].type == ElementType::float32);
    BOOST_CHECK((pieces_of(layout, layout.buckets()[0]) == std::vector<Piece>{{3, 0, 5}, {1, 0, 3}}));
    BOOST_CHECK((pieces_of(layout, layout.buckets()[1]) == std::vector<Piece>{{2, 0, 4}, {0, 0, 2}}));
    BOOST_TEST(layout.count_of(ElementType::float32) == 8U);
    BOOST_TEST(layout.count_of(ElementType::float64) == 6U);
    BOOST_TEST(layout.count_of(ElementType::int32) == 0U);
    BOOST_TEST(layout.bytes() == 8U * 4 + 6U * 8);
}

BOOST_AUTO_TEST_CASE(parameters_without_elements_are_in_no_bucket) {
    const ParameterShape shapes[] = {floats(0), floats(2), floats(0), floats(1), floats(0)};
    const Layout layout(shapes);
    BOOST_REQUIRE_EQUAL(layout.buckets().size(), 1U);
    BOOST_TEST(layout.bucket_of(0) == Layout::none);
    BOOST_TEST(layout.bucket_of(1) == 0U);
    BOOST_CHECK((layout.element_at(0) == Layout::Element{1, 0}));
    BOOST_CHECK((layout.element_at(2) == Layout::Element{3, 0}));
    const ParameterShape nothing[] = {floats(0)};
    BOOST_TEST(Layout(nothing).buckets().empty());
    BOOST_TEST(Layout(std::span<const ParameterShape>()).count() == 0U);
    BOOST_TEST(Layout().count() == 0U);
}

BOOST_AUTO_TEST_CASE(every_element_has_one_place_and_back) {
    std::mt19937 random(7);
    for (int trial = 0; trial < 200; ++trial) {
        std::vector<ParameterShape> shapes;
        for (auto n = random() % 9; n-- > 0;) {
            shapes.push_back(random() % 3 == 0 ? doubles(random() % 6) : floats(random() % 6));
        }
        const Layout layout(shapes, {.first_bytes = 1 + random() % 30, .bytes = 1 + random() % 60});
        std::set<std::pair<std::size_t, std::size_t>> taken;
        for (std::size_t flat = 0; flat < layout.count(); ++flat) {
            const Layout::Element element = layout.element_at(flat);
            BOOST_REQUIRE_EQUAL(layout.flat_index(element), flat);
            const Layout::Place place = layout.place_of(element);
            BOOST_REQUIRE(place.bucket == layout.bucket_of(element.parameter));
            BOOST_REQUIRE(taken.emplace(place.bucket, place.position).second);
        }
        std::size_t total = 0;
        for (std::size_t b = 0; b < layout.buckets().size(); ++b) {
            const Bucket& bucket = layout.buckets()[b];
            total += bucket.count;
            const std::size_t first = random() % (bucket.count + 1);
            const std::size_t count = random() % (bucket.count - first + 1);
            std::size_t next = first;
            layout.visit(b, first, count, [&](const Piece& piece, std::size_t position) {
                BOOST_REQUIRE_EQUAL(position, next);
                BOOST_REQUIRE(piece.count > 0);
                for (std::size_t i = 0; i < piece.count; ++i) {
                    const auto place = layout.place_of({piece.parameter, piece.offset + i});
                    BOOST_REQUIRE((place == Layout::Place{b, position + i}));
                }
                next += piece.count;
            });
            BOOST_REQUIRE_EQUAL(next, first + count);
        }
        BOOST_REQUIRE_EQUAL(total, layout.count());
    }
}

BOOST_AUTO_TEST_CASE(bad_input_is_refused) {
    constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
    const ParameterShape overflowing[] = {floats(1), floats(huge / 2)};
    BOOST_CHECK_EXCEPTION(Layout{overflowing}, error, [](const error& e) {
        return is_bad_input(e) && std::string(e.what()).find("parameter 1") != std::string::npos;
    });
    const std::vector<ParameterShape> many(9, ParameterShape{huge / 16, ElementType::uint8, 1});
    BOOST_CHECK_EXCEPTION(Layout{many}, error, [](const error& e) {
        return is_bad_input(e) && std::string(e.what()).find("parameter 8") != std::string::npos;
    });
    const ParameterShape hollow[] = {{1, ElementType::opaque, 0}};
    BOOST_CHECK_EXCEPTION(Layout{hollow}, error, is_bad_input);
    const ParameterShape one[] = {floats(1)};
    BOOST_CHECK_EXCEPTION((Layout{one, Buckets{.first_bytes = 0, .bytes = 1}}), error, is_bad_input);
    BOOST_CHECK_EXCEPTION((Layout{one, Buckets{.first_bytes = 1, .bytes = 0}}), error, is_bad_input);
    const Layout layout(one);
    BOOST_CHECK_EXCEPTION((void)layout.element_at(1), error, is_bad_input);
    BOOST_CHECK_EXCEPTION((void)layout.flat_index({0, 1}), error, is_bad_input);
    BOOST_CHECK_EXCEPTION((void)layout.flat_index({1, 0}), error, is_bad_input);
    const auto ignore = [](const Piece&, std::size_t) {};
    BOOST_CHECK_EXCEPTION(layout.visit(0, 1, 1, ignore), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(layout.visit(0, 1, huge, ignore), error, is_bad_input);
    BOOST_CHECK_NO_THROW(layout.visit(0, 1, 0, ignore));
}

BOOST_AUTO_TEST_CASE(it_describes_itself) {
    const ParameterShape shapes[] = {floats(1000), floats(500), doubles(1)};
    BOOST_TEST(Layout(shapes).describe() ==
               "3 parameters, 1,501 elements, 5.9 KiB, 2 buckets\n"
               "  bucket 0: float64, 1 elements, 8 B, parameter 2\n"
               "  bucket 1: float32, 1,500 elements, 5.9 KiB, 2 parameters from 1 down to 0\n");
}

BOOST_AUTO_TEST_CASE(equal_slices_cover_all_once) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{1001}}) {
        for (const int world : {1, 2, 3, 8, 13}) {
            for (const std::size_t granularity : {std::size_t{1}, std::size_t{16}}) {
                const Owners owners = Owners::equal(count, world, granularity);
                std::size_t next = 0;
                for (int rank = 0; rank < world; ++rank) {
                    const Slice slice = owners.slice(rank);
                    if (slice.count == 0) continue;
                    BOOST_TEST(slice.first == next);
                    BOOST_TEST(slice.first % granularity == 0U);
                    BOOST_TEST(slice.count <= owners.slice_count());
                    next = slice.end();
                    for (std::size_t i = slice.first; i < slice.end(); ++i)
                        BOOST_REQUIRE_EQUAL(owners.owner_of(i), rank);
                }
                BOOST_TEST(next == count);
                BOOST_TEST(owners.padded_count() >= count);
                BOOST_TEST(owners.padded_count() == owners.slice_count() * static_cast<std::size_t>(world));
                BOOST_CHECK_EXCEPTION((void)owners.owner_of(count), error, is_bad_input);
            }
        }
    }
}

BOOST_AUTO_TEST_CASE(chosen_ranks_own_in_their_order) {
    const Owners servers = Owners::chosen(10, {3, 1}, 4);
    BOOST_TEST((servers == Owners::chosen(10, std::vector{3, 1}, 4)));
    BOOST_CHECK((servers.slice(3) == Slice{0, 5}));
    BOOST_CHECK((servers.slice(1) == Slice{5, 5}));
    BOOST_CHECK((servers.slice(0) == Slice{}));
    BOOST_TEST(servers.owner_of(4) == 3);
    BOOST_TEST(servers.owner_of(5) == 1);
    const Owners master = Owners::chosen(10, {0}, 4);
    BOOST_CHECK((master.slice(0) == Slice{0, 10}));
    BOOST_CHECK((master.slice(2) == Slice{}));
}

BOOST_AUTO_TEST_CASE(everyone_owns_all) {
    const Owners owners = Owners::everyone(10, 3);
    BOOST_TEST(owners.replicated());
    for (int rank = 0; rank < 3; ++rank) BOOST_CHECK((owners.slice(rank) == Slice{0, 10}));
    BOOST_TEST(owners.owner_of(9) == -1);
    BOOST_TEST(owners.padded_count() == 10U);
}

BOOST_AUTO_TEST_CASE(bad_owners_are_refused) {
    BOOST_CHECK_EXCEPTION(Owners::equal(1, 0), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::everyone(1, -1), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::equal(1, 2, 0), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::chosen(1, {}, 2), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::chosen(1, {2}, 2), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::chosen(1, {-1}, 2), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::chosen(1, {1, 1}, 2), error, is_bad_input);
    constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
    BOOST_CHECK_EXCEPTION(Owners::equal(huge, 2), error, is_bad_input);
    BOOST_CHECK_EXCEPTION(Owners::equal(huge - 1, 3, 64), error, is_bad_input);
    BOOST_CHECK_NO_THROW(Owners::equal(huge - 1, 1));
}

BOOST_AUTO_TEST_SUITE_END()
