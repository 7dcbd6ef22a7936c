#pragma once

/// \file
/// Metrics of an elastic world (extensions/elastic/world.hpp), whose first rank may be lost, and
/// the ends of files that are continued.

#include "unisono/core/config.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

UNISONO_NAMESPACE_BEGIN

/// A number with a name.
struct Scalar {
    std::string_view name = {};
    double value = 0;
};

namespace detail {

/// The changes of a world since a given time.
struct ChangeSums {
    std::size_t count = 0;
    double lost = 0, added = 0;                                               ///< number of ranks
    double recovery = 0, ending = 0, agreeing = 0, forming = 0, starting = 0; ///< seconds
};

/// A view of an elastic world without its type.
class ChangingWorld {
public:
    template <class World>
    explicit ChangingWorld(const World& world)
        : world_(&world), size_([](const void* one) { return static_cast<const World*>(one)->size(); }),
          rank_([](const void* one) { return static_cast<const World*>(one)->rank(); }),
          epoch_([](const void* one) { return static_cast<std::uint64_t>(static_cast<const World*>(one)->epoch()); }),
          changes_([](const void* one) { return static_cast<const World*>(one)->changes().size(); }),
          sums_([](const void* one, std::size_t from) { return sums_of(*static_cast<const World*>(one), from); }) {}
    /// This rank's number in the current world; -1 if it is in none.
    [[nodiscard]] int rank() const { return rank_(world_); }
    [[nodiscard]] int size() const { return size_(world_); }
    [[nodiscard]] std::uint64_t epoch() const { return epoch_(world_); }
    [[nodiscard]] std::size_t changes() const { return changes_(world_); }
    /// The sums of all changes but the first `from`.
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
            sums.forming += seconds(all[i].took - all[i].ending - all[i].agreeing);
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

/// A world whose ranks may be lost.
template <class World>
concept changing_world = requires(const World& world) {
    world.changes();
    world.epoch();
    world.size();
};

/// The state of a file of metrics that only elastic worlds need.
struct WorldWatch {
    ChangingWorld world;
    std::size_t seen = 0;    ///< number of changes before the last report
    std::size_t told = 0;    ///< number of changes that are in the file
    bool told_first = false; ///< the world's size is in the file
    std::uint64_t last = 0;  ///< the last update of which this rank had a report
    bool again = false;      ///< updates up to `last` may be repeated
};

inline std::int64_t size_of_file(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_size : 0;
}

/// The bytes of a file from `from` on, but at most the last `most` bytes.
inline std::string end_of_file(const std::string& path, std::int64_t from, std::int64_t most) {
    const std::int64_t size = size_of_file(path), first = size - from > most ? size - most : from;
    if (size <= first) return {}; // also for a pipe, which could block when it is opened
    std::FILE* const file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return {};
    std::string text(static_cast<std::size_t>(size - first), '\0');
    if (std::fseek(file, static_cast<long>(first), SEEK_SET) != 0) text.clear();
    text.resize(std::fread(text.data(), 1, text.size(), file));
    static_cast<void>(std::fclose(file)); // an error does not matter, since the file was only read
    return text;
}

/// Removes `bytes` bytes at the end of a file. Returns false if that fails.
inline bool cut_off_end(const std::string& path, std::size_t bytes) {
    return ::truncate(path.c_str(), size_of_file(path) - static_cast<std::int64_t>(bytes)) == 0;
}

/// True if text that is appended to a file must begin with a newline, because the last line has
/// none. Before that, removes a part of a line that a killed process has left: `is_part` recognises
/// it. Only for regular files, since pipes and terminals have nothing to remove.
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
