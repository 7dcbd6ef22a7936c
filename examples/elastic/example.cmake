target_compile_definitions(${name} PRIVATE DIGITS_DATA="${CMAKE_CURRENT_SOURCE_DIR}/digits/data/digits.csv")
