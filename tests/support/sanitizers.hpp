// The sanitizers of this build, which change memory, time and processes.
#pragma once

#if defined(__SANITIZE_ADDRESS__) // g++
#define UNISONO_TEST_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define UNISONO_TEST_THREAD_SANITIZER 1
#elif defined(__has_feature) // clang
#if __has_feature(address_sanitizer)
#define UNISONO_TEST_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define UNISONO_TEST_THREAD_SANITIZER 1
#endif
#endif
/// Both sanitizers have heaps and addresses of their own.
#if defined(UNISONO_TEST_ADDRESS_SANITIZER) || defined(UNISONO_TEST_THREAD_SANITIZER)
#define UNISONO_TEST_SANITIZED 1
#endif

namespace test {

#ifdef UNISONO_TEST_THREAD_SANITIZER
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif
#ifdef UNISONO_TEST_SANITIZED
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif

} // namespace test
