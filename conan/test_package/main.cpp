#include <unisono/unisono.hpp>

#include <cstdio>

int main() { std::printf("unisono %d.%d.%d\n", UNISONO_VERSION_MAJOR, UNISONO_VERSION_MINOR, UNISONO_VERSION_PATCH); }
