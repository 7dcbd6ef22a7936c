// The networks whose ranks may be threads of this process.
#include "any_network.hpp"

#include "../../extensions/hosts/pretended_hosts.hpp"

#ifdef UNISONO_TEST_LIBFABRIC
#include <unisono/libfabric.hpp>
#endif

namespace {

const bool registered = [] {
    auto& all = test::network_kinds();
    all.push_back(test::NetworkKind::of_threads<unisono::Tcp>("tcp"));
    all.push_back(test::NetworkKind::of_threads<test::PretendedHosts>("hosts of two ranks"));
#ifdef UNISONO_TEST_LIBFABRIC
    all.push_back(test::NetworkKind::of_threads<unisono::Libfabric>("libfabric"));
#endif
    return true;
}();

} // namespace
