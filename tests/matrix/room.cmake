# Under a sanitizer one reducer is crossed in full with the rest, and all others pairwise (servers, compressions, gossip and split models in other rooms): threads and memory meet in the same ways.
if(UNISONO_SANITIZED)
    get_target_property(matrix_sources ${room_target} SOURCES)
    list(FILTER matrix_sources EXCLUDE REGEX "full_(automatic|halving_doubling|parameter_server|ring|sum_only|tree)|/(served|compressed|split|pairwise_4)[.]cpp$")
    set_target_properties(${room_target} PROPERTIES SOURCES "${matrix_sources}")
endif()
