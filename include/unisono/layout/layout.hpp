#pragma once

/// \file
/// The positions of parameters' elements: the flat order, and the buckets in which gradients
/// travel.
///
/// - The **flat order** is the model's own: parameter 0's elements, then parameter 1's, ... It does
///   not depend on buckets, world size or sharding, so checkpoints speak in it.
/// - A **bucket** holds whole parameters of one element type, the last parameter first, because
///   backward passes produce gradients in about that order. Positions in a bucket count its
///   elements in that order. Bucket 0 is complete first, and all ranks start buckets in
///   bucket order.
/// - A **slice** is a contiguous range of positions in a bucket; owners.hpp says which rank owns
///   it. `visit` converts it to ranges of parameters.
///
/// Laws: a layout is a pure function of the shapes and of `Buckets`, so it is equal on all ranks if
/// these are; each element of each parameter is in exactly one bucket, once. Parameters without
/// elements are allowed and are in no bucket.
///
/// Deliberately absent: buckets rebuilt by order of arrival (bits would depend on timing), and
/// buckets that split a parameter (its gradient becomes ready as a whole).

#include "unisono/core/element.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// One parameter: its number of elements and their type.
struct ParameterShape {
    std::size_t count = 0;
    ElementType type = ElementType::float32;
    std::size_t element_bytes = sizeof(float);
    friend bool operator==(const ParameterShape&, const ParameterShape&) = default;
};

/// The shape of a parameter, or of its gradient.
template <element T>
constexpr ParameterShape shape_of(std::span<T> parameter) {
    return {parameter.size(), element_type_of<std::remove_cv_t<T>>, sizeof(T)};
}

/// The cut of gradients into buckets: a bucket is closed as soon as it holds at least this many
/// bytes. The defaults are those of PyTorch's DistributedDataParallel: a small first bucket starts
/// the communication early.
struct Buckets {
    std::size_t first_bytes = std::size_t{1} << 20;
    std::size_t bytes = std::size_t{25} << 20;
    friend bool operator==(const Buckets&, const Buckets&) = default;
};

/// Elements [offset, offset + count) of a parameter.
struct Piece {
    std::size_t parameter = 0;
    std::size_t offset = 0;
    std::size_t count = 0;
    friend bool operator==(const Piece&, const Piece&) = default;
};

/// Whole parameters of one type, in the order of their positions.
struct Bucket {
    ElementType type = ElementType::float32;
    std::size_t element_bytes = sizeof(float);
    std::size_t count = 0;       ///< elements
    std::size_t first_piece = 0; ///< index of its first piece among those of all buckets
    std::size_t piece_count = 0;

    [[nodiscard]] std::size_t bytes() const { return count * element_bytes; }
    friend bool operator==(const Bucket&, const Bucket&) = default;
};

/// The flat order of a model's parameters, and the buckets in which its gradients travel.
class Layout {
public:
    static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

    /// The position of an element in the buckets.
    struct Place {
        std::size_t bucket = none;
        std::size_t position = 0;
        friend bool operator==(const Place&, const Place&) = default;
    };
    /// An element of a parameter.
    struct Element {
        std::size_t parameter = 0;
        std::size_t index = 0;
        friend bool operator==(const Element&, const Element&) = default;
    };

    Layout() = default;

    /// \throws error bad_input: the total size overflows, an element has no bytes, or `how` has a
    ///   zero
    explicit Layout(std::span<const ParameterShape> shapes, const Buckets& how = {});
    /// As the constructor, from a list.
    [[nodiscard]] static Layout of(detail::List<ParameterShape> shapes, const Buckets& how);

    [[nodiscard]] const detail::List<ParameterShape>& shapes() const { return shapes_; }
    [[nodiscard]] const detail::List<Bucket>& buckets() const { return buckets_; }
    /// The pieces of a bucket, in the order of their positions in it.
    [[nodiscard]] detail::Part<const Piece> pieces(const Bucket& bucket) const {
        return {pieces_.data() + bucket.first_piece, bucket.piece_count};
    }
    [[nodiscard]] std::size_t parameters() const { return shapes_.size(); }
    [[nodiscard]] std::size_t count() const { return starts_.empty() ? 0 : starts_.back(); } ///< elements of all types
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// Number of elements of one type; optimizer state and sharding are separate for each type.
    [[nodiscard]] std::size_t count_of(ElementType type) const;

    /// Flat index of a parameter's first element.
    [[nodiscard]] std::size_t start_of(std::size_t parameter) const;

    [[nodiscard]] std::size_t flat_index(const Element& element) const {
        check(element);
        return starts_[element.parameter] + element.index;
    }

    /// The element at a flat index; log2(parameters) comparisons.
    [[nodiscard]] Element element_at(std::size_t flat) const;

    /// The bucket in which a parameter travels; `none` for one without elements.
    [[nodiscard]] std::size_t bucket_of(std::size_t parameter) const;

    [[nodiscard]] Place place_of(const Element& element) const;

    /// Calls `visit(piece, position)` for each range of one parameter in positions [first, first +
    /// count) of a bucket, in the order of positions.
    template <class Visit>
    void visit(std::size_t bucket, std::size_t first, std::size_t count, Visit&& visit) const {
        if (bucket >= buckets_.size()) refuse_input({"bucket ", bucket, " of ", buckets_.size(), " does not exist"});
        const Bucket& which = buckets_[bucket];
        if (first > which.count || count > which.count - first) {
            refuse_input({"slice [", first, ", +", count, ") is outside of bucket ", bucket, ", which has ",
                          which.count, " elements"});
        }
        if (count == 0) return;
        const Piece* const begin = pieces_.data() + which.first_piece;
        const Piece* piece = detail::partition_point(begin, begin + which.piece_count,
                                                     [&](const Piece& candidate) {
                                                         return places_[candidate.parameter].position <= first;
                                                     }) -
                             1;
        for (const std::size_t end = first + count; first < end; ++piece) {
            const std::size_t skipped = first - places_[piece->parameter].position;
            const std::size_t taken = std::min(piece->count - skipped, end - first);
            visit(Piece{piece->parameter, piece->offset + skipped, taken}, first);
            first += taken;
        }
    }

    /// A few lines of text: totals, then one line per bucket.
    [[nodiscard]] std::string describe() const;

    friend bool operator==(const Layout& a, const Layout& b) {
        return a.shapes_ == b.shapes_ && a.buckets_ == b.buckets_; // and so are pieces, starts and places
    }

private:
    void check(const Element& element) const;

    void add_up();

    /// The open bucket for the parameters of one type.
    struct Open {
        ElementType type;
        std::size_t element_bytes;
        std::size_t limit;         ///< bytes at which its bucket is closed
        std::size_t bucket = none; ///< the bucket being filled; buckets are numbered in the order of their beginning
        std::size_t count = 0;     ///< elements in it
    };
    static Open& open_for(const ParameterShape& shape, const Buckets& how, detail::List<Open>& types);

    void fill(const Buckets& how);

    /// Numbers the buckets in the order in which they become complete if gradients arrive from the
    /// last parameter to the first.
    void number(const detail::List<std::size_t>& last);

    void place_pieces();

    detail::List<ParameterShape> shapes_;
    detail::List<std::size_t> starts_; ///< flat index of each parameter's first element, and the total
    std::size_t bytes_ = 0;
    detail::List<Bucket> buckets_;
    detail::List<Piece> pieces_; ///< of all buckets, in bucket order
    detail::List<Place> places_; ///< of each parameter's first element
};

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION Layout::Layout(std::span<const ParameterShape> shapes, const Buckets& how)
    : Layout(of(detail::List<ParameterShape>(shapes), how)) {}

UNISONO_DEFINITION Layout Layout::of(detail::List<ParameterShape> shapes, const Buckets& how) {
    if (how.first_bytes == 0) refuse_input("Buckets.first_bytes is 0; expected at least 1");
    if (how.bytes == 0) refuse_input("Buckets.bytes is 0; expected at least 1");
    Layout made;
    made.shapes_ = std::move(shapes);
    made.add_up();
    made.fill(how);
    return made;
}

UNISONO_DEFINITION std::size_t Layout::count_of(ElementType type) const {
    std::size_t total = 0;
    for (const ParameterShape& shape : shapes_) total += shape.type == type ? shape.count : 0;
    return total;
}

UNISONO_DEFINITION std::size_t Layout::start_of(std::size_t parameter) const {
    if (parameter >= starts_.size()) refuse_input({"parameter ", parameter, " of ", parameters(), " does not exist"});
    return starts_[parameter];
}

UNISONO_DEFINITION Layout::Element Layout::element_at(std::size_t flat) const {
    if (flat >= count()) {
        refuse_input({"flat index ", flat, " is outside of ", count(), " elements"});
    }
    const auto* const after =
        detail::partition_point(starts_.begin(), starts_.end(), [&](std::size_t start) { return start <= flat; });
    const auto parameter = static_cast<std::size_t>(after - starts_.begin()) - 1;
    return {parameter, flat - starts_[parameter]};
}

UNISONO_DEFINITION std::size_t Layout::bucket_of(std::size_t parameter) const {
    if (parameter >= places_.size()) refuse_input({"parameter ", parameter, " of ", parameters(), " does not exist"});
    return places_[parameter].bucket;
}

UNISONO_DEFINITION Layout::Place Layout::place_of(const Element& element) const {
    check(element);
    const Place& start = places_[element.parameter];
    return {start.bucket, start.position + element.index};
}

[[gnu::cold]] UNISONO_DEFINITION std::string Layout::describe() const {
    std::string text = concat({count_text(parameters()), parameters() == 1 ? " parameter, " : " parameters, ",
                               count_text(count()), " elements, ", bytes_text(bytes_), ", ",
                               count_text(buckets_.size()), buckets_.size() == 1 ? " bucket\n" : " buckets\n"});
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        const Bucket& bucket = buckets_[b];
        const std::size_t front = pieces(bucket).front().parameter;
        const std::size_t back = pieces(bucket).back().parameter;
        text += concat({"  bucket ", b, ": ", name_of(bucket.type), ", ", count_text(bucket.count), " elements, ",
                        bytes_text(bucket.bytes()), ", ",
                        (front == back ? concat({"parameter ", front})
                                       : concat({bucket.piece_count, " parameters from ", front, " down to ", back})),
                        "\n"});
    }
    return text;
}

UNISONO_DEFINITION void Layout::check(const Element& element) const {
    if (element.parameter >= shapes_.size() || element.index >= shapes_[element.parameter].count) {
        refuse_input({"element ", element.index, " of parameter ", element.parameter, " does not exist"});
    }
}

[[gnu::cold]] UNISONO_DEFINITION void Layout::add_up() {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max() / 2; // sums with padding still fit
    starts_.assign(1, 0);
    starts_.reserve(shapes_.size() + 1);
    for (std::size_t i = 0; i < shapes_.size(); ++i) {
        const ParameterShape& shape = shapes_[i];
        if (shape.element_bytes == 0) refuse_input({"parameter ", i, " has elements of 0 bytes"});
        if (shape.count > most / shape.element_bytes || shape.count * shape.element_bytes > most - bytes_) {
            refuse_input({"parameter ", i, " has ", shape.count, " elements of ", shape.element_bytes,
                          " bytes: the total size overflows"});
        }
        bytes_ += shape.count * shape.element_bytes;
        starts_.push_back(starts_.back() + shape.count);
    }
}

[[gnu::cold]] UNISONO_DEFINITION Layout::Open& Layout::open_for(const ParameterShape& shape, const Buckets& how,
                                                                detail::List<Open>& types) {
    for (Open& one : types) {
        if (one.type == shape.type && one.element_bytes == shape.element_bytes) return one;
    }
    types.push_back({shape.type, shape.element_bytes, how.first_bytes});
    return types.back();
}

[[gnu::cold]] UNISONO_DEFINITION void Layout::fill(const Buckets& how) {
    detail::List<Open> types;
    detail::List<std::size_t> last; // bucket of each parameter, in the order of beginning
    places_.resize(shapes_.size());
    for (std::size_t i = shapes_.size(); i-- > 0;) {
        if (shapes_[i].count == 0) continue;
        Open& open = open_for(shapes_[i], how, types);
        if (open.bucket == none) {
            open.bucket = last.size();
            open.count = 0;
            last.push_back(i);
        }
        places_[i] = {open.bucket, open.count};
        last[open.bucket] = i;
        open.count += shapes_[i].count;
        if (open.count * open.element_bytes < open.limit) continue;
        open.bucket = none;
        open.limit = how.bytes;
    }
    number(last);
    place_pieces();
}

[[gnu::cold]] UNISONO_DEFINITION void Layout::number(const detail::List<std::size_t>& last) {
    detail::List<std::size_t> numbers(last.size());
    for (std::size_t i = shapes_.size(); i-- > 0;) {
        const Place& place = places_[i];
        if (place.bucket == none || last[place.bucket] != i) continue;
        numbers[place.bucket] = buckets_.size();
        buckets_.push_back({shapes_[i].type, shapes_[i].element_bytes, place.position + shapes_[i].count});
    }
    for (Place& place : places_) {
        if (place.bucket == none) continue;
        place.bucket = numbers[place.bucket];
        ++buckets_[place.bucket].piece_count;
    }
}

[[gnu::cold]] UNISONO_DEFINITION void Layout::place_pieces() {
    std::size_t total = 0;
    for (Bucket& bucket : buckets_) {
        bucket.first_piece = total;
        total += std::exchange(bucket.piece_count, 0); // counted again below
    }
    pieces_.resize(total);
    for (std::size_t i = shapes_.size(); i-- > 0;) {
        if (places_[i].bucket == none) continue;
        Bucket& bucket = buckets_[places_[i].bucket];
        pieces_[bucket.first_piece + bucket.piece_count++] = {i, 0, shapes_[i].count};
    }
}

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
