#pragma once

/// \file
/// The choice among the networks that libfabric offers, if the program names none, and the text of
/// its errors.

#include "unisono/core/text.hpp"
#include "unisono/extensions/libfabric/handles.hpp"

#include <arpa/inet.h>
#include <iterator>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/types.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// "Connection refused (111)"
inline std::string fabric_error_text(ssize_t failed) {
    const int code = static_cast<int>(failed < 0 ? -failed : failed);
    return concat({fi_strerror(code), " (", code, ")"});
}

/// The preference for a provider that was not named; -1: never (slow, or for one host only).
inline int fabric_place(const fi_info& info) {
    constexpr std::string_view wanted[] = {"tcp;ofi_rxm", "tcp",           "net", "opx", "psm2",
                                           "psm3",        "verbs;ofi_rxm", "cxi", "efa"};
    for (int i = 0; i < static_cast<int>(std::size(wanted)); ++i) {
        if (info.fabric_attr->prov_name == wanted[i]) return i;
    }
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
