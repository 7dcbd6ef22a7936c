#pragma once

/// \file State of the process.

#include <pthread.h>

namespace unisono_torch {

/// The process's own T. It outlives every static object. A forked child has none of its parent's
/// threads, so it begins anew.
template <class T>
T& of_this_process() {
    static T* made = [] {
        ::pthread_atfork(nullptr, nullptr, [] { made = new T; });
        return new T;
    }();
    return *made;
}

} // namespace unisono_torch
