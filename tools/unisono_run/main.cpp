// unisono-run: the ranks of a job on this machine (unisono-run --help).
#include "options.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    const auto request = unisono_run::parse_launch(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
    if (request.status >= 0) {
        static_cast<void>(std::fputs(request.text.c_str(), request.status == 0 ? stdout : stderr));
        return request.status;
    }
    try {
        return unisono_run::run_job(request.options);
    } catch (const std::exception& failed) {
        static_cast<void>(std::fprintf(stderr, "unisono-run: %s\n", failed.what()));
        return 2;
    }
}
