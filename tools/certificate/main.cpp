// unisono-certificate FIRST [LAST]: writes the certificates of all schedules for worlds of FIRST to
// LAST ranks (docs/schedules.md). python3 tools/check_certificate.py checks them.
#include <unisono/core/number.hpp>
#include <unisono/extensions/laboratory/certificate.hpp>
#include <unisono/schedule/hierarchical.hpp>

#include <cstdio>
#include <exception>
#include <set>
#include <string>

namespace un = unisono;

namespace {

template <class Family>
void write(int world, const Family& family) {
    un::schedule::for_each_collective<Family>([&](auto what) {
        for (const int root :
             std::set<int>{0, un::has_root(what()) ? world / 3 : 0, un::has_root(what()) ? world - 1 : 0}) {
            const std::string text = un::schedule::certificate<what()>(world, root, family);
            std::fwrite(text.data(), 1, text.size(), stdout);
        }
    });
}

} // namespace

int main(int argc, char** argv) {
    int first = 0, last = 0;
    const auto read = [](const char* text, int& number) { return un::parse_number(text, 1, 1024, number); };
    if (argc < 2 || argc > 3 || !read(argv[1], first) || !read(argv[argc - 1], last)) {
        std::fprintf(stderr, "usage: %s FIRST [LAST]: numbers of ranks, 1 to 1024\n", argv[0]);
        return 2;
    }
    for (int world = first; world <= last; ++world) {
        write(world, un::RingSchedule{});
        write(world, un::TreeSchedule{});
        write(world, un::HalvingDoublingSchedule{});
        write(world, un::DirectSchedule{});
        write(world, un::ExchangeSchedule{});
        write(world, un::MappedSchedule{});
        write(world, un::StagedSchedule{});
        write(world, un::HierarchicalSchedule{.ranks_per_host = 2});
        write(world, un::HierarchicalSchedule{.ranks_per_host = 3, .tree_across = true});
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}
