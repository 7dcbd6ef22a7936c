#pragma once

/// \file
/// Numbers that kernels of a stream compute and the host waits for: where an element is not finite,
/// a norm, the exponent of a grid. A kernel notes its answer in words of the device.
///
/// Cost of a call: the kernel, 32 bytes that are set before it and copied to pinned memory after,
/// and one wait for the stream. Only the first call of an object on each device allocates.

#include "unisono/arithmetic/grid.hpp"
#include "unisono/arithmetic/square_sum.hpp"
#include "unisono/core/element.hpp"
#include "unisono/extensions/cuda/api.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Words on a device, which is current when it is made, and pinned words of the host.
class AnswerWords {
public:
    static constexpr std::size_t most = NotedSquares::words;

    const int device;
    AnswerWords* next = nullptr; ///< of the same object, on another device

    explicit AnswerWords(int current) : device(current) {
        check_cuda(cudaMalloc(&there_, bytes), "cudaMalloc");
        if (const cudaError_t code = cudaMallocHost(&here_, bytes); code != cudaSuccess) {
            static_cast<void>(cudaFree(there_));
            check_cuda(code, "cudaMallocHost");
        }
    }
    AnswerWords(const AnswerWords&) = delete;
    AnswerWords& operator=(const AnswerWords&) = delete;
    ~AnswerWords() {
        static_cast<void>(cudaFree(there_));
        static_cast<void>(cudaFreeHost(here_));
    }

    /// Sets every byte of the words to `initial`, calls note(words of the device), and waits for
    /// the stream. Callers that share the words take turns.
    template <class Note>
    std::array<std::uint64_t, most> ask(cudaStream_t stream, int initial, const Note& note) {
        const std::lock_guard lock(turn_);
        check_cuda(cudaMemsetAsync(there_, initial, bytes, stream), "cudaMemsetAsync");
        note(static_cast<std::uint64_t*>(there_));
        check_cuda(cudaMemcpyAsync(here_, there_, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
        check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        std::array<std::uint64_t, most> told{};
        for (std::size_t i = 0; i < most; ++i) told[i] = static_cast<const std::uint64_t*>(here_)[i];
        return told;
    }

private:
    static constexpr std::size_t bytes = most * sizeof(std::uint64_t);
    std::mutex turn_;
    void *there_ = nullptr, *here_ = nullptr;
};

/// The functions that wait, for a class `Kernels` that enqueues on the stream `cuda_stream()`: each
/// calls one of its functions that note an answer. The words live as long as the object; a copy of
/// it gets words of its own. Several threads may call, also with other devices (a stream may be
/// that of the current device, as the default one is).
template <class Kernels>
class DeviceAnswers {
public:
    DeviceAnswers() = default;
    DeviceAnswers(const DeviceAnswers&) noexcept {}
    DeviceAnswers& operator=(const DeviceAnswers&) noexcept { return *this; }
    ~DeviceAnswers() {
        for (AnswerWords* one = words_.load(); one != nullptr;) delete std::exchange(one, one->next);
    }

    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::size_t first_non_finite(std::span<T> x) const {
        constexpr int infinite = 1 << 15; // of every type
        return static_cast<std::size_t>(
            ask(all_set, [&](std::uint64_t* noted) { kernels().note_magnitudes(x, 0, infinite, noted); })[0]);
    }
    /// The sum of squares in double, by `SquareSum` on the grid that x needs. Cost: two reads.
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] double sum_of_squares(std::span<T> x) const {
        const NotedSquares noted = squares([&](std::uint64_t* words) { kernels().note_squares(x, words); });
        SquareSum sum(SquareSum::needed_of<std::remove_const_t<T>>(noted));
        sum.template add<std::remove_const_t<T>>(noted);
        return sum.value();
    }
    /// As `sum.add(x)`. One read. \throws error bad_input: an element is not below sum's exponent
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    void add_squares(SquareSum& sum, std::span<T> x) const {
        if (sum.exponent() == Grid::not_finite) return;
        sum.template add<std::remove_const_t<T>>(
            squares([&](std::uint64_t* words) { kernels().note_squares(x, words, sum.exponent()); }));
    }
    template <class T>
        requires floating_element<std::remove_const_t<T>>
    [[nodiscard]] std::int32_t needed_exponent(std::span<T> x, double weight = 1.0) const {
        return needed<T>(weight, [&](std::uint64_t* largest) { kernels().note_largest(x, largest); });
    }
    /// As on the host, for images of std::int64_t on a Grid and of std::int32_t on a NarrowGrid.
    /// One read.
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return needed<T>(weight, [&](std::uint64_t* largest) {
            kernels().template to_grid_noting<false>(image, x, weight, grid, largest);
        });
    }
    template <class Integer, class T, class G>
        requires floating_element<std::remove_const_t<T>>
    std::int32_t add_to_grid(std::span<Integer> image, std::span<T> x, double weight, const G& grid) const {
        return needed<T>(weight, [&](std::uint64_t* largest) {
            kernels().template to_grid_noting<true>(image, x, weight, grid, largest);
        });
    }
    template <floating_element T, class Integer, class G>
    std::size_t from_grid(std::span<T> out, std::span<const Integer> image, const G& grid) const {
        const auto noted =
            ask(all_set, [&](std::uint64_t* first) { kernels().from_grid_noting(out, image, grid, first); });
        return noted[0] < image.size() ? static_cast<std::size_t>(noted[0]) : image.size();
    }

private:
    static constexpr int none_set = 0, all_set = 0xff; ///< each byte before the kernel

    [[nodiscard]] const Kernels& kernels() const { return static_cast<const Kernels&>(*this); }
    template <class Note>
    auto ask(int initial, const Note& note) const {
        return words().ask(kernels().cuda_stream(), initial, note);
    }
    template <class T, class Note>
    std::int32_t needed(double weight, const Note& note) const {
        return kernels().template needed_by_bits<std::remove_const_t<T>>(ask(none_set, note)[0], weight);
    }
    template <class Note>
    NotedSquares squares(const Note& note) const {
        const auto noted = ask(none_set, note);
        return {noted[0], {noted[1], noted[2], noted[3]}};
    }
    AnswerWords& words() const {
        int device = 0;
        check_cuda(cudaGetDevice(&device), "cudaGetDevice");
        AnswerWords* first = words_.load();
        for (AnswerWords* one = first; one != nullptr; one = one->next)
            if (one->device == device) return *one;
        auto made = std::make_unique<AnswerWords>(device);
        do made->next = first; // another thread may have been earlier: both serve
        while (!words_.compare_exchange_weak(first, made.get()));
        return *made.release();
    }

    mutable std::atomic<AnswerWords*> words_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
