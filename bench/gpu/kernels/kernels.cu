// Unisono's kernels on one GPU compared with a copy (cudaMemcpyAsync within the device) in the same
// run, as a part of its bandwidth. The bytes that a kernel must read and write at least once are
// counted, whatever it does. Kernels take turns, buffers are rewritten, and the beginning of each
// result is compared with the host's, bit by bit.
#include "support/report.hpp"

#include <unisono/arithmetic/grid_sum.hpp>
#include <unisono/optimizer/adam.hpp>
#include <unisono/optimizer/sgd.hpp>
#include <unisono/thrust.hpp>

#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/sequence.h>
#include <thrust/transform.h>

#include <array>
#include <cmath>
#include <cstring>
#include <functional>

namespace un = unisono;

namespace {

constexpr std::size_t looked_at = 4099; ///< elements that are compared with the host's

void check(cudaError_t code, const char* call) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(code));
    std::exit(1);
}

/// Element i of sequence `salt`: between -1 and 1, all different.
struct Number {
    std::uint32_t salt;
    UNISONO_ON_DEVICE float operator()(std::size_t i) const {
        std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + salt * 40503u;
        x ^= x >> 15;
        x *= 2246822519u;
        x ^= x >> 13;
        return static_cast<float>(static_cast<std::int32_t>(x)) * 0x1p-31f;
    }
};

using Floats = thrust::device_vector<float>;

void fill(Floats& to, std::uint32_t salt) { thrust::tabulate(to.begin(), to.end(), Number{salt}); }
std::vector<float> numbers(std::size_t count, std::uint32_t salt) {
    std::vector<float> made(count);
    for (std::size_t i = 0; i < count; ++i) made[i] = Number{salt}(i);
    return made;
}

class Clock {
public:
    Clock() {
        check(cudaEventCreate(&begin_), "cudaEventCreate");
        check(cudaEventCreate(&end_), "cudaEventCreate");
    }
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;
    ~Clock() {
        static_cast<void>(cudaEventDestroy(begin_));
        static_cast<void>(cudaEventDestroy(end_));
    }
    /// Seconds on the device.
    double time(cudaStream_t stream, const std::function<void()>& work) {
        check(cudaEventRecord(begin_, stream), "cudaEventRecord");
        work();
        check(cudaEventRecord(end_, stream), "cudaEventRecord");
        check(cudaEventSynchronize(end_), "cudaEventSynchronize");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_), "cudaEventElapsedTime");
        return static_cast<double>(milliseconds) * 1e-3;
    }

private:
    cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

template <class T>
void compare_bits(const thrust::device_vector<T>& found, const std::vector<T>& wanted, const char* who) {
    std::vector<T> host(wanted.size());
    thrust::copy(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(wanted.size()), host.begin());
    if (std::memcmp(host.data(), wanted.data(), wanted.size() * sizeof(T)) == 0) return;
    std::fprintf(stderr, "%s: other bits than the host's\n", who);
    std::exit(1);
}

/// A kernel: its name, the bytes that it must access per element, and the check of its result.
struct Subject {
    const char* name;
    double bytes; ///< per element
    double goal;  ///< of the copy's bandwidth
    std::function<void(std::uint32_t salt)> prepare;
    std::function<void()> work;
    std::function<void(std::uint32_t salt)> verify;
};

void measure(std::size_t count, const bench::Options& options, bench::Report& report) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    const auto policy = thrust::cuda::par_nosync.on(stream);
    const un::ThrustArithmetic on(policy);
    const un::ThrustArithmetic here(thrust::host);
    const std::size_t few = std::min(count, looked_at);
    Floats x(count), y(count), z(count), more[3] = {Floats(count), Floats(count), Floats(count)};
    thrust::device_vector<std::uint64_t> noted(un::NotedSquares::words);
    std::uint64_t* const words = thrust::raw_pointer_cast(noted.data());
    thrust::device_vector<un::bfloat16> low(count);
    thrust::device_vector<std::int64_t> image(count);
    const auto in = [](Floats& of) { return std::span<const float>(un::span_of(of)); };
    const un::OptimizerStep step{.learning_rate = 0.01, .number = 1, .gradient_scale = 0.5};
    const un::Sgd sgd{.momentum = 0.9};
    const un::AdamW adam{.weight_decay = 0.1};
    auto sgd_state = un::thrust_optimizer_state<Floats>(sgd.state(), count);
    auto adam_state = un::thrust_optimizer_state<Floats>(adam.state(), count);
    const un::Grid grid = un::Grid::above<float>(1, 3);
    const auto optimizer = [&](const auto& chosen, auto& state) {
        return [&](std::uint32_t) {
            fill(x, 1);
            fill(y, 2);
            state = un::thrust_optimizer_state<Floats>(chosen.state(), count);
        };
    };
    const auto updated = [&](const auto& chosen) { // on the host, into bfloat16
        std::vector<float> parameters = numbers(few, 1);
        const std::vector<float> gradients = numbers(few, 2);
        std::vector<un::bfloat16> image16(few);
        auto state = un::thrust_optimizer_state<thrust::host_vector<float>>(chosen.state(), few);
        un::update_on(here, chosen, state.all(), std::span(parameters), std::span<const float>(gradients), step,
                      un::NoClipping{}, std::span(image16));
        compare_bits(x, parameters, "an optimizer's parameters");
        compare_bits(low, image16, "an optimizer's image");
    };
    const auto two = [&](std::uint32_t salt) { fill(x, salt), fill(y, salt + 1); };
    const auto start_notes = [&](std::uint32_t salt) { // no element is not finite, and none is 2 or more
        two(salt);
        noted.assign(noted.size(), 0);
    };
    const auto image_of_x = [&](std::uint32_t salt) {
        const std::vector<float> from = numbers(few, salt);
        std::vector<std::int64_t> wanted(few);
        un::to_grid(std::span(wanted), std::span<const float>(from), 1.0, grid);
        compare_bits(image, wanted, "an image");
    };
    const auto largest_is_noted = [&](std::uint32_t) {
        const std::uint64_t found = noted[0];
        if (found >= 0x3f700000u && found <= 0x3f800000u) return; // about 1
        std::fprintf(stderr, "the noted magnitude is %llx\n", static_cast<unsigned long long>(found));
        std::exit(1);
    };
    const auto squares_are_noted = [&](std::uint32_t) { // the mean of squares of uniform numbers is 1/3
        const std::vector<std::uint64_t> all = [&] {
            std::vector<std::uint64_t> host(noted.size());
            thrust::copy(noted.begin(), noted.end(), host.begin());
            return host;
        }();
        un::SquareSum sum(1);
        sum.add<float>(un::NotedSquares{all[0], {all[1], all[2], all[3]}});
        const double exponent_1 = on.sum_of_squares(in(x)); // on the grid that x needs
        const double found = sum.value() / static_cast<double>(count);
        if (std::abs(found - 1.0 / 3) < 0.01 && std::abs(sum.value() / exponent_1 - 1) < 1e-9) return;
        std::fprintf(stderr, "the noted squares have the mean %g\n", found);
        std::exit(1);
    };
    const auto numbers_are = [&](const char* who, float wanted) {
        return [&z, few, who, wanted](std::uint32_t) { compare_bits(z, std::vector<float>(few, wanted), who); };
    };
    const auto raw = [](Floats& of) { return thrust::raw_pointer_cast(of.data()); };
    const auto nothing_is_marked = [&](std::uint32_t) {
        if (noted[0] == ~std::uint64_t{0} && noted[1] == ~std::uint64_t{0}) return;
        std::fprintf(stderr, "note_magnitudes noted an element of a clean array\n");
        std::exit(1);
    };
    const std::vector<Subject> subjects{
        {"Sgd, unscale, cast", 4 + 2 * 4 + 2 * 4 + 2, 0.9, optimizer(sgd, sgd_state),
         [&] {
             un::update_on(on, sgd, sgd_state.all(), un::span_of(x), in(y), step, un::NoClipping{}, un::span_of(low));
         },
         [&](std::uint32_t) { updated(sgd); }},
        {"AdamW, unscale, cast", 4 + 2 * 4 + 4 * 4 + 2, 0.9, optimizer(adam, adam_state),
         [&] {
             un::update_on(on, adam, adam_state.all(), un::span_of(x), in(y), step, un::NoClipping{}, un::span_of(low));
         },
         [&](std::uint32_t) { updated(adam); }},
        {"cast to bfloat16", 4 + 2, 0.9, two, [&] { on.cast(un::span_of(low), in(x)); },
         [&](std::uint32_t salt) {
             std::vector<un::bfloat16> wanted(few);
             const std::vector<float> from = numbers(few, salt);
             here.cast(std::span(wanted), std::span<const float>(from));
             compare_bits(low, wanted, "cast");
         }},
        {"accumulate", 3 * 4, 0.9, two, [&] { on.accumulate(un::span_of(x), in(y), 0.3); },
         [&](std::uint32_t salt) {
             std::vector<float> wanted = numbers(few, salt);
             const std::vector<float> from = numbers(few, salt + 1);
             un::accumulate(std::span(wanted), std::span<const float>(from), 0.3);
             compare_bits(x, wanted, "accumulate");
         }},
        {"weighted mean of 2", 3 * 4, 0.9, two,
         [&] {
             const std::array<const float*, 2> from{thrust::raw_pointer_cast(x.data()),
                                                    thrust::raw_pointer_cast(y.data())};
             const std::array<float*, 1> to{thrust::raw_pointer_cast(z.data())};
             on.combine<float>(un::WeightedMean{1.0}, std::span<const float* const>(from), std::span<float* const>(to),
                               count);
         },
         [&](std::uint32_t salt) {
             const std::vector<float> a = numbers(few, salt), b = numbers(few, salt + 1);
             std::vector<float> wanted(few);
             for (std::size_t i = 0; i < few; ++i) wanted[i] = a[i] + b[i];
             compare_bits(z, wanted, "weighted mean");
         }},
        {"to_grid", 4 + 8, 0.8, two, [&] { on.to_grid(un::span_of(image), in(x), 1.0, grid); },
         [&](std::uint32_t salt) {
             const std::vector<float> from = numbers(few, salt);
             std::vector<std::int64_t> wanted(few);
             un::to_grid(std::span(wanted), std::span<const float>(from), 1.0, grid);
             compare_bits(image, wanted, "to_grid");
         }},
        {"note_images", 4 + 8, 0.8, start_notes,
         [&] { on.note_images<false>(un::span_of(image), in(x), 1.0, grid, words); },
         [&](std::uint32_t salt) { image_of_x(salt), largest_is_noted(salt); }},
        {"note_images, 32 bits", 4 + 4, 0.8, start_notes,
         [&] {
             on.note_images<false>(std::span(reinterpret_cast<std::int32_t*>(raw(z)), count), in(x), 1.0, un::Grid{24},
                                   words);
         },
         largest_is_noted},
        {"numbers_of", 8 + 4, 0.8,
         [&](std::uint32_t) { thrust::fill(image.begin(), image.end(), std::int64_t{1} << 50); },
         [&] { on.numbers_of(un::span_of(z), std::span<const std::int64_t>(un::span_of(image)), un::Grid{1}); },
         numbers_are("numbers_of", 1.0f)},
        {"note_magnitudes", 4, 0.9,
         [&](std::uint32_t salt) {
             two(salt);
             noted.assign(noted.size(), ~std::uint64_t{0});
         },
         [&] { on.note_magnitudes(in(x), 0, 1, words); }, nothing_is_marked},
        {"note_squares", 4, 0.9, start_notes, [&] { on.note_squares(in(x), words, 1); },
         [&](std::uint32_t salt) { largest_is_noted(salt), squares_are_noted(salt); }},
        {"note_squares, two reads", 2 * 4, 0.9, start_notes, [&] { on.note_squares(in(x), words); }, largest_is_noted},
        {"first_non_finite", 4, 0.9, two,
         [&] {
             if (on.first_non_finite(in(x)) != un::npos) std::exit(1);
         },
         [](std::uint32_t) {}},
        {"needed_exponent", 4, 0.9, two,
         [&] {
             if (on.needed_exponent(in(x)) > 1) std::exit(1);
         },
         [](std::uint32_t) {}},
        {"zero", 4, 0.9, two, [&] { on.zero(un::span_of(z)); }, numbers_are("zero", 0.0f)},
        {"copy", 2 * 4, 0.9, two, [&] { on.copy(un::span_of(z), in(x)); },
         [&](std::uint32_t salt) { compare_bits(z, numbers(few, salt), "copy"); }},
        {"scale in place", 2 * 4, 0.9, two, [&] { on.scale(un::span_of(x), 0.3); },
         [&](std::uint32_t salt) {
             std::vector<float> wanted = numbers(few, salt);
             un::scale(std::span(wanted), 0.3);
             compare_bits(x, wanted, "scale");
         }},
        {"sum of 2", 3 * 4, 0.9, two,
         [&] {
             const std::array<const float*, 2> from{raw(x), raw(y)};
             const std::array<float*, 1> to{raw(z)};
             on.combine<float>(un::Sum{}, std::span<const float* const>(from), std::span<float* const>(to), count);
         },
         [&](std::uint32_t salt) {
             const std::vector<float> a = numbers(few, salt), b = numbers(few, salt + 1);
             std::vector<float> wanted(few);
             for (std::size_t i = 0; i < few; ++i) wanted[i] = a[i] + b[i];
             compare_bits(z, wanted, "sum of 2");
         }},
        {"sum of 5", 6 * 4, 0.9,
         [&](std::uint32_t salt) {
             two(salt);
             for (std::uint32_t k = 0; k < 3; ++k) fill(more[k], salt + 2 + k);
         },
         [&] {
             const std::array<const float*, 5> from{raw(x), raw(y), raw(more[0]), raw(more[1]), raw(more[2])};
             const std::array<float*, 1> to{raw(z)};
             on.combine<float>(un::Sum{}, std::span<const float* const>(from), std::span<float* const>(to), count);
         },
         [&](std::uint32_t salt) {
             std::vector<float> wanted = numbers(few, salt);
             for (std::uint32_t k = 1; k < 5; ++k) {
                 const std::vector<float> one = numbers(few, salt + k);
                 for (std::size_t i = 0; i < few; ++i) wanted[i] += one[i];
             }
             compare_bits(z, wanted, "sum of 5");
         }},
        {"reproducible sum of 2", 3 * 4, 0.8, two,
         [&] {
             const std::array<const float*, 2> from{thrust::raw_pointer_cast(x.data()),
                                                    thrust::raw_pointer_cast(y.data())};
             const std::array<float*, 1> to{thrust::raw_pointer_cast(z.data())};
             on.combine_on_grid<float>(std::span<const float* const>(from), std::span<float* const>(to), count, 1.0,
                                       grid);
         },
         [&](std::uint32_t salt) {
             const std::vector<float> a = numbers(few, salt), b = numbers(few, salt + 1);
             std::vector<std::int64_t> sum(few);
             std::vector<float> wanted(few);
             un::to_grid(std::span(sum), std::span<const float>(a), 1.0, grid);
             un::add_to_grid(std::span(sum), std::span<const float>(b), 1.0, grid);
             un::from_grid(std::span(wanted), std::span<const std::int64_t>(sum), grid);
             compare_bits(z, wanted, "the reproducible sum");
         }},
    };
    const auto device_wait = [&] { check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); };
    Clock clock;
    bench::Series copies{"copy", {}};
    std::vector<bench::Series> times;
    for (const Subject& one : subjects) times.push_back({one.name, {}});
    const int rounds = options.quick ? 3 : 30;
    for (int round = -1; round < rounds; ++round) { // the first one is not counted
        const auto salt = static_cast<std::uint32_t>(round + 2) * 10;
        two(salt);
        check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        const double copied = clock.time(stream, [&] {
            check(cudaMemcpyAsync(thrust::raw_pointer_cast(z.data()), thrust::raw_pointer_cast(x.data()),
                                  count * sizeof(float), cudaMemcpyDeviceToDevice, stream),
                  "cudaMemcpyAsync");
        });
        compare_bits(z, numbers(few, salt), "the copy");
        if (round >= 0) copies.add(copied);
        for (std::size_t k = 0; k < subjects.size(); ++k) {
            const Subject& one = subjects[(k + static_cast<std::size_t>(round + 1)) % subjects.size()];
            one.prepare(salt);
            check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
            const double seconds = clock.time(stream, one.work);
            device_wait();
            one.verify(salt);
            if (round >= 0) times[static_cast<std::size_t>(&one - subjects.data())].add(seconds);
        }
    }
    const double bandwidth = 8.0 * static_cast<double>(count) / copies.median();
    report.header({bench::in_words(count * sizeof(float)), "us", "spread", "GB/s", "of the copy", "goal"});
    report.row({"copy", bench::format("%.1f", copies.median() * 1e6), bench::format("%.0f %%", copies.spread() * 100),
                bench::format("%.0f", bandwidth * 1e-9), "", ""});
    for (std::size_t k = 0; k < subjects.size(); ++k) {
        const double rate = subjects[k].bytes * static_cast<double>(count) / times[k].median();
        report.row({subjects[k].name, bench::format("%.1f", times[k].median() * 1e6),
                    bench::format("%.0f %%", times[k].spread() * 100), bench::format("%.0f", rate * 1e-9),
                    bench::format("%.0f %%", 100 * rate / bandwidth),
                    bench::format("%.0f %%", 100 * subjects[k].goal)});
        report.add({{"case", subjects[k].name},
                    {"elements", count},
                    {"times", times[k].json()},
                    {"copy", copies.json()},
                    {"of_copy", rate / bandwidth},
                    {"goal", subjects[k].goal}});
    }
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

} // namespace

int main(int argc, char** argv) {
    const bench::Options options = bench::parse(argc, argv);
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        std::fprintf(stderr, "%s: no GPU is here, so there is nothing to measure\n", argv[0]);
        return 2;
    }
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    bench::Report report(std::string("gpu, kernels on ") + properties.name, options);
    for (const std::size_t mebibytes : {16, 64, 256})
        if (!options.quick || mebibytes == 64) measure(mebibytes * 1048576 / sizeof(float), options, report);
}
