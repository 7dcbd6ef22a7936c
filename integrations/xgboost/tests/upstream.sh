#!/usr/bin/env bash
# XGBoost's own C++ tests of its collectives, with the communicator unisono in place of rabit:
#     bash integrations/xgboost/tests/upstream.sh SOURCE BUILD [TRANSPORT...]
# SOURCE and BUILD are those of build.sh. Needs GoogleTest (Debian: libgmock-dev). The tests are a
# copy under BUILD with other constructors; workers are threads of one process, which meet by a
# tracker. Without a TRANSPORT: shared_memory, hosts, tcp.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
shift 2
include=${UNISONO_INCLUDE:-$(cd "$(dirname "$0")/../../../include" && pwd)}
tests=$build/upstream/tests/cpp
mkdir -p "$tests"
rm -rf "$tests/collective"
cp -r "$source/tests/cpp/collective" "$source/tests/cpp/"*.h "$tests/"
ln -sfn "$source/src" "$build/upstream/src"
# change FILE FROM TO: one line of a test, which must be there.
change() {
    grep -qF -- "$2" "$tests/collective/$1" || { echo "upstream.sh: $1 has no line with: $2" >&2; exit 1; }
    FROM=$2 TO=$3 python3 - "$tests/collective/$1" <<'PY'
import os, sys
path = sys.argv[1]
text = open(path).read()
open(path, "w").write(text.replace(os.environ["FROM"], os.environ["TO"]))
PY
}
change test_worker.h '#include "../../../src/collective/comm.h" ' '#include "../../../src/collective/unisono_xgboost.h" '
change test_worker.h 'RabitComm comm_;' 'UnisonoComm comm_;'
change test_worker.h 'DefaultNcclName(), 0}' 'std::getenv("TRANSPORT")}'
change test_worker.h 'comm_.HasChan(i)) {' 'comm_.HasChan(i) && comm_.Chan(i)->Socket() != nullptr) {'
change test_worker.h 'std::string{"rabit"};' 'std::string{"unisono"};
  config["unisono_transport"] = std::string{std::getenv("TRANSPORT")};'
change test_allreduce.cc 'new Coll{}' 'new UnisonoColl{}'
change test_allgather.cc 'new Coll{}' 'new UnisonoColl{}'
cat > "$build/upstream/main.cc" <<'CC'
#include <gtest/gtest.h>

#include <fstream>
#include <string>

bool FileExists(std::string const& name) { return std::ifstream{name}.good(); }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
CC
for file in "$build/upstream/main.cc" "$tests/collective/"*.cc; do
    printf '%s\0' "$file" "$build/upstream/$(basename "$file").o"
done | xargs -0 -n 2 -P "${JOBS:-2}" sh -c 'exec ${CXX:-c++} -std=c++17 -O0 -fopenmp -DDMLC_LOG_CUSTOMIZE=1 -I "$1/include" \
    -I "$1/dmlc-core/include" -I "$2/dmlc-core/include" -I "$3" -c "$4" -o "$5"' compile "$source" "$build" "$include"
mapfile -d '' -t library < <(find "$build/src/CMakeFiles/objxgboost.dir" -name '*.o' -print0)
${CXX:-c++} -fopenmp "$build/upstream/"*.o "${library[@]}" "$(find "$build" -name libdmlc.a)" \
    "$build/libunisono_c.a" -lgmock -lgtest -pthread -o "$build/upstream/tests_of_xgboost"
[ $# != 0 ] || set -- shared_memory hosts tcp
status=0
for transport in "$@"; do
    echo "transport $transport"
    TRANSPORT=$transport timeout 300 "$build/upstream/tests_of_xgboost" --gtest_brief=1 || status=1
done
exit $status
