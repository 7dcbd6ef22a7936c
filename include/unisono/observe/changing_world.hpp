#pragma once

/// \file
/// Metrics of an elastic world (elastic/world.hpp), whose first rank may be lost: each other rank
/// keeps the numbers of the last update until it is certain that they are in the file, and goes on
/// writing if it becomes the first.
///
/// An update is committed only after the first rank has told its file of the one before, since all
/// ranks make updates together. So the numbers of one update at most may be missing when the first
/// rank is lost, or be in the file already though the update is repeated. The end of the file says
/// which. After a change ranks may also go back to a snapshot: what they make again is in the file,
/// up to the last update there.

#include "unisono/core/config.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// A number with a name.
struct Scalar {
    std::string_view name = {};
    double value = 0;
};

namespace detail {

/// The changes of a world since some time.
struct ChangeSums {
    std::size_t count = 0;
    double lost = 0, added = 0;                                               ///< ranks
    double recovery = 0, ending = 0, agreeing = 0, meeting = 0, starting = 0; ///< seconds
};

/// A look at an elastic world whose type does not matter.
class ChangingWorld {
public:
    template <class World>
    explicit ChangingWorld(const World& world)
        : world_(&world), size_([](const void* one) { return static_cast<const World*>(one)->size(); }),
          rank_([](const void* one) { return static_cast<const World*>(one)->rank(); }),
          epoch_([](const void* one) { return static_cast<std::uint64_t>(static_cast<const World*>(one)->epoch()); }),
          changes_([](const void* one) { return static_cast<const World*>(one)->changes().size(); }),
          sums_([](const void* one, std::size_t from) { return sums_of(*static_cast<const World*>(one), from); }) {}
    /// Of the current world; -1 where this rank is in none.
    [[nodiscard]] int rank() const { return rank_(world_); }
    [[nodiscard]] int size() const { return size_(world_); }
    [[nodiscard]] std::uint64_t epoch() const { return epoch_(world_); }
    [[nodiscard]] std::size_t changes() const { return changes_(world_); }
    /// Of all changes but the first `from`.
    [[nodiscard]] ChangeSums sums(std::size_t from) const { return sums_(world_, from); }

private:
    template <class World>
    static ChangeSums sums_of(const World& world, std::size_t from) {
        const auto seconds = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) * 1e-9; };
        const auto& all = world.changes();
        ChangeSums sums;
        for (std::size_t i = from; i < all.size(); ++i) {
            ++sums.count;
            sums.lost += static_cast<double>(all[i].lost.size());
            sums.added += static_cast<double>(all[i].joined.size());
            sums.recovery += seconds(all[i].recovery());
            sums.ending += seconds(all[i].ending);
            sums.agreeing += seconds(all[i].agreeing);
            sums.meeting += seconds(all[i].took - all[i].ending - all[i].agreeing);
            sums.starting += seconds(all[i].starting);
        }
        return sums;
    }

    const void* world_;
    int (*size_)(const void*);
    int (*rank_)(const void*);
    std::uint64_t (*epoch_)(const void*);
    std::size_t (*changes_)(const void*);
    ChangeSums (*sums_)(const void*, std::size_t);
};

/// Whether the ranks of such a world may be lost.
template <class World>
concept changing_world = requires(const World& world) {
    world.changes();
    world.epoch();
    world.size();
};

/// The numbers of an update, until they are in the file.
struct KeptUpdate {
    std::uint64_t number = 0;
    std::vector<Scalar> scalars = {};
};

/// The part of a file of metrics that is there over an elastic world alone.
struct WorldWatch {
    ChangingWorld world;
    std::size_t seen = 0;              ///< changes before the last report
    std::size_t told = 0;              ///< changes that are in the file
    bool told_first = false;           ///< the world's size is in it
    std::vector<KeptUpdate> kept = {}; ///< the last report's, and those that may be missing
    std::uint64_t last_in_file = 0;    ///< update, as far as this rank knows
    bool again = false;                ///< updates up to that one may be made again
};

/// The last update in a file, and its time.
struct LastInFile {
    std::uint64_t update = 0;
    double seconds = 0;
};

inline std::int64_t size_of_file(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? static_cast<std::int64_t>(found.st_size) : 0;
}

/// The end of a file, at most `most` bytes of it, from `from` on.
inline std::string end_of_file(const std::string& path, std::int64_t from, std::int64_t most) {
    const std::int64_t size = size_of_file(path), first = size - from > most ? size - most : from;
    if (size <= first) return {}; // a pipe, too: to open it could wait for ever
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return {};
    std::string text(static_cast<std::size_t>(size - first), '\0');
    if (std::fseek(file, static_cast<long>(first), SEEK_SET) != 0) text.clear();
    text.resize(std::fread(text.data(), 1, text.size(), file));
    static_cast<void>(std::fclose(file)); // it was only read
    return text;
}

/// Cuts `bytes` bytes off a file's end; false if the system does not.
inline bool cut_off_end(const std::string& path, std::size_t bytes) {
    return ::truncate(path.c_str(), static_cast<off_t>(size_of_file(path) - static_cast<std::int64_t>(bytes))) == 0;
}

/// The end of a file of lines, at most a MiB of it. What a rank that was killed has written of a
/// line is cut off.
inline std::string end_of_lines(const std::string& path, std::int64_t from) {
    std::string text = end_of_file(path, from, std::int64_t{1} << 20);
    const std::size_t whole = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
    if (whole != text.size() && cut_off_end(path, text.size() - whole)) text.resize(whole);
    return text;
}

/// Whether what is added to a file must begin with a newline, since its last line has none. First
/// cuts off a part of a line that a killed process has left: `is_part` knows it. Only of regular
/// files: pipes and terminals have nothing to cut.
template <class IsPart>
bool needs_newline(const std::string& path, IsPart is_part) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return false;
    const std::string text = end_of_file(path, 0, std::int64_t{1} << 16);
    if (text.empty() || text.back() == '\n') return false;
    const std::size_t last = text.rfind('\n');
    if (last == std::string::npos || !is_part(std::string_view(text).substr(last + 1))) return true;
    return !cut_off_end(path, text.size() - last - 1);
}

} // namespace detail
UNISONO_NAMESPACE_END
