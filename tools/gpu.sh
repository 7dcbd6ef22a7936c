# Sourced by the scripts that compile for GPUs: a CUDA toolkit, NCCL, and what to compile for. Each
# function ends the script with the status 2 if something is missing. Environment:
#     CUDA_HOME   the toolkit; default /usr/local/cuda
#     NCCL_HOME   a folder with include/nccl.h and lib/libnccl.so.2; without it: CUDA_HOME, then the
#                 system, then the package nvidia-nccl of the Python in PATH
# shellcheck shell=bash disable=SC2034 # its variables are read by the scripts that source it

cuda=${CUDA_HOME:-/usr/local/cuda}
nvcc=$cuda/bin/nvcc
# nvcc's remarks on correct code: unreachable statements after `if constexpr`, and functions of the
# host that a function for both instantiates without calling.
nvcc_flags=(-std=c++20 --expt-relaxed-constexpr -diag-suppress "554,780,20011,20014")

# need_gpu: lists this machine's GPUs.
need_gpu() {
    nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2> /dev/null && return
    echo "$0: there is no GPU here (nvidia-smi finds none), so nothing can be run; --build only compiles" >&2
    exit 2
}

# need_nvcc BUILD_ONLY: adds a target to `nvcc_flags`: sm_90 if BUILD_ONLY is "yes", else this
# machine's GPUs, of which there must be one.
need_nvcc() {
    local target=native
    if [ "$1" = yes ]; then target=sm_90; else need_gpu; fi
    [ -x "$nvcc" ] || { echo "$0: no $nvcc; CUDA_HOME names the toolkit" >&2; exit 2; }
    nvcc_flags+=("-arch=$target")
}

# need_nccl: sets `nccl_include`, for a compiler, and `nccl_library`, for nvcc as a linker.
need_nccl() {
    local folder header library
    local folders=("${NCCL_HOME:-}")
    if [ -z "${NCCL_HOME:-}" ]; then
        folders=("$cuda" /usr "$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0])' 2> /dev/null || true)")
    fi
    for folder in "${folders[@]}"; do
        [ -n "$folder" ] && header=$folder/include/nccl.h && [ -e "$header" ] || continue
        for library in "$folder"/{lib,lib64,lib/x86_64-linux-gnu,lib/aarch64-linux-gnu}/libnccl.so.2; do
            [ -e "$library" ] || continue
            nccl_include="-I$folder/include"
            nccl_library=("-L$(dirname "$library")" -l:libnccl.so.2 -Xlinker "-rpath,$(dirname "$library")")
            return
        done
    done
    echo "$0: found no include/nccl.h with a libnccl.so.2 (NCCL 2.19 or newer); NCCL_HOME names its folder" >&2
    exit 2
}
