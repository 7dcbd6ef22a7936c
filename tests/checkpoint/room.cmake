# The training, compiled once for the tests and for what Python's own library of the format checks. That is there where
# tests/run.sh --all has installed it (tools/install_missing.sh).
add_library(checkpoint_training OBJECT ${folder}/training/training.cpp)
target_link_libraries(checkpoint_training PRIVATE unisono_test_setup ${room_library})
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT UNISONO_SANITIZED)
    target_compile_options(checkpoint_training PRIVATE -O0) # as the room
endif()
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
    set_tests_properties(checkpoint_python PROPERTIES TIMEOUT 120 SKIP_REGULAR_EXPRESSION "skipped: ")
endif()

# In builds of few tests ranks in lockstep stand for those that go their own ways: files are written in the same ways.
if(few)
    leave_out("/local[.]cpp$")
endif()
if(thread_sanitizer) # which would not see what processes do
    leave_out("/kills[.]cpp$")
endif()
unite_sources("damage kills local resuming" "format own_loop")
