#include "unisono/data/data.hpp"

#include "support/refusal.hpp"

#include <boost/test/unit_test.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace un = unisono;
using test::refusal_of;

BOOST_AUTO_TEST_SUITE(row_data)

BOOST_AUTO_TEST_CASE(a_batch_is_the_rows_asked_for_in_that_order) {
    const std::vector<float> values = {0, 1, 10, 11, 20, 21, 30, 31};
    const std::vector<std::int32_t> labels = {5, 6, 7, 8};
    const un::RowData plain{values, 2};
    const un::RowData labelled{values, 2, labels};
    BOOST_CHECK_EQUAL(plain.size(), 4u);
    const std::vector<std::size_t> indices = {2, 0, 2};
    const auto batch = plain.batch(indices);
    BOOST_CHECK((batch.values == std::vector<float>{20, 21, 0, 1, 20, 21}));
    BOOST_CHECK(batch.labels.empty());
    BOOST_CHECK_EQUAL(batch.rows(), 3u);
    BOOST_CHECK_EQUAL(batch.row(1)[1], 1.0f);
    BOOST_CHECK((labelled.batch(indices).labels == std::vector<std::int32_t>{7, 5, 7}));
}

BOOST_AUTO_TEST_CASE(what_is_no_matrix_is_refused) {
    const std::vector<float> values(7);
    const std::vector<std::int32_t> labels(3);
    BOOST_CHECK(refusal_of([&] { un::RowData{values, 0}; }).find("width is 0") != std::string::npos);
    BOOST_CHECK(refusal_of([&] {
                    un::RowData{values, 2};
                }).find("7 values; expected a multiple of the width, which is 2") != std::string::npos);
    BOOST_CHECK(refusal_of([&] { un::RowData{values, 7, labels}; }).find("3 labels for 1 rows") != std::string::npos);
    const un::RowData one{values, 7};
    const std::vector<std::size_t> beyond = {0, 1};
    BOOST_CHECK(refusal_of([&] { return one.batch(beyond); }).find("index 1 of 1 rows") != std::string::npos);
    // Memory for the rows is allocated after that: no such row would fit into it.
    const std::size_t width = std::size_t{1} << 50;
    const un::RowData<float> wide{std::span<const float>(values.data(), width), width};
    BOOST_CHECK(refusal_of([&] { return wide.batch(beyond); }).find("index 1 of 1 rows") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_fill_with_a_wrong_index_writes_nothing) {
    const std::vector<float> values = {1, 2};
    const un::RowData rows{values, 1};
    const std::vector<std::size_t> beyond = {0, 2};
    std::vector<float> room = {7, 7};
    BOOST_CHECK(refusal_of([&] { rows.fill(beyond, room, {}); }).find("index 2 of 2 rows") != std::string::npos);
    BOOST_CHECK((room == std::vector<float>{7, 7}));
}

BOOST_AUTO_TEST_CASE(labels_may_be_bool) {
    const std::vector<float> values = {1, 2, 3};
    const std::array labels = {true, false, true};
    const un::RowData rows{values, 1, labels};
    const std::vector<std::size_t> indices = {2, 1};
    BOOST_CHECK((rows.batch(indices).labels == std::vector<bool>{true, false}));
    std::array<float, 2> room{};
    std::array<bool, 2> found{};
    rows.fill(indices, room, found);
    BOOST_CHECK((room == std::array{3.0f, 2.0f} && found == std::array{true, false}));
}

BOOST_AUTO_TEST_SUITE_END()
