# Bucket by bucket is faster than all buckets after the pass. Time is virtual, so this holds on
# every machine.
output_test(draw_update COMMAND draw_update --ranks 3 PATTERN "</svg>")

# The picture in the documentation is what the program draws today.
add_test(NAME draw_update_documented
         COMMAND sh -c "$<TARGET_FILE:draw_update> --both | cmp - ${PROJECT_SOURCE_DIR}/docs/pictures/update.svg")
set_tests_properties(draw_update_documented PROPERTIES TIMEOUT 60)
