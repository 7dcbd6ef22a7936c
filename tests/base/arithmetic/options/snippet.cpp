// Which options the headers refuse: at compile time, or when the program starts.
#include <unisono/arithmetic/values.hpp>

#include <cstdio>
#include <exception>

int main() {
    try {
        unisono::detail::check_compiler_options();
    } catch (const std::exception& failed) {
        std::puts(failed.what());
        return 1;
    }
}
