#pragma once

/// \file
/// All ranks update together.

#include "unisono/update/update.hpp"

UNISONO_NAMESPACE_BEGIN

/// An update commits after all ranks have agreed on every bucket and every guard; otherwise it does
/// not happen. After each update the parameters are equal on all ranks. Source: synchronous SGD
/// with all-reduce (Das et al. 2016; Goyal et al. 2017).
struct Synchronous {
    static constexpr std::string_view name = "synchronous";
    static constexpr Family family = Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const Synchronous&, const Synchronous&) = default;

    template <class Training>
    UpdateRun<Training> start(Training& training) const {
        return UpdateRun<Training>(training);
    }
};
UNISONO_CERTIFY(update_policy<Synchronous>);

UNISONO_NAMESPACE_END
