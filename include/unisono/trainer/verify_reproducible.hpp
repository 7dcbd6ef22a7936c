#pragma once

/// \file
/// Tests whether a model gives the same bits for the same micro-batch, whichever batches ran before
/// and on any thread. This is a precondition for equal weights on any cluster. Not in the umbrella:
/// include it where it is used.

#include "unisono/core/list.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/model/model.hpp"

#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// The result of `verify_reproducible`.
struct ReproducibleModel {
    bool reproducible = true;
    std::string what = {}; ///< the first difference as text; empty if there is none
    explicit operator bool() const { return reproducible; }
};

namespace detail {

/// The bytes of all spans of a range, concatenated.
template <class Spans>
std::vector<std::byte> bytes_of_spans(Spans&& spans) {
    std::vector<std::byte> bytes;
    for_each_span(spans, [&](auto one) {
        const auto* const from = reinterpret_cast<const std::byte*>(one.data());
        bytes.insert(bytes.end(), from, from + one.size_bytes());
    });
    return bytes;
}
template <class Spans>
void restore_spans(Spans&& spans, const std::vector<std::byte>& bytes) {
    std::size_t at = 0;
    for_each_span(spans, [&](auto one) {
        if (!one.empty()) std::memcpy(one.data(), bytes.data() + at, one.size_bytes());
        at += one.size_bytes();
    });
}

/// The result of one micro-batch.
struct PassResult {
    std::uint64_t loss = 0;
    std::vector<std::byte> gradients = {};
    std::vector<std::byte> buffers = {};
};

template <class M, class Batch>
PassResult run_pass(M& model, const Batch& batch, const PassFacts& facts, const std::vector<std::byte>& buffers) {
    if constexpr (requires { model.buffers(); }) restore_spans(model.buffers(), buffers);
    for_each_span(model.gradients(), [](auto one) {
        if (!one.empty()) std::memset(static_cast<void*>(one.data()), 0, one.size_bytes());
    });
    Pass pass(facts);
    PassResult result;
    result.loss = std::bit_cast<std::uint64_t>(static_cast<double>(model(batch, pass)));
    result.gradients = bytes_of_spans(model.gradients());
    if constexpr (requires { model.buffers(); }) result.buffers = bytes_of_spans(model.buffers());
    return result;
}

} // namespace detail

/// Runs `batch` and `another` in both orders, twice, and `batch` on a thread of its own, each time
/// from the same buffers. Compares losses, gradients and buffers bit by bit. `facts` are what the
/// pass tells the model (random streams). Afterwards gradients are zero, and parameters and buffers
/// are as before. Local; it proves nothing about other machines, builds or instruction sets. Passes
/// the model's exceptions to the caller. Memory: five copies of the gradients.
template <model M, class Batch>
    requires trainable_on<M, Batch>
ReproducibleModel verify_reproducible(M& model, const Batch& batch, const Batch& another, const PassFacts& facts = {}) {
    std::vector<std::byte> buffers;
    if constexpr (requires { model.buffers(); }) buffers = detail::bytes_of_spans(model.buffers());
    const std::vector<std::byte> parameters = detail::bytes_of_spans(model.parameters());
    ReproducibleModel verdict;
    const auto compare = [&](const detail::PassResult& found, const detail::PassResult& expected, const char* when) {
        if (!verdict.reproducible) return;
        std::size_t index = 0;
        std::size_t at = 0;
        std::string what;
        detail::for_each_span(model.gradients(), [&](auto one) {
            if (what.empty() && !one.empty() &&
                std::memcmp(found.gradients.data() + at, expected.gradients.data() + at, one.size_bytes()) != 0)
                what = concat({"the gradient of ", parameter_label(model, index)});
            at += one.size_bytes();
            ++index;
        });
        if (what.empty() && found.loss != expected.loss) what = "the loss";
        if (what.empty() && found.buffers != expected.buffers) what = "a buffer";
        if (what.empty()) return;
        verdict = {false, concat({what, " differs ", when})};
    };
    const detail::PassResult first = detail::run_pass(model, batch, facts, buffers);
    const detail::PassResult other = detail::run_pass(model, another, facts, buffers);
    compare(detail::run_pass(model, another, facts, buffers), other, "when a micro-batch is run twice");
    compare(detail::run_pass(model, batch, facts, buffers), first, "when another micro-batch was run before");
    compare(detail::run_pass(model, batch, facts, buffers), first, "when a micro-batch is run twice");
    detail::PassResult elsewhere;
    std::exception_ptr thrown;
    bool ended = false;
    detail::Thread thread;
    auto pass = [&] {
        try {
            elsewhere = detail::run_pass(model, batch, facts, buffers);
        } catch (...) {
            thrown = std::current_exception();
            detail::pass_on_end_of_thread();
        }
        ended = true;
    };
    const int failed = thread.start([](void* of) { (*static_cast<decltype(pass)*>(of))(); }, &pass);
    if (failed != 0) throw error(ErrorCode::refused, detail::no_thread_for("verify_reproducible", failed));
    thread.join();
    if (!ended)
        throw error(ErrorCode::aborted, concat({"verify_reproducible: the model threw ", detail::end_of_thread}));
    if (thrown) std::rethrow_exception(thrown);
    compare(elsewhere, first, "on another thread");
    if (verdict.reproducible && detail::bytes_of_spans(model.parameters()) != parameters)
        verdict = {false, "the model changes its parameters by itself"};
    detail::restore_spans(model.parameters(), parameters);
    if constexpr (requires { model.buffers(); }) detail::restore_spans(model.buffers(), buffers);
    detail::for_each_span(model.gradients(), [](auto one) {
        if (!one.empty()) std::memset(static_cast<void*>(one.data()), 0, one.size_bytes());
    });
    return verdict;
}

UNISONO_NAMESPACE_END
