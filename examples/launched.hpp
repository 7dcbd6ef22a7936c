// For examples that run alone or under a launcher (unisono-run, torchrun --no-python, mpirun,
// srun).
#pragma once

#include <unisono/any.hpp>
#include <unisono/unisono.hpp>

#include <cstdio>
#include <exception>
#include <optional>
#include <string_view>

namespace un = unisono;

/// The rank of this process, as its launcher set it.
class Place {
public:
    [[nodiscard]] bool launched() const { return me_.launcher != un::Launcher::none; }
    [[nodiscard]] bool prints() const { return me_.rank == 0; }
    [[nodiscard]] int ranks() const { return me_.world; }

    /// The launcher decides the number of ranks. `asked`, if not 0, must be the same number.
    void check(int asked) const {
        if (!launched() || asked == 0 || asked == me_.world) return;
        un::refuse_input({"--ranks ", asked, ", but ", un::name_of(me_.launcher), " has started ", me_.world,
                          me_.world == 1 ? " rank" : " ranks"});
    }

    /// Calls body(world) on the launcher's ranks. Without a launcher it starts the given number of
    /// ranks, with the transport "in_process" or "shared_memory".
    template <class Body>
    void run(std::string_view transport, int ranks, Body body) const {
        if (launched()) un::run_joined<un::AnyTransport>(body);
        else un::run<un::AnyTransport>(transport, ranks, body);
    }

private:
    un::Identity me_ = un::identify();
};

/// Prints one line for all ranks. Rank 0 prints it, unless rank 0 is the peer that failed.
inline void tell(const std::optional<Place>& place, const char* program, const std::exception& failed) {
    const auto* known = dynamic_cast<const un::error*>(&failed);
    if (!place || place->prints() || (known != nullptr && known->peer() == 0))
        std::fprintf(stderr, "%s: %s\n", program, failed.what());
}
