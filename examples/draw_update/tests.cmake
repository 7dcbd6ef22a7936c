# Bucket by bucket, and faster than all of them behind the pass: in virtual time, so that it is so on every machine.
add_test(NAME draw_update COMMAND draw_update --ranks 3)
set_tests_properties(draw_update PROPERTIES PASS_REGULAR_EXPRESSION "</svg>" TIMEOUT 60)
