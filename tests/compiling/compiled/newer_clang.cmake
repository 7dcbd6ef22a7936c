# clang 19, once: the header-only mode, the compiled mode, and the module over it, which neither g++
# 12 nor clang 14 can compile. CMake 3.25 knows no modules, so these are the commands of
# docs/how_to/compile_time.md, without optimisation.
find_program(UNISONO_NEWER_CLANG clang++-19)
if(few OR NOT UNISONO_NEWER_CLANG)
    set(why "clang++-19 is not here (Debian: clang-19)")
    if(few)
        set(why "left out of builds that take a part of each room")
    endif()
    skipped_test(compiled_module ${why})
    return()
endif()

set(newer_clang ${UNISONO_NEWER_CLANG} -std=c++20 -O0 -pthread -Wall -Wextra -Werror -I${PROJECT_SOURCE_DIR}/include)
set(built ${CMAKE_CURRENT_BINARY_DIR}/newer_clang)
file(MAKE_DIRECTORY ${built})
function(newer_clang output depends) # OPTION... SOURCE
    add_custom_command(OUTPUT ${built}/${output} COMMAND ${newer_clang} ${ARGN} -MD -MT ${built}/${output} -MF ${built}/${output}.d -o ${built}/${output}
                       DEPENDS ${depends} DEPFILE ${built}/${output}.d VERBATIM)
endfunction()
set(with_module -fmodule-file=unisono=${built}/unisono.pcm)
set(library)
foreach(part unisono checkpoint hosts network)
    newer_clang(${part}.o "" -c ${PROJECT_SOURCE_DIR}/src/${part}.cpp)
    list(APPEND library ${built}/${part}.o)
endforeach()
newer_clang(unisono.pcm "" --precompile ${PROJECT_SOURCE_DIR}/src/unisono.cppm)
newer_clang(example.o ${built}/unisono.pcm ${with_module} -c ${PROJECT_SOURCE_DIR}/examples/module/module.cc)
newer_clang(program.o ${built}/unisono.pcm -DUNISONO_COMPILED -DUNISONO_TEST_MODULE -DUNISONO_TEST_PARTS ${with_module} -c ${CMAKE_CURRENT_SOURCE_DIR}/program.cpp)
newer_clang(headers.o "" -DUNISONO_TEST_PARTS -c ${CMAKE_CURRENT_SOURCE_DIR}/program.cpp)
set(linked ${built}/module.o ${library})
add_custom_command(OUTPUT ${built}/module.o COMMAND ${UNISONO_NEWER_CLANG} -c ${built}/unisono.pcm -o ${built}/module.o DEPENDS ${built}/unisono.pcm VERBATIM)
add_custom_command(OUTPUT ${built}/example COMMAND ${UNISONO_NEWER_CLANG} ${built}/example.o ${linked} -pthread -o ${built}/example DEPENDS ${built}/example.o ${linked} VERBATIM)
add_custom_command(OUTPUT ${built}/program COMMAND ${UNISONO_NEWER_CLANG} ${built}/program.o ${linked} -pthread -o ${built}/program DEPENDS ${built}/program.o ${linked} VERBATIM)
add_custom_command(OUTPUT ${built}/headers COMMAND ${UNISONO_NEWER_CLANG} ${built}/headers.o -pthread -o ${built}/headers DEPENDS ${built}/headers.o VERBATIM)
add_custom_target(compiled_newer_clang ALL DEPENDS ${built}/example ${built}/program ${built}/headers)

add_test(NAME compiled_module COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/check.py ${built}/headers ${built}/program)
add_test(NAME compiled_module_headers COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/module.py ${PROJECT_SOURCE_DIR} ${built}/unisono.pcm.d)
output_test(example_module TIMEOUT 120 COMMAND ${built}/example
            PATTERN "^epoch 0: loss 0.2914\nepoch 1: loss 0.0608\nepoch 2: loss 0.0266\n$")
set_tests_properties(compiled_module compiled_module_headers PROPERTIES TIMEOUT 120)
