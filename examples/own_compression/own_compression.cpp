// A compression of your own in one page: it sends the sign of each gradient, and one magnitude per
// bucket (signSGD with error feedback: Karimireddy et al. 2019, algorithm 1). The laws of its
// family certify it before it is used.

#include "../digits/data.hpp"
#include "../digits/network.hpp"

#include <unisono/compression/compression.hpp>
#include <unisono/testing/compression_laws.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>

struct SignCompression {
    static constexpr std::string_view name = "sign";
    static constexpr un::Family family = un::Family::compression;
    static constexpr bool compresses = true;
    // All ranks receive each rank's signs. No reducer could add them.
    static constexpr bool own_exchange = true;
    friend bool operator==(const SignCompression&, const SignCompression&) = default;
    void check() const {} // no parameters to check

    template <class World, class T>
    class Run {
    public:
        Run(World& world, std::span<const un::Slice> buckets) : world_(&world) {
            for (const un::Slice& slice : buckets) {
                const std::size_t bytes = sizeof(float) + (slice.count + 7) / 8;
                buckets_.push_back(
                    {slice, std::vector<T>(slice.count), world.template allocate<std::byte>(bytes),
                     world.template allocate<std::byte>(bytes * static_cast<std::size_t>(world.size()))});
            }
        }
        template <class Reduction>
        void begin(std::size_t b, T* values, Reduction&) {
            Bucket& bucket = buckets_[b];
            bucket.values = values;
            double sum = 0;
            for (std::size_t i = 0; i < bucket.slice.count; ++i) sum += std::abs(bucket.left[i] += values[i]);
            const auto size = static_cast<float>(sum / static_cast<double>(bucket.slice.count));
            std::memcpy(bucket.mine.data(), &size, sizeof size);
            std::memset(bucket.mine.data() + sizeof size, 0, bucket.mine.size() - sizeof size);
            for (std::size_t i = 0; i < bucket.slice.count; ++i) {
                const bool negative = bucket.left[i] < 0;
                bucket.mine[sizeof size + i / 8] |= std::byte(negative) << (i % 8);
                // The next update sends the error of this one.
                bucket.left[i] -= static_cast<T>(negative ? -size : size);
            }
            bucket.operation = un::start_all_gather(*world_, bucket.mine, bucket.all);
        }
        void finish() {
            for (Bucket& bucket : buckets_) {
                if (bucket.values == nullptr) continue;
                bucket.operation.wait();
                std::fill_n(bucket.values, bucket.slice.count, T{});
                // In the order of ranks.
                for (std::size_t at = 0; at < bucket.all.size(); at += bucket.mine.size()) {
                    float size = 0;
                    std::memcpy(&size, bucket.all.data() + at, sizeof size);
                    for (std::size_t i = 0; i < bucket.slice.count; ++i) {
                        const auto bits = std::to_integer<unsigned>(bucket.all[at + sizeof size + i / 8]);
                        bucket.values[i] += static_cast<T>((bits >> (i % 8) & 1) != 0 ? -size : size);
                    }
                }
                bucket.values = nullptr;
            }
        }
        void forget() {
            for (Bucket& bucket : buckets_) std::fill(bucket.left.begin(), bucket.left.end(), T{});
        }
        [[nodiscard]] std::size_t bytes() const {
            std::size_t all = 0;
            for (const Bucket& bucket : buckets_)
                all += bucket.left.size() * sizeof(T) + bucket.mine.size() + bucket.all.size();
            return all;
        }

    private:
        struct Bucket {
            un::Slice slice;
            std::vector<T> left;
            un::Memory<std::byte> mine, all; // a float, then the signs
            T* values = nullptr;
            un::Operation operation = {};
        };
        World* world_;
        std::vector<Bucket> buckets_;
    };
    template <class T, class World>
    [[nodiscard]] Run<World, T> start(World& world, std::span<const un::Slice> buckets) const {
        return {world, buckets};
    }
};
static_assert(un::compression_policy<SignCompression>);

int main() try {
    // Where magnitudes differ, the error shrinks slowly: it takes many updates to come within a
    // hundredth.
    const auto found = un::testing::compression_laws(SignCompression{}, {.updates_until_all = 1000, .tolerance = 0.01});
    std::printf("%s\n", found.lawful() ? "lawful" : found.text().c_str());
    const auto images = digits::split(digits::read(DIGITS_DATA), 357);
    un::run<un::InProcess>(2, [&](auto& world) {
        digits::Network network({digits::pixels, 64, digits::kinds});
        un::Trainer trainer{world, network, SignCompression{}, un::Sgd{.learning_rate = 0.05, .momentum = 0.9}};
        trainer.fit(images.train.data(), {.epochs = 30, .batch_size = 16, .progress = false});
        const auto [loss, accuracy] = trainer.evaluate(images.test.data(), {}, un::MeanMetric{}, un::AccuracyMetric{});
        if (world.rank() == 0) std::printf("%stest accuracy %.4f\n", trainer.describe().c_str(), accuracy.value());
    });
    return found.lawful() ? 0 : 1;
} catch (const std::exception& failed) {
    std::fprintf(stderr, "own_compression: %s\n", failed.what());
    return 1;
}
