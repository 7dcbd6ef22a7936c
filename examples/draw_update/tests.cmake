# Bucket by bucket, and faster than all of them behind the pass: in virtual time, so that it is so on every machine.
add_test(NAME draw_update COMMAND draw_update --ranks 3)
set_tests_properties(draw_update PROPERTIES PASS_REGULAR_EXPRESSION "</svg>" TIMEOUT 60)

# The pictures of the documentation are what it draws today.
foreach(picture "update" "update_silent;--silent")
    list(POP_FRONT picture name)
    add_test(NAME draw_update_documented_${name}
             COMMAND sh -c "$<TARGET_FILE:draw_update> ${picture} | cmp - ${PROJECT_SOURCE_DIR}/docs/pictures/${name}.svg")
    set_tests_properties(draw_update_documented_${name} PROPERTIES TIMEOUT 60)
endforeach()
