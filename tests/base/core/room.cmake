unite_sources("element hash list outcome random version")
target_compile_definitions(${room_target} PRIVATE UNISONO_TEST_PROJECT_VERSION="${PROJECT_VERSION}")
