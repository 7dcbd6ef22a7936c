// The library unisono::compiled: what a program in compiled mode does not compile itself (include/unisono/core/config.hpp).
#define UNISONO_BUILDS_LIBRARY
#include "unisono/unisono.hpp"
#include "unisono/compiled/templates.hpp"

// Extensions with definitions, or with certificates that are proven here.
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/automatic.hpp"
#include "unisono/extensions/observe/classification.hpp"
#include "unisono/master_weights.hpp"
#include "unisono/trainers.hpp"
#include "unisono/updates.hpp"

#include <cstdio>
#include <cstdlib>

extern "C" {
extern const char unisono_library_of_the_compiled_mode;
const char unisono_library_of_the_compiled_mode = 1;
[[gnu::weak]] extern const char unisono_compiled_without_the_library;
}

namespace {

[[gnu::constructor]] void refuse_both_modes() {
    if (&unisono_compiled_without_the_library == nullptr) return;
    std::fputs("unisono: found files of this program that include the library as headers alone, and files in compiled "
               "mode. Required: one mode for all. Why: both would have their own copies of the same functions. Link "
               "every target to unisono::compiled, or none.\n",
               stderr);
    std::_Exit(1);
}

} // namespace
