// Reducers and transports: laws that require several ranks.
#include "support.hpp"

#include "unisono/extensions/automatic/reducer.hpp"
#include "unisono/reducer/parameter_server.hpp"
#include "unisono/reducer/scheduled.hpp"
#include "unisono/testing/reducer_laws.hpp"
#include "unisono/testing/transport_laws.hpp"

#include <thread>

namespace un = unisono;
using namespace un::testing;
using un::EndpointSink;
using unisono_test::expect_lawful;
using unisono_test::expect_reported;

BOOST_AUTO_TEST_SUITE(certified_reducers)

namespace {

/// Lawful functions, one of which a mutant replaces.
struct LawfulVerbs : ArchetypeReducer::Run, ArchetypeOwnerReducer::Run {};
template <class Verbs>
struct MutantReducer {
    static constexpr std::string_view name = "mutant reducer";
    static constexpr un::Family family = un::Family::reducer;
    static constexpr bool gives_owners = false;
    static constexpr bool reduces_to_owners = true;
    friend bool operator==(const MutantReducer&, const MutantReducer&) = default;
    template <class World>
    [[nodiscard]] Verbs start(World&) const {
        return {};
    }
};
struct Averages : LawfulVerbs {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        for (T& value : values) value /= static_cast<T>(group.size());
        return LawfulVerbs::sum(group, values);
    }
};
struct NeighbourOwns : LawfulVerbs {
    template <class World, class T>
    un::Operation sum_to(World& group, std::span<T> values, int owner) const {
        return LawfulVerbs::sum_to(group, values, (owner + 1) % group.size());
    }
};
struct PublishesTheFirst : LawfulVerbs {
    template <class World, class T>
    un::Operation publish(World& group, std::span<T> values, int) const {
        return LawfulVerbs::publish(group, values, 0);
    }
};
/// Each rank adds all contributions itself, starting with its own.
struct OwnFirst : LawfulVerbs {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        const auto ranks = static_cast<std::size_t>(group.size()), count = values.size();
        std::vector<T> all(ranks * count);
        un::all_gather(group, std::span<const T>(values), std::span<T>(all));
        for (std::size_t i = 0; i < count; ++i) {
            T sum = 0;
            for (std::size_t k = 0; k < ranks; ++k)
                sum += all[(static_cast<std::size_t>(group.rank()) + k) % ranks * count + i];
            values[i] = sum;
        }
        return un::start_barrier(group);
    }
};
/// Sums numbers that are rounded on the way.
template <class Narrow>
struct Rounds : LawfulVerbs {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        for (T& value : values) value = static_cast<T>(static_cast<float>(Narrow(static_cast<float>(value))));
        return LawfulVerbs::sum(group, values);
    }
};
/// Sums only floating-point numbers.
struct OnlyFloats : LawfulVerbs {
    template <class World, std::floating_point T>
    un::Operation sum(World& group, std::span<T> values) const {
        return LawfulVerbs::sum(group, values);
    }
    template <class World, std::floating_point T>
    un::Operation sum_to(World& group, std::span<T> values, int owner) const {
        return LawfulVerbs::sum_to(group, values, owner);
    }
};
/// Sums whole numbers by way of double.
struct SumsDoubles : LawfulVerbs {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        std::vector<double> numbers(values.begin(), values.end());
        un::all_reduce(group, std::span<double>(numbers));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(numbers[i]);
        return un::start_barrier(group);
    }
};
struct RankZeroIsSilent : LawfulVerbs {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        if (group.rank() == 0) return {};
        return LawfulVerbs::sum(group, values);
    }
};

/// Receives into the memory behind the output.
struct BehindTheEnd : un::schedule::ScheduleBase<un::Collective::all_reduce> {
    static constexpr std::string_view name = "behind the end";
    using Ring = un::schedule::RingAllReduce;
    [[nodiscard]] constexpr std::uint32_t rounds() const { return Ring{{shape}}.rounds(); }
    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        Ring{{shape}}.round(r, [&](un::schedule::Step step) {
            if (step.kind == un::schedule::StepKind::receive) step.target.first += 1'000'000;
            visit(step);
        });
    }
};
/// Reads the memory of peers, which may not have come yet.
struct NobodyAwaits : un::schedule::Mapped<un::Collective::all_reduce> {
    static constexpr std::string_view name = "nobody awaits";
    template <class Visit>
    constexpr void round(std::uint32_t r, Visit&& visit) const {
        Mapped::round(r, [&](const un::schedule::Step& step) {
            if (step.kind != un::schedule::StepKind::await) visit(step);
        });
    }
};
/// Takes each rank for another one, as a schedule may that was made for another group.
struct OfAnotherShape : un::schedule::RingAllReduce {
    static constexpr std::string_view name = "of another shape";
};
struct SumsByAnother : ArchetypeOwnerReducer::Run {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        static_cast<void>(group.plan(un::schedule::schedule_of<un::Collective::all_reduce>(
            un::OwnSchedule<OfAnotherShape>{}, un::schedule::Shape{group.size() + 7, 0, 0})));
        return un::start_all_reduce(group, values);
    }
};
/// `Parts`: in groups of the even and of the odd ranks.
template <class Schedule, bool Parts = false>
struct SumsBy : ArchetypeOwnerReducer::Run {
    template <class World, class T>
    un::Operation sum(World& group, std::span<T> values) const {
        if constexpr (!Parts) return un::start_all_reduce(group, values, un::Sum{}, un::OwnSchedule<Schedule>{});
        std::vector<T> copy(values.begin(), values.end());
        un::all_reduce(*part, std::span<T>(copy), un::Sum{}, un::OwnSchedule<Schedule>{});
        return un::start_all_reduce(group, values);
    }
    std::shared_ptr<un::Group<un::InProcess>> part = {};
};
template <class Schedule>
struct InParts : MutantReducer<SumsBy<Schedule, true>> {
    template <class World>
    [[nodiscard]] SumsBy<Schedule, true> start(World& world) const {
        return {{}, std::make_shared<un::Group<un::InProcess>>(world.split(world.rank() % 2, 0))};
    }
};

const ReducerTrial quick{.most_ranks = 3, .counts = {1, 257}};
// For mutants that hang.
const ReducerTrial impatient{.most_ranks = 2, .counts = {1}, .timeout = std::chrono::seconds(1)};

} // namespace

BOOST_AUTO_TEST_CASE(built_in_and_archetype) {
    expect_lawful(reducer_laws(ArchetypeReducer{}));
    expect_lawful(reducer_laws(ArchetypeOwnerReducer{}));
    expect_lawful(reducer_laws(MutantReducer<LawfulVerbs>{}));
    expect_lawful(reducer_laws(un::NativeReducer{}));
    expect_lawful(reducer_laws(un::RingReducer{}));
    expect_lawful(reducer_laws(un::RingReducer{.chunk_bytes = 256}));
    expect_lawful(reducer_laws(un::TreeReducer{}));
    expect_lawful(reducer_laws(un::HalvingDoublingReducer{}));
    expect_lawful(reducer_laws(un::AutomaticReducer{}));
    expect_lawful(reducer_laws(un::ParameterServerReducer{}));
    expect_lawful(reducer_laws(un::ParameterServerReducer{.servers = 2}, {.least_ranks = 2}));
}

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(reducer_laws(MutantReducer<Averages>{}, quick),
                    {"mutant reducer: on 2 ranks", "the sum of all ranks' is"});
    expect_reported(reducer_laws(MutantReducer<NeighbourOwns>{}, quick), {"sum_to rank 0"});
    expect_reported(reducer_laws(MutantReducer<PublishesTheFirst>{}, quick), {"publish from rank 1"});
    expect_reported(reducer_laws(MutantReducer<OwnFirst>{}, quick), {"on 3 ranks", "has other bits on rank"});
    expect_reported(reducer_laws(MutantReducer<Rounds<un::bfloat16>>{}, quick),
                    {"on 1 ranks", "the sum of all ranks' is"});
    expect_reported(reducer_laws(MutantReducer<Rounds<float>>{}, quick), {"on 1 ranks", "the sum of all ranks' is"});
    expect_reported(reducer_laws(MutantReducer<OnlyFloats>{}, quick),
                    {"does not sum std::int64_t", "does not sum std::int32_t"});
    expect_reported(reducer_laws(MutantReducer<SumsDoubles>{}, quick), {"on 1 ranks: sum: element 0"});
    expect_reported(reducer_laws(MutantReducer<RankZeroIsSilent>{}, impatient), {"on 2 ranks: threw"});
    expect_reported(reducer_laws(un::ParameterServerReducer{.servers = 2}, quick), {"on 1 ranks: threw", "servers"});
}

/// They are not run: what they would do to memory is not a violation that could be reported.
BOOST_AUTO_TEST_CASE(schedules_that_break_their_laws) {
    expect_reported(reducer_laws(MutantReducer<SumsBy<BehindTheEnd>>{}, quick),
                    {"on 2 ranks: threw", "behind the end on 2 ranks", "schedule_laws shows all"});
    expect_reported(reducer_laws(InParts<BehindTheEnd>{}, quick), {"on 3 ranks: threw", "behind the end on 2 ranks"});
    expect_reported(reducer_laws(MutantReducer<SumsBy<NobodyAwaits>>{}, quick),
                    {"on 2 ranks: threw", "nobody awaits on 2 ranks"});
    expect_reported(reducer_laws(MutantReducer<SumsByAnother>{}, quick),
                    {"on 2 ranks: threw", "its shape is rank 0 of 9", "on rank "});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(certified_transports)

namespace {

/// Reports each send twice.
struct Stutterer : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "stutterer";
    void progress(EndpointSink& sink) override {
        struct Twice final : EndpointSink {
            EndpointSink& to;
            explicit Twice(EndpointSink& sink) : to(sink) {}
            void sent(un::Token token) override { to.sent(token), to.sent(token); }
            void received(un::Token token, const un::Envelope& envelope, const std::byte* data) override {
                to.received(token, envelope, data);
            }
        } twice{sink};
        InProcess::progress(twice);
    }
};
/// Matches only by position.
struct ContextBlind : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "context-blind";
    void receive(int peer, const un::Envelope& expected, un::Token token, std::byte* target) override {
        un::Envelope other = expected;
        other.tag.context = 1;
        InProcess::receive(peer, other, token, target);
    }
};
/// Loses every message after the tenth.
struct Forgetful : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "forgetful";
    int posted = 0;
    bool send(int peer, const un::Envelope& envelope, const std::byte* data, un::Token token) override {
        return ++posted <= 10 && InProcess::send(peer, envelope, data, token);
    }
};
/// Reports sends before it has read their memory.
struct Hasty : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "hasty";
    struct Held {
        int peer;
        un::Envelope envelope;
        const std::byte* data;
    };
    std::vector<un::Token> told;
    std::vector<Held> held;
    bool send(int peer, const un::Envelope& envelope, const std::byte* data, un::Token token) override {
        told.push_back(token);
        held.push_back({peer, envelope, data});
        return false;
    }
    void progress(EndpointSink& sink) override {
        for (const un::Token token : told) sink.sent(token);
        told.clear();
        for (const Held& one : held) static_cast<void>(InProcess::send(one.peer, one.envelope, one.data, 0));
        held.clear();
        struct ReceivesOnly final : EndpointSink {
            EndpointSink& to;
            explicit ReceivesOnly(EndpointSink& sink) : to(sink) {}
            void sent(un::Token) override {}
            void received(un::Token token, const un::Envelope& envelope, const std::byte* data) override {
                to.received(token, envelope, data);
            }
        } receives{sink};
        InProcess::progress(receives);
    }
};
/// Aborts without waiting for ranks that read its memory.
struct Impatient : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "impatient";
    std::vector<std::thread> aborting;
    Impatient(Impatient&&) = default;
    ~Impatient() override {
        for (std::thread& one : aborting) one.join();
    }
    void abort(const un::Fault& fault) override {
        aborting.emplace_back([this, fault] { InProcess::abort(fault); });
        while (first_fault() == nullptr) std::this_thread::yield();
    }
};
/// Never notices that a rank has ended.
struct Faithful : un::InProcess {
    using InProcess::InProcess;
    static constexpr std::string_view name = "faithful";
    [[nodiscard]] un::Presence presence(int) override { return un::Presence::here; }
};

/// Has no device for the second rank.
struct Refused : un::InProcess {
    static constexpr std::string_view name = "refused";
    Refused(const std::shared_ptr<World>& world, int rank) : InProcess(world, rank) {
        if (rank == 1) throw un::error(un::ErrorCode::refused, "no device");
    }
};

const TransportTrial brief{.most_ranks = 2, .messages = 20};
const TransportTrial impatient{
    .most_ranks = 2, .messages = 20, .timeout = std::chrono::seconds(1)}; // for mutants that hang

} // namespace

BOOST_AUTO_TEST_CASE(in_process) { expect_lawful(transport_laws<un::InProcess>()); }

BOOST_AUTO_TEST_CASE(mutants) {
    expect_reported(transport_laws<Stutterer>(brief), {"stutterer: 2 ranks", "a send was reported more than once"});
    expect_reported(transport_laws<ContextBlind>(impatient), {"another tag"});
    expect_reported(transport_laws<Forgetful>(impatient), {"10 sends and 10 receives were never reported"});
    expect_reported(transport_laws<Hasty>(brief), {"is not what was sent"});
    expect_reported(transport_laws<Impatient>(brief), {"abort() returned while a peer was reading"});
    expect_reported(transport_laws<Faithful>(impatient), {"presence() did not say that the other had left"});
    expect_reported(transport_laws<Refused>(impatient), {"2 ranks", "rank 1: could not be made", "no device"});
    expect_lawful(transport_laws<Refused>({.most_ranks = 1, .messages = 20})); // no law then needs more
}

BOOST_AUTO_TEST_SUITE_END()
