# The training, compiled once for the tests and for the files that the format's own Python library
# checks. tests/run.sh --all installs that library (tools/install_missing.sh).
add_library(checkpoint_training OBJECT ${folder}/training/training.cpp)
target_link_libraries(checkpoint_training PRIVATE unisono_test_setup ${room_library})
target_compile_options(checkpoint_training PRIVATE -O0) # as the room
target_link_libraries(${room_target} PRIVATE checkpoint_training)

room_program(checkpoint_tensors helper/tensors.cpp)
target_link_libraries(checkpoint_tensors PRIVATE checkpoint_training)
find_program(UNISONO_PYTHON_PACKAGES python3 PATHS ${PROJECT_SOURCE_DIR}/build/python/bin NO_DEFAULT_PATH)
if(NOT UNISONO_SANITIZED)
    set(python ${Python3_EXECUTABLE})
    if(UNISONO_PYTHON_PACKAGES)
        set(python ${UNISONO_PYTHON_PACKAGES})
    endif()
    add_test(NAME checkpoint_python COMMAND ${python} ${folder}/helper/check.py $<TARGET_FILE:checkpoint_tensors>)
    set_tests_properties(checkpoint_python PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77)
endif()

# Builds of few tests omit ranks with updates of their own: ranks in lockstep write files in the
# same ways.
if(few)
    leave_out("/local[.]cpp$")
endif()
if(thread_sanitizer) # it would not see what processes do
    leave_out("/kills[.]cpp$")
endif()
unite_sources("damage durable fence foreign kills local many_tensors resuming" "format own_loop")
leave_to_sanitizers("/(damage|durable|fence|foreign|format|many_tensors|own_loop|resuming)[.]cpp$")
