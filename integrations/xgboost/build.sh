#!/usr/bin/env bash
# build.sh SOURCE BUILD: adds the communicator unisono to a source tree of XGBoost, and builds
# lib/libxgboost.so there. CXXFLAGS: of the build (-O2). JOBS: 2. UNISONO_INCLUDE: the folder of
# Unisono's headers, if they are elsewhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
include=$(cd "${UNISONO_INCLUDE:-$here/../../include}" && pwd)
source=$(cd "$1" && pwd)
mkdir -p "$2"
build=$(cd "$2" && pwd)
bash "$here/apply.sh" "$source"
printf '#include <unisono/c.hpp>\n' > "$build/unisono_c.cpp"
${CXX:-c++} -std=c++20 ${CXXFLAGS:--O2} -fPIC -I "$include" -c "$build/unisono_c.cpp" -o "$build/unisono_c.o" -pthread
ar rcs "$build/libunisono_c.a" "$build/unisono_c.o"
cmake -S "$source" -B "$build" -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="${CXXFLAGS:--O2} -DNDEBUG" -DCMAKE_CXX_FLAGS="-I\"$include\"" -DCMAKE_SHARED_LINKER_FLAGS="${LDFLAGS:-} -Wl,--exclude-libs,libunisono_c.a" \
      -DCMAKE_CXX_STANDARD_LIBRARIES="\"$build/libunisono_c.a\"" > "$build/configure.log"
cmake --build "$build" --target xgboost --parallel "${JOBS:-2}"
