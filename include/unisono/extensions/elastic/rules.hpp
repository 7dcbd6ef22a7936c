#pragma once

/// \file
/// The trainings that an elastic world can run: a table of rules, as in trainer/rules.hpp;
/// a warning if some ranks host more replicas than others, and policies for fewer ranks.

#include "unisono/core/rule.hpp"
#include "unisono/core/text.hpp"
#include "unisono/trainer/policies.hpp"
#include "unisono/trainer/rules.hpp"

#include <cstdint>
#include <cstdio>
#include <string>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// A warning; empty if all of `ranks` ranks host the same number of `replicas` replicas.
inline std::string uneven_hosting_text(std::int64_t replicas, std::int64_t ranks, std::uint64_t epoch) {
    if (ranks < 1 || replicas % ranks == 0) return {};
    const std::int64_t fewest = replicas / ranks, with_more = replicas % ranks, with_fewest = ranks - with_more;
    std::int64_t below = ranks, above = ranks;
    while (replicas % below != 0) --below;
    while (replicas % above != 0) ++above;
    return concat({"unisono: warning: in membership ", epoch, " of the elastic world ", with_more,
                   (with_more == 1 ? " rank hosts " : " ranks host "), fewest + 1, " of the ", replicas,
                   " replicas, and ", with_fewest, (with_fewest == 1 ? " rank hosts " : " ranks host "), fewest,
                   "; an update takes as long as the ranks with the most replicas need. With ", below, " or ", above,
                   " ranks all ranks host the same number\n"});
}
/// Prints the warning on standard error. Without a number of replicas there is no warning.
template <class Hosting>
void warn_of_uneven_hosting(const Hosting& hosting, std::int64_t ranks, std::uint64_t epoch) {
    if constexpr (requires { hosting.count; })
        static_cast<void>(std::fputs(uneven_hosting_text(hosting.count, ranks, epoch).c_str(), stderr));
}

/// Returns the policy for a world of `ranks` ranks, if it names ranks that do not exist there. The
/// first membership gets the policy as it was given, so that an error in it is refused.
template <class Policy>
Policy within(const Policy& policy, std::uint64_t epoch, int ranks) {
    if (epoch == 0) return policy;
    if constexpr (requires { policy.within(ranks); }) return policy.within(ranks);
    else return policy;
}

namespace elastic_rule {

template <class P>
inline constexpr bool copies_slices = requires { requires P::Snapshots::copies; };

UNISONO_RULE(
    replicas_given, "the world is elastic and the number of replicas depends on that of ranks",
    "an elastic world, with replicas that do not declare `logical`", "Replicas{.count = L}",
    "an update's batch must stay the same when ranks are lost", requires { requires P::Hosting::logical; });
UNISONO_RULE(state_everywhere, "the world is elastic and a rank would have state that no other has",
             "an elastic world, with a policy that declares `gives_owners` or `may_give_owners`, and no Snapshots",
             "Snapshots{.every = 16}, which keeps each slice's state on a second rank; or every rank owns everything, "
             "for instance Replicated with NativeReducer",
             "the optimizer's state of a lost rank's slices would be lost",
             copies_slices<P> || !(may_give_owners<typename P::Sharding> || gives_owners<typename P::Reducer>));
UNISONO_RULE(updates_of_all, "the world is elastic and ranks update independently",
             "an elastic world, with an update that does not declare `agrees`",
             "one that does, for instance Synchronous",
             "a lost rank's updates since the last synchronisation would be lost", agrees<typename P::Update>);
UNISONO_RULE(nothing_left_over, "the world is elastic and a compression keeps what it did not send",
             "an elastic world, with a compression that declares `compresses`", "no compression",
             "what a rank has not sent yet would be lost with it, and belongs to no replica",
             !compresses<typename P::Compression>);
UNISONO_RULE(model_everywhere, "the world is elastic and ranks hold parts of the model",
             "an elastic world, with a model of which each rank has a part, or a model in units on a device",
             "a model that is the same on all ranks, or one in units on the host, with Snapshots",
             "a lost rank's part would be lost",
             !(model_part<typename P::Model> || unit_model_on_device<typename P::Model>));
UNISONO_RULE(
    buffers_of_nobody, "the world is elastic and the model has buffers",
    "an elastic world, with a model that has buffers()", "a model without",
    "running statistics are those of the replicas that rank 0 hosts, which change with the ranks",
    !requires(typename P::Model& model) { model.buffers(); });
UNISONO_RULE(any_number_hosted, "the world is elastic and the sampler fixes how many replicas a rank hosts",
             "an elastic world, with a sampler that declares `fixes_hosting`",
             "one that does not, for instance DistributedSampler", "the remaining ranks host a lost rank's replicas",
             !fixes_hosting<typename P::Sampler>);

} // namespace elastic_rule

/// The arguments of the rules: those for other trainings, and the snapshots.
template <class Training, class SnapshotsT>
struct ElasticTraining : Training {
    using Snapshots = SnapshotsT;
};

using ElasticRules =
    RuleTable<elastic_rule::replicas_given, elastic_rule::state_everywhere, elastic_rule::updates_of_all,
              elastic_rule::nothing_left_over, elastic_rule::model_everywhere, elastic_rule::buffers_of_nobody,
              elastic_rule::any_number_hosted>;

} // namespace detail
UNISONO_NAMESPACE_END
