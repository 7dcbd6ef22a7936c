# The contenders are those of bench/peers. This folder has the hosts that they may be on, and
# compare.py, which gives them their turns.
set(folder ${CMAKE_CURRENT_LIST_DIR})

add_executable(network_lab ${folder}/hosts/lab.cpp)
target_compile_features(network_lab PRIVATE cxx_std_20)
target_include_directories(network_lab PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(network_lab PRIVATE unisono::unisono unisono_warnings)

find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND AND TARGET nlohmann_json::nlohmann_json)
    # Few sizes. Every result is verified. No time is asserted.
    add_test(NAME bench_network COMMAND ${Python3_EXECUTABLE} ${folder}/compare.py ${CMAKE_CURRENT_BINARY_DIR} --quick --ranks 2
                                        --sizes 8 262144 --namespaces)
    set_tests_properties(bench_network PROPERTIES LABELS bench TIMEOUT 300 RUN_SERIAL ON)
endif()
