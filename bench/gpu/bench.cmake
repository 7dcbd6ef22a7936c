# The host's part of a call, without a GPU and without NCCL. run.sh builds the same, and kernels/,
# for GPUs.
target_sources(${bench_target} PRIVATE ${folder}/instant/instant.cpp)
target_include_directories(${bench_target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/extensions/nccl/stand_in)
target_compile_definitions(${bench_target} PRIVATE BENCH_INSTANT)
