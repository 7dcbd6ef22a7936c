# unisono::compiled: the same headers, and a library of definitions that a program then need not
# compile. It is built if a target links to it, and installed with UNISONO_COMPILED.
# BUILD_SHARED_LIBS makes it a shared library.
option(UNISONO_COMPILED "Build and install the library unisono::compiled, too" OFF)
# unisono.cpp has what the umbrella includes. The others are parts (unisono/core/config.hpp).
set(unisono_sources src/unisono.cpp src/checkpoint.cpp src/hosts.cpp src/network.cpp)
if(UNISONO_COMPILED)
    add_library(unisono_compiled ${unisono_sources})
else()
    add_library(unisono_compiled EXCLUDE_FROM_ALL ${unisono_sources})
endif()
add_library(unisono::compiled ALIAS unisono_compiled)
target_link_libraries(unisono_compiled PUBLIC unisono)
target_compile_definitions(unisono_compiled INTERFACE UNISONO_COMPILED)
set_target_properties(unisono_compiled PROPERTIES POSITION_INDEPENDENT_CODE ON OUTPUT_NAME unisono CXX_EXTENSIONS OFF EXPORT_NAME compiled)
get_target_property(unisono_library_type unisono_compiled TYPE)
if(unisono_library_type STREQUAL SHARED_LIBRARY)
    set_target_properties(unisono_compiled PROPERTIES VERSION ${UNISONO_VERSION} SOVERSION ${UNISONO_VERSION}
                                                      LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/unisono.map)
    target_link_options(unisono_compiled PRIVATE -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/src/unisono.map)
endif()

# unisono::c: the definitions of unisono/c.h, for programs in C. It is built if a target links to
# it.
add_library(unisono_c EXCLUDE_FROM_ALL src/c.cpp)
add_library(unisono::c ALIAS unisono_c)
target_link_libraries(unisono_c PUBLIC unisono)
set_target_properties(unisono_c PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_EXTENSIONS OFF)
