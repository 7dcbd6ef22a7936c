// The definitions of unisono/c.h, for the package that pip builds.
#include <unisono/c.hpp>
