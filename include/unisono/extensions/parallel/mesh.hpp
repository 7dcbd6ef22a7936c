#pragma once

/// \file
/// A mesh: the ranks of a world as the cells of a box with named axes, and a group along each axis.
///
///     un::Mesh mesh{world, {{"data", 2}, {"pipeline", 2}}};         // 4 ranks
///     un::PipelineModel model{mesh.axis("pipeline"), layers, loss}; // the layers of this rank
///     un::Trainer trainer{mesh.axis("data"), model, un::Sgd{}};     // and their replicas
///
/// The last axis varies fastest: its ranks have consecutive numbers, which launchers usually start
/// on one host. So name the axis with the most traffic last, or give the traffic; then the mesh
/// puts that axis last.

#include "unisono/core/text.hpp"
#include "unisono/extensions/parallel/agreement.hpp"
#include "unisono/group/group.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// One axis of a mesh.
struct MeshAxis {
    std::string name;
    int size = 1;       ///< ranks along it; 0, for at most one axis: as many as remain
    double traffic = 0; ///< bytes per update and rank, or any measure of it; axes with more traffic vary faster
    friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

namespace detail {

/// Axes with more traffic vary faster; the others keep their order.
inline void sort_by_traffic(std::vector<MeshAxis>& axes) {
    std::stable_sort(axes.begin(), axes.end(),
                     [](const MeshAxis& a, const MeshAxis& b) { return a.traffic < b.traffic; });
}
inline std::string axes_text(const std::vector<MeshAxis>& axes) {
    std::string text;
    for (const MeshAxis& one : axes) text += concat({text.empty() ? "" : " x ", one.name, " ", one.size});
    return text;
}

} // namespace detail

/// The axes of a mesh without a world, and the position of each rank. The axes are in the order of
/// their strides; the last has stride 1.
class MeshShape {
public:
    /// \throws error bad_input: no axis, a name twice or empty, a size below 0, more than one 0, or
    /// sizes that do not make up `ranks`
    MeshShape(int ranks, std::vector<MeshAxis> axes) : axes_(std::move(axes)), ranks_(ranks) {
        if (axes_.empty()) refuse_input("Mesh: found no axis, expected at least one");
        detail::sort_by_traffic(axes_);
        MeshAxis* rest = nullptr;
        std::int64_t places = 1;
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            MeshAxis& one = axes_[i];
            if (one.name.empty()) refuse_input("Mesh: found an axis without a name");
            for (std::size_t j = 0; j < i; ++j)
                if (axes_[j].name == one.name) refuse_input({"Mesh: found two axes \"", one.name, "\""});
            if (!(one.traffic >= 0))
                refuse_input({"Mesh: axis \"", one.name, "\" has a traffic of ", one.traffic, ", expected at least 0"});
            if (one.size < 0)
                refuse_input({"Mesh: axis \"", one.name, "\" has ", one.size, " ranks, expected at least 0"});
            if (one.size == 0) {
                if (rest != nullptr)
                    refuse_input({"Mesh: axes \"", rest->name, "\" and \"", one.name,
                                  "\" have size 0; expected at most one, which takes the remaining ranks"});
                rest = &one;
            } else {
                places *= one.size;
                if (places > ranks) break; // stops before an overflow
            }
        }
        if (rest != nullptr && places <= ranks && ranks % places == 0) {
            rest->size = static_cast<int>(ranks / places);
            places = ranks;
        }
        if (places != ranks)
            refuse_input(
                {"Mesh: the axes ", detail::axes_text(axes_), " do not make up the world of ", ranks, " ranks"});
    }

    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] const std::vector<MeshAxis>& axes() const { return axes_; }
    /// The index in `axes()` of the axis with this name. \throws error bad_input: there is none;
    /// the message lists the axes
    [[nodiscard]] std::size_t index(std::string_view name) const {
        std::string known;
        for (std::size_t i = 0; i < axes_.size(); ++i) {
            if (axes_[i].name == name) return i;
            known += concat({known.empty() ? "" : ", ", axes_[i].name});
        }
        refuse_input({"Mesh: found no axis \"", name, "\"; there are: ", known});
    }
    [[nodiscard]] int size(std::string_view name) const { return axes_[index(name)].size; }
    /// The difference between the numbers of two neighbours along an axis.
    [[nodiscard]] int stride(std::string_view name) const {
        int stride = 1;
        for (std::size_t i = axes_.size(); i-- > index(name) + 1;) stride *= axes_[i].size;
        return stride;
    }
    /// The coordinate of a rank of the world along the axis.
    [[nodiscard]] int coordinate(int rank, std::string_view name) const { return rank / stride(name) % size(name); }
    /// The position along several axes, where the last of `axes()` varies fastest: the rank's
    /// number in `Mesh::group`.
    [[nodiscard]] int place(int rank, const std::vector<std::string_view>& names) const {
        int place = 0;
        for (const MeshAxis& one : axes_)
            if (std::find(names.begin(), names.end(), one.name) != names.end())
                place = place * one.size + coordinate(rank, one.name);
        return place;
    }
    /// True if the ranks of every group along this axis share a host. Each host has
    /// `ranks_per_host` consecutive ranks.
    [[nodiscard]] bool within_hosts(std::string_view name, int ranks_per_host) const {
        if (ranks_per_host < 1) refuse_input({"Mesh: found ", ranks_per_host, " ranks per host, expected 1 or more"});
        const int step = stride(name), span = step * (size(name) - 1);
        for (int rank = 0; rank < ranks_; ++rank)
            if (coordinate(rank, name) == 0 && rank / ranks_per_host != (rank + span) / ranks_per_host) return false;
        return true;
    }
    /// "data 2 (ranks 4 apart) x pipeline 4 (neighbours)". With the number of ranks per host, also
    /// says which axes stay within a host.
    [[nodiscard]] std::string describe(int ranks_per_host = 0) const {
        std::string text;
        for (const MeshAxis& one : axes_) {
            const int step = stride(one.name);
            text += concat({text.empty() ? "mesh: " : " x ", one.name, " ", one.size, " ("});
            text += step == 1 ? std::string("neighbours") : concat({"ranks ", step, " apart"});
            if (ranks_per_host > 0)
                text += within_hosts(one.name, ranks_per_host) ? ", within a host" : ", across hosts";
            text += ")";
        }
        return text;
    }
    friend bool operator==(const MeshShape&, const MeshShape&) = default;

private:
    std::vector<MeshAxis> axes_;
    int ranks_;
};

/// The mesh of a world's ranks, and this rank's group along each axis. The groups are splits of the
/// world and have its timeout. The mesh must outlive all users of the groups. Construction is
/// collective. Cost: one all_gather of 8 bytes per rank, and a split per axis.
/// Errors: mismatch, on all ranks, if a rank has other axes, whether they suit the world or not;
/// bad_input, on all ranks, as `MeshShape`.
template <class World>
class Mesh {
public:
    Mesh(World& world, std::vector<MeshAxis> axes) : world_(&world), shape_(agreed(world, std::move(axes))) {
        groups_.reserve(shape_.axes().size());
        for (const MeshAxis& one : shape_.axes()) groups_.push_back(split_along({one.name}));
    }
    Mesh(const Mesh&) = delete;
    Mesh& operator=(const Mesh&) = delete;

    [[nodiscard]] const MeshShape& shape() const { return shape_; }
    [[nodiscard]] World& world() { return *world_; }
    /// The group of the ranks that differ from this one only along this axis, in its order.
    [[nodiscard]] World& axis(std::string_view name) { return groups_[shape_.index(name)]; }
    [[nodiscard]] int size(std::string_view name) const { return shape_.size(name); }
    [[nodiscard]] int coordinate(std::string_view name) const { return shape_.coordinate(world_->rank(), name); }
    /// Makes a group of the ranks that differ from this one only along these axes. Collective.
    /// \throws error mismatch, on all ranks: a rank names other axes; bad_input: there is no such
    /// axis
    [[nodiscard]] World group(const std::vector<std::string_view>& names) {
        detail::Fingerprint mine;
        std::string text;
        for (const std::string_view name : names) {
            mine.add(name);
            text += concat({text.empty() ? "" : ", ", name});
        }
        detail::agree_on_fingerprint(*world_, "Mesh::group", mine, text, "the same axes in the same order");
        return split_along(names);
    }
    [[nodiscard]] std::string describe(int ranks_per_host = 0) const { return shape_.describe(ranks_per_host); }

private:
    World split_along(const std::vector<std::string_view>& names) {
        for (const std::string_view name : names) static_cast<void>(shape_.index(name));
        std::vector<std::string_view> others;
        for (const MeshAxis& one : shape_.axes())
            if (std::find(names.begin(), names.end(), one.name) == names.end()) others.push_back(one.name);
        return world_->split(shape_.place(world_->rank(), others), shape_.place(world_->rank(), names));
    }
    /// Compares the axes before checking them. An error on one rank is a mismatch on all. An error
    /// on all ranks is refused by each, without communication. With different axes, ranks would
    /// wait in groups that do not match.
    static MeshShape agreed(World& world, std::vector<MeshAxis> axes) {
        detail::sort_by_traffic(axes);
        detail::Fingerprint mine;
        for (const MeshAxis& one : axes)
            mine.add(one.name).add(static_cast<std::uint64_t>(one.size)).add(std::uint64_t{one.traffic >= 0});
        detail::agree_on_fingerprint(world, "Mesh", mine, detail::axes_text(axes), "the same axes in the same order");
        return MeshShape(world.size(), std::move(axes));
    }

    World* world_;
    MeshShape shape_;
    std::vector<World> groups_;
};

UNISONO_NAMESPACE_END
