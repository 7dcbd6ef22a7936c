#pragma once

/// \file
/// The position of a schedule's blocks in memory: the only place that converts block numbers to
/// elements.

#include "unisono/core/standard.hpp"
#include "unisono/schedule/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Elements [begin, begin + count).
struct Extent {
    std::size_t begin = 0;
    std::size_t count = 0;
};

/// The parts of [0, count), cut at multiples of `unit`. The first parts are larger by at most one
/// unit.
class EvenSplit {
public:
    EvenSplit() = default;
    EvenSplit(std::size_t count, std::size_t parts, std::size_t unit) : count_(count), unit_(unit) {
        const std::size_t units = count / unit + (count % unit != 0 ? 1 : 0);
        each_ = parts == 0 ? 0 : units / parts;
        more_ = parts == 0 ? 0 : units % parts;
    }
    [[nodiscard]] std::size_t begin(std::size_t index) const {
        return std::min(count_, (index * each_ + std::min(index, more_)) * unit_);
    }
    [[nodiscard]] Extent range(std::size_t first, std::size_t parts) const {
        const std::size_t from = begin(first);
        return {from, begin(first + parts) - from};
    }
    [[nodiscard]] std::size_t largest() const { return std::min(count_, (each_ + (more_ != 0 ? 1 : 0)) * unit_); }

private:
    std::size_t count_ = 0;
    std::size_t unit_ = 1;
    std::size_t each_ = 0;
    std::size_t more_ = 0;
};

/// The unit of cuts, in elements: cache lines if blocks are large enough for that to pay.
inline std::size_t split_unit(std::size_t count, std::size_t parts, std::size_t element_bytes) {
    return element_bytes < 64 && count * element_bytes >= parts * 1024 ? 64 / element_bytes : 1;
}

/// The cut of one collective's data into blocks.
///
/// A *vector* (all_reduce, broadcast, reduce) is cut into lanes first and each lane into blocks.
/// For *blocked* data (one block per rank, equal or given counts) each block is cut into lanes.
class Partition {
public:
    enum class Kind : std::uint8_t { vector, uniform, table };
    /// The data of a collective: a vector of `count` elements, or blocks of `count` each.
    struct Wanted {
        Kind kind = Kind::vector;
        std::size_t count = 0;
        friend bool operator==(const Wanted&, const Wanted&) = default;
    };
    static Wanted vector(std::size_t count) { return {Kind::vector, count}; }
    static Wanted uniform(std::size_t block_count) { return {Kind::uniform, block_count}; }

    Partition() = default;
    explicit Partition(const Wanted& wanted) : kind_(wanted.kind), count_(wanted.count) {}
    /// `offsets` has one more entry than there are blocks and outlives the operation.
    explicit Partition(std::span<const std::size_t> offsets) : kind_(Kind::table), offsets_(offsets) {}

    void prepare(std::uint32_t blocks, std::uint32_t lanes, std::size_t element_bytes) {
        blocks_ = blocks;
        lanes_ = lanes;
        element_bytes_ = element_bytes;
        if (kind_ == Kind::vector) lane_split_ = EvenSplit(count_, lanes, split_unit(count_, lanes, element_bytes));
    }

    /// The cut of one lane; empty for blocked data.
    [[nodiscard]] EvenSplit lane(std::uint32_t index) const {
        if (kind_ != Kind::vector) return {};
        const std::size_t count = lane_split_.range(index, 1).count;
        return EvenSplit(count, blocks_, split_unit(count, blocks_, element_bytes_));
    }

    /// Blocks [first, first + count) of a lane, in a buffer that holds all blocks. More than one
    /// block only with one lane, or in a vector.
    [[nodiscard]] Extent extent(std::uint32_t lane_index, const EvenSplit& lane, std::uint32_t first,
                                std::uint32_t count) const {
        switch (kind_) {
        case Kind::vector: {
            Extent found = lane.range(first, count);
            found.begin += lane_split_.begin(lane_index);
            return found;
        }
        case Kind::uniform: return piece({first * count_, count * count_}, lane_index);
        case Kind::table: return piece({offsets_[first], offsets_[first + count] - offsets_[first]}, lane_index);
        }
        return {};
    }

    /// A lane's elements, if lanes are ranges of a vector.
    [[nodiscard]] Extent vector_lane(std::uint32_t index) const { return lane_split_.range(index, 1); }
    [[nodiscard]] bool is_vector() const { return kind_ == Kind::vector; }
    /// The most elements of a lane: of the vector, or of one block.
    [[nodiscard]] std::size_t largest_piece() const {
        if (kind_ == Kind::vector) return lane_split_.largest();
        const std::size_t whole = largest_block({});
        return lanes_ == 1 ? whole : EvenSplit(whole, lanes_, split_unit(whole, lanes_, element_bytes_)).largest();
    }

    /// The beginning of a block, all lanes together. A buffer that holds only this block begins
    /// there.
    [[nodiscard]] std::size_t block_begin(std::uint32_t block) const {
        return kind_ == Kind::uniform ? block * count_ : kind_ == Kind::table ? offsets_[block] : 0;
    }

    /// The size of the largest block of a lane, for scratch.
    [[nodiscard]] std::size_t largest_block(const EvenSplit& lane) const {
        switch (kind_) {
        case Kind::vector: return lane.largest();
        case Kind::uniform: return count_;
        case Kind::table: {
            std::size_t largest = 0;
            for (std::size_t i = 0; i + 1 < offsets_.size(); ++i) {
                largest = std::max(largest, offsets_[i + 1] - offsets_[i]);
            }
            return largest;
        }
        }
        return 0;
    }

private:
    [[nodiscard]] Extent piece(Extent whole, std::uint32_t lane_index) const {
        if (lanes_ == 1) return whole;
        const EvenSplit split(whole.count, lanes_, split_unit(whole.count, lanes_, element_bytes_));
        Extent found = split.range(lane_index, 1);
        found.begin += whole.begin;
        return found;
    }

    Kind kind_ = Kind::vector;
    std::size_t count_ = 0; ///< of the vector, or of each uniform block
    std::span<const std::size_t> offsets_;
    std::uint32_t blocks_ = 0;
    std::uint32_t lanes_ = 1;
    std::size_t element_bytes_ = 1;
    EvenSplit lane_split_;
};

} // namespace detail
UNISONO_NAMESPACE_END
