#pragma once

/// \file
/// Writes one checkpoint: each rank writes its own files, then rank 0 makes a checkpoint of them.
///
/// 1. Rank 0 makes the folder `<name>.writing`, and all ranks learn its name.
/// 2. Each rank writes its files there, makes them durable, and lists them in `rank-<r>.json`.
/// 3. Rank 0 waits for the lists of all ranks and makes the manifest from them. If the reader
///    accepts it, rank 0 writes it, makes it and the folder durable, and renames the folder. At
///    this moment the checkpoint begins to exist.
/// 4. Rank 0 makes the name durable and removes the oldest checkpoints.
///
/// So while they write in the background, ranks communicate only through the folder.

#include "unisono/collective/native.hpp"
#include "unisono/core/error.hpp"
#include "unisono/core/hash.hpp"
#include "unisono/core/list.hpp"
#include "unisono/core/standard.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/extensions/checkpoint/folder.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"
#include "unisono/extensions/checkpoint/state.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/failure.hpp"
#include "unisono/trainer/same_model.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN
namespace detail {

// If one rank fails in a step, all ranks learn of it, and no rank continues.

/// Runs work that is local to this rank. Returns its failure, if any.
template <class Body>
std::optional<Fault> attempt(Body&& body) {
    try {
        body();
        return std::nullopt;
    } catch (const std::exception&) {
        return fault_of_exception({.code = ErrorCode::refused});
    }
}

/// Broadcasts the text of rank `root` in any group, also one that no trainer trains in.
template <class World>
void send_text(World& world, std::string& text, int root) {
    keep_native<Collective::broadcast>(world);
    broadcast_text(world, text, root);
}

/// If any rank failed, all ranks throw the error of the lowest one; the group remains usable.
/// Collective.
template <class World>
void agree_on_success(World& world, std::string_view operation, const std::optional<Fault>& mine) {
    const std::array<std::uint64_t, 1> code = {mine ? static_cast<std::uint64_t>(mine->code) : 0};
    List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
    gather_words(world, code, all, caller_named(operation));
    for (int rank = 0; rank < world.size(); ++rank) {
        const std::uint64_t found = all[static_cast<std::size_t>(rank)];
        if (found == 0) continue;
        std::string text = mine ? mine->message : std::string();
        send_text(world, text, rank);
        const int known_as = world.world_rank(rank);
        if (world.size() > 1) text = concat({"rank ", known_as, ": ", text});
        throw agreed_error(Fault{.code = static_cast<ErrorCode>(found),
                                 .rank = known_as,
                                 .operation = std::string(operation),
                                 .message = text});
    }
}

class CheckpointWriting {
public:
    /// `model`, `optimizer`: the tensors that this rank writes. Rank 0 makes the manifest from
    /// `head`.
    CheckpointWriting(CheckpointFolder& folder, Manifest head, int rank, std::vector<StatePart> model,
                      std::vector<StatePart> optimizer)
        : folder_(&folder), head_(std::move(head)), rank_(rank), model_(std::move(model)),
          optimizer_(std::move(optimizer)) {}
    CheckpointWriting(const CheckpointWriting&) = delete;
    CheckpointWriting& operator=(const CheckpointWriting&) = delete;
    /// If the thread still writes, waits one more second for the other ranks' files; does not wait
    /// if the destructor runs because of an exception.
    ~CheckpointWriting();
    /// Sets the name that rank 0 has chosen; call it first.
    void set_name(std::string name) { name_ = std::move(name); }

    /// Copies the numbers, so that the originals may change afterwards.
    void copy_numbers();

    /// Step 2.
    void write_own();

    /// Steps 3 and 4, on rank 0. Waits at most `patience` for other ranks' files.
    void commit(std::size_t keep, std::chrono::nanoseconds patience);

    /// Runs all steps in a separate thread.
    void start(std::size_t keep, std::chrono::nanoseconds patience);
    /// Waits for this rank's own files. Returns their failure, if any.
    std::optional<Fault> await_own();
    /// Waits for the thread. On rank 0, returns the failure of making the checkpoint, if any.
    std::optional<Fault> await_commit() {
        thread_.join();
        return commit_failure_;
    }
    [[nodiscard]] bool is_started() const { return thread_.is_started(); }
    [[nodiscard]] int ranks() const { return head_.world; } ///< number of ranks that write it
    /// A number above 1 that is the same on all ranks that write this checkpoint.
    [[nodiscard]] std::uint64_t mark() const { return fnv1a(fnv_basis, name_) | 2; }
    /// Ends the writing. Returns its failure, unless that was the wait for ranks that are lost.
    std::optional<Fault> give_up();
    /// Makes the thread stop waiting for other ranks.
    void abandon() {
        abandoned_ = true;
        thread_.join();
    }

private:
    /// The thread.
    void run();
    static std::size_t bytes_of(const StatePart& part);
    static std::string told_by(int rank) { return concat({"rank-", rank, ".json"}); }
    /// The folder for the files. It is opened once, so that it cannot be replaced by another
    /// folder.
    const Descriptor& open();
    SavedFile write(std::string_view what, std::vector<StatePart>& parts);

    CheckpointFolder* folder_;
    std::string name_;
    Descriptor into_;
    Manifest head_;
    int rank_;
    std::vector<StatePart> model_, optimizer_;
    std::vector<char> copy_;

    int exceptions_ = std::uncaught_exceptions();
    std::size_t keep_ = 0;
    std::chrono::nanoseconds patience_{0};
    Thread thread_;
    std::atomic<bool> abandoned_ = false;
    Mutex mutex_;
    Condition changed_; ///< the owner waits
    bool written_ = true;
    bool ended_ = false;
    std::optional<Fault> own_failure_;
    std::optional<Fault> commit_failure_; ///< written by the thread; read after it has ended
};

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES_PART(UNISONO_PART_CHECKPOINT)
#include "unisono/core/thread_limits.hpp"
#include "unisono/core/time.hpp"
#include "unisono/extensions/checkpoint/reading.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <tuple>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// "model-00002-of-00004.safetensors" of rank 1 of 4.
inline std::string tensor_file_name(std::string_view what, int rank, int world) {
    char number[64];
    static_cast<void>(std::snprintf(number, sizeof number, "-%05d-of-%05d.safetensors", rank + 1, world));
    return concat({what, number});
}

UNISONO_DEFINITION CheckpointWriting::~CheckpointWriting() {
    if (!thread_.is_started()) return;
    static_cast<void>(await_own());
    {
        Lock lock(mutex_);
        if (std::uncaught_exceptions() <= exceptions_)
            changed_.wait(lock, steady_now() + 1'000'000'000, [&] { return ended_; });
    }
    abandon();
}

UNISONO_DEFINITION void CheckpointWriting::copy_numbers() {
    std::size_t bytes = 0;
    const auto each = [&](auto&& visit) {
        for (std::vector<StatePart>* parts : {&model_, &optimizer_})
            for (StatePart& part : *parts) visit(part.data, bytes_of(part));
    };
    each([&](TensorData&, std::size_t count) { bytes += count; });
    copy_.resize(bytes);
    std::size_t at = 0;
    each([&](TensorData& data, std::size_t count) {
        if (count != 0) std::memcpy(copy_.data() + at, data.data, count);
        data.data = copy_.data() + at;
        at += count;
    });
}

UNISONO_DEFINITION void CheckpointWriting::write_own() {
    std::vector<SavedFile> files;
    if (!model_.empty()) files.push_back(write("model", model_));
    if (!optimizer_.empty()) files.push_back(write("optimizer", optimizer_));
    const std::string text = sealed(concat({"{\"files\":", json_array(files, file_text)}));
    const Descriptor& into = open();
    const std::string part = concat({"rank-", rank_, ".part"});
    NewFile file(into, part);
    file.add(text.data(), text.size());
    file.close(); // not durable: needed only while all ranks live
    move_in(into, part, told_by(rank_));
}

UNISONO_DEFINITION void CheckpointWriting::commit(std::size_t keep, std::chrono::nanoseconds patience) {
    const Descriptor& into = open();
    const nanoseconds began = steady_now();
    for (int rank = 0; rank < head_.world; ++rank) {
        const std::string path = concat({into.path(), "/", told_by(rank)});
        for (nanoseconds pause = 200'000; !exists_in(into, told_by(rank)); sleep_for(pause)) {
            if (abandoned_) throw error(ErrorCode::aborted, concat({"'", name_, "' was abandoned"}));
            // No sum of times: `patience` may be the greatest value.
            if (steady_now() - began > patience.count())
                throw error(ErrorCode::timeout, concat({"rank ", rank, " has not written its part of '", name_,
                                                        "' in time: there is no '", path, "'"}));
            pause = std::min<nanoseconds>(2 * pause, 20'000'000);
        }
        std::string text = read_text(OldFile(into, told_by(rank)), most_manifest_bytes);
        check_seal(text, path);
        const JsonText told(std::move(text), path);
        for (const Json& one : told.root().member("files", path).array(path)) head_.files.push_back(file_of(one, path));
    }
    for (int rank = 0; rank < head_.world; ++rank)
        if (!remove_in(into, told_by(rank))) refuse_path("remove", concat({into.path(), "/", told_by(rank)}), ENOENT);
    const std::string where = concat({"'", into.path(), "/", manifest_name, "'"});
    const std::string text = checked_text(head_, where); // before older checkpoints are removed
    check_coverage(head_, where);
    NewFile file(into, std::string(manifest_name));
    file.add(text.data(), text.size());
    file.finish();
    into.sync();
    folder_->finish_writing(name_);
    folder_->prune(keep);
}

UNISONO_DEFINITION void CheckpointWriting::start(std::size_t keep, std::chrono::nanoseconds patience) {
    written_ = false;
    keep_ = keep;
    patience_ = patience;
    const int failed = thread_.start([](void* self) { static_cast<CheckpointWriting*>(self)->run(); }, this);
    if (failed != 0) throw error(ErrorCode::refused, no_thread_for("a checkpoint in the background", failed));
}

UNISONO_DEFINITION std::optional<Fault> CheckpointWriting::await_own() {
    Lock lock(mutex_);
    changed_.wait(lock, [&] { return written_; });
    return own_failure_;
}

UNISONO_DEFINITION std::optional<Fault> CheckpointWriting::give_up() {
    std::optional<Fault> failed = await_own();
    abandon();
    if (!failed && commit_failure_ && commit_failure_->code != ErrorCode::aborted &&
        commit_failure_->code != ErrorCode::timeout)
        failed = std::move(commit_failure_);
    return failed;
}

UNISONO_DEFINITION void CheckpointWriting::run() {
    auto failed = attempt([&] { write_own(); });
    const bool goes_on = !failed && rank_ == 0;
    {
        const Lock lock(mutex_);
        own_failure_ = std::move(failed);
        written_ = true;
    }
    changed_.wake_one();
    if (goes_on) commit_failure_ = attempt([&] { commit(keep_, patience_); });
    {
        const Lock lock(mutex_);
        ended_ = true;
    }
    changed_.wake_one();
}

UNISONO_DEFINITION std::size_t CheckpointWriting::bytes_of(const StatePart& part) {
    std::uint64_t bytes = 0;
    static_cast<void>(tensor_bytes(part.data.tensor, bytes)); // cannot fail: the numbers are in memory
    return bytes;
}

UNISONO_DEFINITION const Descriptor& CheckpointWriting::open() {
    if (!into_.is_open()) into_ = folder_->open_writing(name_);
    return into_;
}

UNISONO_DEFINITION SavedFile CheckpointWriting::write(std::string_view what, std::vector<StatePart>& parts) {
    SavedFile file{.name = tensor_file_name(what, rank_, head_.world)};
    std::vector<TensorData> tensors;
    for (StatePart& part : parts) {
        file.parts.push_back(part.saved);
        tensors.push_back(std::move(part.data));
    }
    std::tie(file.bytes, file.checksum) = write_tensor_file(tensors, [&] { return NewFile(open(), file.name); });
    return file;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif
