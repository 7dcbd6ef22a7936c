# One translation unit parses the library once.
set_target_properties(${room_target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
