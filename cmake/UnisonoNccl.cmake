# Defines unisono::cuda if the CUDA runtime is found, and unisono::nccl if NCCL 2.19 or newer is
# found, too. Otherwise there are no such targets, which is no error. Compiling and linking need
# neither a GPU nor nvcc. This repository and the installed package include this file.
#   UNISONO_NCCL_INCLUDE, UNISONO_NCCL_LIBRARY     another NCCL: the folder of nccl.h, and libnccl
#   UNISONO_CUDART_INCLUDE, UNISONO_CUDART_LIBRARY another CUDA: the folder of cuda_runtime_api.h,
#                                                  and libcudart
if(TARGET unisono::cuda)
    return()
endif()
set(unisono_cuda_hints ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda)
find_path(UNISONO_CUDART_INCLUDE cuda_runtime_api.h HINTS ${unisono_cuda_hints} PATH_SUFFIXES include)
find_library(UNISONO_CUDART_LIBRARY cudart HINTS ${unisono_cuda_hints} PATH_SUFFIXES lib64 lib)
find_path(UNISONO_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME ${unisono_cuda_hints} PATH_SUFFIXES include)
find_library(UNISONO_NCCL_LIBRARY nccl HINTS ENV NCCL_HOME ${unisono_cuda_hints} PATH_SUFFIXES lib64 lib)
mark_as_advanced(UNISONO_CUDART_INCLUDE UNISONO_CUDART_LIBRARY UNISONO_NCCL_INCLUDE UNISONO_NCCL_LIBRARY)
# nvcc's sources use Thrust for reductions. nvcc warns of host code that it takes for device code.
set(unisono_nvcc_options "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr;-diag-suppress=554,780,20014>")
if(UNISONO_CUDART_LIBRARY AND EXISTS "${UNISONO_CUDART_INCLUDE}/cuda_runtime_api.h")
    add_library(unisono::cuda INTERFACE IMPORTED ${unisono_target_scope})
    set_target_properties(unisono::cuda PROPERTIES
        INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${UNISONO_CUDART_INCLUDE}"
        INTERFACE_COMPILE_OPTIONS "${unisono_nvcc_options}"
        INTERFACE_LINK_LIBRARIES "unisono::unisono;${UNISONO_CUDART_LIBRARY}")
endif()
if(EXISTS "${UNISONO_NCCL_INCLUDE}/nccl.h" AND UNISONO_NCCL_LIBRARY AND UNISONO_CUDART_LIBRARY
   AND EXISTS "${UNISONO_CUDART_INCLUDE}/cuda_runtime_api.h")
    file(STRINGS ${UNISONO_NCCL_INCLUDE}/nccl.h unisono_nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR) ")
    string(REGEX REPLACE ".*NCCL_MAJOR[ \t]+([0-9]+).*NCCL_MINOR[ \t]+([0-9]+).*" "\\1.\\2"
                         UNISONO_NCCL_VERSION "${unisono_nccl_lines}")
    if(UNISONO_NCCL_VERSION VERSION_GREATER_EQUAL 2.19)
        add_library(unisono::nccl INTERFACE IMPORTED ${unisono_target_scope})
        set_target_properties(unisono::nccl PROPERTIES
            INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${UNISONO_NCCL_INCLUDE};${UNISONO_CUDART_INCLUDE}"
            INTERFACE_COMPILE_OPTIONS "${unisono_nvcc_options}"
            INTERFACE_LINK_LIBRARIES "unisono::unisono;${UNISONO_NCCL_LIBRARY};${UNISONO_CUDART_LIBRARY}")
    endif()
endif()
