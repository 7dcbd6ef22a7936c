/** See unisono_xgboost.h. */
#include "unisono_xgboost.h"

#include <poll.h>

#include <algorithm>  // for max, min
#include <cmath>      // for fabs, ilogb, isfinite, ldexp
#include <cstdlib>    // for getenv
#include <cstring>    // for memcpy, strcmp, strncpy
#include <utility>    // for move

#include "allgather.h"   // for AllgatherVOffset
#include "allreduce.h"   // for Allreduce
#include "broadcast.h"   // for Broadcast
#include "comm_group.h"  // for GlobalCommGroup
#include "topo.h"        // for Parent

namespace xgboost::collective {
namespace {
/** A channel to one peer, for the algorithms of XGBoost that send by themselves. */
class UnisonoChannel : public Channel {
 public:
  UnisonoChannel(UnisonoComm const& comm, std::int32_t peer) : Channel{comm, nullptr}, comm_{comm}, peer_{peer} {}

  [[nodiscard]] Result SendAll(std::int8_t const* data, std::size_t n) override {
    return UnisonoComm::Of(unisono_send(comm_.StartMessage(), data, n, 1, peer_, 0));
  }
  [[nodiscard]] Result RecvAll(std::int8_t* data, std::size_t n) override {
    return UnisonoComm::Of(unisono_receive(comm_.StartMessage(), data, n, 1, peer_, 0));
  }

 private:
  UnisonoComm const& comm_;
  std::int32_t peer_;
};

/** Rank 0's address goes from rank 0 to all others by XGBoost's own broadcast, once. */
struct TrackerStore {
  RabitComm const& comm;
  char value[UNISONO_STORE_BYTES] = {};
  bool known{false};

  /** Waits for the broadcast that Share takes part in. */
  [[nodiscard]] bool IsComing(double timeout_s) const {
    auto const parent = comm.Chan(binomial_tree::Parent(comm.Rank()))->Socket();
    pollfd message{parent->Handle(), POLLIN, 0};
    return poll(&message, 1, static_cast<int>(std::min(timeout_s, 1e6) * 1000)) == 1;
  }
  [[nodiscard]] bool Share() {
    if (!known) {
      known = Broadcast(comm, common::Span<char>{value, sizeof(value)}, 0).OK();
    }
    return known;
  }
  static int Set(void* self, char const*, char const* value) {
    auto& store = *static_cast<TrackerStore*>(self);
    std::strncpy(store.value, value, sizeof(store.value) - 1);
    return store.Share() ? 0 : 1;
  }
  static int Get(void* self, char const*, char* value, double timeout_s) {
    auto& store = *static_cast<TrackerStore*>(self);
    if (!store.known && !store.IsComing(timeout_s)) {
      return UNISONO_STORE_EMPTY;
    }
    if (!store.Share()) {
      return UNISONO_STORE_FAILED;
    }
    std::memcpy(value, store.value, sizeof(store.value));
    return UNISONO_STORE_FOUND;
  }
};

[[nodiscard]] UnisonoComm const& Cast(Comm const& comm) { return dynamic_cast<UnisonoComm const&>(comm); }

/** The type of elements, or -1. */
[[nodiscard]] int TypeOf(ArrayInterfaceHandler::Type type) {
  switch (type) {
    case ArrayInterfaceHandler::kF2: return UNISONO_FLOAT16;
    case ArrayInterfaceHandler::kF4: return UNISONO_FLOAT32;
    case ArrayInterfaceHandler::kF8: return UNISONO_FLOAT64;
    case ArrayInterfaceHandler::kI1: return UNISONO_INT8;
    case ArrayInterfaceHandler::kI2: return UNISONO_INT16;
    case ArrayInterfaceHandler::kI4: return UNISONO_INT32;
    case ArrayInterfaceHandler::kI8: return UNISONO_INT64;
    case ArrayInterfaceHandler::kU1: return UNISONO_UINT8;
    case ArrayInterfaceHandler::kU2: return UNISONO_UINT16;
    case ArrayInterfaceHandler::kU4: return UNISONO_UINT32;
    case ArrayInterfaceHandler::kU8: return UNISONO_UINT64;
    default: return -1;
  }
}
}  // namespace

UnisonoComm::UnisonoComm(std::string const& host, std::int32_t port, std::chrono::seconds timeout, std::int32_t retry,
                         std::string const& task_id, std::string const& transport) {
  unisono_options options = UNISONO_OPTIONS_INITIALIZER;
  constexpr std::chrono::seconds kNone{2'000'000};  // 0 is no time-out; more milliseconds do not fit XGBoost's int
  timeout = timeout.count() > 0 && timeout < kNone ? timeout : kNone;
  options.timeout_s = static_cast<double>(timeout.count());
  options.transport = transport.c_str();
  int status = UNISONO_OK;
  if (host.empty()) {
    status = unisono_join(&ranks_, &options);
  } else {
    tracker_.reset(new RabitComm{host, port, timeout, retry, task_id, DefaultNcclName(), 0});
    TrackerStore values{*tracker_};
    unisono_store store = UNISONO_STORE_INITIALIZER;
    store.set = &TrackerStore::Set;
    store.get = &TrackerStore::Get;
    store.context = &values;
    status = unisono_join_by(&ranks_, tracker_->Rank(), tracker_->World(), &store, &options);
  }
  SafeColl(Of(status));
  rank_ = unisono_rank(ranks_);
  world_ = unisono_size(ranks_);
  timeout_ = timeout;
  retry_ = retry;
  task_id_ = task_id;
  for (std::int32_t peer = 0; peer < world_; ++peer) {
    channels_.emplace_back(peer == rank_ ? nullptr : std::make_shared<UnisonoChannel>(*this, peer));
  }
}

UnisonoComm::~UnisonoComm() noexcept(false) { unisono_leave(ranks_); }

[[nodiscard]] Result UnisonoComm::Of(int status) {
  return status == UNISONO_OK ? Success() : Fail(std::string{unisono_last_error()});
}

[[nodiscard]] unisono_world* UnisonoComm::StartMessage() const {
  messages_.push_back(nullptr);
  return unisono_start(ranks_, &messages_.back());
}

[[nodiscard]] Result UnisonoComm::Block() const {
  int first = UNISONO_OK;
  Result rc = Success();
  for (auto& message : messages_) {
    int const status = unisono_wait(&message);
    if (status != UNISONO_OK && first == UNISONO_OK) {
      first = status;
      rc = Of(status);
    }
  }
  messages_.clear();
  return rc;
}

[[nodiscard]] Result UnisonoComm::LogTracker(std::string msg) const {
  if (tracker_) {
    return tracker_->LogTracker(std::move(msg));
  }
  LOG(CONSOLE) << msg;
  return Success();
}

/** The other ranks get this text. XGBoost's tracker would end their processes without it. */
[[nodiscard]] Result UnisonoComm::SignalError(Result const& why) {
  unisono_abort(ranks_, why.Report().c_str());
  return Success();
}

[[nodiscard]] Result UnisonoComm::Shutdown() {
  auto rc = Block();
  channels_.clear();
  unisono_leave(ranks_);
  ranks_ = nullptr;
  world_ = -1;
  return std::move(rc) << [&] { return tracker_ ? tracker_->Shutdown() : Success(); };
}

[[nodiscard]] Comm* UnisonoComm::MakeCUDAVar(Context const*, std::shared_ptr<Coll>) const {
  LOG(FATAL) << "Collectives on a GPU need the communicator rabit; unisono has those of the CPU.";
  return nullptr;
}

[[nodiscard]] Result UnisonoColl::Allreduce(Context const*, Comm const& comm, common::Span<std::int8_t> data,
                                            ArrayInterfaceHandler::Type type, Op op) {
  constexpr unisono_op kOps[] = {UNISONO_MAX, UNISONO_MIN, UNISONO_SUM, UNISONO_AND, UNISONO_OR, UNISONO_XOR};
  auto const number = static_cast<unisono_type>(TypeOf(type));
  auto const bytes = std::max<std::size_t>(unisono_type_bytes(number), 1);
  return UnisonoComm::Of(unisono_all_reduce(Cast(comm).Ranks(), data.data(), data.data(), data.size() / bytes, number,
                                            kOps[static_cast<std::int32_t>(op)]));
}

[[nodiscard]] Result UnisonoColl::Broadcast(Context const*, Comm const& comm, common::Span<std::int8_t> data, std::int32_t root) {
  return UnisonoComm::Of(unisono_broadcast(Cast(comm).Ranks(), data.data(), data.size(), 1, root));
}

/** The last rank also has what is left if the bytes do not divide by the ranks. */
[[nodiscard]] Result UnisonoColl::Allgather(Context const*, Comm const& comm, common::Span<std::int8_t> data) {
  auto const world = static_cast<std::size_t>(comm.World());
  std::vector<std::size_t> sizes(world, data.size() / world);
  sizes.back() += data.size() % world;
  auto const* own = data.data() + static_cast<std::size_t>(comm.Rank()) * sizes.front();
  return UnisonoComm::Of(unisono_all_gather_v(Cast(comm).Ranks(), own, data.data(), sizes.data(), nullptr, 1));
}

[[nodiscard]] Result UnisonoColl::AllgatherV(Context const*, Comm const& comm, common::Span<std::int8_t const> data,
                                             common::Span<std::int64_t const> sizes, common::Span<std::int64_t> recv_segments,
                                             common::Span<std::int8_t> recv, AllgatherVAlgo) {
  detail::AllgatherVOffset(sizes, recv_segments);
  std::vector<std::size_t> const counts(sizes.data(), sizes.data() + sizes.size());
  return UnisonoComm::Of(unisono_all_gather_v(Cast(comm).Ranks(), data.data(), recv.data(), counts.data(), nullptr, 1));
}

void UnisonoRound(float* pairs, std::size_t rows) {
  auto const* wanted = std::getenv("UNISONO_XGBOOST_EXACT");
  if (wanted == nullptr || std::strcmp(wanted, "1") != 0) {
    return;
  }
  auto const& group = *GlobalCommGroup();
  std::size_t not_finite{2 * rows};
  double largest[3] = {0, 0, 0};  // gradient, hessian; the world less the first rank with a value that is not finite
  for (std::size_t i = 2 * rows; i-- > 0;) {
    if (!std::isfinite(pairs[i])) {
      not_finite = i;
      largest[2] = group.World() - group.Rank();
    } else {
      largest[i % 2] = std::max(largest[i % 2], static_cast<double>(std::fabs(pairs[i])));
    }
  }
  std::int64_t all = static_cast<std::int64_t>(rows);
  Context const cpu;
  SafeColl(Success() << [&] {
    return Allreduce(&cpu, linalg::MakeVec(largest, 3), Op::kMax);
  } << [&] {
    return Allreduce(&cpu, linalg::MakeVec(&all, 1), Op::kSum);
  });
  if (not_finite < 2 * rows) {
    LOG(FATAL) << "Row " << not_finite / 2 << " of worker " << group.Rank() << " has a gradient that is not finite.";
  } else if (largest[2] != 0) {
    LOG(FATAL) << "Worker " << group.World() - static_cast<std::int32_t>(largest[2]) << " has a gradient that is not finite.";
  }
  std::int32_t logarithm{0};
  while (logarithm < 62 && (std::int64_t{1} << logarithm) < all) {
    ++logarithm;
  }
  // A sum of all rows' values, each of at most 2^bits steps, fits the 53 bits of a double.
  std::int32_t const bits = std::min(24, 53 - logarithm);
  for (std::size_t kind = 0; kind < 2; ++kind) {
    if (largest[kind] == 0) {
      continue;
    }
    double const step = std::ldexp(1.0, std::max(std::ilogb(largest[kind]) + 1 - bits, -149));  // no float is finer
    double const shift = std::ldexp(1.5, 52 + std::ilogb(step));  // there, doubles are multiples of the step
    for (std::size_t i = kind; i < 2 * rows; i += 2) {
      pairs[i] = static_cast<float>((static_cast<double>(pairs[i]) + shift) - shift);
    }
  }
}
}  // namespace xgboost::collective
