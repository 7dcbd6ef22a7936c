// What the tests of ranks on several hosts have in common: hosts that threads and processes of this machine pretend to be.
#pragma once

#include "pretended_hosts.hpp"

#include <unisono/unisono.hpp>

#define UNISONO_TEST_TRANSPORT test::PretendedHosts
#include "support/joined.hpp"

#include <boost/test/unit_test.hpp>
