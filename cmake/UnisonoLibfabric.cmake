# Defines unisono::libfabric if libfabric 1.17 or newer is found. Otherwise there is no such target,
# which is no error. This repository and the installed package include this file, so both find the
# libfabric of their machine. UNISONO_LIBFABRIC_INCLUDE and UNISONO_LIBFABRIC_LIBRARY name another
# one.
if(TARGET unisono::libfabric)
    return()
endif()
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
    pkg_check_modules(UNISONO_LIBFABRIC_HINT QUIET libfabric)
endif()
find_path(UNISONO_LIBFABRIC_INCLUDE rdma/fabric.h HINTS ${UNISONO_LIBFABRIC_HINT_INCLUDE_DIRS})
find_library(UNISONO_LIBFABRIC_LIBRARY fabric HINTS ${UNISONO_LIBFABRIC_HINT_LIBRARY_DIRS})
mark_as_advanced(UNISONO_LIBFABRIC_INCLUDE UNISONO_LIBFABRIC_LIBRARY)
if(EXISTS "${UNISONO_LIBFABRIC_INCLUDE}/rdma/fabric.h" AND UNISONO_LIBFABRIC_LIBRARY)
    file(STRINGS ${UNISONO_LIBFABRIC_INCLUDE}/rdma/fabric.h unisono_libfabric_lines
         REGEX "^#define FI_(MAJOR|MINOR)_VERSION")
    string(REGEX REPLACE ".*MAJOR_VERSION[ \t]+([0-9]+).*MINOR_VERSION[ \t]+([0-9]+).*" "\\1.\\2"
                         UNISONO_LIBFABRIC_VERSION "${unisono_libfabric_lines}")
    if(UNISONO_LIBFABRIC_VERSION VERSION_GREATER_EQUAL 1.17)
        add_library(unisono::libfabric INTERFACE IMPORTED ${unisono_target_scope})
        set_target_properties(unisono::libfabric PROPERTIES
            INTERFACE_SYSTEM_INCLUDE_DIRECTORIES ${UNISONO_LIBFABRIC_INCLUDE}
            INTERFACE_LINK_LIBRARIES "unisono::unisono;${UNISONO_LIBFABRIC_LIBRARY}")
    endif()
endif()
