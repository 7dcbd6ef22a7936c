#!/usr/bin/env bash
# Builds trainings with LibTorch and runs them on 1, 2 and 4 ranks:
#     bash integrations/libtorch/tests/run.sh FOLDER UNISONO_RUN
# UNISONO_TEST_TORCH names a Python that has PyTorch, whose LibTorch is used. Without it the test is
# skipped. Tensors on a device: over a stand-in for CUDA. If that PyTorch is one for CUDA, the same
# sources are also compiled with its headers for CUDA.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${UNISONO_TEST_TORCH:-}
if [ -z "$python" ] || ! "$python" -c 'import torch' 2>/dev/null; then
    echo "skipped: UNISONO_TEST_TORCH names no Python that has PyTorch"
    exit 77
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
launcher=$(realpath "${2:?the path of unisono-run}")
torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent)')
root=$(cd "$here/../.." && pwd)
compiler=${CXX:-c++}
if command -v ccache >/dev/null; then compiler="ccache $compiler"; fi
export OMP_NUM_THREADS=1 # for all threads of a process

compile() { # SOURCE OBJECT OPTION...
    $compiler -std=c++20 ${UNISONO_LIBTORCH_FLAGS:--O0} -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
        "${@:3}" -I "$root/include" -I "$here" -c "$1" -o "$folder/$2"
}
link() { # PROGRAM OBJECT...
    (cd "$folder" && ${CXX:-c++} ${UNISONO_LIBTORCH_FLAGS:--O0} "${@:2}" -o "$1" -L "$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch_cpu -lc10 -pthread)
}
compile "$here/tests/training.cpp" training.o
link training training.o

cd "$folder"
rm -rf run
run() { "$launcher" -n "$1" --no-label --timeout 120 "$folder/training" "${@:2}"; }
expected=$(run 1 run/one 4 all | tee /dev/stderr | grep '^hash ')
for ranks in 2 4; do
    found=$(run $ranks run/$ranks 4 all | tee /dev/stderr | grep '^hash ')
    [ "$found" = "$expected" ] || { echo "$ranks ranks have '$found', expected '$expected' as 1 rank"; exit 1; }
done
run 2 run/stopped 2 >/dev/null
found=$(run 4 run/stopped 4 | grep '^hash ')
[ "$found" = "$expected" ] || { echo "stopped on 2 ranks and resumed on 4: '$found', expected '$expected'"; exit 1; }
echo "1, 2 and 4 ranks, stopped or not: $expected"

# Tensors on a device, over the stand-in.
stand_in=$root/tests/extensions/nccl/stand_in
on_stand_in=(-I "$stand_in" -I "$root/tests" -I "$here/tests" '-DUNISONO_LIBTORCH_STREAMS="cuda/stand_in.hpp"')
for half in cuda nccl; do compile "$stand_in/$half.cpp" $half.o "${on_stand_in[@]}"; done
compile "$here/tests/cuda/training.cpp" cuda_training.o "${on_stand_in[@]}"
link cuda_training cuda_training.o cuda.o nccl.o
expected=
for transport in shared_memory tcp nccl; do
    for ranks in 1 2 4; do
        said=$(timeout 120 ./cuda_training $transport $ranks run/$transport$ranks)
        echo "$transport, $ranks ranks: $said"
        found=$(grep '^hash ' <<<"$said")
        [ "$found" = "${expected:=$found}" ] || { echo "$transport, $ranks ranks: expected '$expected'"; exit 1; }
    done
done
# Work that does not wait for the other stream's must be found.
for fault in early_bucket early_forward; do
    if said=$(UNISONO_TEST_FAULT=$fault timeout 120 ./cuda_training shared_memory 2 run/$fault 2>&1) || [[ $said != *"a loss differs by"* ]]; then
        echo "with the planted fault '$fault' the test found: $said"
        exit 1
    fi
done

# The example, by processes that unisono-run and torchrun start.
example=$root/examples/existing_code/libtorch_cuda
for when in before after; do
    compile "$here/tests/cuda/example.cpp" example_$when.o "${on_stand_in[@]}" "-DEXAMPLE=\"$example/$when.cpp\""
    link example_$when example_$when.o cuda.o nccl.o
done
"$python" "$root/examples/existing_code/check.py" runs "$launcher" ./example_before ./example_after
torchrun=$(dirname "$python")/torchrun
if [ -x "$torchrun" ]; then
    expected=$(./example_before)
    found=$(timeout 120 "$torchrun" --no-python --nproc-per-node 2 ./example_after 2>/dev/null)
    [ "$found" = "$expected" ] || { echo "by torchrun: '$found', expected '$expected'"; exit 1; }
    echo "by torchrun: $found"
fi

# With LibTorch's own streams: the sources compile. Symbols other than the kernels' resolve.
nvidia=$torch/../nvidia
cuda=
for one in "$nvidia"/cu[0-9]*/include "$nvidia"/cuda_runtime/include; do # as the wheels have it
    [ ! -e "$one/cuda_runtime_api.h" ] || cuda=$one
done
if [ ! -e "$torch/include/c10/cuda/CUDAStream.h" ] || [ -z "$cuda" ] || [ ! -e "$nvidia/nccl/include/nccl.h" ]; then
    echo "skipped in part: no PyTorch for CUDA with the headers of CUDA and NCCL"
    exit 0
fi
for_cuda=(-DUNISONO_DEVICES -isystem "$cuda" -isystem "$nvidia/nccl/include" -I "$root/tests" -I "$here/tests")
compile "$here/tests/cuda/training.cpp" real_training.o "${for_cuda[@]}" -DUNISONO_TEST_ON_GPU
compile "$example/after.cpp" real_after.o "${for_cuda[@]}"
for object in real_training.o real_after.o; do
    said=$(${CXX:-c++} $object -o real -L "$torch/lib" -L "$cuda/../lib" -L "$nvidia/nccl/lib" -Wl,--no-as-needed -ltorch_cpu -ltorch_cuda -lc10 -lc10_cuda \
        -l:"$(basename "$(ls "$cuda"/../lib/libcudart.so.* | tail -1)")" -l:libnccl.so.2 -pthread -Wl,--no-demangle 2>&1) && { echo "$object needs no kernels"; exit 1; }
    others=$(sed -n 's/.*undefined reference to `\(.*\)'"'"'.*/\1/p' <<<"$said" | grep -v KernelOfUnisonoDevices || true)
    [ -z "$others" ] && [[ $said == *KernelOfUnisonoDevices* ]] || { echo "$object does not link: ${others:-$said}"; exit 1; }
done
echo "compiled for LibTorch on CUDA; only the kernels of unisono::devices are undefined"
