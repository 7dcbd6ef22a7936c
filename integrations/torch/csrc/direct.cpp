#include "direct.hpp"

#include <c10/util/StringUtil.h>

#include <cstddef>

namespace unisono_torch::direct {

std::string why_not(const std::vector<DirectCard>& cards) {
    for (std::size_t rank = 0; rank < cards.size(); ++rank) {
        const DirectCard& card = cards[rank];
        if (card.wanted == 0) return c10::str("rank ", rank, " does not want NCCL");
        if (card.version == 0) return c10::str("rank ", rank, " has no NCCL");
        if (card.version != cards[0].version)
            return c10::str("rank ", rank, " has NCCL ", card.version, ", rank 0 ", cards[0].version);
        for (std::size_t other = 0; other < rank; ++other)
            if (cards[other].host == card.host && cards[other].device == card.device)
                return c10::str("ranks ", other, " and ", rank, " share a device");
    }
    return {};
}

} // namespace unisono_torch::direct
