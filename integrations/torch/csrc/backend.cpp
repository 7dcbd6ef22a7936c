#include "backend.hpp"

#include "process.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

namespace unisono_torch {

using c10d::OpType;

namespace {

/// The tensors as one, if they are already adjacent in memory as parts of one tensor.
std::optional<at::Tensor> as_one(const std::vector<at::Tensor>& tensors) {
    const auto* next = static_cast<const char*>(tensors.front().const_data_ptr());
    int64_t all = 0;
    for (const at::Tensor& tensor : tensors) {
        if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg() || tensor.const_data_ptr() != next ||
            !tensor.storage().is_alias_of(tensors.front().storage()))
            return std::nullopt;
        next += tensor.nbytes();
        all += tensor.numel();
    }
    return tensors.front().detach().as_strided({all}, {1});
}

int64_t elements_of_all(const std::vector<at::Tensor>& tensors) {
    int64_t all = 0;
    for (const at::Tensor& tensor : tensors) all += tensor.numel();
    return all;
}

/// Calls use(part, tensor) with the part of `flat` that belongs to each tensor.
template <class Use>
void for_parts(const at::Tensor& flat, const std::vector<at::Tensor>& tensors, Use use) {
    int64_t at = 0;
    for (const at::Tensor& tensor : tensors) {
        use(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()), tensor);
        at += tensor.numel();
    }
}

} // namespace

/// A call before it becomes a `Work`. Its stages use memory of the host: the tensors themselves, or
/// the mirrors of tensors on a device. A call that goes directly has no stages, and its steps are
/// the device's (lane.hpp).
struct Backend::Call {
    using Steps = std::vector<std::function<void()>>;

    OpType type;
    const char* name;
    Tensors inputs = {}; ///< if they are not the outputs
    Tensors outputs = {};
    std::vector<Tensors> lists = {}; ///< the future's value, if it is not `outputs`
    Steps before = {};               ///< when the inputs have their values
    std::vector<Work::Stage> stages = {};
    Steps after = {};
    bool point_to_point = false;
    bool directly = false;
    std::optional<at::Device> where = {}; ///< of all tensors of the call
    std::vector<Lane::Copy> to_host = {};
    std::vector<Lane::Copy> to_device = {};
    std::optional<Lane::DirectCall> direct = {};

    /// Whether the memory of `tensor` has its values in their order.
    [[nodiscard]] static bool is_flat(const Tensor& tensor) {
        return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
    }
    /// Memory with the values of `tensor`: its own if it is flat, otherwise a copy.
    [[nodiscard]] Tensor readable(const Tensor& tensor) {
        if (is_mirrored(tensor)) return mirror(tensor, true, false);
        note(tensor, true, false);
        return is_flat(tensor) ? tensor : copy_before(tensor);
    }
    /// Memory to be written instead of `tensor`, with or without its values. Afterwards it is
    /// copied into `tensor`.
    [[nodiscard]] Tensor writable(const Tensor& tensor, bool values) {
        if (is_mirrored(tensor)) return mirror(tensor, values, true);
        note(tensor, values, true);
        if (is_flat(tensor)) return tensor;
        Tensor copy = values ? copy_before(tensor) : like(tensor, tensor.sizes());
        after.push_back([tensor, copy] { Tensor(tensor).copy_(copy); });
        return copy;
    }
    /// `tensor` itself, or its mirror, which is read and written.
    [[nodiscard]] Tensor in_place(const Tensor& tensor) {
        if (is_mirrored(tensor)) return mirror(tensor, true, true);
        note(tensor, true, true);
        return tensor;
    }
    /// `in`, or a copy if it shares memory with `out` at another place than `allowed`.
    [[nodiscard]] Tensor apart(const Tensor& in, const Tensor& out, bool allowed) {
        const auto* const a = static_cast<const std::byte*>(in.const_data_ptr());
        const auto* const b = static_cast<const std::byte*>(out.const_data_ptr());
        return allowed || a + in.nbytes() <= b || b + out.nbytes() <= a ? in : copy_before(in);
    }
    /// The values of all tensors, one after the other.
    [[nodiscard]] Tensor joined(const Tensors& tensors) {
        const bool mirrored = is_mirrored(tensors.front());
        if (mirrored || directly)
            if (const std::optional<Tensor> one = as_one(tensors)) return readable(*one);
        const Tensor flat = empty(tensors, mirrored);
        for_parts(flat, tensors, [&](const Tensor& part, const Tensor& tensor) {
            static_cast<void>(is_mirrored(tensor));
            note(tensor, true, false);
            if (mirrored) to_host.push_back({tensor, part});
            else before.push_back([part, tensor] { Tensor(part).copy_(tensor); });
        });
        return flat;
    }
    /// Memory for the values of all tensors, one after the other, into which it is cut afterwards.
    [[nodiscard]] Tensor parted(const Tensors& tensors) {
        const Tensor flat = empty(tensors, is_mirrored(tensors.front()));
        cut(flat, tensors);
        return flat;
    }
    void cut(const Tensor& flat, const Tensors& tensors) {
        const bool mirrored = is_mirrored(tensors.front());
        for_parts(flat, tensors, [&](const Tensor& part, const Tensor& tensor) {
            static_cast<void>(is_mirrored(tensor));
            note(tensor, false, true);
            if (mirrored) to_device.push_back({tensor, part});
            else if (part.const_data_ptr() != tensor.const_data_ptr() || !is_flat(tensor))
                after.push_back([part, tensor] { Tensor(tensor).copy_(part); });
        });
    }
    /// What NCCL does, between the steps.
    void go(un::detail::StreamVerb verb, const Tensor& in, const Tensor& out, int64_t count,
            un::detail::StreamReduction reduction = {}, int64_t root = 0) {
        const un::Elements elements = elements_of(in.scalar_type());
        const bool opaque = elements.type == un::ElementType::opaque;
        Lane::DirectCall& made = direct.emplace();
        made.call.verb = verb;
        made.call.element = opaque ? un::ElementType::uint8 : elements.type;
        made.call.reduction = reduction;
        made.call.peer = static_cast<int>(root);
        made.call.in = static_cast<const std::byte*>(in.const_data_ptr());
        made.call.out = static_cast<std::byte*>(out.mutable_data_ptr());
        made.call.count = static_cast<std::size_t>(count) * (opaque ? elements.bytes : 1);
        made.memory = {in, out};
    }

private:
    [[nodiscard]] bool is_mirrored(const Tensor& tensor) {
        if (!where) where = tensor.device();
        TORCH_CHECK(*where == tensor.device(), name, ": found tensors on ", *where, " and on ", tensor.device(),
                    "; expected all on one device");
        return device::has(tensor) && !directly;
    }
    /// What a direct call uses.
    void note(const Tensor& tensor, bool read, bool written) {
        if (!directly) return;
        if (read) to_host.push_back({tensor});
        if (written) to_device.push_back({tensor});
    }
    [[nodiscard]] Tensor mirror(const Tensor& tensor, bool read, bool written) {
        Tensor made = device::pinned(tensor.sizes(), tensor.scalar_type());
        if (read) to_host.push_back({tensor, made});
        if (written) to_device.push_back({tensor, made});
        return made;
    }
    [[nodiscard]] static Tensor like(const Tensor& tensor, at::IntArrayRef sizes) {
        return at::empty(sizes, tensor.options().requires_grad(false));
    }
    [[nodiscard]] static Tensor empty(const Tensors& tensors, bool mirrored) {
        const int64_t all = elements_of_all(tensors);
        return mirrored ? device::pinned({all}, tensors.front().scalar_type()) : like(tensors.front(), {all});
    }
    [[nodiscard]] Tensor copy_before(const Tensor& tensor) {
        Tensor copy = like(tensor, tensor.sizes());
        before.push_back([tensor, copy] { Tensor(copy).copy_(tensor); });
        return copy;
    }
};

namespace {

std::size_t count_of(const at::Tensor& tensor) { return static_cast<std::size_t>(tensor.numel()); }

std::size_t place(int64_t rank) { return static_cast<std::size_t>(rank); }

/// A sum of complex numbers is that of their parts.
bool adds_parts(const at::Tensor& tensor, const c10d::ReduceOp& operation) {
    using Op = c10d::ReduceOp::RedOpType;
    const Op op = operation;
    return tensor.is_complex() && (op == Op::SUM || op == Op::AVG);
}

/// sum = sum (operation) other, for several tensors of one rank.
void fold_into(at::Tensor& sum, const at::Tensor& other, const c10d::ReduceOp& operation) {
    using Op = c10d::ReduceOp::RedOpType;
    switch (static_cast<Op>(operation)) {
    case Op::SUM:
    case Op::AVG: sum.add_(other); return;
    case Op::PRODUCT: sum.mul_(other); return;
    case Op::MIN: sum.copy_(at::minimum(sum, other)); return;
    case Op::MAX: sum.copy_(at::maximum(sum, other)); return;
    case Op::BAND: sum.bitwise_and_(other); return;
    case Op::BOR: sum.bitwise_or_(other); return;
    case Op::BXOR: sum.bitwise_xor_(other); return;
    default: return; // already refused for one tensor
    }
}

/// The state of a sum of sparse tensors between its stages.
struct SparseSum {
    at::Tensor mine;    ///< coalesced
    at::Tensor indices; ///< a row per element; of all ranks at the end
    at::Tensor values;
    at::Tensor all_indices = {};
    at::Tensor all_values = {};
    std::vector<std::int64_t> shape = {}; ///< elements, sparse dimensions, sizes
    std::vector<std::int64_t> shapes = {};
    std::vector<std::size_t> counts = {};

    /// Gathers the rows of all ranks, each of `row` numbers.
    [[nodiscard]] un::Operation gather(World& world, const at::Tensor& own, at::Tensor& all, int64_t row) {
        int64_t rows = 0;
        counts.clear();
        for (std::size_t rank = 0; rank < place(world.size()); ++rank) {
            const std::int64_t elements = shapes[rank * shape.size()];
            counts.push_back(place(elements * row));
            rows += elements;
        }
        std::vector<int64_t> sizes = own.sizes().vec();
        sizes[0] = rows;
        all = at::empty(sizes, own.options());
        if (all.numel() == 0) return world.start_barrier();
        return world.start_all_gather(elements_of(own.scalar_type()), own.const_data_ptr(), count_of(own),
                                      all.mutable_data_ptr(), counts);
    }
    void check(int size) const {
        for (std::size_t rank = 0; rank < place(size); ++rank) {
            for (std::size_t i = 1; i < shape.size(); ++i) {
                if (shapes[rank * shape.size() + i] != shape[i])
                    un::refuse_input({"a sparse sum: rank ", rank, " has ", shapes[rank * shape.size() + i],
                                      i == 1 ? " sparse dimensions" : " rows in one dimension", ", this rank ",
                                      shape[i], "; expected tensors of equal shape"});
            }
        }
    }
};

/// The state of a sum on a grid between its stages.
struct GridSum {
    un::Elements elements;
    std::size_t count = 0;    ///< elements per addend
    std::int64_t addends = 1; ///< per rank
    std::array<std::int64_t, 2> mine = {};
    std::vector<std::int64_t> all = {};
    un::Grid grid = {};
    bool finite = true;
    bool direct = false; ///< the values were summed in place, without images
    un::detail::GridStretch stretch = {};
    at::Tensor image = {}; ///< of the addends
    at::Tensor sum = {};   ///< of the images

    /// Before the stages: the requirements of this rank's addends.
    void measure(const std::vector<at::Tensor>& values) {
        std::int32_t needed = un::Grid::nothing;
        for (const at::Tensor& one : values)
            needed = std::max(needed, needed_exponent(elements.type, one.const_data_ptr(), count));
        mine = {needed, addends};
    }
    /// The first stage: the requirements of all ranks' addends.
    [[nodiscard]] un::Operation agree(World& world) {
        all.resize(2 * place(world.size()));
        return world.start_all_gather({un::ElementType::int64, 8}, mine.data(), 2, all.data());
    }
    void decide(int size) {
        std::int64_t most = un::Grid::nothing;
        for (std::size_t rank = 0; rank < place(size); ++rank) {
            if (all[2 * rank + 1] != addends)
                un::refuse_input({"a reproducible sum: rank ", rank, " gave ", all[2 * rank + 1],
                                  " addends, this rank ", addends, "; expected equal numbers"});
            most = std::max(most, all[2 * rank]);
        }
        finite = most != un::Grid::not_finite;
        if (finite) grid = grid_above(elements.type, static_cast<std::int32_t>(most), addends * size);
        stretch = {count, grid.exponent};
    }
};

/// Collective: whether every rank sees a device.
bool all_have_devices(World& world) {
    const std::int64_t mine = device::count() > 0 ? 1 : 0;
    std::vector<std::int64_t> all(place(world.size()));
    world.start_all_gather({un::ElementType::int64, 8}, &mine, 1, all.data()).wait();
    return std::find(all.begin(), all.end(), 0) == all.end();
}

/// At the end of the process, a device's calls in flight have so long to end.
constexpr std::chrono::milliseconds longest_at_exit{5000};

/// All living process groups, for the end of the process.
struct Living {
    std::mutex mutex;
    std::vector<c10::weak_intrusive_ptr<c10d::Backend>> backends;
};

} // namespace

c10::intrusive_ptr<c10d::Backend> join_group(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                             const Settings& settings) {
    c10::intrusive_ptr<c10d::Backend> made = c10::make_intrusive<Backend>(store, rank, size, settings);
    auto& living = of_this_process<Living>();
    const std::lock_guard guard(living.mutex);
    std::erase_if(living.backends, [](const auto& each) { return each.expired(); });
    living.backends.emplace_back(made);
    return made;
}

void shut_down_all() {
    std::vector<c10::weak_intrusive_ptr<c10d::Backend>> left;
    {
        auto& living = of_this_process<Living>();
        const std::lock_guard guard(living.mutex);
        left.swap(living.backends);
    }
    for (const auto& each : left)
        if (const auto backend = each.lock()) static_cast<Backend&>(*backend).end(longest_at_exit);
}

Backend::Backend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, const Settings& settings)
    : c10d::Backend(rank, size), store_(std::move(store)), settings_(settings),
      options_(c10::make_intrusive<Options>("unisono", settings.timeout)), reproducible_(settings.reproducible) {
    options_->group_name = settings.name;
    options_->global_ranks_in_group = settings.global_ranks;
    const std::string who = c10::str("unisono, rank ", rank, " of ", size,
                                     settings.name.empty() ? "" : c10::str(" of process group ", settings.name));
    StoreFunctions functions;
    functions.put = [this](const std::string& key, const std::string& value) {
        store_->set(key, std::vector<uint8_t>(value.begin(), value.end()));
    };
    functions.fetch = [this](const std::string& key, un::nanoseconds deadline) {
        const auto left = std::max<un::nanoseconds>(deadline - un::steady_now(), 1'000'000);
        store_->wait({key}, std::chrono::milliseconds((left + 999'999) / 1'000'000));
        const std::vector<uint8_t> value = store_->get(key);
        return std::string(value.begin(), value.end());
    };
    try {
        auto world = make_world(rank, size, functions, settings.timeout, settings.transport, settings.hosts);
        const bool have_devices = device::built && all_have_devices(*world);
        driver_ = std::make_shared<Driver>(std::move(world), who);
        transport_ = driver_->transport();
        init();
        if (have_devices) {
            StoreFunctions others;
            others.put = [&](const std::string& key, const std::string& value) {
                functions.put("device/" + key, value);
            };
            others.fetch = [&](const std::string& key, un::nanoseconds deadline) {
                return functions.fetch("device/" + key, deadline);
            };
            lane_ = Lane::make(std::make_shared<Driver>(
                make_world(rank, size, others, settings.timeout, settings.transport, settings.hosts), who));
        }
    } catch (const un::error& failed) {
        throw_as_torch(who, failed);
    }
}

Backend::~Backend() { end(options_->timeout); }

void Backend::end(std::chrono::milliseconds longest) {
    if (lane_ != nullptr) lane_->shut_down(longest);
    if (driver_ != nullptr) driver_->shut_down();
}

void Backend::abort() {
    if (lane_ != nullptr) lane_->driver().abort("abort() on the process group");
    driver_->abort("abort() on the process group");
}

c10d::ErrorType Backend::getError() {
    const bool failed = driver_->has_failed() || (lane_ != nullptr && lane_->driver().has_failed());
    return failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

bool Backend::on_device(const Tensor& tensor) const { return lane_ != nullptr && device::has(tensor); }

bool Backend::goes_directly(const Call& call, const Tensor& like, int64_t count, std::chrono::milliseconds timeout,
                            const c10d::ReduceOp* operation) const {
    if (!on_device(like) || reproducible_ || count == 0) return false;
    if (operation != nullptr && !stream_reduction_of(*operation, like.scalar_type())) return false;
    return lane_->goes_directly(call.name, like.device(), settings_.nccl, timeout_of(timeout));
}

std::string Backend::device_transport() const {
    if (lane_ == nullptr) return "not every rank sees a device";
    return reproducible_ ? "sums are reproducible" : lane_->way();
}

/// Ranks that are not among `ranks` get none. The order of `ranks` is that of the new group.
c10::intrusive_ptr<c10d::Backend> Backend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const std::vector<int>& ranks,
                                                 const c10::intrusive_ptr<Options>& options) {
    driver_->refuse_other_process();
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    if (mine == ranks.end()) return nullptr;
    Settings settings = settings_;
    settings.timeout = options->timeout;
    settings.name = options->group_name;
    const auto part_of = [&](auto& list) {
        auto part = list;
        part.clear();
        for (const int rank : ranks)
            if (place(rank) < list.size()) part.push_back(list[place(rank)]);
        list = std::move(part);
    };
    part_of(settings.global_ranks);
    part_of(settings.hosts);
    return join_group(store->clone(), static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), settings);
}

void Backend::check(const char* what, const Tensor& tensor) const {
    TORCH_CHECK(tensor.device().is_cpu() || (lane_ != nullptr && device::has(tensor)), driver_->who(), ": ", what,
                ": unsupported device type: found a tensor on ", tensor.device(), ", expected one on cpu",
                lane_ != nullptr ? c10::str(" or ", device::name) : "");
    TORCH_CHECK(tensor.layout() == at::kStrided, driver_->who(), ": ", what, ": unsupported layout: found a ",
                tensor.layout(), " tensor, expected a dense one");
}

/// The words of PyTorch's other process groups.
void Backend::check_alike(const char* what, const char* which, const Tensor& model, const Tensors& tensors) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        TORCH_CHECK(tensors[i].layout() == model.layout(), driver_->who(), ": ", what,
                    ": invalid tensor layout at index ", i, " of ", which, ": found ", tensors[i].layout(),
                    ", expected ", model.layout());
        TORCH_CHECK(tensors[i].scalar_type() == model.scalar_type(), driver_->who(), ": ", what,
                    ": invalid tensor type at index ", i, " of ", which, ": found ", tensors[i].scalar_type(),
                    ", expected ", model.scalar_type());
        TORCH_CHECK(tensors[i].sizes() == model.sizes() ||
                        (tensors[i].layout() == at::kStrided && tensors[i].numel() == model.numel()),
                    driver_->who(), ": ", what, ": invalid tensor size at index ", i, " of ", which, ": found ",
                    tensors[i].sizes(), ", expected ", model.sizes());
    }
}

const at::Tensor& Backend::first(const char* what, const Tensors& tensors) const {
    TORCH_CHECK(!tensors.empty(), driver_->who(), ": ", what, ": requires non-empty tensor list");
    check_alike(what, "the tensors", tensors.front(), tensors);
    return tensors.front();
}

const at::Tensor& Backend::only(const char* what, const Tensors& tensors, const char* which) const {
    TORCH_CHECK(tensors.size() == 1, driver_->who(), ": ", what, ": requires a single-element ", which,
                "tensor list, found ", tensors.size(), " tensors");
    check(what, tensors.front());
    return tensors.front();
}

const at::Tensor& Backend::root_tensor(const char* what, const Tensors& tensors, int64_t root, int64_t which) const {
    check_root(what, root);
    TORCH_CHECK(which >= 0 && which < static_cast<int64_t>(tensors.size()), driver_->who(), ": ", what,
                ": invalid root tensor: ", which, ", found ", tensors.size(), " tensors");
    check_alike(what, "the tensors", tensors.front(), tensors);
    check(what, tensors[place(which)]);
    return tensors[place(which)];
}

void Backend::for_all_ranks(const char* what, const char* which, const std::vector<Tensors>& lists) const {
    TORCH_CHECK(lists.size() == 1, driver_->who(), ": ", what, ": requires a single-element ", which,
                " list, of tensors for each rank, found ", lists.size(), " lists");
    TORCH_CHECK(lists[0].size() == place(size_), driver_->who(), ": ", what, ": Incorrect ", which, " list size ",
                lists[0].size(), ". ", which[0] == 'i' ? "Input" : "Output", " list size should be ", size_,
                ", one tensor for each rank");
    for (const Tensor& each : lists[0]) check(what, each);
}

void Backend::check_root(const char* what, int64_t root) const {
    TORCH_CHECK(root >= 0 && root < size_, driver_->who(), ": ", what, ": invalid root rank: ", root,
                ", expected 0 to ", size_ - 1);
}

Backend::WorkPointer Backend::launch(Call&& call, std::chrono::milliseconds timeout, bool asynchronous) {
    const bool by_lane = call.where && lane_ != nullptr && device::has(*call.where);
    const Tensors inputs = call.inputs.empty() ? call.outputs : std::move(call.inputs);
    // Of a device's call only the outer work has outputs, a future, and an event of the profiler.
    auto work = by_lane ? c10::make_intrusive<Work>(rank_, call.type, call.name)
                        : c10::make_intrusive<Work>(rank_, call.type, call.name, inputs, std::move(call.outputs),
                                                    std::move(call.lists));
    work->stages = std::move(call.stages);
    if (call.direct) {
        call.direct->before = std::exchange(call.before, {});
        call.direct->after = std::exchange(call.after, {});
    }
    if (!call.after.empty()) {
        work->after = [steps = std::move(call.after)] {
            const at::NoGradGuard guard;
            for (const auto& step : steps) step();
        };
    }
    work->point_to_point = call.point_to_point;
    if (!call.point_to_point) work->sequence = ++sequence_;
    work->timeout = timeout_of(timeout);
    WorkPointer made = work;
    if (by_lane) {
        Lane::Job job{.work = work,
                      .before = std::move(call.before),
                      .to_host = std::move(call.to_host),
                      .to_device = std::move(call.to_device),
                      .direct = std::move(call.direct)};
        auto outer = c10::make_intrusive<DeviceWork>(rank_, call.type, call.name, inputs, std::move(call.outputs),
                                                     std::move(call.lists), *call.where);
        outer->host_waits = settings_.blocking_wait || call.type == OpType::BARRIER;
        if (coalescing_) {
            coalesced_jobs_.emplace_back(std::move(job), outer);
        } else {
            lane_->submit(std::move(job), outer);
            outer->announce();
        }
        made = std::move(outer);
    } else {
        const at::NoGradGuard guard;
        for (const auto& step : call.before) step();
        driver_->submit(work, !asynchronous && !coalescing_);
    }
    if (coalescing_) coalesced_.push_back(made);
    return made;
}

/// On a device some may go directly, and others by the host: the last one need not end last.
template <class One>
Backend::WorkPointer Backend::for_all(const Tensors& inputs, One call) {
    std::vector<WorkPointer> works;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (i != 0 && !on_device(inputs[i])) works.back()->wait();
        works.push_back(call(i));
    }
    if (works.size() == 1 || !on_device(inputs.back())) return works.back();
    return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

// --- coalescing ----------------------------------------------------------------------------------

/// A device's calls start at the end, when all of them have their pinned memory: its allocation may
/// wait for what the device does. None of the calls waits for another one's end.
void Backend::startCoalescing() {
    TORCH_CHECK(!coalescing_, driver_->who(), ": startCoalescing: the calls before are not ended");
    coalescing_ = true;
    coalesced_.clear();
    coalesced_jobs_.clear();
}

Backend::WorkPointer Backend::endCoalescing() {
    TORCH_CHECK(coalescing_, driver_->who(), ": endCoalescing: no call of startCoalescing");
    coalescing_ = false;
    std::vector<WorkPointer> works = std::exchange(coalesced_, {});
    std::exception_ptr failed;
    auto jobs = std::exchange(coalesced_jobs_, {});
    for (auto& [job, outer] : jobs) {
        try {
            if (failed == nullptr) lane_->submit(std::move(job), outer);
        } catch (...) {
            failed = std::current_exception();
        }
        if (failed != nullptr) outer->conclude(failed);
    }
    for (auto& [job, outer] : jobs) outer->announce(); // callbacks may start other calls
    if (failed != nullptr) std::rethrow_exception(failed);
    return c10::make_intrusive<CoalescedWork>(rank_, std::move(works));
}

// --- reductions ----------------------------------------------------------------------------------

/// `in` and `out` are flat and have the same size. `root` -1: all ranks get the result.
Backend::WorkPointer Backend::reduce_flat(Call&& call, const Tensor& in, Tensor out, int64_t root,
                                          const c10d::ReduceOp& operation, std::chrono::milliseconds timeout,
                                          bool asynchronous) {
    if (adds_parts(in, operation))
        return reduce_flat(std::move(call), at::view_as_real(in), at::view_as_real(out), root, operation, timeout,
                           asynchronous);
    const Combination how = combination_of(operation, in.scalar_type());
    const std::size_t count = count_of(in);
    std::vector<std::function<void()>> first;
    if (call.directly) {
        using enum un::detail::StreamVerb;
        call.go(root < 0 ? all_reduce : reduce, in, out, in.numel(), *stream_reduction_of(operation, in.scalar_type()),
                std::max<int64_t>(root, 0));
    } else if (on_grid(how) && count > 0) {
        auto state = std::make_shared<GridSum>();
        state->elements = how.elements;
        state->count = count;
        call.before.push_back([state, in] { state->measure({in}); });
        call.stages.push_back([state](World& world) { return state->agree(world); });
        call.stages.push_back([state, in, out, root, how](World& world) {
            state->decide(world.size());
            const bool to_all = root < 0;
            if (!state->finite) {
                return to_all ? world.start_all_reduce(how.elements, in.const_data_ptr(), out.mutable_data_ptr(),
                                                       state->count, how.reduction)
                              : world.start_reduce(how.elements, in.const_data_ptr(), out.mutable_data_ptr(),
                                                   state->count, how.reduction, static_cast<int>(root));
            }
            if (to_all && in.const_data_ptr() == out.const_data_ptr()) {
                if (auto sum =
                        sum_on_grid(world, how.elements.type, out.mutable_data_ptr(), state->count, state->stretch)) {
                    state->direct = true;
                    return std::move(*sum);
                }
            }
            state->image = at::empty({static_cast<int64_t>(state->count)}, at::kLong);
            put_on_grid(how.elements.type, false, state->image.mutable_data_ptr<int64_t>(), in.const_data_ptr(),
                        state->count, state->grid);
            const un::Elements integers = {un::ElementType::int64, 8};
            const un::Reduction sum = un::untyped::reduction(un::ReductionKind::sum, un::ElementType::int64);
            void* const image = state->image.mutable_data_ptr();
            return to_all ? world.start_all_reduce(integers, image, image, state->count, sum)
                          : world.start_reduce(integers, image, image, state->count, sum, static_cast<int>(root));
        });
        const bool mine = root < 0 || root == rank_;
        first.push_back([state, out, mine] {
            if (!state->finite || state->direct || !mine) return;
            take_from_grid(state->elements.type, out.mutable_data_ptr(), state->image.const_data_ptr<int64_t>(),
                           state->count, state->grid);
        });
    } else {
        call.stages.push_back([in, out, root, how, count](World& world) {
            return root < 0 ? world.start_all_reduce(how.elements, in.const_data_ptr(), out.mutable_data_ptr(), count,
                                                     how.reduction)
                            : world.start_reduce(how.elements, in.const_data_ptr(), out.mutable_data_ptr(), count,
                                                 how.reduction, static_cast<int>(root));
        });
    }
    if (how.mean && (root < 0 || root == rank_)) first.push_back([out, size = size_]() mutable { out.div_(size); });
    call.after.insert(call.after.begin(), first.begin(), first.end());
    return launch(std::move(call), timeout, asynchronous);
}

Backend::WorkPointer Backend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    const Tensor& data = first("all_reduce", tensors);
    if (data.layout() == at::kSparse) return reduce_sparse(tensors, options);
    check("all_reduce", data);
    Call call{.type = OpType::ALLREDUCE, .name = "unisono:all_reduce", .outputs = tensors};
    call.directly = goes_directly(call, data, data.numel(), options.timeout, &options.reduceOp);
    const Tensor flat = call.writable(data, true);
    if (tensors.size() > 1) {
        Tensors others;
        for (std::size_t i = 1; i < tensors.size(); ++i) others.push_back(call.in_place(tensors[i]));
        call.before.push_back([flat, others, how = options.reduceOp] {
            Tensor sum = flat.detach();
            for (const Tensor& other : others) fold_into(sum, other.view_as(sum), how);
        });
        call.after.push_back([flat, others] {
            for (const Tensor& other : others) Tensor(other).copy_(flat.view_as(other));
        });
    }
    return reduce_flat(std::move(call), flat, flat, -1, options.reduceOp, options.timeout, options.asyncOp);
}

/// Every rank gets all indices and values. It adds values with equal indices in the order of ranks.
Backend::WorkPointer Backend::reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    const at::NoGradGuard guard;
    const Tensor& data = tensors.front();
    TORCH_CHECK(data.device().is_cpu() && !(lane_ != nullptr && device::has(data)), driver_->who(),
                ": all_reduce: unsupported device type: found a sparse tensor on ", data.device(),
                ", expected one on cpu");
    TORCH_CHECK(static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp) == c10d::ReduceOp::SUM, driver_->who(),
                ": all_reduce: unsupported reduction operation: sparse tensors are summed only");
    auto state = std::make_shared<SparseSum>();
    Tensor mine = data.detach();
    for (std::size_t i = 1; i < tensors.size(); ++i) mine = mine.add(tensors[i].detach());
    state->mine = mine.coalesce();
    state->indices = state->mine.indices().t().contiguous();
    state->values = state->mine.values().contiguous();
    state->shape = {state->indices.size(0), state->mine.sparse_dim()};
    for (const int64_t size : state->mine.sizes()) state->shape.push_back(size);
    state->shapes.resize(state->shape.size() * place(size_));
    Call call{.type = OpType::ALLREDUCE, .name = "unisono:all_reduce", .outputs = tensors};
    call.stages.push_back([state](World& world) {
        return world.start_all_gather({un::ElementType::int64, 8}, state->shape.data(), state->shape.size(),
                                      state->shapes.data(), {});
    });
    call.stages.push_back([state](World& world) {
        state->check(world.size());
        return state->gather(world, state->indices, state->all_indices, state->shape[1]);
    });
    call.stages.push_back([state](World& world) {
        int64_t row = 1;
        for (int64_t i = 1; i < state->values.dim(); ++i) row *= state->values.size(i);
        return state->gather(world, state->values, state->all_values, row);
    });
    call.after.push_back([state, tensors] {
        const Tensor sum =
            at::sparse_coo_tensor(state->all_indices.t(), state->all_values, state->mine.sizes()).coalesce();
        for (const Tensor& tensor : tensors) Tensor(tensor).copy_(sum);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
    TORCH_CHECK(!tensors.empty(), driver_->who(), ": all_reduce_coalesced: requires non-empty tensor list");
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        TORCH_CHECK(tensors[i].layout() == tensors.front().layout(), driver_->who(),
                    ": all_reduce_coalesced: invalid tensor layout at index ", i, ": found ", tensors[i].layout(),
                    ", expected ", tensors.front().layout());
        check("all_reduce_coalesced", tensors[i]);
        TORCH_CHECK(tensors[i].scalar_type() == tensors.front().scalar_type(), driver_->who(),
                    ": all_reduce_coalesced: tensors must all have the same type, found ",
                    tensors.front().scalar_type(), " and ", tensors[i].scalar_type());
    }
    Call call{.type = OpType::ALLREDUCE_COALESCED, .name = "unisono:all_reduce_coalesced", .outputs = tensors};
    call.directly = goes_directly(call, tensors.front(), elements_of_all(tensors), options.timeout, &options.reduceOp);
    const Tensor flat = call.joined(tensors);
    call.cut(flat, tensors);
    return reduce_flat(std::move(call), flat, flat, -1, options.reduceOp, options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    const Tensor& data = root_tensor("reduce", tensors, options.rootRank, options.rootTensor);
    only("reduce", tensors);
    Call call{.type = OpType::REDUCE, .name = "unisono:reduce", .outputs = tensors};
    call.directly = goes_directly(call, data, data.numel(), options.timeout, &options.reduceOp);
    const Tensor flat = rank_ == options.rootRank ? call.writable(data, true) : call.readable(data);
    return reduce_flat(std::move(call), flat, flat, options.rootRank, options.reduceOp, options.timeout,
                       options.asyncOp);
}

/// `in` has a block for every rank, of `counts` elements, or of the size of `out`.
Backend::WorkPointer Backend::scatter_flat(Call&& call, const Tensor& in, Tensor out, const c10d::ReduceOp& operation,
                                           std::chrono::milliseconds timeout, bool asynchronous,
                                           std::vector<std::size_t> counts) {
    TORCH_CHECK(!counts.empty() || in.numel() == out.numel() * size_, driver_->who(),
                ": reduce_scatter: the input has ", in.numel(), " elements, expected ", out.numel(), " for each of ",
                size_, " ranks");
    TORCH_CHECK(in.scalar_type() == out.scalar_type(), driver_->who(), ": reduce_scatter: the input is of ",
                in.scalar_type(), ", the output of ", out.scalar_type());
    if (adds_parts(in, operation)) {
        for (std::size_t& count : counts) count *= 2;
        return scatter_flat(std::move(call), at::view_as_real(in), at::view_as_real(out), operation, timeout,
                            asynchronous, std::move(counts));
    }
    const Combination how = combination_of(operation, in.scalar_type());
    const std::size_t mine = count_of(out);
    std::vector<std::function<void()>> first;
    if (call.directly) {
        const auto* const own = static_cast<const std::byte*>(in.const_data_ptr()) + place(rank_) * out.nbytes();
        const Tensor from = call.apart(in, out, out.const_data_ptr() == own);
        call.go(un::detail::StreamVerb::reduce_scatter, from, out, out.numel(),
                *stream_reduction_of(operation, in.scalar_type()));
    } else if (on_grid(how) && in.numel() > 0) {
        auto state = std::make_shared<GridSum>();
        state->elements = how.elements;
        state->count = count_of(in);
        call.before.push_back([state, in] { state->measure({in}); });
        call.stages.push_back([state](World& world) { return state->agree(world); });
        call.stages.push_back([state, in, out, how, mine, counts](World& world) {
            state->decide(world.size());
            if (!state->finite)
                return world.start_reduce_scatter(how.elements, in.const_data_ptr(), out.mutable_data_ptr(), mine,
                                                  how.reduction, counts);
            state->image = at::empty({in.numel()}, at::kLong);
            state->sum = at::empty({static_cast<int64_t>(mine)}, at::kLong);
            put_on_grid(how.elements.type, false, state->image.mutable_data_ptr<int64_t>(), in.const_data_ptr(),
                        state->count, state->grid);
            return world.start_reduce_scatter(
                {un::ElementType::int64, 8}, state->image.const_data_ptr(), state->sum.mutable_data_ptr(), mine,
                un::untyped::reduction(un::ReductionKind::sum, un::ElementType::int64), counts);
        });
        first.push_back([state, out, mine] {
            if (state->finite)
                take_from_grid(state->elements.type, out.mutable_data_ptr(), state->sum.const_data_ptr<int64_t>(), mine,
                               state->grid);
        });
    } else {
        call.stages.push_back([in, out, how, mine, counts](World& world) {
            return world.start_reduce_scatter(how.elements, in.const_data_ptr(), out.mutable_data_ptr(), mine,
                                              how.reduction, counts);
        });
    }
    if (how.mean) first.push_back([out, size = size_]() mutable { out.div_(size); });
    call.after.insert(call.after.begin(), first.begin(), first.end());
    return launch(std::move(call), timeout, asynchronous);
}

Backend::WorkPointer Backend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                             const c10d::ReduceScatterOptions& options) {
    const Tensor& output = only("reduce_scatter", outputs, "output ");
    for_all_ranks("reduce_scatter", "input", inputs);
    std::vector<std::size_t> counts;
    for (const Tensor& input : inputs[0]) {
        TORCH_CHECK(input.scalar_type() == output.scalar_type(), driver_->who(),
                    ": reduce_scatter: invalid tensor type: an input is of ", input.scalar_type(), ", the output of ",
                    output.scalar_type());
        counts.push_back(count_of(input));
    }
    TORCH_CHECK(counts[place(rank_)] == count_of(output), driver_->who(),
                ": reduce_scatter: invalid tensor size: this rank's input has ", counts[place(rank_)],
                " elements, the output ", output.numel());
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end()) counts.clear();
    Call call{
        .type = OpType::REDUCE_SCATTER, .name = "unisono:reduce_scatter", .inputs = inputs[0], .outputs = outputs};
    call.directly = counts.empty() && goes_directly(call, output, output.numel(), options.timeout, &options.reduceOp);
    const std::optional<Tensor> one = as_one(inputs[0]);
    const Tensor in = one ? call.readable(*one) : call.joined(inputs[0]);
    const Tensor out = call.writable(output, false);
    return scatter_flat(std::move(call), in, out, options.reduceOp, options.timeout, options.asyncOp,
                        std::move(counts));
}

Backend::WorkPointer Backend::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                   const c10d::ReduceScatterOptions& options) {
    check("reduce_scatter_tensor", output);
    check("reduce_scatter_tensor", input);
    Call call{.type = OpType::_REDUCE_SCATTER_BASE,
              .name = "unisono:reduce_scatter_tensor",
              .inputs = {input},
              .outputs = {output}};
    call.directly = goes_directly(call, output, output.numel(), options.timeout, &options.reduceOp);
    const Tensor out = call.writable(output, false);
    const Tensor in = call.readable(input);
    return scatter_flat(std::move(call), in, out, options.reduceOp, options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::ReduceScatterOptions& options) {
    TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(), driver_->who(),
                ": reduce_scatter_tensor_coalesced: ", inputs.size(), " inputs and ", outputs.size(), " outputs");
    return for_all(inputs, [&](std::size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
}

// --- moves ---------------------------------------------------------------------------------------

Backend::WorkPointer Backend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    const Tensor& data = root_tensor("broadcast", tensors, options.rootRank, options.rootTensor);
    Call call{.type = OpType::BROADCAST, .name = "unisono:broadcast", .outputs = tensors};
    call.directly = goes_directly(call, data, data.numel(), options.timeout);
    const Tensor flat = rank_ == options.rootRank ? call.readable(data) : call.writable(data, false);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (i == place(options.rootTensor)) continue;
        call.after.push_back([flat, other = call.in_place(tensors[i])] { Tensor(other).copy_(flat.view_as(other)); });
    }
    if (call.directly) {
        call.go(un::detail::StreamVerb::broadcast, flat, flat, flat.numel(), {}, options.rootRank);
        return launch(std::move(call), options.timeout, options.asyncOp);
    }
    call.stages.push_back([flat, root = static_cast<int>(options.rootRank)](World& world) {
        return world.start_broadcast(elements_of(flat.scalar_type()), flat.mutable_data_ptr(), count_of(flat), root);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

/// `out` has a block of `in`'s size for every rank.
Backend::WorkPointer Backend::gather_flat(Call&& call, const Tensor& in, Tensor out, std::chrono::milliseconds timeout,
                                          bool asynchronous) {
    TORCH_CHECK(out.numel() == in.numel() * size_, driver_->who(), ": all_gather: the output has ", out.numel(),
                " elements, expected ", in.numel(), " for each of ", size_, " ranks");
    TORCH_CHECK(in.scalar_type() == out.scalar_type(), driver_->who(), ": all_gather: the input is of ",
                in.scalar_type(), ", the output of ", out.scalar_type());
    if (call.directly) {
        const auto* const own = static_cast<const std::byte*>(out.const_data_ptr()) + place(rank_) * in.nbytes();
        const Tensor from = call.apart(in, out, in.const_data_ptr() == own);
        call.go(un::detail::StreamVerb::all_gather, from, out, in.numel());
        return launch(std::move(call), timeout, asynchronous);
    }
    call.stages.push_back([in, out](World& world) {
        return world.start_all_gather(elements_of(in.scalar_type()), in.const_data_ptr(), count_of(in),
                                      out.mutable_data_ptr(), {});
    });
    return launch(std::move(call), timeout, asynchronous);
}

/// outputs[i][rank * inputs.size() + j] = that rank's inputs[j], for each i.
Backend::WorkPointer Backend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
    TORCH_CHECK(!inputs.empty(), driver_->who(), ": all_gather: requires non-empty input tensor list");
    TORCH_CHECK(inputs.size() == outputs.size(), driver_->who(),
                ": all_gather: requires input/output tensor lists to have the same length, found ", inputs.size(),
                " and ", outputs.size());
    const Tensor& input = first("all_gather", inputs);
    check("all_gather", input);
    Tensors all;
    for (const Tensors& list : outputs) {
        TORCH_CHECK(list.size() == place(size_) * inputs.size(), driver_->who(),
                    ": all_gather: invalid output tensor list: found ", list.size(), " tensors, expected ",
                    inputs.size(), " for each of ", size_, " ranks");
        check_alike("all_gather", "the outputs", input, list);
        all.insert(all.end(), list.begin(), list.end());
    }
    Call call{.type = OpType::ALLGATHER, .name = "unisono:all_gather", .inputs = inputs, .outputs = std::move(all)};
    if (outputs.size() > 1) call.lists = outputs;
    call.directly = goes_directly(call, input, elements_of_all(inputs), options.timeout);
    Tensor out;
    const std::optional<Tensor> one = outputs.size() == 1 ? as_one(outputs[0]) : std::nullopt;
    if (one) {
        out = call.writable(*one, false);
    } else {
        out = call.parted(outputs[0]);
        for (std::size_t i = 1; i < outputs.size(); ++i) call.cut(out, outputs[i]);
    }
    const Tensor in = inputs.size() == 1 ? call.readable(input) : call.joined(inputs);
    return gather_flat(std::move(call), in, out, options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::_allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) {
    check("all_gather_into_tensor", output);
    check("all_gather_into_tensor", input);
    Call call{.type = OpType::_ALLGATHER_BASE,
              .name = "unisono:all_gather_into_tensor",
              .inputs = {input},
              .outputs = {output}};
    call.directly = goes_directly(call, input, input.numel(), options.timeout);
    const Tensor out = call.writable(output, false);
    const Tensor in = call.readable(input);
    return gather_flat(std::move(call), in, out, options.timeout, options.asyncOp);
}

/// outputs[rank][i] = that rank's inputs[i].
Backend::WorkPointer Backend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
    TORCH_CHECK(outputs.size() == place(size_), driver_->who(),
                ": all_gather_coalesced: output lists should be equal to world size: found ", outputs.size(),
                ", expected ", size_);
    TORCH_CHECK(!inputs.empty(), driver_->who(), ": all_gather_coalesced: requires non-empty tensor list");
    Tensors all;
    for (const Tensor& input : inputs) check("all_gather_coalesced", input);
    for (const Tensors& list : outputs) {
        TORCH_CHECK(list.size() == inputs.size(), driver_->who(), ": all_gather_coalesced: found ", list.size(),
                    " outputs in a list, expected ", inputs.size());
        for (std::size_t i = 0; i < list.size(); ++i) {
            check("all_gather_coalesced", list[i]);
            TORCH_CHECK(list[i].numel() == inputs[i].numel(), driver_->who(),
                        ": all_gather_coalesced: invalid size of output tensor at index ", i, ": found ",
                        list[i].sizes(), ", expected ", inputs[i].sizes());
            TORCH_CHECK(list[i].scalar_type() == inputs[i].scalar_type(), driver_->who(),
                        ": all_gather_coalesced: invalid tensor type at index ", i, ": found ", list[i].scalar_type(),
                        ", expected ", inputs[i].scalar_type());
            TORCH_CHECK(inputs[i].scalar_type() == inputs[0].scalar_type(), driver_->who(),
                        ": all_gather_coalesced: tensors must all have the same type");
            all.push_back(list[i]);
        }
    }
    Call call{
        .type = OpType::ALLGATHER_COALESCED, .name = "unisono:all_gather_coalesced", .inputs = inputs, .outputs = all};
    call.directly = goes_directly(call, inputs.front(), elements_of_all(inputs), options.timeout);
    const Tensor out = call.parted(all);
    const Tensor in = call.joined(inputs);
    return gather_flat(std::move(call), in, out, options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                              const c10d::AllgatherOptions& options) {
    TORCH_CHECK(!inputs.empty() && inputs.size() == outputs.size(), driver_->who(),
                ": all_gather_into_tensor_coalesced: ", inputs.size(), " inputs and ", outputs.size(), " outputs");
    return for_all(inputs, [&](std::size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
}

Backend::WorkPointer Backend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::GatherOptions& options) {
    check_root("gather", options.rootRank);
    const Tensor& input = only("gather", inputs, "input ");
    Call call{.type = OpType::GATHER, .name = "unisono:gather", .inputs = inputs};
    Tensor out;
    if (rank_ == options.rootRank) {
        for_all_ranks("gather", "output", outputs);
        check_alike("gather", "the outputs", input, outputs[0]);
        call.outputs = outputs[0];
        out = call.parted(outputs[0]);
    } else {
        TORCH_CHECK(outputs.empty(), driver_->who(), ": gather: requires empty output on non-root");
    }
    call.stages.push_back([in = call.readable(input), out, root = static_cast<int>(options.rootRank)](World& world) {
        return world.start_gather(elements_of(in.scalar_type()), in.const_data_ptr(), count_of(in),
                                  out.defined() ? out.mutable_data_ptr() : nullptr, root);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                      const c10d::ScatterOptions& options) {
    check_root("scatter", options.rootRank);
    const Tensor& output = only("scatter", outputs, "output ");
    Call call{.type = OpType::SCATTER, .name = "unisono:scatter", .outputs = outputs};
    Tensor in;
    if (rank_ == options.rootRank) {
        for_all_ranks("scatter", "input", inputs);
        check_alike("scatter", "the inputs", output, inputs[0]);
        in = call.joined(inputs[0]);
    } else {
        TORCH_CHECK(inputs.empty(), driver_->who(), ": scatter: requires empty input on non-root");
    }
    const Tensor out = call.writable(output, false);
    call.stages.push_back([in, out, root = static_cast<int>(options.rootRank)](World& world) {
        return world.start_scatter(elements_of(out.scalar_type()), in.defined() ? in.const_data_ptr() : nullptr,
                                   out.mutable_data_ptr(), count_of(out), root);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                                            std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
    check("all_to_all_single", output);
    check("all_to_all_single", input);
    TORCH_CHECK(input.scalar_type() == output.scalar_type(), driver_->who(), ": all_to_all_single: the input is of ",
                input.scalar_type(), ", the output of ", output.scalar_type());
    const auto counts = [&](const Tensor& tensor, const std::vector<int64_t>& splits, const char* which) {
        const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
        const int64_t row = rows == 0 ? 0 : tensor.numel() / rows;
        std::vector<std::size_t> found;
        if (splits.empty()) {
            TORCH_CHECK(rows % size_ == 0, driver_->who(), ": all_to_all_single: the ", which, " has ", rows,
                        " rows, which do not divide equally across group size ", size_);
            found.assign(place(size_), place(rows / size_ * row));
            return found;
        }
        TORCH_CHECK(splits.size() == place(size_), driver_->who(),
                    ": all_to_all_single: Number of tensor splits not equal to group size");
        int64_t sum = 0;
        for (const int64_t split : splits) {
            TORCH_CHECK(split >= 0, driver_->who(), ": all_to_all_single: found a split of ", split);
            sum += split;
            found.push_back(place(split * row));
        }
        TORCH_CHECK(sum == rows, driver_->who(),
                    ": all_to_all_single: Split sizes doesn't match total dim 0 size: the ", which, " has ", rows,
                    " rows, its splits ", sum);
        return found;
    };
    const std::vector<std::size_t> sends = counts(input, input_splits, "input");
    const std::vector<std::size_t> receives = counts(output, output_splits, "output");
    Call call{
        .type = OpType::ALLTOALL_BASE, .name = "unisono:all_to_all_single", .inputs = {input}, .outputs = {output}};
    const Tensor out = call.writable(output, false);
    call.stages.push_back([in = call.readable(input), out, sends, receives](World& world) {
        return world.start_all_to_all(elements_of(in.scalar_type()), in.const_data_ptr(), out.mutable_data_ptr(), sends,
                                      receives);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
    TORCH_CHECK(inputs.size() == place(size_) && outputs.size() == place(size_), driver_->who(),
                ": all_to_all: expected a tensor for each of ", size_, " ranks, found ", inputs.size(), " inputs and ",
                outputs.size(), " outputs");
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;
    for (const Tensor& tensor : inputs) {
        check("all_to_all", tensor);
        TORCH_CHECK(tensor.scalar_type() == inputs[0].scalar_type(), driver_->who(),
                    ": all_to_all: tensors must all have the same type");
        sends.push_back(count_of(tensor));
    }
    for (const Tensor& tensor : outputs) {
        check("all_to_all", tensor);
        TORCH_CHECK(tensor.scalar_type() == inputs[0].scalar_type(), driver_->who(),
                    ": all_to_all: tensors must all have the same type");
        receives.push_back(count_of(tensor));
    }
    Call call{.type = OpType::ALLTOALL, .name = "unisono:all_to_all", .inputs = inputs, .outputs = outputs};
    const Tensor out = call.parted(outputs);
    call.stages.push_back([in = call.joined(inputs), out, sends, receives](World& world) {
        return world.start_all_to_all(elements_of(in.scalar_type()), in.const_data_ptr(), out.mutable_data_ptr(), sends,
                                      receives);
    });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

Backend::WorkPointer Backend::send(Tensors& tensors, int peer, int tag) {
    const Tensor& data = only("send", tensors);
    Call call{.type = OpType::SEND, .name = "unisono:send", .outputs = tensors, .point_to_point = true};
    const Tensor flat = call.readable(data);
    call.stages.push_back([flat, peer, tag](World& world) {
        return world.start_send(elements_of(flat.scalar_type()), flat.const_data_ptr(), count_of(flat), peer, tag);
    });
    return launch(std::move(call), options_->timeout, true);
}

Backend::WorkPointer Backend::recv(Tensors& tensors, int peer, int tag) {
    const Tensor& data = only("recv", tensors);
    Call call{.type = OpType::RECV, .name = "unisono:recv", .outputs = tensors, .point_to_point = true};
    const Tensor flat = call.writable(data, false);
    call.stages.push_back([flat, peer, tag](World& world) {
        return world.start_receive(elements_of(flat.scalar_type()), flat.mutable_data_ptr(), count_of(flat), peer, tag);
    });
    return launch(std::move(call), options_->timeout, true);
}

// --- barriers ------------------------------------------------------------------------------------

/// The device whose stream a barrier waits for, as NCCL's. PyTorch's dispatcher passes no
/// `options.device`.
std::optional<at::Device> Backend::device_of(const c10d::BarrierOptions& options) const {
    if (lane_ == nullptr) return std::nullopt;
    if (options.device) {
        if (!device::has(*options.device)) return std::nullopt;
        if (options.device->has_index()) return device::with_index(options.device->index());
    }
    if (!options.device_ids.empty()) return device::with_index(options.device_ids.front());
    const std::optional<at::Device> bound = getBoundDeviceId();
    if (bound && device::has(*bound)) return device::with_index(bound->index());
    return std::nullopt;
}

Backend::WorkPointer Backend::barrier(const c10d::BarrierOptions& options) {
    Call call{.type = OpType::BARRIER, .name = "unisono:barrier"};
    call.where = device_of(options);
    // A future waits for the streams of the tensors in its value.
    if (call.where) call.outputs = {at::empty({1}, at::dtype(at::kByte).device(*call.where))};
    call.stages.push_back([](World& world) { return world.start_barrier(); });
    return launch(std::move(call), options.timeout, options.asyncOp);
}

/// Uses the store, so that the group stays usable if ranks are missing, and rank 0 can name all of
/// them. Each rank waits for rank 0 until its own deadline. Once rank 0 is there, its deadline
/// counts.
void Backend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
    using std::chrono::milliseconds;
    driver_->refuse_other_process(); // it would speak on its parent's connection to the store
    // PyTorch gives its default where the caller gives none.
    const bool is_own = options.timeout != c10d::kUnsetTimeout && options.timeout != kBackendDefaultTimeout;
    const milliseconds timeout = is_own ? options.timeout : options_->timeout;
    const un::nanoseconds deadline = un::deadline_after(un::steady_now(), timeout);
    const std::string prefix = c10::str("monitored_barrier/", ++monitored_, "/");
    const auto key = [&](int rank) { return c10::str(prefix, rank); };
    const auto has_come = [&](const std::string& what, milliseconds longest) {
        if (longest.count() <= 0) return store_->check({what});
        try {
            store_->wait({what}, longest);
            return true;
        } catch (const std::exception&) {
            return store_->check({what});
        }
    };
    const auto left = [&] { return milliseconds((deadline - un::steady_now()) / 1'000'000); };
    const auto put = [&](const std::string& what, const std::string& said) {
        store_->set(what, std::vector<uint8_t>(said.begin(), said.end()));
    };
    const auto get = [&](const std::string& what) {
        const std::vector<uint8_t> said = store_->get(what);
        return std::string(said.begin(), said.end());
    };
    const std::string verdict = prefix + "verdict";
    const std::string failed = c10::str(" failed to pass monitoredBarrier in ", timeout.count(), " ms");
    if (rank_ != 0) {
        put(key(rank_), "here");
        std::string said = "Rank 0" + failed;
        if (has_come(key(0), left())) {
            const milliseconds its(std::stoll(get(key(0))));
            if (has_come(verdict, its + milliseconds(5000))) said = get(verdict);
            else said = c10::str("Rank 0 came to monitoredBarrier and gave no verdict in ", its.count(), " ms");
        }
        if (said != "all") C10_THROW_ERROR(DistBackendError, driver_->who() + ": " + said);
        return;
    }
    put(key(0), std::to_string(timeout.count()));
    std::string missing;
    int count = 0;
    for (int peer = 1; peer < size_; ++peer) {
        if (has_come(key(peer), left())) continue;
        missing += c10::str(count++ == 0 ? "" : ", ", peer);
        if (!wait_all_ranks) break;
    }
    const std::string said = count == 0 ? "all" : c10::str(count == 1 ? "Rank " : "Ranks ", missing, failed);
    put(verdict, said);
    if (count != 0) C10_THROW_ERROR(DistBackendError, driver_->who() + ": " + said);
}

// --- exact sums ----------------------------------------------------------------------------------

Backend::WorkPointer Backend::sum_exactly(const Tensors& addends, Tensor out, double factor) {
    TORCH_CHECK(!addends.empty(), driver_->who(), ": sum_exactly: expected at least one addend");
    check("sum_exactly", out);
    const un::Elements elements = elements_of(out.scalar_type());
    TORCH_CHECK(has_grid(elements.type), driver_->who(), ": sum_exactly: found ", out.scalar_type(),
                ", expected a floating type");
    auto state = std::make_shared<GridSum>();
    state->elements = elements;
    state->count = count_of(out);
    state->addends = static_cast<std::int64_t>(addends.size());
    Call call{.type = OpType::ALLREDUCE, .name = "unisono:sum_exactly", .outputs = {out}};
    Tensors flat;
    for (const Tensor& addend : addends) {
        check("sum_exactly", addend);
        TORCH_CHECK(addend.numel() == out.numel() && addend.scalar_type() == out.scalar_type(), driver_->who(),
                    ": sum_exactly: an addend differs from the output in size or type");
        flat.push_back(call.readable(addend));
    }
    call.before.push_back([state, flat] { state->measure(flat); });
    const Tensor result = call.writable(out, false);
    call.stages.push_back([state](World& world) { return state->agree(world); });
    call.stages.push_back([state, flat, result, elements](World& world) {
        state->decide(world.size());
        if (!state->finite) { // NaN and infinity reach all ranks, as in any sum
            const at::NoGradGuard guard;
            Tensor sum = flat[0].clone();
            for (std::size_t i = 1; i < flat.size(); ++i) sum.add_(flat[i]);
            Tensor(result).copy_(sum.view(result.sizes()));
            return world.start_all_reduce(elements, result.const_data_ptr(), result.mutable_data_ptr(), state->count,
                                          un::untyped::reduction(un::ReductionKind::sum, elements.type));
        }
        state->image = at::empty({static_cast<int64_t>(state->count)}, at::kLong);
        auto* const image = state->image.mutable_data_ptr<int64_t>();
        for (std::size_t i = 0; i < flat.size(); ++i)
            put_on_grid(elements.type, i != 0, image, flat[i].const_data_ptr(), state->count, state->grid);
        return world.start_all_reduce({un::ElementType::int64, 8}, image, image, state->count,
                                      un::untyped::reduction(un::ReductionKind::sum, un::ElementType::int64));
    });
    call.after.insert(call.after.begin(), [state, result, factor] {
        if (state->finite)
            take_from_grid(state->elements.type, result.mutable_data_ptr(), state->image.const_data_ptr<int64_t>(),
                           state->count, state->grid);
        if (factor != 1.0) Tensor(result).mul_(factor);
    });
    return launch(std::move(call), options_->timeout, true);
}

} // namespace unisono_torch
