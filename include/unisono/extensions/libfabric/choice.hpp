#pragma once

/// \file
/// The network of a world over libfabric: options from the program or else the environment, owners
/// of libfabric's objects, the choice among the networks that it offers if the program names none,
/// and the text of its errors.

#include "unisono/core/config.hpp"
#include "unisono/core/text.hpp"
#include "unisono/core/threads.hpp"
#include "unisono/extensions/launch/sockets/environment.hpp"
#include "unisono/extensions/launch/sockets/interface.hpp"

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/types.h>

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

/// The provider, interface and ports that a rank uses.
struct LibfabricOptions {
    /// The provider's name as in `fi_info`: "net", "tcp;ofi_rxm", "verbs;ofi_rxm", "efa", "shm".
    /// Empty: UNISONO_PROVIDER, else the fastest network of the machine. The same on all ranks.
    std::string provider = {};
    /// Name (eth0) or address (10.0.0.1) of a network interface, or name of a provider's domain
    /// (mlx5_0). Empty: UNISONO_INTERFACE; else the loopback if all ranks are on one host, or the
    /// provider's first interface that other hosts reach. shm has none.
    std::string interface = {};
    /// The port at which this rank listens, if the provider's addresses have ports. Empty:
    /// UNISONO_PORT_RANGE, else any.
    PortRange port_range = {};
    /// Messages up to this size are sent at once, into buffers that their receiver has posted: 16
    /// buffers of this size, or 4 if it is above 64 KiB. 0: the size that was measured to be best
    /// for the provider. If ranks differ, the smaller size is used.
    std::size_t eager_bytes = 0;

    friend bool operator==(const LibfabricOptions&, const LibfabricOptions&) = default;

    /// These options, completed from the environment. Errors: bad_input.
    [[nodiscard]] LibfabricOptions with(const Environment& environment) const {
        LibfabricOptions all = *this;
        const std::string* const provider_name = environment.find("UNISONO_PROVIDER");
        if (all.provider.empty() && provider_name != nullptr) all.provider = *provider_name;
        const std::string* const interface_name = environment.find("UNISONO_INTERFACE");
        if (all.interface.empty() && interface_name != nullptr) all.interface = *interface_name;
        if (all.port_range == PortRange{}) all.port_range = PortRange::of(environment);
        return all;
    }
};

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

/// "Connection refused (111)"
inline std::string fabric_error_text(ssize_t failed) {
    const int code = static_cast<int>(failed < 0 ? -failed : failed);
    return concat({fi_strerror(code), " (", code, ")"});
}

/// The preference for a provider that was not named; -1: never (slow, or for one host only).
inline int fabric_place(const fi_info& info) {
    constexpr std::string_view wanted[] = {"tcp;ofi_rxm", "tcp",           "net", "opx", "psm2",
                                           "psm3",        "verbs;ofi_rxm", "cxi", "efa"};
    for (int i = 0; i < static_cast<int>(std::size(wanted)); ++i)
        if (info.fabric_attr->prov_name == wanted[i]) return i;
    return -1;
}
/// The rank of an interface that was not named: 0 for the loopback and for link-local addresses.
inline int fabric_reach(const fi_info& info) {
    if (info.src_addr == nullptr) return 1;
    if (info.addr_format == FI_SOCKADDR_IN)
        return ntohl(static_cast<const sockaddr_in*>(info.src_addr)->sin_addr.s_addr) >> 24 == 127 ? 0 : 3;
    if (info.addr_format == FI_SOCKADDR_IN6) {
        const in6_addr& address = static_cast<const sockaddr_in6*>(info.src_addr)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(&address) || IN6_IS_ADDR_LINKLOCAL(&address) ? 0 : 2;
    }
    return 1;
}
inline bool is_better(const fi_info& one, const fi_info& than) {
    const int place = fabric_place(one);
    const int other = fabric_place(than);
    return place != other ? place > other : fabric_reach(one) > fabric_reach(than);
}

} // namespace detail
UNISONO_NAMESPACE_END
