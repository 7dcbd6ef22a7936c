/**
 * \file
 * XGBoost's collectives over Unisono: a communicator and its collectives, by unisono/c.h. apply.sh adds both files to a source tree of
 * XGBoost, and one call to src/collective/comm_group.cc. C++17, as XGBoost is.
 */
#pragma once

#include <unisono/c.h>

#include <chrono>   // for seconds
#include <cstdint>  // for int8_t, int32_t, int64_t
#include <memory>   // for shared_ptr, unique_ptr
#include <string>   // for string
#include <vector>   // for vector

#include "coll.h"  // for Coll
#include "comm.h"  // for HostComm, RabitComm

namespace xgboost::collective {
/** The ranks of a world of Unisono. */
class UnisonoComm : public HostComm {
 public:
  /**
   * The ranks that a tracker of XGBoost knows, or, if `host` is empty, those that a launcher has started (torchrun's variables, mpirun,
   * srun, unisono-run). `transport`: auto, shared_memory, hosts or tcp.
   */
  UnisonoComm(std::string const& host, std::int32_t port, std::chrono::seconds timeout, std::int32_t retry, std::string const& task_id,
              std::string const& transport);
  ~UnisonoComm() noexcept(false) override;

  [[nodiscard]] unisono_world* Ranks() const { return ranks_; }
  /** The result of a call of unisono/c.h. */
  [[nodiscard]] static Result Of(int status);

  /** A message in flight until Block. */
  [[nodiscard]] unisono_world* StartMessage() const;
  [[nodiscard]] Result Block() const override;

  [[nodiscard]] bool IsFederated() const { return false; } // NOLINT: of XGBoost 3.4 and earlier
  [[nodiscard]] Result LogTracker(std::string msg) const override;
  [[nodiscard]] Result SignalError(Result const& why) override;
  [[nodiscard]] Result Shutdown() override;
  [[nodiscard]] Comm* MakeCUDAVar(Context const*, std::shared_ptr<Coll>) const override;

 private:
  std::unique_ptr<RabitComm> tracker_;  // where the ranks have met, if they have one
  unisono_world* ranks_{nullptr};
  mutable std::vector<unisono_request*> messages_;
};

class UnisonoColl : public Coll {
 public:
  [[nodiscard]] Result Allreduce(Context const*, Comm const& comm, common::Span<std::int8_t> data, ArrayInterfaceHandler::Type type,
                                 Op op) override;
  [[nodiscard]] Result Broadcast(Context const*, Comm const& comm, common::Span<std::int8_t> data, std::int32_t root) override;
  [[nodiscard]] Result Allgather(Context const*, Comm const& comm, common::Span<std::int8_t> data) override;
  [[nodiscard]] Result AllgatherV(Context const*, Comm const& comm, common::Span<std::int8_t const> data,
                                  common::Span<std::int64_t const> sizes, common::Span<std::int64_t> recv_segments,
                                  common::Span<std::int8_t> recv, AllgatherVAlgo) override;
};

/**
 * Rounds the gradients and hessians of this rank's rows to multiples of one power of two each, on which all ranks agree, so that sums in
 * double are exact in any order: trees have the same bits on any number of ranks. Does so if the environment has UNISONO_XGBOOST_EXACT=1.
 * `pairs`: gradient and hessian of each row.
 */
void UnisonoRound(float* pairs, std::size_t rows);
}  // namespace xgboost::collective
