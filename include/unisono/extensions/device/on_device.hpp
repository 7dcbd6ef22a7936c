#pragma once

/// \file
/// Collectives on device memory, for transports whose ranks have a device: the same functions
/// accept `DeviceSpan`s.
///
///     un::DeviceMemory<float> gradient = un::allocate_on_device<float>(world, 1'000'000);
///     un::all_reduce(world, gradient.span());                                // NCCL's
///     un::all_reduce(world, gradient.span(), un::Sum{}, un::RingSchedule{}); // Unisono's own
///
/// They are enqueued on the transport's stream in the order in which they are started, also across
/// groups: ranks start the collectives of common groups in the same order. An operation is done
/// when the device is done. Laws, shapes and errors are the host's. Determinism: with the native
/// schedule that of the transport's library; with a schedule of Unisono its bits. WeightedMean: the
/// library multiplies by weight / sum of weights, rounded to the element's type, and adds
/// (PreMulSum); so its bits differ from the host's. all_to_all with counts that do not match hangs
/// until the deadline: no message carries their sizes.
///
/// Over a transport that moves host bytes (unisono/cuda.hpp) they are the host's collectives,
/// through pinned memory in chunks: with the host's bits if the host's data are cut into chunks of
/// the same size.

#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/device_span.hpp"
#include "unisono/transport/transport.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The kernel with which a schedule of Unisono combines on the device; none for the transport's own
/// collectives, and for collectives that do not combine.
template <Collective What, class Family, class T, class Op>
StreamKernelFunction stream_kernel() {
    constexpr bool combines =
        What == Collective::all_reduce || What == Collective::reduce || What == Collective::reduce_scatter;
    constexpr bool native = std::same_as<Family, NativeSchedule>;
    if constexpr (native && combines) {
        static_assert(
            built_in_operation<Op> || std::same_as<Op, WeightedMean>,
            "found: an operation of your own by NativeSchedule on memory of a device. Required: Sum, Product, Min, "
            "Max or WeightedMean; or a schedule such as RingSchedule, in a source that nvcc compiles. Why: the "
            "device's library has no other operations");
        static_assert(arithmetic_element<T>, "found: elements that the device's library cannot reduce");
        return nullptr;
    } else if constexpr (combines) {
        static_assert(!std::same_as<Op, WeightedMean>, "found: WeightedMean by a schedule other than NativeSchedule on "
                                                       "memory of a device. Required: NativeSchedule");
        static_assert(
            has_stream_kernel<Op, T>,
            "found: a schedule that combines on memory of a device, in a source that is not compiled for devices. "
            "Required: NativeSchedule; or, for Sum, Product, Min and Max, the CMake target unisono::devices; or a "
            "source "
            "that nvcc compiles (unisono/nccl.hpp brings in Thrust there)");
        return &StreamKernel<Op, T>::call;
    } else {
        return nullptr;
    }
}

/// A family with what a weighted mean needs beside it.
template <class Family>
struct MeanOnDevice {
    static constexpr std::string_view name = "mean";
    const Family& family;
    StreamRequest stream;
};
template <class Family>
constexpr const Family& family_of(const Family& family, OperationRequest&) {
    return family;
}
template <class Family>
const Family& family_of(const MeanOnDevice<Family>& mean, OperationRequest& request) {
    request.stream = mean.stream;
    return mean.family;
}

/// Completes a request on device memory with the schedule that `family` offers, or with the
/// transport's own collective.
template <Collective What, class T, class Op, enqueues Transport, class Family>
void complete_on_device(Group<Transport>& group, OperationRequest& request, int root, const Family& family) {
    request.stream.kernel = stream_kernel<What, Family, T, Op>();
    schedule::TransportsOwn<What> agreed{{group.shape(root)}};
    if constexpr (!std::same_as<Family, NativeSchedule>) {
        static_assert(!std::same_as<Family, MappedSchedule> && !std::same_as<Family, StagedSchedule>,
                      "found: MappedSchedule or StagedSchedule on a transport that does not map peers' memory");
        if constexpr (requires { family.chunk_bytes; }) request.chunk_bytes = family.chunk_bytes;
        request.stream.plan = &group.plan(schedule_of<What>(family, group.shape(root)));
        agreed.way = request.stream.plan->hash() ^ static_cast<std::uint32_t>(request.chunk_bytes * 2654435761u);
    }
    request.plan = &group.plan(agreed);
}

/// As above, through the host, in chunks: of the family's size if it has one, else of the
/// transport's. The native schedule is the host's over messages; if peers' memory is mapped it is
/// the direct one, with the bits of mapped schedules.
template <Collective What, class T, class Op, through_host_transport Transport, class Family>
void complete_on_device(Group<Transport>& group, OperationRequest& request, int root, const Family& family) {
    static_assert(
        !std::same_as<Family, MappedSchedule> && !std::same_as<Family, StagedSchedule>,
        "found: MappedSchedule or StagedSchedule on memory of a device. Required: NativeSchedule, or one over "
        "messages. Why: peers see copies of a few pieces at a time");
    request.stream.through_host = true;
    request.chunk_bytes = group.endpoint().piece_bytes();
    if constexpr (requires { family.chunk_bytes; })
        if (family.chunk_bytes != 0) request.chunk_bytes = family.chunk_bytes;
    if constexpr (!std::same_as<Family, NativeSchedule>)
        request.plan = &group.plan(schedule_of<What>(family, group.shape(root)));
    else if constexpr (Transport::maps_peers)
        request.plan = &group.plan(schedule_of<What>(DirectSchedule{}, group.shape(root)));
    else if constexpr (knows_hosts<Transport> && What != Collective::all_to_all)
        request.plan = &plan_on_hosts<What>(group, family, request, root);
    else request.plan = &plan_on_equals<What>(group, family, request, root);
}

template <Collective What, class T, class Op, streaming_transport Transport, class Family>
void plan_on_device(GroupCore& group, const Call& call, OperationRequest& request) {
    const auto& family = family_of(*static_cast<const Family*>(call.by.family), request);
    request.stream.space = MemorySpace::device;
    complete_on_device<What, T, Op>(static_cast<Group<Transport>&>(group), request, call.root, family);
}

template <floating_element T>
void weigh_data(std::byte* data, std::size_t count, double by) {
    const std::span<T> all(reinterpret_cast<T*>(data), count);
    weigh(all, std::span<const T>(all), by);
}
template <floating_element T>
void divide_data(std::byte* data, std::size_t count, double by) {
    if (by != 0.0) divide(std::span(reinterpret_cast<T*>(data), count), by);
}

template <streaming_transport Transport, element T, class Family>
void mean_on_device(Group<Transport>& group, DeviceSpan<const T> in, DeviceSpan<T> out, const WeightedMean& op,
                    const Family& family) {
    MeanOnDevice<Family> way{family, {}};
    const Call call = call_on<Collective::all_reduce, DeviceSpan<T>>(group, way, op);
    static_cast<void>(request_of(group.context(), call, buffer_of(in), buffer_of(out)));
    double all = op.weight;
    all_reduce(group, std::span<double>(&all, 1));
    if constexpr (enqueues<Transport>) {
        way.stream.weight = all == 0.0 ? 0.0 : op.weight / all; // its share of the sum
        way.stream.weighted = true;
    } else {
        way.stream.weight = op.weight;
        way.stream.divisor = all;
        way.stream.weigh = &weigh_data<T>;
        way.stream.divide = &divide_data<T>;
    }
    group.run(call, buffer_of(in), buffer_of(out));
}

} // namespace detail

/// `count` elements of device memory, which the transport's library moves without copying. Not
/// cleared. Not collective. Freeing it waits for the device's work. Errors: bad_input (too many
/// bytes), refused (no memory).
template <element T, streaming_transport Transport>
[[nodiscard]] DeviceMemory<T> allocate_on_device(Group<Transport>& group, std::size_t count) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes))
        refuse_input(
            {"allocate_on_device: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
    return DeviceMemory<T>(group.endpoint().allocate_on_device(bytes), count);
}

/// `count` elements of device memory on each rank of the group, which the transport's library knows
/// on all ranks (NCCL 2.27 and newer: symmetric windows, its fastest memory if devices can access
/// one another's; otherwise as allocate_on_device). Collective. Not cleared. Law: in a collective
/// of this group all ranks pass the same range of it. The collective is NativeSchedule's
/// all_reduce, reduce, reduce_scatter, all_gather of equal parts or broadcast; others send, and are
/// refused. Use it for memory that lives as long as the group: it is freed when the group ends,
/// even if it is released earlier. Errors, on all ranks: bad_input (counts differ, too many bytes),
/// refused (no memory); timeout.
template <element T, enqueues Transport>
[[nodiscard]] DeviceMemory<T> allocate_windows(Group<Transport>& group, std::size_t count) {
    detail::check_member(group);
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes))
        refuse_input({"allocate_windows: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
    struct Offer {
        std::uint64_t bytes;
        std::uint64_t refused; ///< no memory
    };
    Offer mine{bytes, 0};
    Transport& transport = group.endpoint();
    std::shared_ptr<std::byte> memory;
    std::string why;
    try {
        memory = transport.allocate_on_device(bytes);
    } catch (const error& refused) {
        mine.refused = 1;
        why = refused.why().message;
    }
    std::vector<Offer> all(static_cast<std::size_t>(group.size()));
    all_gather(group, std::span<const Offer>(&mine, 1), std::span<Offer>(all), {}, RingSchedule{}); // by messages
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].bytes != all[0].bytes)
            refuse_input({"allocate_windows: rank ", group.world_rank(static_cast<int>(rank)), " asks for ",
                          all[rank].bytes, " bytes, rank ", group.world_rank(0), " for ", all[0].bytes,
                          "; expected the same on all"});
        if (all[rank].refused != 0)
            throw error(group.blame(ErrorCode::refused, static_cast<int>(rank), "allocate_windows",
                                    {"has no memory for ", bytes, " bytes", why.empty() ? "" : ": ", why}));
    }
    transport.stream_device().open_window(group.context().id, memory, bytes);
    const auto is_open = [](void* of) { return static_cast<Transport*>(of)->stream_device().window_is_open(); };
    group.wait_for_devices("allocate_windows", "the windows of all ranks", is_open, &transport);
    return DeviceMemory<T>(std::move(memory), count);
}

/// Work that this rank starts on devices later, in any group, begins after the work enqueued so far
/// on `stream`, a cudaStream_t; the host does not wait. Together with `Operation::then` it
/// synchronises a program's own streams with the transport's stream without the host:
///
///     backward<<<..., mine>>>(...);
///     un::after(world, mine);
///     un::Operation sum = un::start_all_reduce(world, gradient.span()); // on the library's stream
///     sum.then(mine);
///     step<<<..., mine>>>(...);
///
/// Errors: refused, with CUDA's text.
template <streaming_transport Transport>
void after(Group<Transport>& group, void* stream) {
    detail::check_member(group);
    const auto entry = group.enter();
    group.endpoint().wait_for(stream);
}

UNISONO_NAMESPACE_END
