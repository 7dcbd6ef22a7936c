#include <unisono/core/list.hpp>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

using unisono::detail::CountTable;
using unisono::detail::FixedArray;
using unisono::detail::insertion_sort;
using unisono::detail::List;
using unisono::detail::Owned;
using unisono::detail::Part;

namespace {

struct Pair {
    int key = 7; // not zero by default
    double value = 0.5;
    friend bool operator==(const Pair&, const Pair&) = default;
};

template <class T>
std::vector<T> copy_of(const List<T>& list) {
    return {list.begin(), list.end()};
}

} // namespace

BOOST_AUTO_TEST_SUITE(list)

BOOST_AUTO_TEST_CASE(does_what_a_vector_does) {
    std::mt19937 random(5);
    List<std::uint32_t> list;
    std::vector<std::uint32_t> vector;
    for (int i = 0; i < 20000; ++i) {
        const auto value = static_cast<std::uint32_t>(random());
        const std::size_t at = vector.empty() ? 0 : value % vector.size();
        switch (random() % 12) {
        case 0:
            if (vector.empty()) break;
            list.erase(at);
            vector.erase(vector.begin() + static_cast<std::ptrdiff_t>(at));
            break;
        case 1:
            if (vector.empty()) break;
            list.pop_back();
            vector.pop_back();
            break;
        case 2:
            if (random() % 50 != 0) break;
            list.clear();
            vector.clear();
            break;
        case 3:
            if (random() % 50 != 0) break;
            list.resize(at, value);
            vector.resize(at, value);
            break;
        case 4: {
            const std::vector<std::uint32_t> more(value % 5, value);
            list.append(List<std::uint32_t>(std::span<const std::uint32_t>(more)));
            vector.insert(vector.end(), more.begin(), more.end());
            break;
        }
        case 5:
            if (vector.empty()) break;
            list.push_back(list[at]); // an element of the list itself
            vector.push_back(vector[at]);
            break;
        default: list.push_back(value); vector.push_back(value);
        }
        BOOST_REQUIRE(copy_of(list) == vector);
    }
    BOOST_TEST(vector.size() > 100U);
}

BOOST_AUTO_TEST_CASE(copies_and_moves) {
    const List<int> first{1, 2, 3};
    List<int> copy = first;
    copy[0] = 9;
    BOOST_TEST(first[0] == 1);
    BOOST_CHECK(!(copy == first));
    List<int> moved = std::move(copy);
    BOOST_TEST(moved.size() == 3U);
    copy = first;
    BOOST_CHECK(copy == first);
    copy = moved;
    BOOST_TEST(copy[0] == 9);
    const List<int>& same = copy;
    copy = same;
    BOOST_TEST(copy.size() == 3U);
    moved = List<int>{};
    BOOST_TEST(moved.empty());
    moved = List<int>{4};
    BOOST_TEST(moved.back() == 4);
    BOOST_CHECK(List<int>(std::span<const int>(first)) == first);
}

BOOST_AUTO_TEST_CASE(parts_and_fixed_arrays) {
    const List<int> list{1, 2, 3, 4};
    const Part<const int> all = list;
    BOOST_TEST(all.size() == 4U);
    BOOST_TEST(all.data() == list.data());
    const Part<const int> middle{list.data() + 1, 2};
    BOOST_TEST(middle.front() == 2);
    BOOST_TEST(middle.back() == 3);
    BOOST_TEST(middle[1] == 3);
    int sum = 0;
    for (const int one : middle) sum += one;
    BOOST_TEST(sum == 5);
    BOOST_TEST(std::span<const int>(middle).size() == 2U);
    BOOST_TEST(Part<int>().empty());

    FixedArray<std::vector<int>> array(2);
    BOOST_TEST(array[1].empty());
    array[1].push_back(7);
    FixedArray<std::vector<int>> moved = std::move(array);
    BOOST_TEST(moved[1].back() == 7);
    const FixedArray<double> zeros(3);
    BOOST_TEST(zeros[2] == 0);
    FixedArray<std::vector<int>> none;
    BOOST_TEST(none.size() == 0U);
    none = std::move(moved);
    BOOST_TEST(none.size() == 2U);
    BOOST_TEST(none.data()[1].back() == 7);
    std::size_t elements = 0;
    for (const std::vector<int>& one : none) elements += one.size();
    BOOST_TEST(elements == 1U);
}

BOOST_AUTO_TEST_CASE(an_owner_deletes_its_object_once) {
    struct Counted {
        explicit Counted(int& of) : deleted(&of) {}
        Counted(const Counted&) = delete;
        Counted& operator=(const Counted&) = delete;
        ~Counted() { ++*deleted; }
        int* deleted;
    };
    int first = 0;
    int second = 0;
    {
        Owned<Counted> one(new Counted(first));
        Owned<Counted> other = std::move(one);
        BOOST_TEST(!one); // NOLINT(bugprone-use-after-move)
        BOOST_TEST(other.get()->deleted == &first);
        one = Owned<Counted>(new Counted(second));
        one.swap(other);
        BOOST_TEST(one->deleted == &first);
        other = std::move(one); // deletes what it had
        BOOST_TEST(first == 0);
        BOOST_TEST(second == 1);
        delete other.release();
        BOOST_TEST(first == 1);
    }
    BOOST_TEST(first == 1);
    BOOST_TEST(second == 1);
}

BOOST_AUTO_TEST_CASE(new_elements_have_their_defaults) {
    List<Pair> list(3);
    list.resize(5);
    for (const Pair& one : list) BOOST_CHECK(one == Pair{});
    list.assign(2, Pair{1, 2});
    BOOST_TEST(list.size() == 2U);
    BOOST_CHECK(list.back() == (Pair{1, 2}));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_refused) {
    List<double> list{1};
    BOOST_CHECK_THROW(list.resize(SIZE_MAX / 4), std::bad_alloc);
    BOOST_CHECK_THROW(list.reserve(std::size_t{1} << 60), std::bad_alloc); // 2^63 bytes
    BOOST_TEST(list.size() == 1U);
    BOOST_TEST(list[0] == 1.0);
}

BOOST_AUTO_TEST_CASE(sorts_stably) {
    std::mt19937 random(6);
    for (std::size_t size = 0; size < 40; ++size) {
        std::vector<Pair> values(size);
        for (std::size_t i = 0; i < size; ++i) values[i] = {static_cast<int>(random() % 7), static_cast<double>(i)};
        std::vector<Pair> expected = values;
        const auto less = [](const Pair& a, const Pair& b) { return a.key < b.key; };
        std::stable_sort(expected.begin(), expected.end(), less);
        insertion_sort(values, less);
        BOOST_CHECK(values == expected);
    }
}

BOOST_AUTO_TEST_CASE(counts_like_a_map) {
    std::mt19937_64 random(7);
    CountTable table;
    std::map<std::uint64_t, std::uint32_t> expected;
    for (int i = 0; i < 20000; ++i) {
        std::uint64_t key = random() % 3000;
        if (i % 3 == 0) key <<= 33;
        BOOST_REQUIRE_EQUAL(table[key]++, expected[key]++);
    }
    BOOST_TEST(table.size() == expected.size());
}

BOOST_AUTO_TEST_SUITE_END()
