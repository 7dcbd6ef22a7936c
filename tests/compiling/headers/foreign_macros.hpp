// Macros with short names that headers of common Linux libraries leave behind. A program may
// include those before Unisono, so all headers must compile after this one.
#pragma once

#include <cstdlib>

// Qt (qobjectdefs.h, qglobal.h)
#define signals public
#define slots
#define emit
#define foreach(variable, container) for (variable : container)
#define forever for (;;)

// X11 (X.h, Xlib.h, Xutil.h)
#define None 0L
#define Bool int
#define Status int
#define True 1
#define False 0
#define Success 0
#define Always 2
#define Above 0
#define Below 1
#define Complex 0
#define Convex 2
#define CursorShape 0
#define Expose 12
#define FocusIn 9
#define FocusOut 10
#define FontChange 255
#define GrayScale 1
#define KeyPress 2
#define KeyRelease 3
#define Unsorted 0
#define InputOnly 2
#define ButtonPress 4
#define DirectColor 5

// GLib, Motif, SDL
#define TRUE 1
#define FALSE 0
#define MIN(a, b) (((a) < (b)) ? (a) : (b))
#define MAX(a, b) (((a) > (b)) ? (a) : (b))
#define ABS(a) (((a) < 0) ? -(a) : (a))
#define CLAMP(x, low, high) (((x) > (high)) ? (high) : (((x) < (low)) ? (low) : (x)))
#define String char*
#define Cardinal unsigned

// glog, PyTorch (c10/util/Logging.h), gtest
#define CHECK(condition) static_cast<void>(condition)
#define CHECK_EQ(a, b) static_cast<void>((a) == (b))
#define LOG(severity) severity
#define DCHECK(condition) static_cast<void>(condition)
#define INFO 0
#define WARNING 1
#define ERROR 2
#define FATAL 3
#define FAIL() return
#define TEST(suite, name) void suite##name()

// C's <complex.h>, when a C library's header includes it
#define I (__extension__ 1.0iF)

// PostgreSQL (c.h, port.h), linux/keyboard.h, sys/sysmacros.h, sys/param.h, termios.h
#define Max(x, y) ((x) > (y) ? (x) : (y))
#define Min(x, y) ((x) < (y) ? (x) : (y))
#define Assert(condition) static_cast<void>(condition)
#define qsort pg_qsort
extern "C" void pg_qsort(void*, unsigned long, unsigned long, int (*)(const void*, const void*));
#define K(type, value) (((type) << 8) | (value))
#define likely(x) __builtin_expect((x) != 0, 1)
#define unlikely(x) __builtin_expect((x) != 0, 0)
#define roundup(x, y) ((((x) + ((y)-1)) / (y)) * (y))
#define howmany(x, y) (((x) + ((y)-1)) / (y))
#define ECHO 0000010
#define B0 0000000
#define NL0 0000000

// R (Rinternals.h without R_NO_REMAP): those of its names that the standard library survives
#define allocVector Rf_allocVector
#define asReal Rf_asReal
#define duplicate Rf_duplicate
#define isNull Rf_isNull
#define match Rf_match
#define choose Rf_choose
#define beta Rf_beta
#define sign Rf_sign
