#pragma once

// The collectives, each rank's input and output, and the expected results.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace bench {

enum class Collective { all_reduce, reduce_scatter, all_gather, broadcast, barrier, send, copy };

inline constexpr std::pair<Collective, const char*> collectives[] = {{Collective::all_reduce, "all_reduce"},
                                                                     {Collective::reduce_scatter, "reduce_scatter"},
                                                                     {Collective::all_gather, "all_gather"},
                                                                     {Collective::broadcast, "broadcast"},
                                                                     {Collective::barrier, "barrier"},
                                                                     {Collective::send, "send"},
                                                                     {Collective::copy, "copy"}};

/// One collective on one size. `in` is what this rank gives. For all_reduce and broadcast it is
/// also the result, as is usual for gradients and parameters. For send, the root's `in` becomes the
/// next rank's `out`, so calls with rotating roots are a message that goes around. A contender that
/// can only put a result elsewhere says so in `out`.
struct Work {
    Collective what = Collective::barrier;
    std::size_t count = 0; ///< elements of the whole
    std::size_t block = 0; ///< elements of one rank's part
    std::span<float> in{};
    std::span<float> out{};
};

/// The numbers of elements of `in` and `out`, and where the rank's input begins within the whole.
struct Shape {
    std::size_t in = 0;
    std::size_t out = 0;
    std::size_t in_begin = 0;
    std::size_t out_begin = 0;
};
inline Shape shape_of(const Work& work, int rank) {
    const std::size_t mine = static_cast<std::size_t>(rank) * work.block;
    switch (work.what) {
    case Collective::reduce_scatter: return {work.count, work.block, 0, mine};
    case Collective::all_gather: return {work.block, work.count, mine, 0};
    case Collective::send:
    case Collective::copy: return {work.count, work.count, 0, 0};
    default: return {work.count, 0, 0, 0};
    }
}

/// One period of the values that `rewrite` writes, times `ranks` plus `offset`.
class Pattern {
public:
    static constexpr std::size_t period = 1021;
    Pattern(float factor, float offset) : values_(period) {
        for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = static_cast<float>(i * 8u) * factor + offset;
    }
    /// The first wrong element of `data`, which is at `begin` of the whole; data.size() if there is
    /// none.
    [[nodiscard]] std::size_t first_wrong(std::span<const float> data, std::size_t begin,
                                          std::uint32_t repetition) const {
        std::size_t at = (begin + repetition) % period;
        for (std::size_t i = 0; i < data.size();) {
            const std::size_t length = std::min(period - at, data.size() - i);
            if (std::memcmp(data.data() + i, values_.data() + at, length * sizeof(float)) != 0) {
                for (std::size_t last = i + length - 1; i < last && data[i] == values_[at]; ++at) ++i;
                return i;
            }
            i += length;
            at = 0;
        }
        return data.size();
    }
    [[nodiscard]] float at(std::size_t place) const { return values_[place % period]; }

private:
    std::vector<float> values_;
};

} // namespace bench
