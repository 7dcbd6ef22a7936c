#pragma once

/// \file
/// The trainings that checkpoints can hold: a table of rules, as in trainer/policy_rules.hpp.

#include "unisono/core/rule.hpp"
#include "unisono/extensions/checkpoint/state.hpp"
#include "unisono/trainer/policies.hpp"

#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {
namespace checkpoint_rule {

UNISONO_RULE_OF("Checkpoints", one_position, "a checkpoint has one position, and the update has servers",
                "a trainer whose update has servers", "one that has none",
                "workers and servers are at different updates, which a checkpoint of one position cannot hold",
                !has_servers<typename P::Update>);
UNISONO_RULE_OF("Checkpoints", errors_saved, "a checkpoint has no rounding errors, and each rank keeps its own",
                "a trainer whose update does not declare `agrees`, with a compression that declares `compresses`",
                "no compression",
                "each rank keeps its rounding errors from one synchronisation to the next, and a checkpoint does not "
                "save them",
                agrees<typename P::Update> || !compresses<typename P::Compression>);
UNISONO_RULE_OF("Checkpoints", buffers_of_all, "a checkpoint is of a whole model, and a part of it has buffers",
                "a model of which each rank has a part, with buffers()", "a model without buffers()",
                "a checkpoint could not say whose they are",
                !(part_of_whole<typename P::Model> && requires(typename P::Model& model) { model.buffers(); }));

} // namespace checkpoint_rule

/// The arguments of the rules: a trainer's policies and model.
template <class Trainer>
struct SavedTraining : std::remove_cvref_t<decltype(std::declval<Trainer&>().policies())>::Chosen {
    using Model = std::remove_cvref_t<decltype(std::declval<Trainer&>().trained())>;
};

using CheckpointRules =
    RuleTable<checkpoint_rule::one_position, checkpoint_rule::errors_saved, checkpoint_rule::buffers_of_all>;

} // namespace detail
UNISONO_NAMESPACE_END
