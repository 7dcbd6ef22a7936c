# Defines unisono::thrust if Thrust 1.15 or newer is found: NVIDIA's CCCL of a CUDA toolkit, or
# Debian's libthrust-dev. Otherwise there is no such target, which is no error. This repository and
# the installed package include this file.
#   UNISONO_THRUST_INCLUDE   another Thrust: the folder of thrust/version.h
#   UNISONO_THRUST_SYSTEM    thrust::device in sources that nvcc does not compile: CPP (one thread),
#                            OMP or TBB
if(TARGET unisono::thrust)
    return()
endif()
set(UNISONO_THRUST_SYSTEM CPP CACHE STRING "Where thrust::device is without nvcc: CPP, OMP or TBB")
find_program(UNISONO_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(UNISONO_NVCC)
    get_filename_component(unisono_cuda ${UNISONO_NVCC} REALPATH)
    get_filename_component(unisono_cuda ${unisono_cuda} DIRECTORY)
    get_filename_component(unisono_cuda ${unisono_cuda} DIRECTORY)
endif()
find_path(UNISONO_THRUST_INCLUDE thrust/version.h HINTS ${unisono_cuda} PATH_SUFFIXES include/cccl include)
mark_as_advanced(UNISONO_THRUST_INCLUDE UNISONO_NVCC)
if(EXISTS "${UNISONO_THRUST_INCLUDE}/thrust/version.h")
    file(STRINGS ${UNISONO_THRUST_INCLUDE}/thrust/version.h unisono_thrust_line REGEX "^#define THRUST_VERSION [0-9]+")
    string(REGEX REPLACE "^#define THRUST_VERSION ([0-9]+).*" "\\1" UNISONO_THRUST_VERSION "${unisono_thrust_line}")
    set(unisono_thrust_links unisono::unisono)
    if(UNISONO_THRUST_SYSTEM STREQUAL "OMP")
        find_package(OpenMP QUIET COMPONENTS CXX)
        list(APPEND unisono_thrust_links OpenMP::OpenMP_CXX)
    elseif(UNISONO_THRUST_SYSTEM STREQUAL "TBB")
        find_package(TBB QUIET)
        list(APPEND unisono_thrust_links TBB::tbb)
    elseif(NOT UNISONO_THRUST_SYSTEM STREQUAL "CPP")
        message(FATAL_ERROR "UNISONO_THRUST_SYSTEM is '${UNISONO_THRUST_SYSTEM}'; expected CPP, OMP or TBB")
    endif()
    if(UNISONO_THRUST_VERSION GREATER_EQUAL 101500)
        add_library(unisono::thrust INTERFACE IMPORTED ${unisono_target_scope})
        # nvcc has its own Thrust and its own device system. CMake before 3.26 drops C++20 for it.
        set_target_properties(unisono::thrust PROPERTIES
            INTERFACE_INCLUDE_DIRECTORIES "$<$<COMPILE_LANGUAGE:CXX>:${UNISONO_THRUST_INCLUDE}>"
            INTERFACE_COMPILE_DEFINITIONS "$<$<COMPILE_LANGUAGE:CXX>:THRUST_HOST_SYSTEM=THRUST_HOST_SYSTEM_CPP;THRUST_DEVICE_SYSTEM=THRUST_DEVICE_SYSTEM_${UNISONO_THRUST_SYSTEM}>"
            INTERFACE_COMPILE_OPTIONS "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--expt-relaxed-constexpr>"
            INTERFACE_LINK_LIBRARIES "${unisono_thrust_links}")
    endif()
endif()
