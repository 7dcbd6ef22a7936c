#pragma once

/// \file
/// An update whose verbs are recorded.

#include "unisono/observe/trace.hpp"
#include "unisono/update/update.hpp"

#include <cstdint>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// The verbs of an update, each with its span in the trace.
template <class Exchange, class Tracer>
struct TracedVerbs {
    Exchange& exchange;
    Tracer& tracer;
    std::uint64_t update;

    void start() {
        const auto span = of(Activity::exchange);
        exchange.start();
    }
    Verdict agree() {
        const auto span = of(Activity::exchange);
        return exchange.agree();
    }
    void finish() {
        const auto span = of(Activity::exchange);
        exchange.finish();
    }
    Verdict apply() {
        const auto span = of(Activity::apply);
        return exchange.apply();
    }
    void publish() {
        const auto span = of(Activity::exchange);
        exchange.publish();
    }
    void discard() { exchange.discard(); }

private:
    [[nodiscard]] auto of(Activity what) { return tracer.span(what, update); }
};
template <class Exchange, class Tracer>
TracedVerbs(Exchange&, Tracer&, std::uint64_t) -> TracedVerbs<Exchange, Tracer>;

} // namespace detail
UNISONO_NAMESPACE_END
