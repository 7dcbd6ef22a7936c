#pragma once

#include "unisono/schedule/hierarchical.hpp"

namespace unisono_test {

/// The hierarchical family for hosts of `Ranks` ranks.
template <int Ranks, bool TreeAcross = false>
struct OnHosts : unisono::HierarchicalSchedule {
    OnHosts() : HierarchicalSchedule{.ranks_per_host = Ranks, .tree_across = TreeAcross} {}
};

} // namespace unisono_test
