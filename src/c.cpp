// The library unisono::c: the definitions behind unisono/c.h.
#include "unisono/c.hpp"
