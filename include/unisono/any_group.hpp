#pragma once

/// \file
/// A group without its transport or its elements in any type, for bindings to other languages and
/// frameworks, which know both at run time (docs/any_group.md). Not part of the umbrella.
///
///     un::AnyGroup world = un::join_any(); // join_any.hpp; or un::AnyGroup(std::move(group))
///     using un::untyped::Number, un::untyped::Operator;
///     const auto sums = un::untyped::combination(Operator::sum, Number::int16);
///     world.start_all_reduce(sums.elements, in, out, count, sums.reduction).wait();

#include "unisono/collective/native.hpp"
#include "unisono/extensions/any_group/blocks.hpp"
#include "unisono/extensions/any_group/reductions.hpp"
#include "unisono/group/group.hpp"
#include "unisono/transport/in_process.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// A handle of a group over any transport. Its copies are handles of the same group, which ends
/// with the last of them. One thread at a time uses a group. All collectives are nonblocking and
/// use the native schedule; shapes, aliasing, errors and determinism are those of the typed ones
/// (docs/collectives.md), and so are the bits.
///
/// Counts are in elements. In addition, bad_input: a null pointer to elements that this rank reads
/// or writes; more bytes than memory can hold; a reduction of other elements than the call's.
class AnyGroup {
public:
    using Counts = std::span<const std::size_t>;

    /// A world of one.
    AnyGroup() : AnyGroup(Group<InProcess>()) {}
    /// Takes a group over.
    template <transport Transport>
    explicit AnyGroup(Group<Transport>&& group)
        : AnyGroup(std::make_shared<Group<Transport>>(std::move(group)), &split_of<Transport>) {}

    [[nodiscard]] int rank() const { return group_->rank(); }
    /// Ranks in the group; 0 for the group that `split` gives to a rank with `no_colour`.
    [[nodiscard]] int size() const { return group_->size(); }
    /// The transport's name, for instance "shared_memory".
    [[nodiscard]] std::string_view transport_name() const { return endpoint_->facts().name; }
    /// As `Group::split`.
    [[nodiscard]] AnyGroup split(int colour, int key) const { return split_(*group_, colour, key); }

    /// As those of `GroupCore`.
    void set_timeout(std::chrono::nanoseconds timeout) { group_->set_timeout(timeout); }
    [[nodiscard]] std::chrono::nanoseconds timeout() const { return group_->timeout(); }
    void abort(const Fault& fault) { group_->abort(fault); }
    void check() { group_->check(); }
    void progress() { group_->progress(); }

    /// The group, for all else: `allocate`, `blame`, `hosts`, `world_rank`, `traffic`.
    [[nodiscard]] GroupCore& core() const { return *group_; }
    /// The rank's end of the transport, for threads that wait by themselves.
    [[nodiscard]] Endpoint& endpoint() const { return *endpoint_; }

    // --- collectives; `in` may be `out` where the typed ones allow it ---

    /// n elements, on every rank.
    [[nodiscard]] Operation start_all_reduce(const Elements& elements, const void* in, void* out, std::size_t count,
                                             const Reduction& reduction) {
        return group_->start(with(call(Collective::all_reduce), elements, reduction), buffer(elements, in, count),
                             buffer(elements, out, count));
    }
    /// As `prepare_all_reduce`: for many starts on the same memory.
    [[nodiscard]] Prepared prepare_all_reduce(const Elements& elements, const void* in, void* out, std::size_t count,
                                              const Reduction& reduction) {
        return group_->prepare(with(call(Collective::all_reduce), elements, reduction), buffer(elements, in, count),
                               buffer(elements, out, count));
    }
    /// n elements, from the root to all.
    [[nodiscard]] Operation start_broadcast(const Elements& elements, void* data, std::size_t count, int root) {
        const detail::CallBuffer all = buffer(elements, data, count);
        return group_->start(call(Collective::broadcast, root), all, all);
    }
    /// n elements; `out` is used at the root.
    [[nodiscard]] Operation start_reduce(const Elements& elements, const void* in, void* out, std::size_t count,
                                         const Reduction& reduction, int root) {
        return group_->start(with(call(Collective::reduce, root), elements, reduction), buffer(elements, in, count),
                             buffer(elements, out, count));
    }
    /// `mine` elements of every rank, or `counts`.
    [[nodiscard]] Operation start_all_gather(const Elements& elements, const void* in, std::size_t mine, void* out,
                                             Counts counts = {}) {
        return group_->start(call(Collective::all_gather, 0, counts, counts), buffer(elements, in, mine),
                             buffer(elements, out, fitting));
    }
    /// `mine` elements for every rank, or `counts`.
    [[nodiscard]] Operation start_reduce_scatter(const Elements& elements, const void* in, void* out, std::size_t mine,
                                                 const Reduction& reduction, Counts counts = {}) {
        return group_->start(with(call(Collective::reduce_scatter, 0, counts, counts), elements, reduction),
                             buffer(elements, in, fitting), buffer(elements, out, mine));
    }
    /// `mine` elements of every rank, or `counts`; `out` is used at the root.
    [[nodiscard]] Operation start_gather(const Elements& elements, const void* in, std::size_t mine, void* out,
                                         int root, Counts counts = {}) {
        return group_->start(call(Collective::gather, root, counts, counts), buffer(elements, in, mine),
                             buffer(elements, out, fitting));
    }
    /// `mine` elements for every rank, or `counts`; `in` is used at the root.
    [[nodiscard]] Operation start_scatter(const Elements& elements, const void* in, void* out, std::size_t mine,
                                          int root, Counts counts = {}) {
        return group_->start(call(Collective::scatter, root, counts, counts), buffer(elements, in, fitting),
                             buffer(elements, out, mine));
    }
    /// `send_counts[j]` elements go to rank j, `receive_counts[i]` come from rank i.
    [[nodiscard]] Operation start_all_to_all(const Elements& elements, const void* in, void* out, Counts send_counts,
                                             Counts receive_counts) {
        return group_->start(call(Collective::all_to_all, 0, send_counts, receive_counts),
                             buffer(elements, in, fitting), buffer(elements, out, fitting));
    }
    [[nodiscard]] Operation start_barrier() { return group_->start(call(Collective::barrier), {}, {}); }

    /// See `send`: the peer's receive has as many elements.
    [[nodiscard]] Operation start_send(const Elements& elements, const void* data, std::size_t count, int peer,
                                       int tag) {
        return group_->start_message(schedule::StepKind::send, buffer(elements, data, count), peer, tag);
    }
    [[nodiscard]] Operation start_receive(const Elements& elements, void* data, std::size_t count, int peer, int tag) {
        return group_->start_message(schedule::StepKind::receive, buffer(elements, data, count), peer, tag);
    }

    // --- collectives on blocks (extensions/any_group/blocks.hpp) ---

    /// Every rank's `all` = the ranks' `mine`, rank r's in block r. `counts` are equal on all
    /// ranks. `mine` may be this rank's own block. Errors: also bad_input if blocks overlap.
    [[nodiscard]] BlockOperation start_all_gather(const Elements& elements, const void* mine, void* all,
                                                  const Blocks& blocks) {
        detail::check_member(*group_);
        BlockOperation made;
        made.output_ = packed(Collective::all_gather, "output", blocks, elements, all);
        made.operation_ = start_all_gather(elements, mine, own(blocks), made.output_.memory(), blocks.counts);
        return made;
    }
    /// Rank r's `mine` = the reduction of all ranks' block r. `counts` are equal on all ranks.
    [[nodiscard]] BlockOperation start_reduce_scatter(const Elements& elements, const void* all, void* mine,
                                                      const Blocks& blocks, const Reduction& reduction) {
        detail::check_member(*group_);
        BlockOperation made;
        made.input_ = packed(Collective::reduce_scatter, "input", blocks, elements, all);
        made.operation_ =
            start_reduce_scatter(elements, made.input_.memory(), mine, own(blocks), reduction, blocks.counts);
        return made;
    }
    /// The root's `all` = the ranks' `mine`. `counts` are equal on all ranks; displacements are
    /// used at the root only. Errors: also bad_input if the root's blocks overlap.
    [[nodiscard]] BlockOperation start_gather(const Elements& elements, const void* mine, void* all,
                                              const Blocks& blocks, int root) {
        detail::check_root(group_->context(), root, "gather", "'s root");
        BlockOperation made;
        made.output_ = packed(Collective::gather, "output", at_root(blocks, root), elements, all);
        made.operation_ = start_gather(elements, mine, own(blocks), made.output_.memory(), root, blocks.counts);
        return made;
    }
    /// Each rank's `mine` = its block of the root's `all`. `counts` are equal on all ranks;
    /// displacements are used at the root only.
    [[nodiscard]] BlockOperation start_scatter(const Elements& elements, const void* all, void* mine,
                                               const Blocks& blocks, int root) {
        detail::check_root(group_->context(), root, "scatter", "'s root");
        BlockOperation made;
        made.input_ = packed(Collective::scatter, "input", at_root(blocks, root), elements, all);
        made.operation_ = start_scatter(elements, made.input_.memory(), mine, own(blocks), root, blocks.counts);
        return made;
    }
    /// Block j of rank i's `in` becomes block i of rank j's `out`: `sends.counts[j]` elements go to
    /// rank j, `receives.counts[i]` come from rank i. Errors: also bad_input if blocks of `out`
    /// overlap.
    [[nodiscard]] BlockOperation start_all_to_all(const Elements& elements, const void* in, const Blocks& sends,
                                                  void* out, const Blocks& receives) {
        detail::check_member(*group_);
        BlockOperation made;
        made.input_ = packed(Collective::all_to_all, "input", sends, elements, in);
        made.output_ = packed(Collective::all_to_all, "output", receives, elements, out);
        made.operation_ =
            start_all_to_all(elements, made.input_.memory(), made.output_.memory(), sends.counts, receives.counts);
        return made;
    }

private:
    using Split = AnyGroup (*)(GroupCore& group, int colour, int key);
    static constexpr std::size_t fitting = detail::CallBuffer::fitting;

    template <transport Transport>
    AnyGroup(std::shared_ptr<Group<Transport>> group, Split by) : endpoint_(&group->endpoint()), split_(by) {
        using enum Collective;
        detail::keep_native<all_reduce, broadcast, reduce, all_gather, reduce_scatter, gather, scatter, all_to_all,
                            barrier>(*group);
        group_ = std::move(group);
    }
    template <transport Transport>
    static AnyGroup split_of(GroupCore& group, int colour, int key) {
        return AnyGroup(static_cast<Group<Transport>&>(group).split(colour, key));
    }

    /// By the native schedule, which the group keeps.
    static detail::Call call(Collective what, int root = 0, Counts input = {}, Counts output = {}) {
        return {.what = what, .root = root, .by = {}, .input_counts = input, .output_counts = output};
    }
    /// The call with this reduction.
    static detail::Call with(detail::Call call, const Elements& elements, const Reduction& reduction);
    /// `count` elements in memory that is not written if it is an input.
    static detail::CallBuffer buffer(const Elements& elements, const void* data, std::size_t count) {
        return {static_cast<std::byte*>(const_cast<void*>(data)), count, elements.bytes, elements.type};
    }
    [[nodiscard]] detail::PackedBlocks packed(Collective what, const char* which, const Blocks& blocks,
                                              const Elements& elements, const void* data) const {
        return {group_->context(), what, which, blocks, elements.bytes, data};
    }
    [[nodiscard]] std::size_t own(const Blocks& blocks) const {
        return blocks.counts[static_cast<std::size_t>(rank())];
    }
    [[nodiscard]] Blocks at_root(const Blocks& blocks, int root) const {
        return rank() == root ? blocks : Blocks{blocks.counts};
    }

    std::shared_ptr<GroupCore> group_;
    Endpoint* endpoint_;
    Split split_;
};

inline detail::Call AnyGroup::with(detail::Call call, const Elements& elements, const Reduction& reduction) {
    if (reduction.combine == &detail::combine_bytes) {
        const auto& operation = *static_cast<const untyped::ByteOperation*>(reduction.state);
        if (operation.element_bytes != elements.bytes)
            refuse_input({"untyped: found an operation on elements of ", operation.element_bytes,
                          " bytes for elements of ", elements.bytes, "; expected one size"});
    } else if (reduction.type != elements.type) {
        refuse_input({"untyped: found a reduction of ", name_of(reduction.type), " for elements of ",
                      name_of(elements.type), "; expected one type"});
    }
    if (reduction.state_bytes > (reduction.state == nullptr ? 0 : Reduction::state_capacity))
        refuse_input({"untyped: found a reduction with ", reduction.state_bytes, " bytes of state; expected at most ",
                      Reduction::state_capacity, ", and 0 where state is nullptr"});
    if (elements.bytes == 0) refuse_input("untyped: found elements of 0 bytes; expected at least 1");
    call.op = reduction;
    return call;
}

UNISONO_NAMESPACE_END
