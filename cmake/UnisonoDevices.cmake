# unisono::devices: the kernels of a Trainer on a GPU, compiled by nvcc once, so that sources which
# any compiler compiles can train there (docs/device.md). The target defines UNISONO_DEVICES. It is
# built and installed with UNISONO_DEVICES, which needs a CUDA toolkit. BUILD_SHARED_LIBS makes it a
# shared library.
#   CMAKE_CUDA_ARCHITECTURES   the GPUs: by default 80 and 90, and what can run code of these
option(UNISONO_DEVICES "Build and install the library unisono::devices, too (by nvcc)" OFF)
if(NOT UNISONO_DEVICES)
    return()
endif()
if(NOT UNISONO_NVCC OR NOT TARGET unisono::cuda)
    message(FATAL_ERROR "UNISONO_DEVICES needs a CUDA toolkit with nvcc and the CUDA runtime; CUDA_HOME names its folder")
endif()
if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${UNISONO_NVCC})
endif()
if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
endif()
enable_language(CUDA)
add_library(unisono_devices src/devices/bfloat16s.cu src/devices/doubles.cu src/devices/float16s.cu src/devices/floats.cu
                            src/devices/optimizers.cu src/devices/policies.cu src/devices/sums.cu)
add_library(unisono::devices ALIAS unisono_devices)
target_link_libraries(unisono_devices PUBLIC unisono unisono::cuda)
target_compile_definitions(unisono_devices INTERFACE UNISONO_DEVICES)
set_target_properties(unisono_devices PROPERTIES POSITION_INDEPENDENT_CODE ON EXPORT_NAME devices
                                                 CUDA_RUNTIME_LIBRARY Shared VERSION ${UNISONO_VERSION} SOVERSION ${UNISONO_VERSION})
