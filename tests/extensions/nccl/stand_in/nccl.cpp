#include "state.hpp"

#include <unisono/core/element.hpp>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

using namespace stand_in;

namespace {

struct Call {
    enum class Kind { all_reduce, reduce, broadcast, all_gather, reduce_scatter, send, receive };
    Kind kind = Kind::all_reduce;
    const void* in = nullptr;
    void* out = nullptr;
    std::size_t count = 0;
    ncclDataType_t type = ncclUint8;
    ncclRedOp_t operation = ncclSum;
    double weight = 1.0; ///< of an operation that multiplies
    bool weighted = false;
    int peer = 0;
    StandInStream* stream = nullptr;

    [[nodiscard]] bool fits(const Call& other) const {
        return kind == other.kind && count == other.count && type == other.type && peer == other.peer;
    }
};
const char* const names[] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "send", "receive"};

struct Mail {
    const void* from = nullptr;
    std::size_t bytes = 0;
    bool registered = false; ///< the sender's memory, with the communicator
    bool taken = false;
};
/// The ranks of a communicator.
struct Clique {
    int ranks = 0;
    std::vector<ncclComm_t> members;
    int arrived = 0;
    /// Collectives by number, with one call per rank.
    std::map<std::uint64_t, std::vector<Call>> calls;
    std::map<std::uint64_t, int> came;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Mail>>> mail;
    struct Split {
        int arrived = 0;
        std::vector<int> colours, keys;
        std::vector<ncclComm_t> made;
    };
    std::map<int, Split> splits;
    struct Windows {
        int arrived = 0;
        std::size_t bytes = 0;
        std::vector<ncclWindow_t*> made;
        std::vector<void*> memory;
    };
    std::map<int, Windows> windows;
};

std::map<std::string, std::shared_ptr<Clique>>& cliques() {
    static auto& all = *new std::map<std::string, std::shared_ptr<Clique>>;
    return all;
}
struct Weight {
    double value = 1.0;
    bool live = false;
};
std::vector<Weight>& weights() {
    static auto& all = *new std::vector<Weight>;
    return all;
}

} // namespace

struct StandInWindow {
    void* memory = nullptr;
    std::size_t bytes = 0;
};

struct StandInCommunicator {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    int device = 0;
    bool ready = false;
    int questions = 0; ///< until the request is done
    std::vector<std::function<void()>> untaken;
    std::vector<StandInStream*> streams; ///< of the calls that were not taken
    ncclResult_t error = ncclSuccess;
    int good_calls = 0; ///< before the one that fails, see Behaviour
    std::uint64_t collectives = 0;
    int running = 0;  ///< enqueued tasks that are not done
    int captured = 0; ///< calls that graphs hold
    int splits = 0;
    bool splitting = false;
    ncclComm_t child = nullptr;        ///< of the split in progress
    ncclComm_t* child_place = nullptr; ///< NCCL writes it at the end of the split
    int windows = 0;                   ///< calls
    bool opens_window = false;
    bool finalised = false, destroyed = false, aborted = false, revoked = false;
    std::vector<void*> registered;
    std::vector<ncclWindow_t> open;

    [[nodiscard]] bool busy() const {
        return !ready || !untaken.empty() || questions != 0 || splitting || opens_window || child_place != nullptr;
    }
    [[nodiscard]] bool has_registered(const void* at) const {
        for (const ncclWindow_t window : open)
            if (at >= window->memory && at < static_cast<const std::byte*>(window->memory) + window->bytes) return true;
        return false;
    }
    /// As NCCL's thread does.
    void tell_child() {
        if (child_place != nullptr) *std::exchange(child_place, nullptr) = std::exchange(child, nullptr);
    }
};

namespace {

std::size_t bytes_of(ncclDataType_t type) {
    switch (type) {
    case ncclFloat64:
    case ncclInt64:
    case ncclUint64: return 8;
    case ncclFloat32:
    case ncclInt32:
    case ncclUint32: return 4;
    case ncclFloat16:
    case ncclBfloat16: return 2;
    default: return 1;
    }
}

template <class T>
T combine(T a, T b, ncclRedOp_t operation) {
    if (operation == ncclProd) return static_cast<T>(a * b);
    if (operation == ncclMin) return b < a ? b : a;
    if (operation == ncclMax) return a < b ? b : a;
    if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
    else return a + b;
}

/// Adds in the order of ranks, in float for elements of 16 bits.
template <class T, class Wide>
void reduce(const std::vector<Call>& calls, std::size_t first, std::size_t count, std::byte* out) {
    const ncclRedOp_t operation = calls[0].weighted ? ncclSum : calls[0].operation;
    for (std::size_t i = 0; i < count; ++i) {
        Wide sum{};
        for (std::size_t rank = 0; rank < calls.size(); ++rank) {
            T value;
            std::memcpy(&value, seen_by_host(calls[rank].in) + (first + i) * sizeof(T), sizeof value);
            Wide one = static_cast<Wide>(value);
            if (calls[rank].weighted)
                one = static_cast<Wide>(static_cast<T>(one * static_cast<Wide>(calls[rank].weight)));
            sum = rank == 0 ? one : combine<Wide>(sum, one, operation);
        }
        if (operation == ncclAvg) sum = static_cast<Wide>(sum / static_cast<Wide>(calls.size()));
        const T result = static_cast<T>(sum);
        std::memcpy(out + i * sizeof(T), &result, sizeof result);
    }
}
std::vector<std::byte> reduced(const std::vector<Call>& calls, std::size_t first, std::size_t count) {
    std::vector<std::byte> out(count * bytes_of(calls[0].type));
    switch (calls[0].type) {
    case ncclFloat32: reduce<float, float>(calls, first, count, out.data()); break;
    case ncclFloat64: reduce<double, double>(calls, first, count, out.data()); break;
    case ncclBfloat16: reduce<unisono::bfloat16, float>(calls, first, count, out.data()); break;
    case ncclFloat16: reduce<unisono::float16, float>(calls, first, count, out.data()); break;
    case ncclInt32: reduce<std::int32_t, std::int32_t>(calls, first, count, out.data()); break;
    case ncclInt64: reduce<std::int64_t, std::int64_t>(calls, first, count, out.data()); break;
    case ncclUint32: reduce<std::uint32_t, std::uint32_t>(calls, first, count, out.data()); break;
    case ncclUint64: reduce<std::uint64_t, std::uint64_t>(calls, first, count, out.data()); break;
    default: reduce<std::uint8_t, std::uint8_t>(calls, first, count, out.data()); break;
    }
    return out;
}
void put(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) std::memmove(seen_by_host(to), from, bytes);
}

/// Runs when all ranks have called.
void carry_out(const std::vector<Call>& calls) {
    const Call& first = calls[0];
    const std::size_t each = bytes_of(first.type);
    const auto root = static_cast<std::size_t>(first.peer);
    switch (first.kind) {
    case Call::Kind::all_reduce: {
        const auto sum = reduced(calls, 0, first.count);
        for (const Call& one : calls) put(one.out, sum.data(), sum.size());
        break;
    }
    case Call::Kind::reduce: {
        const auto sum = reduced(calls, 0, first.count);
        put(calls[root].out, sum.data(), sum.size());
        break;
    }
    case Call::Kind::broadcast: {
        const std::byte* const from = seen_by_host(calls[root].in);
        const std::vector<std::byte> data(from, from + first.count * each);
        for (const Call& one : calls) put(one.out, data.data(), data.size());
        break;
    }
    case Call::Kind::all_gather: {
        std::vector<std::byte> all;
        for (const Call& one : calls) {
            const std::byte* const from = seen_by_host(one.in);
            all.insert(all.end(), from, from + first.count * each);
        }
        for (const Call& one : calls) put(one.out, all.data(), all.size());
        break;
    }
    case Call::Kind::reduce_scatter: {
        std::vector<std::vector<std::byte>> parts;
        for (std::size_t rank = 0; rank < calls.size(); ++rank)
            parts.push_back(reduced(calls, rank * first.count, first.count));
        for (std::size_t rank = 0; rank < calls.size(); ++rank)
            put(calls[rank].out, parts[rank].data(), parts[rank].size());
        break;
    }
    default: break;
    }
}

/// Runs on the stream's thread. Returns true when the stream may continue, false once the
/// communicator is aborted.
template <class Met>
bool wait_for(ncclComm_t one, Lock& lock, Met met) {
    state().changed.wait(lock, [&] { return one->aborted || one->revoked || met(); });
    return !one->aborted && !one->revoked;
}

void run_collective(ncclComm_t one, const Call& call, Lock& lock) {
    Clique& clique = *one->clique;
    const std::uint64_t number = one->collectives++;
    std::vector<Call>& all = clique.calls[number];
    all.resize(static_cast<std::size_t>(clique.ranks));
    all[static_cast<std::size_t>(one->rank)] = call;
    const int came = ++clique.came[number];
    if (came == clique.ranks) {
        const bool fit = std::all_of(all.begin(), all.end(), [&](const Call& other) { return other.fits(call); });
        if (fit) {
            carry_out(all);
            clique.came[number] = clique.ranks + 1; // done
        }
        state().changed.notify_all();
    }
    // Mismatched calls hang.
    wait_for(one, lock, [&] { return clique.came[number] > clique.ranks; });
}

void run_group(ncclComm_t one, const std::vector<Call>& calls, Lock& lock) {
    if (!wait_for(one, lock, [&] { return state().behaviour.silent_rank != one->rank; })) return;
    Clique& clique = *one->clique;
    std::vector<std::shared_ptr<Mail>> sent;
    for (const Call& call : calls) {
        state().calls.emplace_back(names[static_cast<int>(call.kind)]);
        if (call.kind != Call::Kind::send) continue;
        sent.push_back(
            std::make_shared<Mail>(Mail{call.in, call.count * bytes_of(call.type), one->has_registered(call.in)}));
        clique.mail[{one->rank, call.peer}].push_back(sent.back());
    }
    state().changed.notify_all();
    for (const Call& call : calls) {
        if (call.kind < Call::Kind::send) run_collective(one, call, lock);
        if (one->aborted || one->revoked) return;
        if (call.kind != Call::Kind::receive) continue;
        auto& box = clique.mail[{call.peer, one->rank}];
        if (!wait_for(one, lock, [&] { return !box.empty(); })) return;
        const auto mail = box.front();
        box.pop_front();
        if (mail->bytes != call.count * bytes_of(call.type)) state().note("a receive's size is not its send's");
        else put(call.out, seen_by_host(mail->from), mail->bytes);
        if (mail->registered != one->has_registered(call.out))
            state().note("a message between registered and other memory, which hangs");
        mail->taken = true;
        state().changed.notify_all();
    }
    for (const auto& mail : sent) // as large messages do
        if (!wait_for(one, lock, [&] { return mail->taken; })) return;
}

thread_local int depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Call>> grouped;

/// Takes the calls of one communication, with the lock held.
ncclResult_t take(const std::vector<std::pair<ncclComm_t, Call>>& calls) {
    if (calls.empty()) return ncclSuccess;
    const ncclComm_t one = calls[0].first;
    if (one->destroyed || one->aborted || one->finalised || one->revoked) {
        state().note("a communicator was used after its end");
        return ncclInvalidUsage;
    }
    if (one->busy()) {
        state().note("a communicator was used while it was busy");
        return ncclInvalidUsage;
    }
    if (state().is_lost(one->device)) return one->error = ncclUnhandledCudaError;
    if (one->rank == state().behaviour.failing_rank && one->good_calls++ >= state().behaviour.good_calls) {
        one->error = state().behaviour.failure;
        return ncclSuccess;
    }
    std::vector<Call> all;
    for (const auto& [of, call] : calls) all.push_back(call);
    StandInStream* const stream = all[0].stream;
    const auto go = [one, all, stream] {
        if (stream->capture != nullptr) {
            ++one->captured;
            stream->capture->recording->at_launch.emplace_back([one] { ++one->running; });
            stream->capture->recording->at_end.emplace_back([one] { --one->captured; });
        } else {
            ++one->running;
        }
        state().enqueue(stream, [one, all](Lock& lock) {
            run_group(one, all, lock);
            --one->running;
        });
    };
    if (state().behaviour.questions == 0) {
        go();
        return ncclSuccess;
    }
    one->questions = state().behaviour.questions;
    one->untaken.emplace_back(go);
    one->streams.push_back(stream);
    ++stream->untaken;
    ++state().counts.in_progress;
    return ncclInProgress;
}

ncclResult_t add(ncclComm_t one, Call call) {
    if (one == nullptr) return ncclInvalidArgument;
    if (call.operation >= ncclNumOps) {
        const Weight& weight = weights()[static_cast<std::size_t>(call.operation) - ncclNumOps];
        call.weighted = true;
        call.weight = weight.value;
        if (!weight.live) state().note("an operation was used after its end");
    }
    if (depth > 0) {
        grouped.emplace_back(one, call);
        return ncclSuccess;
    }
    return take({{one, call}});
}

/// Answers one query of a communicator, with the lock held.
ncclResult_t answer(ncclComm_t one) {
    if (one->revoked) return one->running != 0 ? ncclInProgress : ncclSuccess; // nothing runs on it any more
    if (one->error != ncclSuccess) return one->error;
    if (one->splitting || one->opens_window) return ncclInProgress;
    if (!one->ready) {
        if (one->clique == nullptr || one->clique->arrived < one->clique->ranks) return ncclInProgress;
        if (one->questions > 0) --one->questions;
        if (one->questions > 0) return ncclInProgress;
        one->ready = true;
    }
    if (one->questions > 0 && --one->questions > 0) {
        ++state().counts.in_progress;
        return ncclInProgress;
    }
    for (StandInStream* const stream : one->streams) --stream->untaken;
    one->streams.clear();
    one->tell_child();
    for (const auto& go : std::exchange(one->untaken, {})) go();
    return ncclSuccess;
}

ncclComm_t new_communicator() {
    const ncclComm_t made = new StandInCommunicator;
    made->device = device_of_thread();
    made->questions = state().behaviour.questions;
    ++state().counts.communicators;
    return made;
}
void end(ncclComm_t one) {
    --state().counts.communicators;
    static_cast<void>(one);
}

} // namespace

ncclResult_t ncclGetVersion(int* version) {
    const Lock lock(state().mutex);
    *version = state().behaviour.loaded;
    return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const Lock lock(state().mutex);
    static std::uint64_t number = 0;
    *id = {};
    ++number;
    std::memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t code) {
    switch (code) {
    case ncclSystemError: return "unhandled system error (stand-in)";
    case ncclRemoteError: return "remote process exited or there was a network error (stand-in)";
    case ncclInvalidUsage: return "invalid usage (stand-in)";
    default: return "an error (stand-in)";
    }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    Lock lock(state().mutex);
    auto& clique = cliques()[std::string(id.internal, sizeof id.internal)];
    if (clique == nullptr) {
        clique = std::make_shared<Clique>();
        clique->ranks = ranks;
        clique->members.resize(static_cast<std::size_t>(ranks));
    }
    if (clique->members[static_cast<std::size_t>(rank)] != nullptr) return ncclInvalidUsage;
    *made = new_communicator();
    (*made)->clique = clique;
    (*made)->rank = rank;
    clique->members[static_cast<std::size_t>(rank)] = *made;
    if (ranks > 1 && state().behaviour.bad_starts > 0) {
        --state().behaviour.bad_starts;
        (*made)->error = state().behaviour.failure;
    } else if (rank != state().behaviour.absent_rank) {
        ++clique->arrived;
    }
    state().changed.notify_all();
    if (config->blocking == 0) return ncclInProgress;
    state().changed.wait(lock, [&] { return clique->arrived == clique->ranks; });
    (*made)->ready = true;
    (*made)->questions = 0;
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t from, int colour, int key, ncclComm_t* made, ncclConfig_t*) {
    const Lock lock(state().mutex);
    if (from->busy()) state().note("a communicator was split while it was busy");
    if (from->running != 0) state().note("a communicator was split while something was going on on it");
    Clique& clique = *from->clique;
    const auto ranks = static_cast<std::size_t>(clique.ranks);
    Clique::Split& split = clique.splits[from->splits++];
    split.colours.resize(ranks);
    split.keys.resize(ranks);
    split.made.resize(ranks);
    const auto me = static_cast<std::size_t>(from->rank);
    split.colours[me] = colour;
    split.keys[me] = key;
    *made = nullptr;
    if (colour != NCCL_SPLIT_NOCOLOR) {
        from->child = split.made[me] = new_communicator();
        from->child_place = made;
    }
    from->splitting = true;
    from->questions = state().behaviour.questions;
    if (++split.arrived < clique.ranks) return ncclSuccess; // as NCCL 2.28 and 2.30 say, though it goes on
    for (std::size_t first = 0; first < ranks; ++first) {
        if (split.made[first] == nullptr || split.made[first]->clique != nullptr) continue;
        std::vector<std::size_t> members;
        for (std::size_t rank = first; rank < ranks; ++rank)
            if (split.made[rank] != nullptr && split.colours[rank] == split.colours[first]) members.push_back(rank);
        std::stable_sort(members.begin(), members.end(),
                         [&](std::size_t a, std::size_t b) { return split.keys[a] < split.keys[b]; });
        const auto together = std::make_shared<Clique>();
        together->ranks = static_cast<int>(members.size());
        together->arrived = together->ranks;
        for (std::size_t i = 0; i < members.size(); ++i) {
            const ncclComm_t one = split.made[members[i]];
            one->clique = together;
            one->rank = static_cast<int>(i);
            together->members.push_back(one);
        }
    }
    for (const ncclComm_t one : clique.members) one->splitting = false;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t one) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("a communicator was finalised while it was busy");
    if (one->finalised) state().note("a communicator was finalised twice");
    if (one->revoked) state().note("a communicator was finalised after it was revoked");
    if (one->captured != 0) state().note("a communicator was finalised while a graph held calls on it");
    if (!one->registered.empty()) state().note("a communicator was finalised while memory was registered with it");
    if (!one->open.empty()) state().note("a communicator was finalised while it had windows");
    one->finalised = true;
    one->questions = state().behaviour.questions;
    ++state().counts.finalised;
    return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t one) {
    const Lock lock(state().mutex);
    if (one->revoked ? one->running != 0 : !one->finalised || one->busy())
        state().note("a communicator was destroyed before its finalisation had ended");
    if (one->destroyed || one->aborted) state().note("a communicator was destroyed twice");
    one->destroyed = true;
    ++state().counts.destroyed;
    end(one);
    return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t one) {
    Lock lock(state().mutex);
    if (one->destroyed || one->aborted) state().note("a communicator was aborted after its end");
    if (one->captured != 0) state().note("a communicator was aborted while a graph held calls on it");
    state().changed.wait(lock, [&] { return !state().behaviour.abort_hangs; });
    one->aborted = true;
    one->tell_child();
    for (StandInStream* const stream : one->streams) --stream->untaken;
    one->streams.clear();
    one->untaken.clear();
    for (void* const memory : one->registered) state().registered.erase(memory);
    state().counts.registrations -= static_cast<int>(one->registered.size());
    one->registered.clear();
    for (const ncclWindow_t window : one->open) {
        state().registered.erase(window->memory);
        delete window;
        --state().counts.windows;
    }
    one->open.clear();
    ++state().counts.aborted;
    end(one);
    state().changed.notify_all();
    return ncclSuccess;
}
/// As NCCL 2.30 says: stops what is in flight, for which nobody waits; the communicator is busy
/// until nothing runs on it, and can be destroyed then.
ncclResult_t ncclCommRevoke(ncclComm_t one, int flags) {
    const Lock lock(state().mutex);
    if (flags != NCCL_REVOKE_DEFAULT || one->finalised || one->revoked) return ncclInvalidArgument;
    if (one->captured != 0) state().note("a communicator was revoked while a graph held calls on it");
    if (!one->open.empty()) state().note("a communicator was revoked while it had windows");
    if (state().is_lost(one->device)) return one->error = ncclUnhandledCudaError;
    one->revoked = true;
    one->error = ncclSuccess;
    one->tell_child();
    for (StandInStream* const stream : one->streams) --stream->untaken;
    one->streams.clear();
    one->untaken.clear();
    ++state().counts.revoked;
    state().changed.notify_all();
    return ncclInProgress;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t one, ncclResult_t* found) {
    const Lock lock(state().mutex);
    if (one->destroyed || one->aborted) {
        state().note("a communicator was asked after its end");
        return ncclInvalidUsage;
    }
    *found = answer(one);
    return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t one, int* count) {
    const Lock lock(state().mutex);
    *count = one->clique->ranks;
    return ncclSuccess;
}
ncclResult_t ncclCommCuDevice(ncclComm_t one, int* device) {
    const Lock lock(state().mutex);
    *device = one->device;
    return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t one, int* rank) {
    const Lock lock(state().mutex);
    *rank = one->rank;
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
    const Lock lock(state().mutex);
    return take_of_device(memory, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* memory) {
    const Lock lock(state().mutex);
    return free_of_device(memory) == cudaSuccess ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommRegister(ncclComm_t one, void* memory, std::size_t, void** registration) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("memory was registered with a busy communicator");
    one->registered.push_back(memory);
    state().registered.insert(memory);
    ++state().counts.registrations;
    *registration = memory;
    return ncclSuccess;
}
ncclResult_t ncclCommDeregister(ncclComm_t one, void* registration) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("memory was deregistered from a busy communicator");
    if (std::erase(one->registered, registration) == 0) state().note("what was not registered was deregistered");
    state().registered.erase(registration);
    --state().counts.registrations;
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t one, void* memory, std::size_t bytes, ncclWindow_t* made, int flags) {
    const Lock lock(state().mutex);
    if (flags != NCCL_WIN_COLL_SYMMETRIC) state().note("a window of another kind");
    if (one->busy()) state().note("a window was opened while the communicator was busy");
    if (one->running != 0) state().note("a window was opened while something was going on on the communicator");
    Clique& clique = *one->clique;
    const auto ranks = static_cast<std::size_t>(clique.ranks);
    const auto me = static_cast<std::size_t>(one->rank);
    Clique::Windows& all = clique.windows[one->windows++];
    all.made.resize(ranks);
    all.memory.resize(ranks);
    if (all.arrived != 0 && all.bytes != bytes) state().note("windows of different sizes");
    all.bytes = bytes;
    all.made[me] = made;
    all.memory[me] = memory;
    *made = nullptr;
    one->opens_window = true;
    if (++all.arrived < clique.ranks) return ncclSuccess; // as NCCL 2.28 and 2.30 say, though it goes on
    for (std::size_t rank = 0; rank < ranks; ++rank) {
        const ncclComm_t member = clique.members[rank];
        member->opens_window = false;
        member->questions = state().behaviour.questions;
        if (!state().behaviour.windows) continue; // *made stays null
        *all.made[rank] = new StandInWindow{all.memory[rank], bytes};
        member->open.push_back(*all.made[rank]);
        state().registered.insert(all.memory[rank]);
        ++state().counts.windows;
    }
    return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t one, ncclWindow_t window) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("a window was closed while the communicator was busy");
    if (std::erase(one->open, window) == 0) {
        state().note("what was no window was closed");
        return ncclInvalidArgument;
    }
    state().registered.erase(window->memory);
    delete window;
    --state().counts.windows;
    return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* made, void* scalar, ncclDataType_t type, ncclScalarResidence_t,
                                      ncclComm_t one) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("an operation was made on a busy communicator");
    Weight weight{.value = 0, .live = true};
    const auto read = [&](auto value) {
        std::memcpy(&value, scalar, sizeof value);
        weight.value = static_cast<double>(static_cast<float>(value));
    };
    if (type == ncclFloat64) std::memcpy(&weight.value, scalar, sizeof weight.value);
    else if (type == ncclBfloat16) read(unisono::bfloat16());
    else if (type == ncclFloat16) read(unisono::float16());
    else read(0.0f);
    weights().push_back(weight);
    *made = static_cast<ncclRedOp_t>(static_cast<std::size_t>(ncclNumOps) + weights().size() - 1);
    ++state().counts.operations;
    ++state().counts.premultiplied;
    return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t operation, ncclComm_t one) {
    const Lock lock(state().mutex);
    if (one->busy()) state().note("an operation was destroyed before its call was taken");
    weights()[static_cast<std::size_t>(operation) - ncclNumOps].live = false;
    --state().counts.operations;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t one, cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::all_reduce, in, out, count, type, operation, 1.0, false, 0, stream});
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t one, cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::reduce, in, out, count, type, operation, 1.0, false, root, stream});
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t one,
                           cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::broadcast, in, out, count, type, ncclSum, 1.0, false, root, stream});
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t one,
                           cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::all_gather, in, out, count, type, ncclSum, 1.0, false, 0, stream});
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                               ncclComm_t one, cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::reduce_scatter, in, out, count, type, operation, 1.0, false, 0, stream});
}
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t one,
                      cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::send, in, nullptr, count, type, ncclSum, 1.0, false, peer, stream});
}
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t one,
                      cudaStream_t stream) {
    const Lock lock(state().mutex);
    return add(one, {Call::Kind::receive, nullptr, out, count, type, ncclSum, 1.0, false, peer, stream});
}
ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
    if (--depth > 0) return ncclSuccess;
    const Lock lock(state().mutex);
    return take(std::exchange(grouped, {}));
}
