#pragma once

/// \file
/// Ranks are threads of one process; peers' memory is read directly.

#include "unisono/transport/in_process/world.hpp"
#include "unisono/transport/memory/endpoint.hpp"

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

UNISONO_NAMESPACE_BEGIN

/// The transport of one rank of an in-process world, made by `run<InProcess>` (group/run.hpp). On
/// its own it is a world of one.
class InProcess : public detail::MemoryEndpoint<detail::InProcessWorld> {
public:
    static constexpr std::string_view name = "in_process";
    using World = detail::InProcessWorld;

    InProcess();
    InProcess(std::shared_ptr<World> world, int rank);
    InProcess(InProcess&&) noexcept = default;
    InProcess& operator=(InProcess&&) = delete;
    UNISONO_OUTSIDE ~InProcess() override;
};

UNISONO_CERTIFY(transport<InProcess>);

UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN

UNISONO_DEFINITION InProcess::InProcess() : InProcess(std::make_shared<World>(1), 0) {}
UNISONO_DEFINITION InProcess::InProcess(std::shared_ptr<World> world, int rank)
    : MemoryEndpoint(std::move(world), rank, {.name = name}) {
    map();
}
UNISONO_DEFINITION InProcess::~InProcess() = default;

UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
