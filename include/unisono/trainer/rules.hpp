#pragma once

/// \file
/// All compatibility rules of a training: among the policies (policy_rules.hpp), with the group and
/// the model (model_rules.hpp), and with a model on a device (device_rules.hpp).

#include "unisono/trainer/device_rules.hpp"
#include "unisono/trainer/model_rules.hpp"
#include "unisono/trainer/policy_set.hpp"

#include <string_view>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// True if a Trainer can be made of these types. Otherwise a static assertion names the first
/// broken rule.
template <class World, class Model, class Policies>
inline constexpr bool goes_together = [] {
    if constexpr (Policies::good) {
        using Training = ChosenTraining<World, Model, typename Policies::Chosen>;
        if constexpr (!ModelRules::asserted<Training>) return false;
        else if constexpr (trained_on_device<Model>) return DeviceRules::asserted<Training>;
        else return true;
    } else {
        return false;
    }
}();

} // namespace detail

/// The reason why no Trainer can be made of this group, model and policies, in one clause; empty if
/// one can.
///
///     if constexpr (un::refusal<World, Model, un::TopK, un::Reproducible>.empty()) ...
///
/// Each policy must be a policy of its family: otherwise the program does not compile.
template <class World, class Model, class... Policies>
inline constexpr std::string_view refusal = [] {
    using Training = detail::ChosenTraining<World, Model, detail::ChosenPolicies<Policies...>>;
    if constexpr (!detail::PolicyRules::good<Training>) return detail::PolicyRules::refusal<Training>;
    else if constexpr (!detail::ModelRules::good<Training>) return detail::ModelRules::refusal<Training>;
    else if constexpr (trained_on_device<Model>) return detail::DeviceRules::refusal<Training>;
    else return std::string_view();
}();

UNISONO_NAMESPACE_END
