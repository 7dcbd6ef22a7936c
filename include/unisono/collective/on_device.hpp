#pragma once

/// \file
/// Collectives on device memory, for transports whose ranks have a device: the same names on
/// `DeviceSpan`s.
///
///     un::DeviceMemory<float> gradient = un::allocate_on_device<float>(world, 1'000'000);
///     un::all_reduce(world, gradient.span());                                // NCCL's
///     un::all_reduce(world, gradient.span(), un::Sum{}, un::RingSchedule{}); // our own
///
/// They are enqueued on the transport's stream, in the order in which they are started, whatever
/// their group: ranks start collectives of common groups in the same order. An operation is done
/// when the device is done. Laws, shapes and errors are the host's. Determinism: by the library,
/// what it promises; by one of our schedules, its bits.
///
/// Over a transport that moves host bytes (unisono/cuda.hpp) they are the host's collectives,
/// through pinned memory in pieces: with the bits of the host's when those are cut into chunks of
/// the same size. `Cuda<Mpi>`: MPI's own where it takes device memory.

#include "unisono/arithmetic/stream_kernel.hpp"
#include "unisono/collective/all_reduce.hpp"
#include "unisono/collective/exchange.hpp"
#include "unisono/collective/rooted.hpp"
#include "unisono/core/device_span.hpp"

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

/// Makes requests as start_... does for host memory, with device addresses, which are not read
/// here.
template <class T>
std::span<T> unread(DeviceSpan<T> elements) {
    return {elements.data(), elements.size()};
}

/// The kernel with which one of our schedules combines on the device; none for the library's own
/// collectives, and where nothing is combined.
template <Collective What, class Family, class T, class Op>
StreamKernelFunction stream_kernel() {
    constexpr bool combines =
        What == Collective::all_reduce || What == Collective::reduce || What == Collective::reduce_scatter;
    constexpr bool native = std::same_as<Family, NativeSchedule>;
    if constexpr (native && combines) {
        static_assert(
            is_built_in<Op> || std::same_as<Op, WeightedMean>,
            "found: an operation of your own by NativeSchedule on memory of a device. Required: Sum, Product, Min, "
            "Max or WeightedMean. Why: the device's library does no other; by a schedule such as RingSchedule, in "
            "a source that nvcc compiles, it can be done");
        static_assert(arithmetic_element<T>, "found: elements that the device's library cannot reduce");
        return nullptr;
    } else if constexpr (combines) {
        static_assert(!std::same_as<Op, WeightedMean>,
                      "found: WeightedMean by a schedule of ours on memory of a device. Required: NativeSchedule");
        static_assert(
            has_stream_kernel<Op, T>,
            "found: a schedule of ours that combines on memory of a device, where no compiler for it is at work. "
            "Required: a source that nvcc compiles (unisono/nccl.hpp brings in Thrust there), or NativeSchedule");
        return &StreamKernel<Op, T>::call;
    } else {
        return nullptr;
    }
}

/// Starts a request on device memory by the schedule that `family` offers, or by the library.
template <Collective What, enqueues Transport, class Family>
std::uint32_t start_on_device(Group<Transport>& group, OperationRequest& request, int root, const Family& family) {
    request.stream.space = MemorySpace::device;
    schedule::TransportsOwn<What> agreed{{group.shape(root)}};
    if constexpr (!std::same_as<Family, NativeSchedule>) {
        static_assert(!std::same_as<Family, MappedSchedule> && !std::same_as<Family, StagedSchedule>,
                      "found: MappedSchedule or StagedSchedule on a transport that does not map peers' memory");
        if constexpr (requires { family.chunk_bytes; }) request.chunk_bytes = family.chunk_bytes;
        request.stream.plan = &group.plan(schedule_of<What>(family, group.shape(root)));
        agreed.way = request.stream.plan->hash() ^ static_cast<std::uint32_t>(request.chunk_bytes * 2654435761u);
    }
    request.plan = &group.plan(agreed);
    return group.engine().start(group.context(), request);
}

/// The same through the host, in pieces: of the family's chunks if it has any, else of the
/// transport's. By the native schedule as on the host, over messages; where peers' memory is
/// mapped, directly, with the bits of mapped schedules.
template <Collective What, through_host_transport Transport, class Family>
std::uint32_t start_on_device(Group<Transport>& group, OperationRequest& request, int root, const Family& family) {
    static_assert(
        !std::same_as<Family, MappedSchedule> && !std::same_as<Family, StagedSchedule>,
        "found: MappedSchedule or StagedSchedule on memory of a device. Required: NativeSchedule, or one over "
        "messages. Why: peers see images of a few pieces at a time");
    const auto use = [&](const auto& schedule) {
        request.plan = &group.plan(schedule);
        return group.engine().start(group.context(), request);
    };
    request.stream.space = MemorySpace::device;
    if constexpr (std::same_as<Family, NativeSchedule> && takes_device_itself<Transport>) {
        if (group.endpoint().takes_device_memory() && request.stream.weigh == nullptr &&
            has_own<What>(group, family, request))
            return use(schedule::TransportsOwn<What>{{group.shape(root)}});
    }
    request.stream.through_host = true;
    request.chunk_bytes = group.endpoint().piece_bytes();
    if constexpr (requires { family.chunk_bytes; })
        if (family.chunk_bytes != 0) request.chunk_bytes = family.chunk_bytes;
    if constexpr (!std::same_as<Family, NativeSchedule>) return use(schedule_of<What>(family, group.shape(root)));
    else if constexpr (Transport::maps_peers) return use(schedule_of<What>(DirectSchedule{}, group.shape(root)));
    else if constexpr (knows_hosts<Transport> && What != Collective::all_to_all)
        return choose_on_hosts<What>(group, family, request, root, use);
    else return choose_on_equals<What>(group, family, request, root, use);
}

/// A family with which the host's functions start on the device what they would start on the host.
template <class Family>
struct OnDevice {
    Family family;
    StreamRequest stream = {};
};

template <Collective What, streaming_transport Transport, class Family>
std::uint32_t start(Group<Transport>& group, OperationRequest& request, int root, const OnDevice<Family>& device) {
    request.stream = device.stream;
    return start_on_device<What>(group, request, root, device.family);
}

template <Collective What, streaming_transport Transport, class T, class Op, class Family>
OnDevice<Family> on_device(const Group<Transport>&, const Family& family) {
    OnDevice<Family> made{.family = family};
    if constexpr (enqueues<Transport>) made.stream.kernel = stream_kernel<What, Family, T, Op>();
    return made;
}

/// The sum of all ranks' weights.
template <streaming_transport Transport>
double sum_of_weights(Group<Transport>& group, const WeightedMean& op) {
    op.check();
    double all = op.weight;
    all_reduce(group, std::span<double>(&all, 1));
    return all;
}

template <floating_element T>
void weigh_image(std::byte* image, std::size_t count, double by) {
    const std::span<T> all(reinterpret_cast<T*>(image), count);
    scale(all, std::span<const T>(all), by);
}
template <floating_element T>
void divide_image(std::byte* image, std::size_t count, double by) {
    if (by != 0.0) divide(std::span(reinterpret_cast<T*>(image), count), by);
}

} // namespace detail

/// `count` elements of device memory, which its library moves without copying. Not cleared. Not
/// collective. Freeing it waits for the device's work. Errors: bad_input (too many bytes), refused
/// (no memory).
template <element T, streaming_transport Transport>
[[nodiscard]] DeviceMemory<T> allocate_on_device(Group<Transport>& group, std::size_t count) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes))
        refuse_input(
            {"allocate_on_device: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
    return DeviceMemory<T>(group.endpoint().allocate_on_device(bytes), count);
}

/// `count` elements of device memory on each rank of the group, which the library knows on all of
/// them (NCCL 2.27 and newer: symmetric windows, its fastest way where devices reach one another's
/// memory; otherwise as allocate_on_device). Collective. Not cleared. Law: in a collective of this
/// group all ranks pass the same part of it, from the same element on. Use it for memory that lives
/// as long as the group: it is freed when the group has ended, however early it is released.
/// Errors, on all ranks: bad_input (counts differ, too many bytes), refused (no memory); timeout.
template <element T, enqueues Transport>
[[nodiscard]] DeviceMemory<T> allocate_windows(Group<Transport>& group, std::size_t count) {
    detail::check_member(group);
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(count, sizeof(T), &bytes))
        refuse_input({"allocate_windows: ", count, " elements of ", sizeof(T), " bytes are more than memory can hold"});
    struct Offer {
        std::uint64_t bytes;
        std::uint64_t refused; ///< for lack of memory
    };
    Offer mine{bytes, 0};
    Transport& transport = group.endpoint();
    std::shared_ptr<std::byte> memory;
    std::string why;
    try {
        memory = transport.allocate_for_window(bytes);
    } catch (const error& refused) {
        mine.refused = 1;
        why = refused.why().message;
    }
    std::vector<Offer> all(static_cast<std::size_t>(group.size()));
    all_gather(group, std::span<const Offer>(&mine, 1), std::span<Offer>(all), {}, RingSchedule{}); // by messages
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank].bytes != all[0].bytes)
            refuse_input({"allocate_windows: rank ", rank, " asks for ", all[rank].bytes, " bytes, rank 0 for ",
                          all[0].bytes, "; expected the same on all"});
        if (all[rank].refused != 0)
            throw error(ErrorCode::refused, concat({"allocate_windows: rank ", rank, " has no memory for ", bytes,
                                                    " bytes", why.empty() ? "" : ": ", why}));
    }
    transport.open_window(group.context().id, memory, bytes);
    group.wait_for_devices("allocate_windows", "the windows of all ranks", [&] { return transport.window_is_open(); });
    return DeviceMemory<T>(std::move(memory), count);
}

/// Work that this rank starts on devices from now on, in any group, begins after the work enqueued
/// so far on `stream`, a cudaStream_t; the host does not wait. With `Operation::then` a program's
/// own streams synchronise with the library's without the host:
///
///     backward<<<..., mine>>>(...);
///     un::after(world, mine);
///     un::Operation sum = un::start_all_reduce(world, gradient.span()); // on the library's stream
///     sum.then(mine);
///     step<<<..., mine>>>(...);
///
/// Errors: refused, as CUDA says.
template <streaming_transport Transport>
void after(Group<Transport>& group, void* stream) {
    detail::check_member(group);
    const auto entry = group.engine().enter();
    group.endpoint().wait_for(stream);
}

/// As all_reduce, on the device, without waiting. Not for WeightedMean, whose weights must be known
/// first.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out,
                                         const Op& op = {}, const Family& family = {}) {
    static_assert(
        !std::same_as<Op, WeightedMean>,
        "found: start_all_reduce by WeightedMean on memory of a device. Required: all_reduce, which waits. Why: "
        "the library multiplies by a rank's part of all weights, which must be known first");
    detail::check_member(group);
    detail::check_count(group, Collective::all_reduce, "the output", out.size(), in.size());
    const auto how = detail::on_device<Collective::all_reduce, Transport, T, Op>(group, family);
    return group.handle(
        detail::start_all_reduce(group, static_cast<const T*>(in.data()), out.data(), in.size(), op, how));
}

/// out = the reduction of all ranks' in, on the device, on every rank. WeightedMean: the library
/// multiplies by weight / sum of weights, rounded to the element's type, and adds (PreMulSum); so
/// its bits differ from the host's. Through the host they are equal.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T>
void all_reduce(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out, const Op& op = {},
                const Family& family = {}) {
    if constexpr (std::same_as<Op, WeightedMean>) {
        detail::check_member(group);
        detail::check_count(group, Collective::all_reduce, "the output", out.size(), in.size());
        auto how = detail::on_device<Collective::all_reduce, Transport, T, Op>(group, family);
        const double all = detail::sum_of_weights(group, op);
        if constexpr (enqueues<Transport>) {
            how.stream.weight = all == 0.0 ? 0.0 : op.weight / all; // its part of the whole
            how.stream.weighted = true;
        } else {
            how.stream.weight = op.weight;
            how.stream.divisor = all;
            how.stream.weigh = &detail::weigh_image<T>;
            how.stream.divide = &detail::divide_image<T>;
        }
        detail::OperationRequest request = detail::request_for(static_cast<const T*>(in.data()), out.data());
        request.partition = detail::Partition::vector(in.size());
        request.count = in.size();
        request.total_bytes = in.size_bytes();
        detail::set_reduction<T>(request, op);
        group.finish(detail::start<Collective::all_reduce>(group, request, 0, how));
    } else {
        start_all_reduce(group, in, out, op, family).wait();
    }
}
/// The same in place.
template <streaming_transport Transport, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, T>
void all_reduce(Group<Transport>& group, DeviceSpan<T> data, const Op& op = {}, const Family& family = {}) {
    all_reduce(group, data, data, op, family);
}
/// The same in place, without waiting.
template <streaming_transport Transport, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires reduction_operation<Op, T>
[[nodiscard]] Operation start_all_reduce(Group<Transport>& group, DeviceSpan<T> data, const Op& op = {},
                                         const Family& family = {}) {
    return start_all_reduce(group, data, data, op, family);
}

/// As broadcast on the host.
template <streaming_transport Transport, element T, class Family = NativeSchedule>
[[nodiscard]] Operation start_broadcast(Group<Transport>& group, DeviceSpan<T> data, int root,
                                        const Family& family = {}) {
    return group.handle(detail::start_broadcast(
        group, detail::unread(data), root, detail::on_device<Collective::broadcast, Transport, T, Sum>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, element T, class Family = NativeSchedule>
void broadcast(Group<Transport>& group, DeviceSpan<T> data, int root, const Family& family = {}) {
    start_broadcast(group, data, root, family).wait();
}

/// As reduce on the host.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T> && (!std::same_as<Op, WeightedMean>)
[[nodiscard]] Operation start_reduce(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out, int root,
                                     const Op& op = {}, const Family& family = {}) {
    return group.handle(detail::start_reduce(group, std::span<const T>(detail::unread(in)), detail::unread(out), root,
                                             op,
                                             detail::on_device<Collective::reduce, Transport, T, Op>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T> && (!std::same_as<Op, WeightedMean>)
void reduce(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out, int root, const Op& op = {},
            const Family& family = {}) {
    start_reduce(group, in, out, root, op, family).wait();
}

/// As reduce_scatter on the host.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T> && (!std::same_as<Op, WeightedMean>)
[[nodiscard]] Operation
    start_reduce_scatter(Group<Transport>& group, DeviceSpan<In> all, DeviceSpan<T> mine, const Op& op = {},
                         std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(
        detail::start_reduce_scatter(group, std::span<const T>(detail::unread(all)), detail::unread(mine), counts, op,
                                     detail::on_device<Collective::reduce_scatter, Transport, T, Op>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, arithmetic_element T, class Op = Sum, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T> && reduction_operation<Op, T> && (!std::same_as<Op, WeightedMean>)
void reduce_scatter(Group<Transport>& group, DeviceSpan<In> all, DeviceSpan<T> mine, const Op& op = {},
                    std::span<const std::size_t> counts = {}, const Family& family = {}) {
    start_reduce_scatter(group, all, mine, op, counts, family).wait();
}

/// As all_gather on the host.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
[[nodiscard]] Operation start_all_gather(Group<Transport>& group, DeviceSpan<In> mine, DeviceSpan<T> all,
                                         std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(
        detail::start_all_gather(group, std::span<const T>(detail::unread(mine)), detail::unread(all), counts,
                                 detail::on_device<Collective::all_gather, Transport, T, Sum>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
void all_gather(Group<Transport>& group, DeviceSpan<In> mine, DeviceSpan<T> all,
                std::span<const std::size_t> counts = {}, const Family& family = {}) {
    start_all_gather(group, mine, all, counts, family).wait();
}

/// As gather on the host.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
[[nodiscard]] Operation start_gather(Group<Transport>& group, DeviceSpan<In> mine, DeviceSpan<T> all, int root,
                                     std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(detail::start_rooted_blocks<Collective::gather>(
        group, static_cast<const T*>(mine.data()), all.data(), mine.size(), all.size(), counts, root,
        detail::on_device<Collective::gather, Transport, T, Sum>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
void gather(Group<Transport>& group, DeviceSpan<In> mine, DeviceSpan<T> all, int root,
            std::span<const std::size_t> counts = {}, const Family& family = {}) {
    start_gather(group, mine, all, root, counts, family).wait();
}

/// As scatter on the host.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
[[nodiscard]] Operation start_scatter(Group<Transport>& group, DeviceSpan<In> all, DeviceSpan<T> mine, int root,
                                      std::span<const std::size_t> counts = {}, const Family& family = {}) {
    return group.handle(detail::start_rooted_blocks<Collective::scatter>(
        group, static_cast<const T*>(all.data()), mine.data(), mine.size(), all.size(), counts, root,
        detail::on_device<Collective::scatter, Transport, T, Sum>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
void scatter(Group<Transport>& group, DeviceSpan<In> all, DeviceSpan<T> mine, int root,
             std::span<const std::size_t> counts = {}, const Family& family = {}) {
    start_scatter(group, all, mine, root, counts, family).wait();
}

/// As all_to_all on the host. Counts that do not match hang until the deadline: no message carries
/// their sizes.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
[[nodiscard]] Operation start_all_to_all(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out,
                                         std::span<const std::size_t> send_counts = {},
                                         std::span<const std::size_t> receive_counts = {}, const Family& family = {}) {
    return group.handle(detail::start_all_to_all(
        group, std::span<const T>(detail::unread(in)), detail::unread(out), send_counts, receive_counts,
        detail::on_device<Collective::all_to_all, Transport, T, Sum>(group, family)));
}
/// The same; waits.
template <streaming_transport Transport, class In, element T, class Family = NativeSchedule>
    requires std::same_as<std::remove_const_t<In>, T>
void all_to_all(Group<Transport>& group, DeviceSpan<In> in, DeviceSpan<T> out,
                std::span<const std::size_t> send_counts = {}, std::span<const std::size_t> receive_counts = {},
                const Family& family = {}) {
    start_all_to_all(group, in, out, send_counts, receive_counts, family).wait();
}

UNISONO_NAMESPACE_END
