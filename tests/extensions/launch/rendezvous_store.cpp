// Ranks that meet through a key-value store: the store starts late, has an old address, or rank 0
// cannot listen.

#include "ranks.hpp"

#include <thread>
#include <unisono/extensions/launch/rendezvous/rendezvous_store.hpp>

#include <boost/test/unit_test.hpp>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

namespace un = unisono;
using namespace std::chrono_literals;

namespace {

class Store {
public:
    void set(const std::string& key, const std::string& value) {
        const std::lock_guard guard(mutex_);
        values_[key] = value;
        news_.notify_all();
    }
    std::string get(const std::string& key, un::nanoseconds deadline) {
        std::unique_lock lock(mutex_);
        const auto left = std::chrono::nanoseconds(deadline - un::steady_now());
        ++asked;
        if (!news_.wait_for(lock, left, [&] { return values_.contains(key); }))
            throw un::error(un::ErrorCode::timeout, "the store has no key " + key);
        return values_[key];
    }
    std::atomic<int> asked{0};

private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::map<std::string, std::string> values_;
};
static_assert(un::key_value_store<Store>);

void meet(Store& store, int rank, int world, const std::string& key = "job") {
    un::ControlPlane plane = un::rendezvous(un::identity_of(rank, world), store, key, test::patience(20s));
    if (plane.rank() != rank || plane.size() != world) throw un::error(un::ErrorCode::aborted, "another place");
    const auto all = plane.all_gather(test::blob(std::to_string(rank)), test::in(20s));
    for (int peer = 0; peer < world; ++peer)
        if (test::text_of(all[static_cast<std::size_t>(peer)]) != std::to_string(peer))
            throw un::error(un::ErrorCode::aborted, "another blob");
}

} // namespace

BOOST_AUTO_TEST_SUITE(launch_rendezvous_store)

BOOST_AUTO_TEST_CASE(ranks_meet) {
    for (const int world : {1, 2, 5}) {
        Store store;
        test::all_well(test::run_ranks(test::all_ranks(world), [&](int rank) {
            if (rank == 0) std::this_thread::sleep_for(20ms); // the others wait for the key
            meet(store, rank, world);
        }));
    }
}

BOOST_AUTO_TEST_CASE(two_jobs_share_a_store) {
    Store store;
    test::all_well(test::run_ranks(test::all_ranks(4),
                                   [&](int rank) { meet(store, rank / 2, 2, rank % 2 == 0 ? "even" : "odd"); }));
}

/// Of a job that ended, of one that failed, of one on another host, and of one that wrote something
/// else.
BOOST_AUTO_TEST_CASE(an_old_value_is_read_again) {
    const un::detail::StoreCard ended{.secret = "public-" + un::JobToken::random().text(),
                                      .port = test::free_port(),
                                      .network = un::detail::network_space(),
                                      .hosts = {"127.0.0.1"}};
    const un::detail::StoreCard far{.secret = "name", .port = test::free_port(), .network = 99, .hosts = {"127.0.0.1"}};
    for (const std::string& old :
         {ended.text(), std::string("failed rank 0: cannot listen"), far.text(), std::string("unisono-")}) {
        Store store;
        store.set("job", old);
        test::all_well(test::run_ranks(test::all_ranks(3), [&](int rank) {
            // Both ranks have tried the old address.
            while (rank == 0 && store.asked < 4) std::this_thread::sleep_for(1ms);
            meet(store, rank, 3);
        }));
    }
}

BOOST_AUTO_TEST_CASE(a_card_comes_back_as_it_was) {
    const un::detail::StoreCard card{.secret = "name", .port = 4711, .network = 99, .hosts = {"a", "::1"}};
    const auto same = un::detail::StoreCard::parse("k", card.text());
    BOOST_CHECK(same.secret == card.secret && same.port == card.port && same.network == 99 && same.hosts == card.hosts);
}

BOOST_AUTO_TEST_CASE(what_rank_0_could_not_do_reaches_all) {
    Store store;
    store.set("job", "failed rank 0: cannot listen");
    const auto outcomes = test::run_ranks({1, 2}, [&](int rank) { meet(store, rank, 3); });
    for (const auto& outcome : outcomes) test::failed_with(outcome, un::ErrorCode::refused, {"cannot listen"});
}

BOOST_AUTO_TEST_CASE(anything_else_is_refused) {
    for (const std::string& text :
         {std::string(), std::string("hello"), std::string("unisono-2 "), std::string("unisono-2 ../x 1 1 a"),
          "unisono-2 " + un::JobToken::random().text() + " 70000 1 a",
          "unisono-2 " + un::JobToken::random().text() + " 7 1 "}) {
        Store store;
        store.set("job", text);
        const auto outcomes = test::run_ranks({1}, [&](int rank) { meet(store, rank, 2); });
        BOOST_CHECK_MESSAGE(outcomes[0].code == un::ErrorCode::refused || outcomes[0].code == un::ErrorCode::bad_input,
                            text << ": " << outcomes[0].text);
    }
}

// The store gets no secret unless the network is trusted, because a reader of the store would get
// it.
BOOST_AUTO_TEST_CASE(what_the_store_is_told) {
    Store store;
    std::atomic<bool> seen{false};
    const auto outcomes = test::run_ranks({0, 1}, [&](int rank) {
        if (rank == 0) return meet(store, rank, 2);
        const auto card = un::detail::StoreCard::parse("job", store.get("job", test::in(20s)));
        un::RendezvousPoint file = un::detail::secret_file(un::Environment::of_process(), card.secret);
        if (!un::detail::read_rendezvous_file(file)) throw un::error(un::ErrorCode::aborted, "no file");
        seen = store.get("job", test::in(1s)).find(file.token.text()) == std::string::npos;
        un::RendezvousPoint guessed; // of a reader of the store
        guessed.host = "127.0.0.1";
        guessed.port = card.port;
        guessed.token = un::JobToken::derived_from(card.text());
        un::detail::Search stranger(un::identity_of(1, 2), guessed, 1);
        if (stranger.once(test::in(5s))) throw un::error(un::ErrorCode::aborted, "let in");
        meet(store, rank, 2);
    });
    test::all_well(outcomes);
    BOOST_CHECK(seen);
}

BOOST_AUTO_TEST_CASE(ranks_of_another_host_need_a_secret) {
    Store store;
    const un::detail::StoreCard far{.secret = "name", .port = test::free_port(), .network = 99, .hosts = {"127.0.0.1"}};
    store.set("job", far.text());
    const auto outcomes = test::run_ranks({1}, [&](int rank) { meet(store, rank, 2); });
    test::failed_with(outcomes[0], un::ErrorCode::refused, {"another host", "UNISONO_TOKEN"});
    Store trusted;
    test::all_well(test::run_ranks({0, 1, 2}, [&](int rank) {
        un::RendezvousOptions options = test::patience(20s);
        options.trusted_network = true;
        un::ControlPlane plane = un::rendezvous(un::identity_of(rank, 3), trusted, "job", options);
        static_cast<void>(plane.all_gather({}, test::in(20s)));
    }));
}

BOOST_AUTO_TEST_CASE(ranks_that_never_come_are_named) {
    Store store;
    const auto outcomes = test::run_ranks({0, 2}, [&](int rank) {
        const auto plane = un::rendezvous(un::identity_of(rank, 3), store, "job", test::patience(300ms));
    });
    for (const auto& outcome : outcomes) test::failed_with(outcome, un::ErrorCode::timeout, {"rank 1"});
}

BOOST_AUTO_TEST_SUITE_END()
