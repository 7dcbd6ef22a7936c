// Policies of the tests, which the library knows only by their declarations, and the number of
// combinations that were tried.
#pragma once

#include "unisono/layout/owners.hpp"
#include "unisono/update/update.hpp"

#include <map>
#include <string>
#include <string_view>

namespace unisono_matrix {

namespace un = unisono;

struct Counts {
    int ran = 0;                             ///< combinations, each on several world sizes
    std::map<std::string, int> refused = {}; ///< by reason
};
inline Counts& counts() {
    static Counts all;
    return all;
}

/// Equal slices for all ranks, as in ZeRO's first stage.
struct EqualShards {
    static constexpr std::string_view name = "equal shards";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const EqualShards&, const EqualShards&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const {
        return un::Owners::equal(facts.count, facts.world);
    }
};

/// Synchronous, with a run of its own.
struct OwnUpdate {
    static constexpr std::string_view name = "own update";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = true;
    friend bool operator==(const OwnUpdate&, const OwnUpdate&) = default;

    template <class Training>
    class Run : public un::UpdateRun<Training> {
    public:
        using un::UpdateRun<Training>::UpdateRun;
        un::Verdict apply() { return un::UpdateRun<Training>::apply(); }
        [[nodiscard]] std::size_t bytes() const { return sizeof *this; }
    };
    template <class Training>
    Run<Training> start(Training& training) const {
        return Run<Training>(training);
    }
};

} // namespace unisono_matrix
