output_test(draw_schedule COMMAND draw_schedule --family tree --collective gather --ranks 7 --root 2
            PATTERN "(?=.*</svg>).*tree gather on 7 ranks: proven; rank 0 sends 1 messages with 1 blocks")
output_test(draw_schedule_list COMMAND draw_schedule --list PATTERN "halving_doubling reduce_scatter")
output_test(draw_schedule_refuses_bad_root FAILS COMMAND draw_schedule --collective broadcast --ranks 3 --root 3
            PATTERN "bad_input: root is 3, expected 0 to 2")

# The pictures in the documentation are what the code draws.
foreach(picture "ring 4" "halving_doubling 8")
    string(REPLACE " " ";" words ${picture})
    list(GET words 0 family)
    list(GET words 1 ranks)
    set(file pictures/${family}_all_reduce_${ranks}.svg)
    add_test(NAME draw_schedule_${family}_documented
             COMMAND sh -c "$<TARGET_FILE:draw_schedule> --family ${family} --ranks ${ranks} | cmp - ${PROJECT_SOURCE_DIR}/docs/${file}")
    set_tests_properties(draw_schedule_${family}_documented PROPERTIES TIMEOUT 60)
endforeach()
