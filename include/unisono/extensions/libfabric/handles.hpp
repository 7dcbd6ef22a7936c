#pragma once

/// \file
/// Owners of libfabric's objects, and the state of its operations and registered memory.

#include "unisono/core/config.hpp"
#include "unisono/core/threads.hpp"

#include <cstdint>
#include <memory>

#pragma push_macro("count_of") // libfabric's headers define both
#pragma push_macro("container_of")
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#pragma pop_macro("container_of")
#pragma pop_macro("count_of")

UNISONO_NAMESPACE_BEGIN
namespace detail {

struct FabricCloser {
    void operator()(fi_info* info) const noexcept {
        const NotCancelled whole;
        fi_freeinfo(info);
    }
    template <class Object>
    void operator()(Object* object) const noexcept {
        const NotCancelled whole;
        fi_close(&object->fid);
    }
};
template <class Object>
using FabricHandle = std::unique_ptr<Object, FabricCloser>;

/// The context of a libfabric operation, which must live until the operation completes: the base of
/// objects that start operations.
struct FabricOperation {
    enum class Kind : std::uint8_t { room, outgoing, sending, landing };

    explicit FabricOperation(Kind what) : kind(what) {}
    fi_context2 context{};
    Kind kind;
};

/// A domain; it lives as long as memory is registered with it.
struct FabricDomain {
    FabricHandle<fi_info> info;
    FabricHandle<fid_fabric> fabric; // objects declared below are closed before it
    FabricHandle<fid_domain> domain;
};

/// Memory that libfabric may read and write; empty if it needs no registration.
struct FabricRegion {
    std::shared_ptr<FabricDomain> domain = nullptr;
    FabricHandle<fid_mr> handle = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
