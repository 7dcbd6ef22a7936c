#pragma once

/// \file
/// Checkpoints: the state of a training in files, from which it continues on any number of ranks.
///
///     un::Checkpoints checkpoints("run/checkpoints", {.keep = 3});
///     checkpoints.resume(trainer);                              // if there is a checkpoint
///     const auto left = 20 - trainer.position().epoch.number(); // above 0, unless all is done
///     const un::FitOptions options = {.epochs = left, .batch_size = 32};
///     trainer.fit(data, options, [&](const un::UpdateReport& report) {
///         if (report.number % 100 == 0) checkpoints.save(trainer);
///     });
///
/// A checkpoint contains parameters and buffers (those of rank 0, as `evaluate` uses them), the
/// optimizer's state, the number of updates, the position (sampler's seed, epoch, samples
/// consumed), the seed of the random streams (a stream is a function of the seed, epoch, update,
/// replica or sample, and has no state), the loss scale, and the grids of `Reproducible`. If ranks
/// make updates of their own, it contains each rank's optimizer state and the common state, as of a
/// synchronisation. It contains no gradients, which are not needed between updates. Clipping,
/// guards and schedules have no state; costs are measured again.
///
/// Laws
/// - A checkpoint exists as a whole or not at all, whichever process dies at any time: the last
///   complete one stays until a newer one is durable.
/// - All ranks write, and each number is written once. The contents do not depend on the time of
///   writing.
/// - Resuming checks everything before it uses anything: after an error the trainer is unchanged.
/// - With `Replicas` and `Reproducible`, a training that continues on any number of ranks, with any
///   sharding, computes the bits of a training that was never stopped.
///
/// Not in the umbrella: include it where it is used. Deliberately absent: folders that not all
/// ranks see, compression, encryption, and files of older formats (there are none yet).

#include "unisono/core/list.hpp"
#include "unisono/core/rule.hpp"
#include "unisono/extensions/checkpoint/folder.hpp"
#include "unisono/extensions/checkpoint/manifest.hpp"
#include "unisono/extensions/checkpoint/reading.hpp"
#include "unisono/extensions/checkpoint/state.hpp"
#include "unisono/extensions/checkpoint/writing.hpp"
#include "unisono/sampler/sampler.hpp"
#include "unisono/trainer/agreement.hpp"
#include "unisono/trainer/fit.hpp"
#include "unisono/trainer/policies.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

UNISONO_NAMESPACE_BEGIN

/// Options of `Checkpoints`; the same on all ranks.
struct CheckpointOptions {
    /// Number of newest checkpoints that are kept; older ones are removed once a new one is
    /// durable.
    std::size_t keep = 3;
    bool background = false; ///< `save` copies the state, and a thread of each rank writes it
    /// Time for which that thread waits for the other ranks' files.
    std::chrono::nanoseconds patience = std::chrono::minutes(10);
    /// A link or a file with a checkpoint's name was not made by a training, and is left unchanged.
    /// False: rank 0 reports it once on standard error, and saving continues with another name.
    /// True: `save` throws refused.
    bool refuse_foreign = false;
    friend bool operator==(const CheckpointOptions&, const CheckpointOptions&) = default;
};

/// Additions of `Checkpoints::save` to the state.
struct SaveOptions {
    /// In a loop of your own: stream.position(); default: the trainer's position.
    std::optional<Position> position = {};
    std::string note = {}; ///< any text in UTF-8, which `resume` returns; rank 0's text is saved
};

/// The checkpoint from which a training continued.
struct Resumed {
    std::string name = {}; ///< name of the checkpoint
    std::uint64_t updates = 0;
    Position position = {};
    int world = 1;             ///< number of ranks that wrote it
    std::uint64_t seed = 0;    ///< FitOptions.seed
    std::string note = {};     ///< SaveOptions.note
    std::string policies = {}; ///< the text of trainer.describe() on rank 0
};

namespace detail {

/// The trainings that checkpoints can hold: a table of rules, as in trainer/rules.hpp.
namespace checkpoint_rule {

UNISONO_RULE_OF("Checkpoints", one_position, "a checkpoint has one position, and the update has servers",
                "a trainer whose update has servers", "one that has none",
                "workers and servers are at different updates, which a checkpoint of one position cannot hold",
                !has_servers<typename P::Update>);
UNISONO_RULE_OF("Checkpoints", errors_saved, "a checkpoint has no rounding errors, and each rank keeps its own",
                "a trainer whose update does not declare `agrees`, with a compression that declares `compresses`",
                "no compression",
                "each rank keeps its rounding errors from one synchronisation to the next, and a checkpoint does not "
                "save them",
                agrees<typename P::Update> || !compresses<typename P::Compression>);
UNISONO_RULE_OF("Checkpoints", buffers_of_all, "a checkpoint is of a whole model, and a part of it has buffers",
                "a model of which each rank has a part, with buffers()", "a model without buffers()",
                "a checkpoint could not say whose they are",
                !(part_of_whole<typename P::Model> && requires(typename P::Model& model) { model.buffers(); }));

} // namespace checkpoint_rule

/// The arguments of the rules: a trainer's policies and model.
template <class Trainer>
struct SavedTraining : std::remove_cvref_t<decltype(std::declval<Trainer&>().policies())>::Chosen {
    using Model = std::remove_cvref_t<decltype(std::declval<Trainer&>().trained())>;
};

using CheckpointRules =
    RuleTable<checkpoint_rule::one_position, checkpoint_rule::errors_saved, checkpoint_rule::buffers_of_all>;

} // namespace detail

/// The checkpoints of one training, in a separate folder that all ranks see. Each rank has such an
/// object. Calls that take a trainer are collective and are made between updates. If one fails, it
/// fails on all ranks with an error that names the rank and the file; the trainer is then unchanged
/// and the group remains usable. The function given to `fit` may call `save`, but not `resume`.
class Checkpoints {
public:
    /// Does not access the folder. If the path is relative, it belongs to the folder in which the
    /// program is now. \throws error bad_input: no folder, or keep is 0
    explicit Checkpoints(const std::string& folder, const CheckpointOptions& options = {})
        : folder_(folder, options.refuse_foreign), options_(options) {
        if (folder.empty()) refuse_input("Checkpoints: the folder's name is empty");
        if (options.keep == 0) refuse_input("CheckpointOptions.keep is 0; expected at least 1");
        if (options.patience.count() <= 0) refuse_input("CheckpointOptions.patience must be positive");
    }
    Checkpoints(const Checkpoints&) = delete;
    Checkpoints& operator=(const Checkpoints&) = delete;
    /// If a checkpoint is still being written in the background: waits for this rank's files, and
    /// one second for the others'. The result is lost; call `wait` before to get it.
    ~Checkpoints() = default;

    /// Writes a checkpoint. It is durable when the call returns. With `background`, a thread writes
    /// it, and the next call reports the result. Cost on each rank: about 1/p of the parameters'
    /// and the optimizer's bytes are written; in the background as much memory. All ranks wait for
    /// the slowest: see RunOptions.timeout. In an elastic world, a rank that makes this call after
    /// all others (`done_by_others`) writes nothing, and gets the name of the newest checkpoint.
    /// \returns its name
    template <class Trainer>
    std::string save(Trainer& trainer, const SaveOptions& options = {}) {
        return save(trainer, trainer.world(), options);
    }
    /// As above, for a model in stages (parallel/). `everyone` is the group of all ranks of the
    /// mesh. The checkpoint contains the whole model and does not depend on how it is split.
    /// \throws error refused: the ranks of `everyone` do not have each number exactly once
    template <class Trainer, class World>
        requires requires(World& group) { group.rank(); }
    std::string save(Trainer& trainer, World& everyone, const SaveOptions& options = {}) {
        assert_rules<Trainer>();
        World& world = everyone;
        const auto inside = trainer.state().acting();
        return detail::telling_all(world, "save", [&] {
            if (trainer.state().done_by_others()) return newest();
            finish(world, "save");
            folder_.set_writer(writer_of(trainer));
            std::vector<std::uint64_t> own_updates;
            const bool replicated = shared_by_all(trainer, world, own_updates);
            std::string name;
            std::optional<Fault> failed = detail::attempt([&] {
                trainer.check_memory();
                detail::Manifest head = detail::manifest_of_trainer(trainer, world.size());
                if (options.position) {
                    head.epoch = options.position->epoch.number();
                    head.samples = options.position->samples;
                }
                head.note = options.note;
                head.own_updates = std::move(own_updates);
                const std::string where = "Checkpoints::save"; // refuses whatever `resume` would refuse
                static_cast<void>(detail::checked_text(head, where));
                detail::check_fits(head, head, where);
                auto model = detail::own_parts(trainer, head, replicated, false);
                auto optimizer = detail::own_parts(trainer, head, replicated, true);
                if (world.rank() == 0) {
                    folder_.lock(writer_of(trainer));
                    name = folder_.begin(trainer.updates());
                }
                writing_ = std::make_unique<detail::CheckpointWriting>(folder_, std::move(head), world.rank(),
                                                                       std::move(model), std::move(optimizer));
                if (options_.background) writing_->copy_numbers();
            });
            agree(world, "save", failed);
            detail::send_text(world, name, 0);
            writing_->set_name(name);
            if (options_.background) {
                failed = detail::attempt([&] { writing_->start(options_.keep, options_.patience); });
                agree(world, "save", failed);
                return name;
            }
            agree(world, "save", detail::attempt([&] { writing_->write_own(); }));
            agree(world, "save", detail::attempt([&] {
                      if (world.rank() == 0) writing_->commit(options_.keep, options_.patience);
                  }));
            writing_.reset();
            return name;
        });
    }

    /// Waits until the checkpoint in the background is durable. Returns false, on all ranks, if it
    /// was given up because a rank of an elastic world was lost: save again. \throws error as
    /// `save`
    template <class Trainer>
    bool wait(Trainer& trainer) {
        return wait(trainer, trainer.world());
    }
    template <class Trainer, class World>
    bool wait(Trainer& trainer, World& everyone) {
        const auto inside = trainer.state().acting();
        return detail::telling_all(everyone, "save",
                                   [&] { return trainer.state().done_by_others() || finish(everyone, "save"); });
    }

    /// Restores the trainer from the newest checkpoint, or from the checkpoint `name`. Returns
    /// nothing, and changes nothing, if there is none. Cost: one rank reads each file for its
    /// checksum, and each rank reads the files that it needs; memory for a second copy of the state
    /// on this rank. The first `fit` after `resume` must get the same seed and, within an epoch, a
    /// data set of the same size.
    /// \throws error bad_input: a file that is short, corrupt, foreign or newer, or of another
    /// model, optimizer or order of samples; a call while `fit` runs; refused: a file that is
    /// missing or cannot be read. The message names it; nothing was changed.
    template <class Trainer>
    std::optional<Resumed> resume(Trainer& trainer, std::string name = {}) {
        return resume(trainer, trainer.world(), std::move(name));
    }
    /// As above, for a model in stages, on all ranks of a mesh. The mesh may split the model
    /// differently from the mesh that saved it.
    template <class Trainer, class World>
        requires requires(World& group) { group.rank(); }
    std::optional<Resumed> resume(Trainer& trainer, World& everyone, std::string name = {}) {
        assert_rules<Trainer>();
        World& world = everyone;
        const auto inside = trainer.state().acting();
        return detail::telling_all(world, "resume", [&]() -> std::optional<Resumed> {
            if (!trainer.state().done_by_others()) finish(world, "resume");
            std::string text;
            agree(world, "resume", detail::attempt([&] {
                      if (trainer.in_fit()) detail::refuse_in_fit("resume");
                      if (world.rank() == 0) text = find(name);
                  }));
            detail::send_text(world, name, 0);
            if (name.empty()) return std::nullopt;
            detail::send_text(world, text, 0);
            const std::string where = concat({"'", folder_.path_of(name), "/", detail::manifest_name, "'"});
            detail::Manifest saved;
            detail::Descriptor folder;
            agree(world, "resume", detail::attempt([&] {
                      trainer.check_memory();
                      saved = detail::manifest_of(text, where);
                      detail::check_fits(saved, detail::manifest_of_trainer(trainer, world.size()), where);
                      detail::check_coverage(saved, where);
                  }));
            agree(world, "resume", detail::attempt([&] {
                      folder = folder_.open_checkpoint(name);
                      const auto ranks = static_cast<std::size_t>(world.size());
                      for (auto i = static_cast<std::size_t>(world.rank()); i < saved.files.size(); i += ranks)
                          detail::check_file(saved, saved.files[i], folder);
                  }));
            std::optional<detail::PendingState<Trainer>> pending;
            agree(world, "resume", detail::attempt([&] { pending.emplace(trainer, saved, folder); }));
            if constexpr (requires {
                              trainer.state().restore_grid_exponents(saved.grid_exponents);
                          }) // else `agree` throws on all ranks
                agree(world, "resume",
                      detail::attempt([&] { trainer.state().restore_grid_exponents(saved.grid_exponents); }));
            if constexpr (requires { trainer.state().restore_loss_scale(trainer.loss_scale()); }) {
                auto scale = trainer.policies().scaling.start();
                if (saved.scales) scale = {saved.loss_scale, saved.good_updates};
                trainer.state().restore_loss_scale(scale);
            }
            pending->apply();
            if constexpr (detail::goes_alone<Trainer>)
                trainer.state().update_run().restore(saved.synchronisations.value_or(0));
            const Position position{Epoch{saved.epoch}, saved.samples};
            trainer.restore({.updates = detail::updates_of_rank(trainer, saved),
                             .position = position,
                             .epoch = Epoch{saved.step_epoch},
                             .seed = saved.seed,
                             .data_size = saved.data_size,
                             .restored = true});
            return Resumed{name, saved.updates, position, saved.world, saved.seed, saved.note, saved.policies};
        });
    }

    /// The names of complete checkpoints, from the oldest to the newest. Local: each rank looks
    /// into the folder by itself.
    [[nodiscard]] std::vector<std::string> list() const {
        std::vector<std::string> whole;
        for (std::string& name : folder_.all())
            if (folder_.is_whole(name)) whole.push_back(std::move(name));
        return whole;
    }

private:
    template <class Trainer>
    static void assert_rules() {
        static_assert(detail::CheckpointRules::asserted<detail::SavedTraining<Trainer>>,
                      "unisono::Checkpoints: no checkpoint of this trainer; the message above says why");
    }

    template <class Trainer>
    static detail::CheckpointWriter writer_of(const Trainer& trainer) {
        if constexpr (requires { trainer.state().world_epoch(); })
            return {trainer.state().world_epoch().job, trainer.state().world_epoch().epoch};
        else return {};
    }
    /// True if each rank has all of the optimizer's state of its stage of the model.
    template <class Trainer, class World>
    bool shared_by_all(Trainer& trainer, World& world, std::vector<std::uint64_t>& own_updates) {
        using Model = std::remove_reference_t<decltype(trainer.trained())>;
        if constexpr (detail::part_of_whole<Model>) {
            bool replicated = false; // without `agree`, ranks of other stages would not learn of a failure
            agree(world, "save", detail::attempt([&] {
                      own_updates = detail::check_met(trainer);
                      replicated = detail::all_own_all(trainer);
                  }));
            detail::check_parts(trainer, world, detail::manifest_of_trainer(trainer, world.size()), replicated);
            return replicated;
        } else {
            own_updates = detail::check_met(trainer);
            return detail::all_own_all(trainer);
        }
    }

    /// Returns the text of the manifest of checkpoint `name`, or of the newest checkpoint if `name`
    /// is empty. Empty if there is no checkpoint.
    std::string find(std::string& name) const {
        const std::vector<std::string> all = folder_.all();
        if (name.empty() && all.empty()) return {};
        if (name.empty()) name = all.back();
        else if (detail::checkpoint_number(name) == 0)
            refuse_input(
                {"'", name, "' is no checkpoint's name; expected one like '", detail::checkpoint_name(1, 100), "'"});
        return detail::read_text(detail::OldFile(folder_.open_checkpoint(name), std::string(detail::manifest_name)),
                                 detail::most_manifest_bytes);
    }

    /// If a rank has failed, all ranks give up the checkpoint that is being written.
    template <class World>
    void agree(World& world, std::string_view operation, const std::optional<Fault>& failed) {
        try {
            detail::agree_on_success(world, operation, failed);
        } catch (...) {
            if (writing_) writing_->abandon();
            writing_.reset();
            throw;
        }
    }

    /// Waits for the last save in the background, or throws its error. Returns false if that save
    /// is given up, because ranks were lost or added (elastic/) and so not all ranks of this world
    /// have begun it.
    template <class World>
    bool finish(World& world, std::string_view operation) {
        if (writing_ && !writing_->is_started()) writing_.reset(); // the world ended before it was started
        const bool ours = writing_ && !given_up_ && writing_->ranks() == world.size();
        const std::array<std::uint64_t, 1> mine = {ours ? writing_->mark() : writing_ || given_up_ ? 1 : 0};
        detail::List<std::uint64_t> all(static_cast<std::size_t>(world.size()));
        detail::gather_words(world, mine, all, detail::caller_named(operation));
        const bool alike = std::all_of(all.begin(), all.end(), [&](std::uint64_t one) { return one == mine[0]; });
        if (alike && mine[0] == 0) return true;
        given_up_ = true; // remains set if the world ends during this call
        try {
            if (alike && ours) {
                agree(world, operation, writing_->await_own());
                agree(world, operation, writing_->await_commit());
            } else {
                agree(world, operation, writing_ ? writing_->give_up() : std::nullopt);
            }
        } catch (const error& failed) {
            if (failed.agreed()) given_up_ = false;
            throw;
        }
        writing_.reset();
        given_up_ = false;
        return alike && ours;
    }
    /// The name of the newest complete checkpoint; empty if there is none.
    [[nodiscard]] std::string newest() const {
        const std::vector<std::string> whole = list();
        return whole.empty() ? std::string() : whole.back();
    }

    detail::CheckpointFolder folder_;
    CheckpointOptions options_;
    std::unique_ptr<detail::CheckpointWriting> writing_;
    bool given_up_ = false; ///< a save in the background was given up, and `wait` has not reported it yet
};

UNISONO_NAMESPACE_END
