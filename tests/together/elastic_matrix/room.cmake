# One translation unit takes half as long as five: they instantiate the same policies.
set_target_properties(${room_target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
