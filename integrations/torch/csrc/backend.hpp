#pragma once

/// \file The process group `unisono`: c10d's interface over a `World`. Every call returns
/// immediately. driver.hpp says which thread advances it, and lane.hpp how tensors of a device
/// travel.

#include "driver.hpp"
#include "elements.hpp"
#include "lane.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace unisono_torch {

/// The options of a process group.
struct Settings {
    std::chrono::milliseconds timeout = kBackendDefaultTimeout;
    std::string name = {};          ///< the group's, for messages
    std::string transport = "auto"; ///< see `make_world`
    bool reproducible =
        /// Floating-point sums are exact but for one rounding, so their bits depend only on the
        /// addends.
        false;
    bool blocking_wait = false; ///< `wait()` for tensors of a device waits on the host, too
    bool nccl = true;           ///< collectives on tensors of a device go by NCCL where they can
    std::vector<uint64_t> global_ranks = {};
    std::vector<std::string> hosts = {}; ///< names that separate ranks
};

class Backend final : public c10d::Backend {
public:
    using Tensor = at::Tensor;
    using Tensors = std::vector<at::Tensor>;
    using WorkPointer = c10::intrusive_ptr<c10d::Work>;

    Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const Settings& settings);
    ~Backend() override;
    /// When the last strong reference ends. A weak one, such as that of `shut_down_all`, keeps the
    /// destructor from running.
    void release_resources() override { end(options_->timeout); }

    const std::string getBackendName() const override { return "unisono"; }
    c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
    void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
    bool supportsSplitting() const override { return true; }
    bool supportsCoalescing() const override { return lane_ != nullptr; }
    void startCoalescing() override;
    WorkPointer endCoalescing() override;
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Options>& options) override;
    [[nodiscard]] std::string transport() const { return transport_; }
    [[nodiscard]] bool is_reproducible() const { return reproducible_; }
    /// How collectives on a device go: "nccl", or why they do not.
    [[nodiscard]] std::string device_transport() const;

    WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
    WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                          const c10d::AllgatherOptions& options) override;
    WorkPointer _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override;
    WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& options) override;
    WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) override;
    WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
    WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
    WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                               const c10d::ReduceScatterOptions& options) override;
    WorkPointer _reduce_scatter_base(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override;
    WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                const c10d::ReduceScatterOptions& options) override;
    WorkPointer alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                              std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
    WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
    WorkPointer send(Tensors& tensors, int peer, int tag) override;
    WorkPointer recv(Tensors& tensors, int peer, int tag) override;
    WorkPointer barrier(const c10d::BarrierOptions& options) override;
    void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

    uint64_t getSequenceNumberForGroup() override { return sequence_; }
    void setSequenceNumberForGroup() override {}
    void abort() override;
    void shutdown() override { end(options_->timeout); }
    c10d::ErrorType getError() override;
    /// Says goodbye to the other ranks. Calls of a device that are in flight have `longest` to end.
    void end(std::chrono::milliseconds longest);

    /// out = the exact sum of all ranks' addends, rounded once, times `factor`. Every rank gives
    /// the same number of addends, each with the shape of `out`.
    WorkPointer sum_exactly(const Tensors& addends, Tensor out, double factor);

private:
    struct Call;
    WorkPointer launch(Call&& call, std::chrono::milliseconds timeout, bool asynchronous);
    WorkPointer reduce_flat(Call&& call, const Tensor& in, Tensor out, int64_t root, const c10d::ReduceOp& operation,
                            std::chrono::milliseconds timeout, bool asynchronous);
    WorkPointer scatter_flat(Call&& call, const Tensor& in, Tensor out, const c10d::ReduceOp& operation,
                             std::chrono::milliseconds timeout, bool asynchronous,
                             std::vector<std::size_t> counts = {});
    WorkPointer reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options);
    WorkPointer gather_flat(Call&& call, const Tensor& in, Tensor out, std::chrono::milliseconds timeout,
                            bool asynchronous);
    void check(const char* what, const Tensor& tensor) const;
    /// Checks that `tensors` have the layout, type and size of `model`.
    void check_alike(const char* what, const char* which, const Tensor& model, const Tensors& tensors) const;
    const Tensor& first(const char* what, const Tensors& tensors) const;
    const Tensor& only(const char* what, const Tensors& tensors, const char* which = "") const;
    const Tensor& root_tensor(const char* what, const Tensors& tensors, int64_t root, int64_t which) const;
    /// Checks for one list with a tensor for each rank. `which`: input or output.
    void for_all_ranks(const char* what, const char* which, const std::vector<Tensors>& lists) const;
    void check_root(const char* what, int64_t root) const;
    [[nodiscard]] std::optional<at::Device> device_of(const c10d::BarrierOptions& options) const;
    [[nodiscard]] bool on_device(const Tensor& tensor) const;
    /// Whether `call` with `count` elements like those of `like` goes directly, the same on all
    /// ranks. `operation`: of a reduction.
    [[nodiscard]] bool goes_directly(const Call& call, const Tensor& like, int64_t count,
                                     std::chrono::milliseconds timeout,
                                     const c10d::ReduceOp* operation = nullptr) const;
    /// The caller's, or the group's.
    [[nodiscard]] std::chrono::milliseconds timeout_of(std::chrono::milliseconds given) const {
        return given == c10d::kUnsetTimeout || given == kNoTimeout ? options_->timeout : given;
    }
    /// Calls call(i) for each of the inputs, in their order. The work ends with all of them.
    template <class One>
    WorkPointer for_all(const Tensors& inputs, One call);
    [[nodiscard]] bool on_grid(const Combination& how) const {
        return reproducible_ && how.reduction.kind == un::ReductionKind::sum && has_grid(how.elements.type);
    }

    c10::intrusive_ptr<c10d::Store> store_;
    Settings settings_;
    c10::intrusive_ptr<Options> options_;
    bool reproducible_;
    std::string transport_;
    std::shared_ptr<Driver> driver_;
    std::shared_ptr<Lane> lane_; ///< if every rank sees a device
    bool coalescing_ = false;
    std::vector<WorkPointer> coalesced_;
    std::vector<std::pair<Lane::Job, c10::intrusive_ptr<DeviceWork>>> coalesced_jobs_;
    std::atomic<std::uint64_t> sequence_{0};
    std::uint64_t monitored_ = 0;
};

/// A process group that `shut_down_all` ends.
[[nodiscard]] c10::intrusive_ptr<c10d::Backend> join_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                           int size, const Settings& settings);
/// At the end of the process.
void shut_down_all();

} // namespace unisono_torch
