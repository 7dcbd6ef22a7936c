// The purpose of extensions: each has a header and a target.
#include <unisono/checkpoint.hpp>
#include <unisono/launch.hpp>
#include <unisono/updates.hpp>

#include <cstdio>

int main() {
    static_cast<void>(sizeof(unisono::Checkpoints));
    static_cast<void>(unisono::identify());
    std::printf("consumer with extensions: %s\n", unisono::Asynchronous::name.data());
}
