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

/// Memory for elements, which moves when it grows. What is not inline gets the bytes of an element.
class ListRoom {
protected:
    ListRoom() = default;
    ListRoom(ListRoom&& other) noexcept : data_(other.data_), size_(other.size_), capacity_(other.capacity_) {
        other.data_ = nullptr;
        other.size_ = other.capacity_ = 0;
    }
    ~ListRoom() { ::operator delete(data_); }

    void swap(ListRoom& other) noexcept;
    /// Room for `count` elements; throws bad_alloc if they cannot be addressed.
    void reserve(std::size_t count, std::size_t stride);
    void assign(const void* from, std::size_t count, std::size_t stride);
    /// Appends elements that are not in this memory.
    void append(const void* from, std::size_t count, std::size_t stride);
    /// Fills what is new with copies of an element, which is not in this memory.
    void resize(std::size_t count, const void* element, std::size_t stride);
    /// Appends an element, which may be in this memory, although that is full.
    void append_to_full(const void* element, std::size_t stride);

    void* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
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
    List(const List& other) : ListRoom() { ListRoom::assign(other.data_, other.size_, stride); }
    List(List&&) noexcept = default;
    explicit List(std::size_t count) { resize(count); }
    List(std::size_t count, const T& value) { resize(count, value); }
    List(std::initializer_list<T> values) { ListRoom::assign(values.begin(), values.size(), stride); }
    template <std::size_t extent> // deduced, so that no list is tested for being a span
    explicit List(std::span<const T, extent> values) {
        assign(values);
    }
    List& operator=(const List& other) {
        if (this != &other) ListRoom::assign(other.data_, other.size_, stride);
        return *this;
    }
    List& operator=(List&& other) noexcept {
        swap(other);
        return *this;
    }

    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] T* data() { return static_cast<T*>(data_); }
    [[nodiscard]] const T* data() const { return static_cast<const T*>(data_); }
    // Not by data() and size(): each function is one more to compile for each element type.
    [[nodiscard]] T* begin() { return static_cast<T*>(data_); }
    [[nodiscard]] const T* begin() const { return static_cast<const T*>(data_); }
    [[nodiscard]] T* end() { return static_cast<T*>(data_) + size_; }
    [[nodiscard]] const T* end() const { return static_cast<const T*>(data_) + size_; }
    [[nodiscard]] T& operator[](std::size_t index) {
        UNISONO_ASSERT(index < size_, "index out of range");
        return static_cast<T*>(data_)[index];
    }
    [[nodiscard]] const T& operator[](std::size_t index) const {
        UNISONO_ASSERT(index < size_, "index out of range");
        return static_cast<const T*>(data_)[index];
    }
    [[nodiscard]] T& front() { return (*this)[0]; }
    [[nodiscard]] const T& front() const { return (*this)[0]; }
    [[nodiscard]] T& back() { return (*this)[size_ - 1]; }
    [[nodiscard]] const T& back() const { return (*this)[size_ - 1]; }

    void reserve(std::size_t count) { ListRoom::reserve(count, stride); }
    void clear() { size_ = 0; }
    void resize(std::size_t count, T value = T{}) { ListRoom::resize(count, &value, stride); }
    void assign(std::size_t count, T value) {
        clear();
        resize(count, value);
    }
    template <std::size_t extent>
    void assign(std::span<const T, extent> values) {
        ListRoom::assign(values.data(), values.size(), stride);
    }
    void push_back(const T& value) {
        if (size_ == capacity_) [[unlikely]]
            return append_to_full(&value, stride);
        ::new (static_cast<void*>(static_cast<T*>(data_) + size_)) T(value);
        ++size_;
    }
    /// Appends another list's elements, not its own.
    void append(const List& other) { ListRoom::append(other.data_, other.size_, stride); }
    void pop_back() {
        UNISONO_ASSERT(!empty(), "the list is empty");
        --size_;
    }
    /// Removes an element; keeps the order of the others.
    void erase(std::size_t index) {
        UNISONO_ASSERT(index < size_, "index out of range");
        T* const at = static_cast<T*>(data_) + index;
        --size_;
        std::memmove(static_cast<void*>(at), at + 1, (size_ - index) * stride);
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
    [[gnu::noinline, gnu::cold]] static void end(T* object) { delete object; }

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

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::swap(ListRoom& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
}

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::reserve(std::size_t count, std::size_t stride) {
    if (count <= capacity_) return;
    if (count > PTRDIFF_MAX / stride) throw std::bad_alloc();
    const std::size_t doubled = capacity_ * stride < 32 ? 64 / stride : capacity_ * 2;
    const std::size_t wanted = count > doubled ? count : doubled;
    void* const grown = ::operator new(wanted* stride);
    if (size_ != 0) std::memcpy(grown, data_, size_ * stride);
    ::operator delete(data_);
    data_ = grown;
    capacity_ = wanted;
}

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::assign(const void* from, std::size_t count, std::size_t stride) {
    reserve(count, stride);
    if (count != 0) std::memmove(data_, from, count * stride);
    size_ = count;
}

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::append(const void* from, std::size_t count, std::size_t stride) {
    if (count == 0) return;
    reserve(size_ + count, stride);
    std::memcpy(static_cast<std::byte*>(data_) + size_ * stride, from, count * stride);
    size_ += count;
}

[[gnu::noinline]] UNISONO_DEFINITION void ListRoom::resize(std::size_t count, const void* element, std::size_t stride) {
    reserve(count, stride);
    if (count > size_) {
        std::byte* const begin = static_cast<std::byte*>(data_) + size_ * stride;
        const std::size_t added = (count - size_) * stride;
        std::memcpy(begin, element, stride);
        for (std::size_t filled = stride, next = 0; filled < added; filled += next) {
            next = filled < added - filled ? filled : added - filled;
            std::memcpy(begin + filled, begin, next);
        }
    }
    size_ = count;
}

[[gnu::noinline, gnu::cold]] UNISONO_DEFINITION void ListRoom::append_to_full(const void* element, std::size_t stride) {
    ListRoom grown; // the element may be in the old memory
    grown.reserve(size_ + 1 > 2 * capacity_ ? size_ + 1 : 2 * capacity_, stride);
    grown.append(data_, size_, stride);
    grown.append(element, 1, stride);
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
