#pragma once

/// \file
/// The vector for the library's internal data. std::vector would do, but each of its element types
/// costs the programs that include Unisono a hundred functions to compile, and there are dozens of
/// types (measured: a fifth of the umbrella's compile time). Here growth, copies and moves are
/// compiled once, for bytes.

#include "unisono/core/config.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// Memory for bytes, which moves when it grows.
class ListRoom {
protected:
    ListRoom() = default;
    ListRoom(const ListRoom& other) { assign_bytes(other.data_, other.bytes_); }
    ListRoom(ListRoom&& other) noexcept { swap(other); }
    ListRoom& operator=(const ListRoom& other) {
        if (this != &other) assign_bytes(other.data_, other.bytes_);
        return *this;
    }
    ListRoom& operator=(ListRoom&& other) noexcept {
        swap(other);
        return *this;
    }
    ~ListRoom() { ::operator delete(data_); }

    void swap(ListRoom& other) noexcept {
        void* const data = data_;
        const std::size_t bytes = bytes_;
        const std::size_t capacity = capacity_;
        data_ = other.data_;
        bytes_ = other.bytes_;
        capacity_ = other.capacity_;
        other.data_ = data;
        other.bytes_ = bytes;
        other.capacity_ = capacity;
    }
    void reserve_bytes(std::size_t bytes) {
        if (bytes > capacity_) grow(bytes);
    }
    /// The bytes of `count` elements; throws bad_alloc if they cannot be addressed.
    [[nodiscard]] static std::size_t bytes_of(std::size_t count, std::size_t element) {
        if (count > PTRDIFF_MAX / element) throw std::bad_alloc();
        return count * element;
    }
    void assign_bytes(const void* from, std::size_t bytes) {
        reserve_bytes(bytes);
        if (bytes != 0) std::memmove(data_, from, bytes);
        bytes_ = bytes;
    }
    /// Fills what is new with copies of an element, which is not in this memory.
    void resize_bytes(std::size_t bytes, const void* element, std::size_t stride);
    /// Appends an element, which may be in this memory, although that is full.
    void append_to_full(const void* element, std::size_t stride);
    [[nodiscard]] bool has_room(std::size_t bytes) const { return capacity_ - bytes_ >= bytes; }
    [[nodiscard]] void* past() const { return static_cast<std::byte*>(data_) + bytes_; }

    void* data_ = nullptr;
    std::size_t bytes_ = 0;

private:
    void grow(std::size_t bytes);
    std::size_t capacity_ = 0; ///< bytes
};

/// Elements that the compiler may treat as bytes: trivially copyable, not over-aligned. Names and
/// costs are those of std::vector; an index out of range is a programmer's error, checked as
/// UNISONO_ASSERT is. Pointers are valid until it grows.
template <class T>
class List : private ListRoom {
    static constexpr std::size_t stride = sizeof(T); // NOLINT(bugprone-sizeof-expression): T may be a pointer
    static_assert(__is_trivially_copyable(T), "List moves its elements as bytes: use std::vector");
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__,
                  "List's elements need at most the alignment of operator new");

public:
    using value_type = T;

    List() = default;
    explicit List(std::size_t count) { resize(count); }
    List(std::size_t count, const T& value) { resize(count, value); }
    List(std::initializer_list<T> values) { assign_bytes(values.begin(), values.size() * stride); }
    template <std::size_t extent> // deduced, so that no list is tested for being a span
    explicit List(std::span<const T, extent> values) {
        assign_bytes(values.data(), values.size_bytes());
    }

    [[nodiscard]] std::size_t size() const { return bytes_ / stride; }
    [[nodiscard]] bool empty() const { return bytes_ == 0; }
    [[nodiscard]] T* data() { return static_cast<T*>(data_); }
    [[nodiscard]] const T* data() const { return static_cast<const T*>(data_); }
    [[nodiscard]] T* begin() { return data(); }
    [[nodiscard]] const T* begin() const { return data(); }
    [[nodiscard]] T* end() { return static_cast<T*>(past()); }
    [[nodiscard]] const T* end() const { return static_cast<const T*>(past()); }
    [[nodiscard]] T& operator[](std::size_t index) {
        UNISONO_ASSERT(index < size(), "index out of range");
        return data()[index];
    }
    [[nodiscard]] const T& operator[](std::size_t index) const {
        UNISONO_ASSERT(index < size(), "index out of range");
        return data()[index];
    }
    [[nodiscard]] T& front() { return (*this)[0]; }
    [[nodiscard]] const T& front() const { return (*this)[0]; }
    [[nodiscard]] T& back() { return (*this)[size() - 1]; }
    [[nodiscard]] const T& back() const { return (*this)[size() - 1]; }

    void reserve(std::size_t count) { reserve_bytes(bytes_of(count, stride)); }
    void clear() { bytes_ = 0; }
    void resize(std::size_t count, T value = T{}) { resize_bytes(bytes_of(count, stride), &value, stride); }
    void assign(std::size_t count, T value) {
        clear();
        resize(count, value);
    }
    template <std::size_t extent>
    void assign(std::span<const T, extent> values) {
        assign_bytes(values.data(), values.size_bytes());
    }
    void push_back(const T& value) {
        if (!has_room(stride)) [[unlikely]]
            return append_to_full(&value, stride);
        ::new (past()) T(value);
        bytes_ += stride;
    }
    /// Appends another list's elements, not its own.
    void append(const List& other) {
        if (other.empty()) return;
        reserve_bytes(bytes_ + other.bytes_);
        std::memcpy(past(), other.data_, other.bytes_);
        bytes_ += other.bytes_;
    }
    void pop_back() {
        UNISONO_ASSERT(!empty(), "the list is empty");
        bytes_ -= stride;
    }
    /// Removes an element; keeps the order of the others.
    void erase(std::size_t index) {
        UNISONO_ASSERT(index < size(), "index out of range");
        T* const at = data() + index;
        std::memmove(static_cast<void*>(at), at + 1, (size() - index - 1) * stride);
        bytes_ -= stride;
    }

    friend bool operator==(const List& a, const List& b) {
        if (a.size() != b.size()) return false;
        for (std::size_t i = 0; i < a.size(); ++i)
            if (!(a[i] == b[i])) return false;
        return true;
    }
};

/// As std::unique_ptr<T>, each instance of which takes a compiler thirty functions.
template <class T>
class Owned {
public:
    Owned() = default;
    explicit Owned(T* object) : object_(object) {}
    Owned(Owned&& other) noexcept : object_(other.release()) {}
    Owned& operator=(Owned&& other) noexcept {
        Owned taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~Owned() {
        if (object_ != nullptr) end(object_);
    }

    /// Takes an object that `new` has made.
    void take(T* object) { *this = Owned(object); }
    [[nodiscard]] T* get() const { return object_; }
    [[nodiscard]] T& operator*() const { return *object_; }
    [[nodiscard]] T* operator->() const { return object_; }
    [[nodiscard]] explicit operator bool() const { return object_ != nullptr; }
    /// The caller owns the object from then on.
    [[nodiscard]] T* release() {
        T* const object = object_;
        object_ = nullptr;
        return object;
    }
    void swap(Owned& other) noexcept {
        T* const object = object_;
        object_ = other.object_;
        other.object_ = object;
    }

private:
    [[gnu::noinline]] static void end(T* object) { delete object; }

    T* object_ = nullptr;
};

/// `count` elements that do not move, value-initialised: as std::unique_ptr<T[]>, each instance of
/// which takes 8 ms to compile.
template <class T>
class FixedArray {
public:
    FixedArray() = default;
    explicit FixedArray(std::size_t count) : data_(new T[possible(count)]()), size_(count) {}
    FixedArray(FixedArray&& other) noexcept { swap(other); }
    FixedArray& operator=(FixedArray&& other) noexcept {
        swap(other);
        return *this;
    }
    ~FixedArray() { delete[] data_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] T* begin() const { return data_; }
    [[nodiscard]] T* end() const { return data_ + size_; }
    [[nodiscard]] T& operator[](std::size_t index) { return data_[index]; }
    [[nodiscard]] const T& operator[](std::size_t index) const { return data_[index]; }

private:
    /// Optimisers that follow a negative number of ranks to here warn of its size.
    static std::size_t possible(std::size_t count) {
        if (count > ~std::size_t{0} / 2 / sizeof(T)) __builtin_trap();
        return count;
    }
    void swap(FixedArray& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Contiguous elements that it does not own, as std::span without the tests for iterators, which
/// take a compiler 7 ms per element type.
template <class T>
class Part {
public:
    Part() = default;
    Part(T* data, std::size_t size) : data_(data), size_(size) {}
    /// A template, so that no compiler asks a List of these elements whether it can be made of
    /// something else (nvcc does, and not all elements can be in a List).
    template <class L>
        requires std::is_same_v<L, List<std::remove_const_t<T>>>
    Part(const L& all) : data_(all.data()), size_(all.size()) {}

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] T* begin() const { return data_; }
    [[nodiscard]] T* end() const { return data_ + size_; }
    [[nodiscard]] T& operator[](std::size_t index) const {
        UNISONO_ASSERT(index < size_, "index out of range");
        return data_[index];
    }
    [[nodiscard]] T& front() const { return (*this)[0]; }
    [[nodiscard]] T& back() const { return (*this)[size_ - 1]; }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// Counts by key, a replacement for a hash map: a table that is at most half full, searched
/// linearly from a key's slot. Keys are below 2^64 - 1 and made by the library, so that input
/// cannot force collisions.
class CountTable {
public:
    /// The key's count, initially 0. The reference is valid until the next call.
    std::uint32_t& operator[](std::uint64_t key) {
        if (2 * (used_ + 1) > entries_.size()) enlarge();
        Entry& entry = place(key + 1);
        if (entry.key == 0) {
            entry.key = key + 1;
            ++used_;
        }
        return entry.count;
    }
    [[nodiscard]] std::size_t size() const { return used_; }

private:
    struct Entry {
        std::uint64_t key = 0; ///< plus 1; 0: empty
        std::uint32_t count = 0;
    };
    Entry& place(std::uint64_t key) {
        const std::size_t mask = entries_.size() - 1;
        std::size_t at = (key * 0x9e3779b97f4a7c15u >> 32) & mask;
        while (entries_[at].key != 0 && entries_[at].key != key) at = (at + 1) & mask;
        return entries_[at];
    }
    void enlarge();
    List<Entry> entries_;
    std::size_t used_ = 0;
};

/// Sorts lists of up to hundreds of elements: takes a tenth of a second less to compile than
/// std::sort. Stable; n * n / 4 moves on average.
template <class Values, class Less>
void insertion_sort(Values& values, Less less) {
    for (std::size_t i = 1; i < values.size(); ++i) {
        const auto moved = values[i];
        std::size_t at = i;
        for (; at > 0 && less(moved, values[at - 1]); --at) values[at] = values[at - 1];
        values[at] = moved;
    }
}

} // namespace detail
UNISONO_NAMESPACE_END

#if UNISONO_DEFINES
UNISONO_NAMESPACE_BEGIN
namespace detail {

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::grow(std::size_t bytes) {
    const std::size_t doubled = capacity_ < 32 ? 64 : capacity_ * 2;
    const std::size_t wanted = bytes > doubled ? bytes : doubled;
    void* const grown = ::operator new(wanted);
    if (bytes_ != 0) std::memcpy(grown, data_, bytes_);
    ::operator delete(data_);
    data_ = grown;
    capacity_ = wanted;
}

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::resize_bytes(std::size_t bytes, const void* element,
                                                                 std::size_t stride) {
    reserve_bytes(bytes);
    if (bytes > bytes_) {
        std::byte* const begin = static_cast<std::byte*>(past());
        const std::size_t added = bytes - bytes_;
        std::memcpy(begin, element, stride);
        for (std::size_t filled = stride, next = 0; filled < added; filled += next) {
            next = filled < added - filled ? filled : added - filled;
            std::memcpy(begin + filled, begin, next);
        }
    }
    bytes_ = bytes;
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void ListRoom::append_to_full(const void* element, std::size_t stride) {
    ListRoom grown; // the element may be in the old memory
    grown.reserve_bytes(bytes_ + stride > 2 * capacity_ ? bytes_ + stride : 2 * capacity_);
    grown.assign_bytes(data_, bytes_);
    std::memcpy(grown.past(), element, stride);
    grown.bytes_ += stride;
    swap(grown);
}

UNISONO_DEFINITION void CountTable::enlarge() {
    List<Entry> old(entries_.empty() ? 16 : 2 * entries_.size());
    std::swap(old, entries_);
    for (const Entry& entry : old)
        if (entry.key != 0) place(entry.key) = entry;
}

} // namespace detail
UNISONO_NAMESPACE_END
#endif // UNISONO_DEFINES
