// In place of the library: one source of the program has its definitions.
#define UNISONO_IMPLEMENTATION
#include <unisono/extensions/checkpoint/checkpoints.hpp>
#include <unisono/hosts.hpp>
#include <unisono/trainer/hashes.hpp>
#include <unisono/trainer/reproducible.hpp>
#include <unisono/unisono.hpp>
