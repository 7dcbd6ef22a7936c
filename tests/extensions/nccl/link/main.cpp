// A program over NCCL itself. With GPUs it makes a sum. Without a GPU it immediately fails with an
// error that says so.
#include <unisono/nccl.hpp>

#include <cstdio>
#include <vector>

namespace un = unisono;

int main() {
    const auto begin = un::steady_now();
    try {
        auto world = un::join<un::Nccl>();
        const auto on_device = un::allocate_on_device<float>(world, 1000);
        std::vector<float> host(100'000, 1.0f);
        un::all_reduce(world, on_device.span());
        un::all_reduce(world, host);
        std::printf("sum: %g of %d\n", static_cast<double>(host[99'999]), world.size());
        return host[99'999] == static_cast<float>(world.size()) ? 0 : 1;
    } catch (const un::error& failed) {
        std::printf("%s: %s\n", std::string(un::name_of(failed.code())).c_str(), failed.what());
        std::printf("after %lld us\n", static_cast<long long>((un::steady_now() - begin) / 1000));
        return 2;
    }
}
