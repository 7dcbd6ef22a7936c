# One program a contender, peers_<name>, from contenders/; a peer only where its library is found. compare.py runs them.
set(folder ${CMAKE_CURRENT_LIST_DIR})

add_custom_target(bench_peers)

function(peers_contender name source)
    add_executable(peers_${name} ${folder}/contenders/${source}.cpp)
    target_compile_features(peers_${name} PRIVATE cxx_std_20)
    target_include_directories(peers_${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${folder})
    target_link_libraries(peers_${name} PRIVATE nlohmann_json::nlohmann_json unisono_warnings Threads::Threads)
    add_dependencies(bench_peers peers_${name})
endfunction()

function(peers_mpi name)
    unisono_find_mpi(${name})
    if(NOT TARGET mpi_${name})
        message(STATUS "bench/peers: ${name} was not found and is left out")
        return()
    endif()
    peers_contender(${name} mpi)
    target_link_libraries(peers_${name} PRIVATE mpi_${name})
endfunction()

if(NOT TARGET nlohmann_json::nlohmann_json)
    message(STATUS "bench/peers is left out: it needs nlohmann_json")
    return()
endif()
peers_contender(unisono unisono)
target_link_libraries(peers_unisono PRIVATE unisono::unisono)
peers_contender(floor floor)
peers_mpi(openmpi)
peers_mpi(mpich)

find_library(PEERS_GLOO_LIBRARY gloo) # its own CMake files break in other build types than its packager's
find_path(PEERS_GLOO_INCLUDE gloo/rendezvous/file_store.h)
if(PEERS_GLOO_LIBRARY AND PEERS_GLOO_INCLUDE)
    peers_contender(gloo gloo)
    target_include_directories(peers_gloo SYSTEM PRIVATE ${PEERS_GLOO_INCLUDE})
    target_link_libraries(peers_gloo PRIVATE ${PEERS_GLOO_LIBRARY})
else()
    message(STATUS "bench/peers: gloo was not found and is left out")
endif()

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
    # On few sizes, and every result is verified; no time is asserted.
    add_test(NAME bench_peers COMMAND ${Python3_EXECUTABLE} ${folder}/compare.py ${CMAKE_CURRENT_BINARY_DIR} --quick
                                      --sizes 8 65536 --skip-without-mpi --plot ${CMAKE_CURRENT_BINARY_DIR}/peers.svg)
    set_tests_properties(bench_peers PROPERTIES LABELS bench SKIP_RETURN_CODE 77 TIMEOUT 300 RUN_SERIAL ON)
endif()
