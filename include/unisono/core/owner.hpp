#pragma once

/// \file
/// An owner of one object, for members whose types differ from program to program.

#include "unisono/core/config.hpp"

UNISONO_NAMESPACE_BEGIN
namespace detail {

/// As a std::unique_ptr that is neither moved nor released. A std::unique_ptr is some forty
/// functions for each type: two of them were a sixth of all that a Trainer instantiates.
template <class T>
class Owner {
public:
    Owner() = default;
    explicit Owner(T* object) : object_(object) {}
    Owner(const Owner&) = delete;
    Owner& operator=(const Owner&) = delete;
    ~Owner() { delete object_; }

    /// Takes an object that `new` has made. Call it at most once, if the constructor took none.
    void take(T* object) { object_ = object; }
    /// Null if there is none.
    [[nodiscard]] T* get() const { return object_; }
    [[nodiscard]] T& operator*() const { return *object_; }
    [[nodiscard]] T* operator->() const { return object_; }

private:
    T* object_ = nullptr;
};

} // namespace detail
UNISONO_NAMESPACE_END
