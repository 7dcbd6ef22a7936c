// The transport that is chosen at run time, AnyTransport or one of Transports: a trainer over
// whatever is behind it.

#include "../../base/shared_memory/processes.hpp"
#include "support/skip.hpp"

#include <unisono/any.hpp>
#include <unisono/tcp.hpp>
#include <unisono/transports.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>

namespace un = unisono;

namespace {

/// ThreadSanitizer and forks do not go together.
const std::vector<std::string> words = test::under_thread_sanitizer
                                           ? std::vector<std::string>{"in_process"}
                                           : std::vector<std::string>{"in_process", "shared_memory"};

struct Linear {
    std::vector<float> weights = std::vector<float>(300, 0.5f), gradient = std::vector<float>(300);
    std::span<float> parameters() { return weights; }
    std::span<float> gradients() { return gradient; }
    template <class Batch>
    double operator()(const Batch& batch, un::Pass&) {
        double loss = 0;
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            const auto x = batch.row(row);
            float y = 0;
            for (std::size_t i = 0; i < 300; ++i) y += weights[i] * x[i];
            loss += 0.5 * static_cast<double>((y - 1) * (y - 1)) / static_cast<double>(batch.rows());
            for (std::size_t i = 0; i < 300; ++i) gradient[i] += (y - 1) * x[i] / static_cast<float>(batch.rows());
        }
        return loss;
    }
};

using Choice = un::Transports<un::InProcess, un::SharedMemory, un::Tcp>;

using Weights = std::array<float, 300>;

/// Trains, and leaves rank 0's weights where the parent sees them.
template <class World>
void train(World& world, Weights& found) {
    const std::vector<float> values = un::torch_rand(0, 40 * 300);
    const un::RowData data(values, 300);
    Linear model;
    un::Trainer trainer{world, model, un::Sgd{.learning_rate = 0.001, .momentum = 0.9}};
    trainer.fit(data, {.epochs = 2, .batch_size = 5, .progress = false});
    trainer.verify_replicas();
    if (world.rank() == 0) std::copy(model.weights.begin(), model.weights.end(), found.begin());
}

} // namespace

BOOST_AUTO_TEST_SUITE(worlds_any)

BOOST_AUTO_TEST_CASE(a_trainer_has_the_same_bits_over_all_transports) {
    const test::Shared<std::array<Weights, 4>> found;
    un::run<un::InProcess>(3, [&](auto& world) { train(world, (*found)[0]); });
    un::run<un::AnyTransport>(3, [&](auto& world) { train(world, (*found)[1]); });
    un::run<un::AnyTransport>(words.front(), 3, [&](auto& world) { train(world, (*found)[2]); });
    un::run<un::AnyTransport>(words.back(), 3, [&](auto& world) { train(world, (*found)[3]); });
    for (std::size_t i = 1; i < 4; ++i)
        BOOST_TEST(std::memcmp(&(*found)[i], &(*found)[0], sizeof(Weights)) == 0, "transport " << i);
}

BOOST_AUTO_TEST_CASE(a_word_says_where_ranks_live) {
    const test::Leftovers leftovers;
    for (const std::string& word : words) {
        const test::Shared<std::atomic<int>> processes, wrong;
        un::run<un::AnyTransport>(word, 3, [&](un::Group<un::AnyTransport>& world) {
            if (world.endpoint().facts().name != word) ++*wrong;
            std::vector<float> own(40'000, 1.0f);
            un::Memory<float> shared = world.allocate<float>(40'000);
            std::fill(shared.begin(), shared.end(), 1.0f);
            un::all_reduce(world, own);
            un::all_reduce(world, shared, un::Sum{}, un::RingSchedule{});
            if (own.back() != 3 || shared[39'999] != 3) ++*wrong;
            if (world.is_shared(std::span<const float>(own)) != (word == "in_process")) ++*wrong;
            ++*processes;
        });
        BOOST_TEST(*wrong == 0, word);
        BOOST_TEST(*processes == 3);
    }
    BOOST_CHECK_EXCEPTION(
        un::run<un::AnyTransport>("pigeon", 2, [](auto&) {}), un::error, [](const un::error& refused) {
            return refused.code() == un::ErrorCode::bad_input &&
                   std::string(refused.what()).find("'pigeon'; expected in_process or shared_memory") !=
                       std::string::npos;
        });
}

BOOST_AUTO_TEST_CASE(faults_are_those_of_the_transport_behind_it) {
    for (const std::string& word : words) {
        BOOST_CHECK_EXCEPTION(un::run<un::AnyTransport>(word, 3,
                                                        [](un::Group<un::AnyTransport>& world) {
                                                            std::vector<float> data(world.rank() == 1 ? 10 : 20);
                                                            un::all_reduce(world, data);
                                                        }),
                              un::error,
                              [](const un::error& failed) { return failed.code() == un::ErrorCode::mismatch; });
    }
    if (words.size() < 2) return test::skip_part("ranks that are processes");
    BOOST_CHECK_EXCEPTION(un::run<un::AnyTransport>("shared_memory", 3,
                                                    [](un::Group<un::AnyTransport>& world) {
                                                        if (world.rank() == 2) ::raise(SIGKILL);
                                                        un::barrier(world);
                                                    }),
                          un::error, [](const un::error& failed) {
                              return failed.code() == un::ErrorCode::peer_lost && failed.peer() == 2;
                          });
}

BOOST_AUTO_TEST_CASE(joined_alone) {
    un::Group<un::AnyTransport> world = un::join<un::AnyTransport>();
    BOOST_TEST(world.size() == 1);
    BOOST_TEST(world.endpoint().facts().name == "in_process");
}

// One program, each transport in its turn: the names are right, and a trainer has the same bits. An
// error of the body reaches the caller as from `run` of that transport.
BOOST_AUTO_TEST_CASE(one_of_a_list_of_transports) {
    const test::Leftovers leftovers;
    std::vector<std::string> chosen = words;
    chosen.insert(chosen.end(), {"tcp", ""}); // the last: the first of the list
    const test::Shared<Weights> first, found;
    for (const std::string& word : chosen) {
        const test::Shared<std::atomic<int>> right;
        *found = {};
        auto body = [&, calls = std::make_unique<int>(0)](auto& world) { // which is moved, not copied
            using Transport = std::remove_cvref_t<decltype(world.endpoint())>;
            if (Transport::name == (word.empty() ? "in_process" : word)) ++*right;
            train(world, *found);
            un::barrier(world); // rank 0's weights are there
            if (world.rank() == 1) throw std::runtime_error("rank 1's own reason");
        };
        // A process gives its text, a thread the exception itself.
        const auto failed = [&](const std::exception& thrown) {
            const auto* known = dynamic_cast<const un::error*>(&thrown);
            return (known != nullptr) == (word == "shared_memory") &&
                   std::string(thrown.what()).find("rank 1's own reason") != std::string::npos;
        };
        BOOST_CHECK_EXCEPTION(un::run<Choice>(word, 3, std::move(body)), std::exception, failed);
        BOOST_TEST(un::failed_rank() == 1, word);
        BOOST_TEST(*right == 3, word);
        if (word == chosen.front()) *first = *found;
        BOOST_TEST(std::memcmp(&*found, &*first, sizeof(Weights)) == 0, word);
    }
}

BOOST_AUTO_TEST_CASE(no_word_of_the_list) {
    BOOST_TEST(Choice::words() == "in_process, shared_memory or tcp");
    BOOST_TEST(un::Transports<un::Tcp>::words() == "tcp");
    const auto told = [](const un::error& refused) {
        return refused.code() == un::ErrorCode::bad_input &&
               std::string(refused.what())
                       .find("no transport is called 'pigeon'; expected in_process, shared_memory or tcp") !=
                   std::string::npos;
    };
    BOOST_CHECK_EXCEPTION(un::run<Choice>("pigeon", 2, [](auto&) {}), un::error, told);
    BOOST_CHECK_EXCEPTION(un::run_joined<Choice>("pigeon", [](auto&) {}), un::error, told);
}

// Where a launcher has put its processes decides, if no word does.
static_assert(Choice::first_for(1, 1) == "in_process" && Choice::first_for(4, 1) == "shared_memory");
static_assert(Choice::first_for(4, 2) == "tcp" && un::Transports<un::Tcp, un::SharedMemory>::first_for(4, 1) == "tcp");
static_assert(un::Transports<un::InProcess, un::SharedMemory>::first_for(4, 2).empty());

BOOST_AUTO_TEST_CASE(one_of_a_list_joined_alone) {
    for (const std::string word : {"", "in_process", "shared_memory", "tcp"}) {
        int calls = 0;
        un::run_joined<Choice>(word, [&](auto& world) {
            using Transport = std::remove_cvref_t<decltype(world.endpoint())>;
            BOOST_TEST(Transport::name == (word.empty() ? "in_process" : word));
            BOOST_TEST(world.size() == 1);
            ++calls;
        });
        BOOST_TEST(calls == 1);
        BOOST_CHECK_THROW(un::run_joined<Choice>(word, [](auto&) { throw std::runtime_error("own"); }),
                          std::runtime_error);
    }
}

BOOST_AUTO_TEST_SUITE_END()
