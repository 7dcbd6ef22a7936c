#pragma once

/// \file
/// Metrics for TensorBoard. Not in the umbrella.
///
///     un::TensorBoardFile log(world, "runs/first");
///     trainer.fit(data, {.epochs = 10}, std::ref(log));
///
/// The file is a sequence of records (length, its checksum, bytes, their checksum). Each holds a
/// protocol buffer `Event`, as TensorFlow's tensorflow/core/util/event.proto and
/// lib/io/record_writer.h define it. This header encodes it by itself, so no dependency is needed.

#include "unisono/extensions/observe/metric_files.hpp"

#include <array>
#include <bit>
#include <chrono>
#include <sys/stat.h>
#include <unistd.h>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// CRC-32C (Castagnoli). TensorFlow masks it, see below.
inline std::uint32_t crc32c(std::string_view bytes) {
    static constexpr auto table = [] {
        std::array<std::uint32_t, 256> made{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (0x82f63b78u & (0u - (value & 1u)));
            made[i] = value;
        }
        return made;
    }();
    std::uint32_t crc = 0xffffffffu;
    for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xffu] ^ (crc >> 8);
    return ~crc;
}
inline std::uint32_t masked_crc32c(std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

/// A protocol-buffer message that is built field by field.
class Protobuf {
public:
    void number(unsigned field, std::uint64_t value) {
        varint(field << 3);
        varint(value);
    }
    void real(unsigned field, double value) {
        varint(field << 3 | 1);
        fixed(std::bit_cast<std::uint64_t>(value));
    }
    void real(unsigned field, float value) {
        varint(field << 3 | 5);
        fixed(std::bit_cast<std::uint32_t>(value));
    }
    void text(unsigned field, std::string_view value) {
        varint(field << 3 | 2);
        varint(value.size());
        bytes_ += value;
    }
    template <class Unsigned>
    void fixed(Unsigned value) {
        for (std::size_t i = 0; i < sizeof value; ++i) bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    }
    [[nodiscard]] const std::string& bytes() const { return bytes_; }

private:
    void varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
        bytes_ += static_cast<char>(value);
    }
    std::string bytes_;
};

} // namespace detail

/// A separate event file in the folder, which is made, with its parents, if it does not exist.
/// Values are stored as floats, as in TensorBoard. Errors: refused if the file cannot be made or
/// written.
class TensorBoardFile : public detail::MetricFile<TensorBoardFile> {
public:
    template <class World>
    TensorBoardFile(const World& world, const std::string& folder)
        : MetricFile(world), folder_(detail::absolute_path(folder)) {
        if (writes()) open();
    }

private:
    friend class detail::MetricFile<TensorBoardFile>;
    static constexpr std::string_view prefix = "events.out.tfevents.";
    void open() {
        for (std::size_t at = 1; at <= folder_.size();
             ++at) // a folder that cannot be made is reported when the file is opened
            if (at == folder_.size() || folder_[at] == '/')
                static_cast<void>(::mkdir(folder_.substr(0, at).c_str(), 0777));
        file_.emplace(concat({folder_, "/", prefix, wall_time(), ".", ::getpid()}), "a");
        detail::Protobuf version;
        version.real(1, wall_time());
        version.text(3, "brain.Event:2");
        record(version.bytes());
    }
    /// An event by which TensorBoard hides what other files of the folder have from this step on.
    void resume(std::uint64_t update) {
        detail::Protobuf start;
        start.number(1, 1); // SessionLog.START
        detail::Protobuf event;
        event.real(1, wall_time());
        event.number(2, update);
        event.text(7, start.bytes());
        record(event.bytes());
    }
    void put(std::uint64_t step, double, std::span<const Scalar> scalars) {
        detail::Protobuf summary;
        for (const Scalar& one : scalars) {
            detail::Protobuf value;
            value.text(1, one.name);
            value.real(2, static_cast<float>(one.value));
            summary.text(1, value.bytes());
        }
        detail::Protobuf event;
        event.real(1, wall_time());
        event.number(2, step);
        event.text(5, summary.bytes());
        record(event.bytes());
    }
    void record(const std::string& event) {
        detail::Protobuf length;
        length.fixed(event.size());
        detail::Protobuf all = length;
        all.fixed(detail::masked_crc32c(length.bytes()));
        detail::Protobuf end;
        end.fixed(detail::masked_crc32c(event));
        file_->write(all.bytes() + event + end.bytes());
    }
    static double wall_time() {
        return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    }

    std::string folder_;
    std::optional<detail::OutputFile> file_;
};

UNISONO_NAMESPACE_END
