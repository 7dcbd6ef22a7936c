// The module `unisono`: `import unisono;` in place of `#include <unisono/unisono.hpp>` and of all other headers that need nothing but the standard
// library and POSIX. It is the compiled mode of the same headers, so a program links to the library unisono::compiled, and all of its files
// do without the headers. Tried with clang 19 (docs/how_to/compile_time.md); g++ 12, clang 14 and clang 16 cannot compile it.
module;
#ifndef UNISONO_COMPILED
#define UNISONO_COMPILED
#endif

// All standard and system headers that ours include, so that none of their names becomes part of the module (tests/compiling/compiled/module.py looks).
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <bit>
#if __has_include(<bits/chrono.h>) // libstdc++ (core/standard.hpp)
#include <bits/chrono.h>
#include <bits/stl_algobase.h>
#endif
#include <cerrno>
#include <cfenv>
#include <charconv>
#include <chrono>
#include <cmath>
#include <concepts>
#include <condition_variable>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dirent.h>
#include <exception>
#include <fcntl.h>
#include <functional>
#include <ifaddrs.h>
#include <initializer_list>
#include <iostream>
#include <iterator>
#include <limits>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/sockios.h>
#include <map>
#include <memory>
#include <mutex>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <new>
#include <numbers>
#include <optional>
#include <poll.h>
#include <pthread.h>
#include <queue>
#include <sched.h>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <unistd.h>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>
#include <version>

export module unisono;

#pragma clang diagnostic ignored "-Winclude-angled-in-module-purview" // all of those have been included above
export extern "C++" { // the names of the headers, which belong to no module, so that the library has the same
#include "unisono/unisono.hpp"
#include "unisono/any.hpp"
#include "unisono/any_group.hpp"
#include "unisono/automatic.hpp"
#include "unisono/checkpoint.hpp"
#include "unisono/compression.hpp"
#include "unisono/elastic.hpp"
#include "unisono/hosts.hpp"
#include "unisono/join_any.hpp"
#include "unisono/laboratory.hpp"
#include "unisono/launch.hpp"
#include "unisono/master_weights.hpp"
#include "unisono/model/strided.hpp"
#include "unisono/observe.hpp"
#include "unisono/parallel.hpp"
#include "unisono/reducers.hpp"
#include "unisono/reproducible.hpp"
#include "unisono/sharded.hpp"
#include "unisono/simulate.hpp"
#include "unisono/simulate_elastic.hpp"
#include "unisono/tcp.hpp"
#include "unisono/trainers.hpp"
#include "unisono/transports.hpp"
#include "unisono/updates.hpp"
}
