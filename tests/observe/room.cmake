# Files for TensorBoard's own reader, if tests/run.sh --all has installed it
# (tools/install_missing.sh).
if(NOT UNISONO_SANITIZED)
    room_program(observe_events helper/events.cpp)
    set(python ${PROJECT_SOURCE_DIR}/build/python/bin/python3)
    if(NOT EXISTS ${python})
        set(python ${Python3_EXECUTABLE})
    endif()
    add_test(NAME observe_tensorboard COMMAND ${python} ${folder}/helper/check_events.py $<TARGET_FILE:observe_events>)
    add_test(NAME observe_tools COMMAND ${python} ${folder}/helper/check_tools.py ${PROJECT_SOURCE_DIR})
    set_tests_properties(observe_tensorboard observe_tools PROPERTIES TIMEOUT 120 SKIP_REGULAR_EXPRESSION "skipped: ")
endif()
unite_sources("hash_log metric_files metrics progress table")
