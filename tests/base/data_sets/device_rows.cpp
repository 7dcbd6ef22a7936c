#include "unisono/extensions/device/device_rows.hpp"
#include "unisono/data/loader.hpp"

#include <boost/test/unit_test.hpp>

#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

namespace un = unisono;

namespace {

/// Streams whose work runs when the test allows it, in a random order, as a device guarantees and
/// no more.
class Machine {
public:
    using Done = std::shared_ptr<bool>;

    explicit Machine(unsigned seed) : random_(seed) {}

    void launch(int stream, std::function<void()> work) {
        const std::lock_guard lock(mutex_);
        streams_.at(static_cast<std::size_t>(stream)).push_back([work = std::move(work)] { return work(), true; });
    }
    void put(int stream, Done& mark) {
        const std::lock_guard lock(mutex_);
        mark = std::make_shared<bool>(false);
        streams_.at(static_cast<std::size_t>(stream)).push_back([mark] { return *mark = true; });
    }
    void follow(int stream, const Done& mark) {
        const std::lock_guard lock(mutex_);
        if (mark != nullptr) streams_.at(static_cast<std::size_t>(stream)).push_back([mark] { return *mark; });
    }
    void wait(const Done& mark) {
        for (int i = 0; i < 1'000'000; ++i) {
            if (mark == nullptr || is(mark)) return;
            go_on(1);
        }
        throw std::runtime_error("the streams wait for each other");
    }
    void go_on(int steps) {
        const std::lock_guard lock(mutex_);
        for (; steps > 0; --steps) {
            auto& stream = streams_[random_() % streams_.size()];
            if (!stream.empty() && stream.front()()) stream.pop_front();
        }
    }
    bool is_idle() {
        const std::lock_guard lock(mutex_);
        return std::all_of(streams_.begin(), streams_.end(), [](const auto& stream) { return stream.empty(); });
    }
    int rooms = 0;

private:
    bool is(const Done& mark) {
        const std::lock_guard lock(mutex_);
        return *mark;
    }

    std::mutex mutex_;
    std::minstd_rand random_;
    std::vector<std::deque<std::function<bool()>>> streams_{3}; ///< 0 copies
};

/// Copies by that machine. Freed memory is filled with 255, so that a late access is detected.
struct Copier {
    using Stream = int;
    using Mark = Machine::Done;

    Machine* machine;

    [[nodiscard]] static std::shared_ptr<std::byte> memory(std::size_t bytes) {
        return {new std::byte[bytes], [bytes](std::byte* one) {
                    std::fill_n(one, bytes, std::byte{255});
                    delete[] one;
                }};
    }
    [[nodiscard]] std::shared_ptr<std::byte> pinned(std::size_t bytes) const { return ++machine->rooms, memory(bytes); }
    [[nodiscard]] static std::shared_ptr<std::byte> on_device(std::size_t bytes) { return memory(bytes); }
    void copy(std::byte* to, const std::byte* from, std::size_t bytes) const {
        machine->launch(0, [=] { std::copy_n(from, bytes, to); });
    }
    void mark(Mark& mark) const { machine->put(0, mark); }
    void mark(Mark& mark, Stream stream) const { machine->put(stream, mark); }
    void follow(const Mark& mark) const { machine->follow(0, mark); }
    void follow(const Mark& mark, Stream stream) const { machine->follow(stream, mark); }
    void wait(const Mark& mark) const { machine->wait(mark); }
};
static_assert(un::batch_copier<Copier>);
static_assert(un::data_set<un::DeviceRows<un::RowData<float>, Copier>>);

/// Lists of indices of changing length.
struct Lists {
    struct View {
        std::span<const std::size_t> samples = {};
    };
    std::vector<std::vector<std::size_t>> all = {};
    std::size_t at = 0;
    [[nodiscard]] bool done() const { return at == all.size(); }
    View next() { return {all[at++]}; }
};

} // namespace

BOOST_AUTO_TEST_SUITE(device_rows)

BOOST_AUTO_TEST_CASE(a_device_reads_the_rows_of_each_batch_whenever_it_comes_to_it) {
    constexpr std::size_t width = 3, samples = 40;
    std::vector<float> values(samples * width);
    std::iota(values.begin(), values.end(), 0.0f);
    std::vector<std::int32_t> labels(samples);
    std::iota(labels.begin(), labels.end(), 1000);
    const un::RowData rows{values, width, labels};

    for (unsigned seed = 0; seed < 60; ++seed) {
        std::minstd_rand random(seed + 1);
        Machine machine(seed);
        Lists lists;
        for (int i = 0; i < 30; ++i) {
            std::vector<std::size_t> list(1 + random() % 6);
            for (std::size_t& one : list) one = random() % samples;
            lists.all.push_back(list);
        }
        const auto wanted = lists.all;
        const int depth = static_cast<int>(seed % 4);
        std::vector<std::vector<float>> read(wanted.size());
        std::vector<std::vector<std::int32_t>> read_labels(wanted.size());
        {
            un::DeviceRows data(rows, Copier{&machine});
            un::Loader loader(data, std::move(lists), {.depth = depth});
            std::size_t number = 0;
            while (auto* const item = loader.next()) {
                const auto& batch = *item->batch;
                BOOST_TEST(batch.rows() == wanted[number].size());
                BOOST_TEST(batch.labels_on_host().size() == batch.rows());
                BOOST_TEST(batch.labels_on_host()[0] == labels[wanted[number][0]]);
                for (int stream = 1; stream <= 2;
                     ++stream) { // rows on one, labels on another, which the host does not wait for
                    batch.on(stream);
                    batch.on(stream);
                    machine.launch(stream, [&, number, stream, all = batch.values(), marks = batch.labels()] {
                        if (stream == 1) read[number].assign(all.data(), all.data() + all.size());
                        else read_labels[number].assign(marks.data(), marks.data() + marks.size());
                    });
                }
                ++number;
                machine.go_on(static_cast<int>(random() % 8));
            }
            BOOST_TEST(number == wanted.size());
        } // pending reads are waited for before the memory is freed
        while (!machine.is_idle()) machine.go_on(1);
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            const auto expected = rows.batch(wanted[i]);
            BOOST_TEST(read[i] == expected.values, boost::test_tools::per_element());
            BOOST_TEST(read_labels[i] == expected.labels, boost::test_tools::per_element());
        }
        BOOST_TEST(machine.rooms <=
                   // At most one buffer per batch at a time, and larger ones for larger batches.
                   6 * (depth + 2));
    }
}

BOOST_AUTO_TEST_CASE(rows_without_labels_and_what_is_refused) {
    const std::vector<float> values = {0, 1, 10, 11, 20, 21};
    const un::RowData rows{values, 2};
    Machine machine(1);
    {
        un::DeviceRows data(rows, Copier{&machine});
        BOOST_TEST(data.size() == 3u);
        BOOST_TEST(data.width() == 2u);
        const std::vector<std::size_t> two = {2, 0}, wrong = {0, 3};
        auto batch = data.batch(two);
        BOOST_TEST(batch.labels().empty());
        BOOST_TEST(batch.values().size() == 4u);
        batch = data.batch(two); // the previous one is released
        BOOST_TEST(machine.rooms == 2);
        BOOST_CHECK_THROW(static_cast<void>(data.batch(wrong)), un::error);
        batch = data.batch(two);
        BOOST_TEST(machine.rooms == 2); // the refused batch released its buffer
    }
    std::vector<float> room(3);
    const std::vector<std::size_t> one = {0};
    BOOST_CHECK_THROW(rows.fill(one, room, {}), un::error);
}

BOOST_AUTO_TEST_SUITE_END()
