// What the umbrella does without in compiled mode with libstdc++ (docs/how_to/compile_time.md):
// each of these takes a compiler longer than the calls that the library makes of it, which
// core/standard.hpp, core/math.hpp and core/threads.hpp have.
#include <unisono/unisono.hpp>

#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE == 12 // in others its headers may include each other
#ifdef _GLIBCXX_ALGORITHM
#error "<algorithm> is included"
#endif
#ifdef _GLIBCXX_CHRONO
#error "<chrono> is included"
#endif
#ifdef _GLIBCXX_CMATH
#error "<cmath> is included"
#endif
#ifdef _GLIBCXX_ITERATOR
#error "<iterator> is included"
#endif
#if defined(_GLIBCXX_THREAD) || defined(_GLIBCXX_MUTEX) || defined(_GLIBCXX_CONDITION_VARIABLE)
#error "<thread>, <mutex> or <condition_variable> is included"
#endif
#endif
