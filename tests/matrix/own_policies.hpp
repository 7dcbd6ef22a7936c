// Policies of the tests' own, known to the library by what they declare alone; and how many combinations were tried.
#pragma once

#include "unisono/layout/bucket_facts.hpp"
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

/// Equal slices for all ranks, as ZeRO's first stage has them.
struct EqualShards {
    static constexpr std::string_view name = "equal shards";
    static constexpr un::Family family = un::Family::sharding;
    static constexpr bool gives_owners = true;
    friend bool operator==(const EqualShards&, const EqualShards&) = default;
    [[nodiscard]] un::Owners owners(const un::BucketFacts& facts) const {
        return un::Owners::equal(facts.count, facts.world);
    }
};

/// Agrees before anything is summed, and sums only if there will be an update.
struct AgreeFirst {
    static constexpr std::string_view name = "agree first";
    static constexpr un::Family family = un::Family::update;
    static constexpr bool agrees = true;
    static constexpr bool needs_owner = false;
    friend bool operator==(const AgreeFirst&, const AgreeFirst&) = default;
    template <un::update_exchange Exchange>
    un::Verdict run(Exchange& exchange) const {
        exchange.start();
        exchange.finish();
        un::Verdict verdict = exchange.agree();
        if (verdict == un::Verdict::commit) {
            verdict = exchange.apply();
            exchange.publish();
        } else {
            exchange.discard();
        }
        return verdict;
    }
};

} // namespace unisono_matrix
