#!/usr/bin/env bash
# Tests on this machine's GPUs. One is enough:
#     bash tests/on_gpu.sh [--build] [--sanitize] [ROOM ...]
# Rooms, all by default:
#     thrust   kernels, bit by bit beside the host's
#     cuda     ranks that share the GPUs, over sockets and shared memory
#     nccl     ranks over NCCL: collectives, laws, graphs, streams
#     device   Trainers over Cuda<Tcp>, whose ranks share the GPUs, bit by bit beside the host's
#     trainer  the same over NCCL
#     elastic  processes over Cuda<Tcp>, and over NCCL 2.30 or newer, that are killed, are added, or
#              lose their device by a trap: the bits of an undisturbed training on the host
#     library  unisono::devices: kernels and Trainers of sources that nvcc does not compile, bit by
#              bit beside the host's and those of the headers
#     cuda_c   the example existing_code/cuda_c, before and after: the same losses on 1 and 2 ranks
#     digits   the example digits_on_gpu, to the accuracy of the host's
#     torch    the process group for PyTorch on tensors of GPUs; skipped unless UNISONO_TEST_TORCH
#              names a Python that has PyTorch with CUDA
#     libtorch modules of LibTorch on the GPU: losses beside LibTorch alone, one hash on 1, 2 and 4
#              ranks, and the example existing_code/libtorch_cuda. Skipped, with a message, unless
#              UNISONO_TEST_TORCH, else python3, is a Python with a PyTorch for the same CUDA
# Ranks over NCCL have a GPU each. From NCCL 2.30 on they share one (NCCL_MULTI_RANK_GPU_ENABLE=1,
# which this script sets unless it is set). --sanitize also trains the example for one epoch under
# each tool of compute-sanitizer. --build compiles for sm_90, which needs no GPU. Needs a CUDA
# toolkit with nvcc, NCCL 2.19 or newer and Boost.Test; tools/gpu.sh says where they are found.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/gpu.sh

build_only=no
sanitize=no
rooms=()
for word in "$@"; do
    case $word in
    --build) build_only=yes ;;
    --sanitize) sanitize=yes ;;
    thrust | cuda | nccl | device | trainer | elastic | library | cuda_c | digits | torch | libtorch) rooms+=("$word") ;;
    *) echo "usage: bash $0 [--build] [--sanitize] [thrust] [cuda] [nccl] [device] [trainer] [elastic] [library] [cuda_c] [digits] [torch] [libtorch]; found '$word'" >&2; exit 2 ;;
    esac
done
[ ${#rooms[@]} -gt 0 ] || rooms=(thrust cuda nccl device trainer elastic library cuda_c digits torch libtorch)
need_nvcc $build_only
need_nccl
. integrations/libtorch/tests/on_gpu.sh
case " ${rooms[*]} " in
*" libtorch "*)
    if ! need_libtorch; then
        for i in "${!rooms[@]}"; do [ "${rooms[i]}" != libtorch ] || unset "rooms[i]"; done
        [ ${#rooms[@]} -gt 0 ] || exit 77
    fi
    ;;
esac

# The sources of a room that make sense on a GPU.
sources_of() {
    case $1 in
    thrust) echo tests/extensions/thrust/{elementwise,grid,notes,update}.cpp ;;
    cuda) echo tests/extensions/cuda/{networks,staged,training}.cpp ;;
    elastic) echo tests/extensions/cuda/elastic.cpp ;; # forks: no other test of its program may use CUDA
    nccl) echo tests/extensions/nccl/{captured,collectives,laws,prefetch,training}.cpp ;;
    device | trainer) echo tests/extensions/device/{bus,checkpoints,crossed_grids,crossed_numbers,local,master_weights,step,training,units}.cpp ;;
    library) echo src/devices/*.cu tests/extensions/device_library/{kernels,trained}.cpp ;;
    esac
}

build=build/on_gpu
mkdir -p "$build"
# main.cpp contains Boost.Test, so that the programs also run where Boost is not installed.
flags=("${nvcc_flags[@]}" -O1 -Iinclude -Itests "$nccl_include" -DUNISONO_TEST_ON_GPU "-DUNISONO_TEST_DATA=\"tests/support/data\"")

object_of() { # ROOM SOURCE
    local name=${2//\//_}
    echo "$build/$1_${name%.c*}.o"
}
compile() { # ROOM SOURCE
    local transport=()
    if [ "$1" = library ] && [[ $2 == *.cpp ]]; then
        echo "c++ $2 ($1)"
        "${CXX:-c++}" -std=c++20 -O1 -Iinclude -Itests "$nccl_include" "-I$cuda/include" -DUNISONO_TEST_ON_GPU -DUNISONO_DEVICES \
            -c "$2" -o "$(object_of "$1" "$2")" || { echo "$0: $2 does not compile" >&2; return 1; }
        return
    fi
    if [ "$1" = cuda_c_before ] || [ "$1" = cuda_c_after ]; then
        transport=(-Itests/extensions/device_library/cuda_c/mpi "-DUNISONO_TEST_PROGRAM=\"$PWD/examples/existing_code/cuda_c/${1#cuda_c_}.cu\"")
        [ "$1" = cuda_c_before ] || transport+=(-DUNISONO_TEST_AFTER)
    fi
    [ "$1" != device ] || transport=(--pre-include unisono/cuda.hpp "-DUNISONO_TEST_TRANSPORT=unisono::Cuda<unisono::Tcp>")
    echo "nvcc $2 ($1)"
    "$nvcc" "${flags[@]}" "${transport[@]}" -x cu -c "$2" -o "$(object_of "$1" "$2")" || { echo "$0: $2 does not compile" >&2; return 1; }
}
compile_libtorch() { # SOURCE OBJECT
    echo "c++ $1 (libtorch)"
    "${CXX:-c++}" -std=c++20 -O1 "${libtorch_flags[@]}" -Iinclude -Itests "$nccl_include" "-I$cuda/include" -c "$1" -o "$2" || { echo "$0: $1 does not compile" >&2; return 1; }
}
main=$build/main.o
jobs=$(nproc)
running=0
begin_by() { # COMMAND...: as many at a time as there are processors
    [ "$running" -lt "$jobs" ] || { wait -n; running=$((running - 1)); }
    "$@" &
    running=$((running + 1))
}
begin() { begin_by compile "$@"; }
"${CXX:-c++}" -std=c++20 -O1 -Itests -DUNISONO_TEST_INCLUDED_BOOST -c tests/support/main.cpp -o "$main"
for room in "${rooms[@]}"; do
    for source in $(sources_of "$room"); do begin "$room" "$source"; done
    [ "$room" != cuda_c ] || for when in before after; do begin cuda_c_$when tests/extensions/device_library/cuda_c/threads.cpp; done
    if [ "$room" = libtorch ]; then
        for name in "${!libtorch_sources[@]}"; do begin_by compile_libtorch "${libtorch_sources[$name]}" "$build/libtorch_$name.o"; done
        # Its kernels are the library's.
        case " ${rooms[*]} " in *" library "*) ;; *) for source in src/devices/*.cu; do begin library "$source"; done ;; esac
    fi
    # The same trainings with the kernels of the headers.
    [ "$room" != library ] || begin header_only tests/extensions/device_library/trained.cpp
done
while [ "$running" -gt 0 ]; do
    wait -n
    running=$((running - 1))
done
for room in "${rooms[@]}"; do
    [ "$room" != digits ] && [ "$room" != torch ] || continue
    if [ "$room" = libtorch ]; then
        for name in "${!libtorch_sources[@]}"; do
            "$nvcc" -o "$build/libtorch_$name" "$build/libtorch_$name.o" "$build"/library_src_devices_*.o "${libtorch_libraries[@]}" "${nccl_library[@]}" -cudart shared -Xlinker "-rpath,$cuda/lib64"
        done
        continue
    fi
    if [ "$room" = cuda_c ]; then
        for when in before after; do
            "$nvcc" -o "$build/cuda_c_$when" "$(object_of cuda_c_$when tests/extensions/device_library/cuda_c/threads.cpp)" "${nccl_library[@]}"
        done
        continue
    fi
    objects=()
    for source in $(sources_of "$room"); do
        [[ $source == */trained.cpp ]] || objects+=("$(object_of "$room" "$source")")
    done
    "$nvcc" -o "$build/test_$room" "$main" "${objects[@]}" "${nccl_library[@]}"
    [ "$room" = library ] || continue
    trained=tests/extensions/device_library/trained.cpp
    "$nvcc" -o "$build/trained_library" "$(object_of library $trained)" "$build"/library_src_devices_*.o "${nccl_library[@]}"
    "$nvcc" -o "$build/trained_header_only" "$(object_of header_only $trained)" "${nccl_library[@]}"
done
if [ $build_only = yes ]; then
    case " ${rooms[*]} " in *" digits "*) bash examples/digits_on_gpu/run.sh --build ;; esac
    echo "$0: compiled for sm_90, nothing was run"
    exit 0
fi

# Ranks that share a GPU: NCCL's kernels wait for one another there. So nothing else may wait for
# the whole device, as the loading of a kernel does, and no stream for another in the same queue.
export NCCL_MULTI_RANK_GPU_ENABLE=${NCCL_MULTI_RANK_GPU_ENABLE-1}
export CUDA_MODULE_LOADING=EAGER CUDA_DEVICE_MAX_CONNECTIONS=32
failed=()
for room in "${rooms[@]}"; do
    echo "--- $room"
    if [ "$room" = digits ]; then
        bash examples/digits_on_gpu/run.sh || failed+=(digits)
        bash examples/digits_on_gpu/run.sh 1 || failed+=(digits)
    elif [ "$room" = torch ]; then
        status=0
        bash integrations/torch/tests/run.sh build/torch_cuda --device || status=$?
        [ $status -eq 0 ] || [ $status -eq 77 ] || failed+=(torch)
    elif [ "$room" = libtorch ]; then
        run_libtorch "$build" || failed+=(libtorch)
    elif [ "$room" = cuda_c ]; then
        python3 tests/extensions/device_library/cuda_c/check.py --programs "$build/cuda_c_before" "$build/cuda_c_after" || failed+=(cuda_c)
    else
        # Each case has a watchdog, too. Boost names the cases that are skipped for lack of ranks.
        timeout 1200 "$build/test_$room" --log_level=test_suite --report_level=short || failed+=("$room")
    fi
    if [ "$room" = library ]; then
        for way in library header_only; do
            timeout 600 "$build/trained_$way" > "$build/trained_$way.txt" || { tail -3 "$build/trained_$way.txt"; failed+=("trained_$way"); }
        done
        diff "$build"/trained_{library,header_only}.txt || failed+=("library and headers differ")
    fi
done
if [ $sanitize = yes ]; then
    echo "--- compute-sanitizer"
    bash examples/digits_on_gpu/run.sh --sanitize 1 || failed+=(compute-sanitizer)
fi
[ ${#failed[@]} -eq 0 ] || { echo "$0: failed: ${failed[*]}" >&2; exit 1; }
echo "$0: passed: ${rooms[*]}"
