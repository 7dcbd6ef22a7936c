// Shared by the tests of ranks over libfabric.
#pragma once

#include <unisono/libfabric.hpp>
#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT unisono::Libfabric
#include "support/joined.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <string>
#include <vector>

namespace test {

namespace un = unisono;

/// Calls body(provider) for each provider that this machine has, and reports those that it does not
/// have.
template <class Body>
void for_each_provider(Body body) {
    int tried = 0;
    for (const char* const provider : {"net", "tcp;ofi_rxm", "shm"}) {
        const Variable said("UNISONO_PROVIDER", provider);
        try {
            const un::detail::FabricDevice there({.provider = provider}, false);
        } catch (const un::error& failed) {
            BOOST_TEST_MESSAGE("left out: " << failed.what());
            continue;
        }
        ++tried;
        BOOST_TEST_CONTEXT("provider " << provider) { body(std::string(provider)); }
    }
    BOOST_TEST(tried > 0, "libfabric is here, but none of its providers that are tried");
}

} // namespace test
