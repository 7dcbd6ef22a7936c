// Shared by the tests of ranks on several hosts, which threads and processes of this machine
// pretend to be on.
#pragma once

#include "pretended_hosts.hpp"

#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT test::PretendedHosts
#include "support/joined.hpp"

#include <boost/test/unit_test.hpp>
