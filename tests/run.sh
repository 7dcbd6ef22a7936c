#!/usr/bin/env bash
# Installs what is missing, builds and runs tests: bash tests/run.sh [--all]
# Without --all: laws and refusals of rooms, main example, pairwise matrix, faults with few seeds.
# The last line counts passed, failed and skipped tests. Lines above it say what was skipped.
#   --all           every test: also full matrix, slow cases, headers, docs, MPI, packages, examples
#   --rooms 'A;B'   all tests of these folders of tests/
#   --without 'A;B' all tests but those of these folders
#   --preset NAME   a configure preset of CMakePresets.json, default dev; others imply --all
#   --quick         without the test cases labelled "slow"
#   --once          for a build that is made once: also precompiles the library's headers
#   --rest          without the sources that the sanitizers' builds of .ci/run have in full
#   --only build    runs no tests; --only test: runs the tests of an earlier build
#   -- OPTION...    passes options to cmake's configuration
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh

preset=dev
rooms=
without=
only=
all=
quick=OFF
precompiled=
rest=OFF
while [ $# != 0 ]; do
    case $1 in
        --all) all=yes; shift ;;
        --preset) preset=${2:?--preset needs a name}; shift 2 ;;
        --preset=*) preset=${1#*=}; shift ;;
        --quick) quick=ON; shift ;;
        --once) precompiled=ON; shift ;;
        --rest) rest=ON; shift ;;
        --rooms) rooms=${2:?--rooms needs names separated by semicolons}; shift 2 ;;
        --without) without=${2:?--without needs names separated by semicolons}; shift 2 ;;
        --only) only=${2:?--only needs build or test}; shift 2 ;;
        --) shift; break ;;
        -h | --help) sed -n '2,14s/^# //p' "$0"; exit 0 ;;
        *) echo "$0: unknown option '$1' (--help shows the options)" >&2; exit 2 ;;
    esac
done
case $only in '' | build | test) ;; *) echo "$0: --only '$only': expected build or test" >&2; exit 2 ;; esac
if [ "$preset" != dev ] || [ -n "$rooms$without" ]; then all=yes; fi
if [ -z "$all" ]; then quick=ON precompiled=ON; fi
jobs=$(nproc)
export BOOST_TEST_COLOR_OUTPUT=0

# Prints ctest's output, then what was skipped and why (in build/PRESET/skipped.txt, too), then one
# line with the numbers of passed, failed and skipped tests.
run_tests() { # REMARK
    local log status=0 skipped=build/$preset/skipped.txt
    log=$(mktemp)
    ctest --preset "$preset" --parallel $((jobs + 2)) | tee "$log" || status=$?
    awk '/^[0-9]+\/[0-9]+ Test: / { name = $3 }
         / has checked nothing; / { print name ": (checked nothing) " $1 }
         /(^|: )skipped( in part)?: / { sub(/skipped( in part)?: /, (/skipped in part: /) ? "(in part) " : ""); print name ": " $0 }' \
        "build/$preset/Testing/Temporary/LastTest.log" | sort -u >"$skipped"
    if [ -s "$skipped" ]; then
        echo 'Skipped:'
        sed 's/^/  /' "$skipped"
    fi
    awk '/ Test +#[0-9]+: / { if (/ Passed /) passed++; else if (/\*\*\*Skipped/) skipped++; else failed++ }
         END { printf "%d passed, %d failed, %d skipped%s\n", passed, failed, skipped, rest }' rest="$1" "$log"
    rm -f "$log"
    return $status
}
remark=
if [ -z "$all" ]; then remark='; --all runs the rest'; fi
if [ "$only" = test ]; then run_tests "$remark"; exit; fi

# ccache needs a folder that it can write to.
if [ -z "${CCACHE_DIR:-}" ] && ! mkdir -p "${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/ccache" 2>/dev/null; then
    export CCACHE_DIR=$PWD/build/ccache
fi

optional=(ccache lld libfabric iproute2 nft)
needed=(compiler build python boost_test json cli11)
case $preset in *clang* | asan) needed+=(clang) ;; esac
options=(-D UNISONO_TEST_ALL=OFF -D UNISONO_EXAMPLES=data_parallel)
if [ -n "$all" ]; then
    options=(-D UNISONO_TEST_ALL=ON -D UNISONO_EXAMPLES="${rooms:+none}") # but those that the rooms need
    optional+=(yaml thrust tbb)
    case $preset in dev*) optional+=(openmpi mpich slurm eigen dlib doxygen codespell clang19) ;; esac
fi
if [ -n "$precompiled" ]; then options+=(-D UNISONO_TEST_PRECOMPILED=ON); fi
install_missing "${needed[@]}"
install_optional "${optional[@]}"

if [ -n "$all" ] && [ "${preset#dev}" != "$preset" ]; then
    install_optional_python build/python numpy lightgbm safetensors xxhash tensorboard matplotlib kubernetes_validate boto3
    install_optional_python build/python mlflow=mlflow-skinny # by itself: it has many dependencies
fi
conan=
case $all,$preset,$rooms,$without in
    ,* | *,asan,* | *,tsan*,* | *,*,*,*packages*) ;; # tests/compiling/packages is not run
    *,*,,* | *,*,*packages*,*)
        install_optional pkg_config
        install_optional_python build/python conan
        if [ -x build/python/bin/conan ]; then conan=$PWD/build/python/bin/conan; fi
        ;;
esac
cmake --preset "$preset" -D UNISONO_TEST_ROOMS="$rooms" -D UNISONO_TEST_WITHOUT="$without" -D UNISONO_CONAN="$conan" -D UNISONO_TEST_QUICK="$quick" -D UNISONO_TEST_LEFT_TO_SANITIZERS="$rest" "${options[@]}" "$@"
cmake --build --preset "$preset" --parallel "$jobs" -- -k 0 # all errors, not only the first
if [ "$only" != build ]; then run_tests "$remark"; fi
