foreach(ranks 1 2 4)
    math(EXPR sum "${ranks} * (${ranks} + 1) / 2")
    output_test(example_c_bootstrap_${ranks} TIMEOUT 90
                COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/c_bootstrap/run.sh $<TARGET_FILE:c_bootstrap> ${ranks}
                PATTERN "^${ranks} ranks, sum ${sum}\n$")
endforeach()
