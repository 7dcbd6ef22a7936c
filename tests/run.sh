#!/usr/bin/env bash
# Installs what is missing, builds and runs all tests: bash tests/run.sh [--preset NAME] [--quick]
#   --preset NAME   a configure preset of CMakePresets.json; dev by default
#   --quick         without the test cases labelled "slow"
#   --once          for a build that is made once: our own headers are precompiled, too
#   --rooms 'A;B'   only these folders of tests/
#   --without 'A;B' all but these
#   --only build    no tests are run; --only test: those that were built so are run
#   -- OPTION...    the rest is for cmake, where it configures
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/install_missing.sh

preset=dev
rooms=
without=
only=
quick=OFF
options=()
while [ $# != 0 ]; do
    case $1 in
        --preset) preset=${2:?--preset needs a name}; shift 2 ;;
        --preset=*) preset=${1#*=}; shift ;;
        --quick) export BOOST_TEST_RUN_FILTERS='!@slow'; quick=ON; shift ;;
        --once) options+=(-D UNISONO_TEST_PRECOMPILED=ON); shift ;;
        --rooms) rooms=${2:?--rooms needs names separated by semicolons}; shift 2 ;;
        --without) without=${2:?--without needs names separated by semicolons}; shift 2 ;;
        --only) only=${2:?--only needs build or test}; shift 2 ;;
        --) shift; break ;;
        -h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
        *) echo "$0: unknown option '$1' (--help shows the options)" >&2; exit 2 ;;
    esac
done
case $only in '' | build | test) ;; *) echo "$0: --only '$only': expected build or test" >&2; exit 2 ;; esac
jobs=$(nproc)
export BOOST_TEST_COLOR_OUTPUT=0
if [ "$only" = test ]; then exec ctest --preset "$preset" --parallel "$jobs"; fi

things=(compiler build python yaml boost_test json cli11 libfabric ccache iproute2 thrust tbb)
case $preset in *clang* | asan) things+=(clang) ;; dev) things+=(openmpi mpich eigen dlib doxygen codespell) ;; esac
install_missing "${things[@]}"
if [ "$preset" = dev ]; then install_python_packages build/python numpy safetensors xxhash tensorboard matplotlib kubernetes_validate boto3; fi

conan=
case $preset,$rooms,$without in
    asan,* | tsan*,* | *,*,*packages*) ;; # tests/packages is not run
    *,,* | *,*packages*,*)
        install_missing pkg_config
        install_python_packages build/python conan
        conan=$PWD/build/python/bin/conan
        ;;
esac
cmake --preset "$preset" -D UNISONO_TEST_ROOMS="$rooms" -D UNISONO_TEST_WITHOUT="$without" -D UNISONO_CONAN="$conan" -D UNISONO_TEST_QUICK="$quick" "${options[@]}" "$@"
cmake --build --preset "$preset" --parallel "$jobs"
if [ "$only" != build ]; then ctest --preset "$preset" --parallel "$jobs"; fi
