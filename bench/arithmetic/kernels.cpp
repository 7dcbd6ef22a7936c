// The arithmetic kernels, compared with copying as many bytes, by the faster of memcpy and
// streaming stores.
//
//   bench_arithmetic [--threads N] [--repetitions N] [--json FILE]
//
// Each thread works on its own slice of shared buffers, all at once, as ranks do in an all_reduce.
// Before each repetition one thread rewrites each buffer, as its owner would, so that no unmodified
// cached buffer is measured. All cases take turns within one repetition. A ratio below 1 is faster
// than copying.

#include <unisono/unisono.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace un = unisono;

namespace {

using Clock = std::chrono::steady_clock;

class SpinBarrier {
public:
    explicit SpinBarrier(int threads) : threads_(threads) {}
    void wait() {
        const int phase = phase_.load();
        if (arrived_.fetch_add(1) + 1 == threads_) {
            arrived_.store(0);
            phase_.store(phase + 1);
        } else {
            for (int spins = 0; phase_.load() == phase; ++spins)
                if (spins > 20000) std::this_thread::yield();
        }
    }

private:
    int threads_;
    std::atomic<int> arrived_{0};
    std::atomic<int> phase_{0};
};

void bind_to_core([[maybe_unused]] int core) {
#if defined(__linux__)
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<unsigned>(core) % std::thread::hardware_concurrency(), &set);
    sched_setaffinity(0, sizeof set, &set);
#endif
}

/// Sixteen page-aligned buffers, an odd number of pages apart, because loads alias at distances of
/// a power of two.
class Pool {
public:
    static constexpr std::size_t buffers = 16;

    explicit Pool(std::size_t bytes)
        : bytes_(bytes), stride_((bytes / page + 3) / 2 * 2 * page + page),
          memory_(static_cast<std::byte*>(std::aligned_alloc(page, stride_ * buffers))) {
        for (std::size_t b = 0; b < buffers; ++b) std::memset(at(b), 0, bytes);
    }
    std::byte* at(std::size_t buffer) const { return memory_.get() + buffer * stride_; }
    std::size_t bytes() const { return bytes_; }

private:
    static constexpr std::size_t page = 4096;
    struct Free {
        void operator()(std::byte* p) const { std::free(p); }
    };
    std::size_t bytes_;
    std::size_t stride_;
    std::unique_ptr<std::byte, Free> memory_;
};

struct Slice {
    std::size_t begin;
    std::size_t bytes;
};

void stream_copy(std::byte* to, const std::byte* from, std::size_t bytes) {
#if defined(__SSE2__)
    using Vector [[gnu::vector_size(16), gnu::may_alias]] = long long;
    std::size_t i = 0;
    for (; i + 64 <= bytes; i += 64)
        for (std::size_t j = 0; j < 64; j += 16) {
            const Vector v = *reinterpret_cast<const Vector*>(from + i + j);
            __asm__ volatile("movntdq %1, %0" : "=m"(*reinterpret_cast<Vector*>(to + i + j)) : "x"(v));
        }
    __asm__ volatile("sfence" ::: "memory");
    std::memcpy(to + i, from + i, bytes - i);
#else
    std::memcpy(to, from, bytes);
#endif
}

/// Copies `halves` / 2 slices: as many bytes read and written as a kernel with `halves` sources and
/// targets accesses.
template <class Copy>
void copy_as_much(const Pool& pool, Slice slice, std::size_t halves, Copy copy) {
    const std::size_t whole = halves / 2;
    for (std::size_t b = 0; b < whole; ++b) copy(pool.at(b + 8) + slice.begin, pool.at(b) + slice.begin, slice.bytes);
    if (halves % 2 != 0) copy(pool.at(15) + slice.begin, pool.at(7) + slice.begin, slice.bytes / 2);
}

struct Case {
    std::string name;
    std::size_t halves; ///< buffers read plus buffers written
    std::function<void(const Pool&, Slice)> run;
    bool floor = false;
    std::vector<double> times{};
};

template <class T>
std::span<T> span_of(const Pool& pool, std::size_t buffer, Slice slice) {
    return {reinterpret_cast<T*>(pool.at(buffer) + slice.begin), slice.bytes / sizeof(T)};
}

template <class Op, class T>
Case combine(const std::string& name, std::size_t sources, std::size_t targets, bool in_place) {
    return {name, sources + targets, [=](const Pool& pool, Slice slice) {
                const std::byte* from[8];
                std::byte* to[8];
                for (std::size_t s = 0; s < sources; ++s) from[s] = pool.at(s) + slice.begin;
                for (std::size_t t = 0; t < targets; ++t) to[t] = pool.at(in_place ? t : t + 8) + slice.begin;
                const Op op;
                const un::Reduction reduction = un::make_reduction<Op, T>(op);
                reduction.combine(reduction.state, from, sources, to, targets, slice.bytes / sizeof(T));
            }};
}

UNISONO_NO_CONTRACTION_BEGIN
struct Momentum {
    float rate, momentum;
    UNISONO_INLINE void operator()(float& p, const float& g, float& m) const {
        m = momentum * m + g;
        p = p - rate * m;
    }
};
struct AdamLike {
    float rate, decay1, decay2;
    UNISONO_INLINE void operator()(float& p, const float& g, float& m, float& v) const {
        m = decay1 * m + (1 - decay1) * g;
        v = decay2 * v + (1 - decay2) * g * g;
        p = p - rate * m / (un::square_root(v) + 1e-8f);
    }
};
UNISONO_NO_CONTRACTION_END

std::atomic<double> sink{0};

std::vector<Case> all_cases() {
    std::vector<Case> cases;
    for (const std::size_t halves : {2u, 3u, 4u, 5u, 7u, 8u, 9u, 16u}) {
        cases.push_back({"memcpy", halves,
                         [=](const Pool& pool, Slice slice) {
                             copy_as_much(pool, slice, halves,
                                          [](auto* to, auto* from, std::size_t n) { std::memcpy(to, from, n); });
                         },
                         true});
        cases.push_back({"streaming copy", halves,
                         [=](const Pool& pool, Slice slice) {
                             copy_as_much(pool, slice, halves,
                                          [](auto* to, auto* from, std::size_t n) { stream_copy(to, from, n); });
                         },
                         true});
    }
    cases.push_back(combine<un::Sum, float>("sum, 2 -> 2 in place", 2, 2, true));
    cases.push_back(combine<un::Sum, float>("sum, 2 -> 2", 2, 2, false));
    cases.push_back(combine<un::Sum, float>("sum, 2 -> 1", 2, 1, false));
    cases.push_back(combine<un::Sum, float>("sum, 1 -> 4 (copy)", 1, 4, false));
    cases.push_back(combine<un::Sum, float>("sum, 4 -> 4 in place", 4, 4, true));
    cases.push_back(combine<un::Sum, float>("sum, 8 -> 8 in place", 8, 8, true));
    cases.push_back(combine<un::Sum, float>("sum, 8 -> 1", 8, 1, false));
    cases.push_back(combine<un::Max, float>("max, 2 -> 2 in place", 2, 2, true));
    cases.push_back(combine<un::Sum, double>("sum of double, 2 -> 2 in place", 2, 2, true));
    cases.push_back(combine<un::Sum, un::bfloat16>("sum of bfloat16, 2 -> 2 in place", 2, 2, true));
    cases.push_back(combine<un::Sum, un::float16>("sum of float16, 2 -> 2 in place", 2, 2, true));
    cases.push_back({"accumulate, y += w x", 3, [](const Pool& pool, Slice slice) {
                         un::accumulate(span_of<float>(pool, 0, slice), span_of<const float>(pool, 1, slice), 0.5);
                     }});
    cases.push_back({"apply, momentum", 5, [](const Pool& pool, Slice slice) {
                         un::apply(Momentum{0.1f, 0.9f}, span_of<float>(pool, 0, slice),
                                   span_of<const float>(pool, 1, slice), span_of<float>(pool, 2, slice));
                     }});
    cases.push_back({"apply, Adam's formula", 7, [](const Pool& pool, Slice slice) {
                         un::apply(AdamLike{0.1f, 0.9f, 0.99f}, span_of<float>(pool, 0, slice),
                                   span_of<const float>(pool, 1, slice), span_of<float>(pool, 2, slice),
                                   span_of<float>(pool, 3, slice));
                     }});
    cases.push_back({"first_non_finite, 2 buffers", 2, [](const Pool& pool, Slice slice) {
                         sink = static_cast<double>(un::first_non_finite(span_of<const float>(pool, 4, slice)) +
                                                    un::first_non_finite(span_of<const float>(pool, 5, slice)));
                     }});
    cases.push_back({"sum_of_squares, 2 buffers", 2, [](const Pool& pool, Slice slice) {
                         sink = un::sum_of_squares(span_of<const float>(pool, 4, slice)) +
                                un::sum_of_squares(span_of<const float>(pool, 5, slice));
                     }});
    return cases;
}

double core_to_core_round_trip_ns() {
    std::atomic<int> ball{0};
    constexpr int rounds = 20000;
    std::thread peer([&] {
        bind_to_core(1);
        for (int i = 0; i < rounds; ++i) {
            while (ball.load(std::memory_order_acquire) != 2 * i + 1) {
            }
            ball.store(2 * i + 2, std::memory_order_release);
        }
    });
    bind_to_core(0);
    const auto start = Clock::now();
    for (int i = 0; i < rounds; ++i) {
        ball.store(2 * i + 1, std::memory_order_release);
        while (ball.load(std::memory_order_acquire) != 2 * i + 2) {
        }
    }
    const double ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count() / rounds;
    peer.join();
    return ns;
}

/// A wrong kernel is not worth timing.
void verify() {
    Pool pool(4096);
    for (std::size_t b = 0; b < 8; ++b)
        for (float& x : span_of<float>(pool, b, {0, 4096})) x = static_cast<float>(b + 1);
    combine<un::Sum, float>("", 8, 8, true).run(pool, {0, 4096});
    for (std::size_t b = 0; b < 8; ++b)
        for (const float x : span_of<const float>(pool, b, {0, 4096}))
            if (x != 36.0f) {
                std::fprintf(stderr, "wrong result: %g instead of 36\n", static_cast<double>(x));
                std::exit(1);
            }
}

void measure(std::vector<Case>& cases, const Pool& pool, int threads, int repetitions) {
    SpinBarrier barrier(threads);
    std::vector<double> seconds(static_cast<std::size_t>(threads));
    // The clock cannot resolve single short ones.
    const int inner = pool.bytes() < (1u << 18) ? 20 : 1;
    const auto work = [&](int rank) {
        bind_to_core(rank);
        const std::size_t lines = pool.bytes() / 64;
        const auto line_of = [&](int r) {
            return lines * static_cast<std::size_t>(r) / static_cast<std::size_t>(threads);
        };
        const Slice slice{line_of(rank) * 64, (line_of(rank + 1) - line_of(rank)) * 64};
        for (int repetition = 0; repetition <= repetitions; ++repetition)
            for (Case& c : cases) {
                for (std::size_t b = static_cast<std::size_t>(rank); b < Pool::buffers;
                     b += static_cast<std::size_t>(threads))
                    for (float& x : span_of<float>(pool, b, {0, pool.bytes()})) x = x < 100.0f ? x + 1.0f : 1.0f;
                barrier.wait();
                const auto start = Clock::now();
                for (int i = 0; i < inner; ++i) c.run(pool, slice);
                seconds[static_cast<std::size_t>(rank)] =
                    std::chrono::duration<double>(Clock::now() - start).count() / inner;
                barrier.wait();
                if (rank == 0 && repetition > 0) c.times.push_back(*std::max_element(seconds.begin(), seconds.end()));
            }
    };
    std::vector<std::thread> others;
    for (int rank = 1; rank < threads; ++rank) others.emplace_back(work, rank);
    work(0);
    for (std::thread& other : others) other.join();
}

double quantile(std::vector<double> times, double q) {
    std::sort(times.begin(), times.end());
    return times[static_cast<std::size_t>(q * static_cast<double>(times.size() - 1))];
}

} // namespace

int main(int argc, char** argv) {
    int threads = std::min(2, static_cast<int>(std::thread::hardware_concurrency()));
    int repetitions = 15;
    std::string json;
    for (int i = 1; i + 1 < argc; i += 2) {
        const std::string option = argv[i];
        if (option == "--threads") threads = std::max(1, std::atoi(argv[i + 1]));
        else if (option == "--repetitions") repetitions = std::max(1, std::atoi(argv[i + 1]));
        else if (option == "--json") json = argv[i + 1];
        else return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
    }
    verify();
    std::printf("%s, %d threads, median of %d", name_of(un::best_instruction_set()).data(), threads, repetitions);
    if (threads > 1) std::printf(", core to core and back %.0f ns", core_to_core_round_trip_ns());
    std::printf("\nratio: time over the faster of memcpy and streaming copy of as many bytes, at the same time\n");
    std::FILE* out = json.empty() ? nullptr : std::fopen(json.c_str(), "w");
    if (out != nullptr) std::fprintf(out, "[");
    const char* separator = "";
    for (const std::size_t kib : {32u, 2048u, 32768u}) {
        std::vector<Case> cases = all_cases();
        const Pool pool(kib * 1024);
        measure(cases, pool, threads, repetitions);
        std::printf("\n%-36s %10s %21s %8s %7s\n", (std::to_string(kib) + " KiB a buffer").c_str(), "us",
                    "10 % .. 90 %", "GB/s", "ratio");
        for (const Case& c : cases) {
            const double median = quantile(c.times, 0.5);
            double floor = 1e9;
            for (const Case& other : cases)
                if (other.floor && other.halves == c.halves) floor = std::min(floor, quantile(other.times, 0.5));
            const double gigabytes = static_cast<double>(c.halves * pool.bytes()) / 1e9;
            const std::string name = c.name + (c.floor ? ", " + std::to_string(c.halves) + " x half" : "");
            if (!c.floor || c.halves == 2 || c.halves == 4)
                std::printf("%-36s %10.2f %10.2f %10.2f %8.1f %7.2f\n", name.c_str(), median * 1e6,
                            quantile(c.times, 0.1) * 1e6, quantile(c.times, 0.9) * 1e6, gigabytes / median,
                            median / floor);
            if (out != nullptr)
                std::fprintf(
                    out,
                    "%s\n{\"kib\": %zu, \"kernel\": \"%s\", \"threads\": %d, \"median_us\": %.3f, \"ratio\": %.4f}",
                    separator, kib, name.c_str(), threads, median * 1e6, median / floor);
            separator = ",";
        }
    }
    if (out != nullptr) {
        std::fprintf(out, "\n]\n");
        std::fclose(out);
    }
    return 0;
}
