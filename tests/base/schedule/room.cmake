unite_sources("drawing hierarchical mutants numbers proof timing")

# Certificates of schedules: a script that shares no code with the library accepts all of them, and
# refuses any with one change.
if(NOT UNISONO_SANITIZED)
    set(worlds 1,2,3,4,5,6,7,8,9,16,17)
    if(UNISONO_TEST_ALL)
        set(worlds daily) # in five days 1 to 64
    endif()
    add_dependencies(${room_target} unisono-certificate)
    add_test(NAME schedule_certificates
             COMMAND ${Python3_EXECUTABLE} ${folder}/helper/certificates.py $<TARGET_FILE:unisono-certificate>
                     ${PROJECT_SOURCE_DIR}/tools ${worlds})
    set_tests_properties(schedule_certificates PROPERTIES TIMEOUT 1800)
endif()
