# Sourced by tests/on_gpu.sh: the room libtorch.
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the script that sources it

# The programs and their sources.
declare -A libtorch_sources=([training]=integrations/libtorch/tests/cuda/training.cpp
    [before]=examples/existing_code/libtorch_cuda/before.cpp [after]=examples/existing_code/libtorch_cuda/after.cpp)

# need_libtorch: sets `libtorch_flags`, for a compiler, and `libtorch_libraries`, for nvcc as a
# linker. Fails, with the reason, if there is no PyTorch for this toolkit's CUDA.
need_libtorch() {
    local python=${UNISONO_TEST_TORCH:-python3} torch major
    torch=$("$python" -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parent, (torch.version.cuda or "none").split(".")[0])' 2>/dev/null) ||
        { echo "skipped: libtorch: no PyTorch in $python (UNISONO_TEST_TORCH names a Python that has it)"; return 1; }
    major=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
    [ "${torch##* }" = "$major" ] || { echo "skipped: libtorch: the PyTorch of $python is for CUDA ${torch##* }, and $nvcc is of CUDA $major"; return 1; }
    torch=${torch% *}
    libtorch_flags=(-DUNISONO_DEVICES -DUNISONO_TEST_ON_GPU -Iintegrations/libtorch -Iintegrations/libtorch/tests
        -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include")
    # nvcc passes what follows -Xlinker to the linker.
    libtorch_libraries=("-L$torch/lib" -Xlinker "-rpath,$torch/lib" -Xlinker --no-as-needed -ltorch_cpu -ltorch_cuda -lc10 -lc10_cuda)
}

# run_libtorch FOLDER: ranks that share a GPU are threads. Over NCCL these could wait for each
# other without end (docs/nccl.md), so there it is one rank, and for two ranks two processes.
run_libtorch() {
    local said found expected='' where ranks rank failed=0
    export OMP_NUM_THREADS=1 CUBLAS_WORKSPACE_CONFIG=:4096:8
    rm -rf "$1/libtorch_run"
    for where in "shared_memory 1" "shared_memory 2" "shared_memory 4" "tcp 2" "nccl 1"; do
        # shellcheck disable=SC2086 # two words
        said=$(timeout 300 "$1/libtorch_training" $where "$1/libtorch_run/${where/ /}") || { echo "libtorch: $where ranks failed: $said"; return 1; }
        echo "$where ranks: $said"
        found=$(grep '^hash ' <<<"$said")
        [ "$found" = "${expected:=$found}" ] || { echo "libtorch: $where ranks: expected '$expected'"; failed=1; }
    done
    expected=$(timeout 120 "$1/libtorch_before") || return 1
    for ranks in 1 2; do
        for ((rank = 1; rank < ranks; ++rank)); do
            RANK=$rank WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 timeout 300 "$1/libtorch_after" &
        done
        found=$(RANK=0 WORLD_SIZE=$ranks MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 timeout 300 "$1/libtorch_after") || failed=1
        echo "the example on $ranks ranks: $found, before: $expected"
        [ "$found" = "$expected" ] || failed=1
        wait
    done
    return $failed
}
