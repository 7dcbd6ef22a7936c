# A target for each extension that needs no third party (docs/architecture.md): unisono::elastic is
# unisono::unisono under the name of what a program uses. This repository and the installed package
# include this file.
set(unisono_extensions any any_group automatic checkpoint compression elastic hosts join join_any laboratory launch
                       master_weights observe parallel reducers reproducible sharded simulate simulate_elastic tcp trainers transports updates)
foreach(unisono_extension IN LISTS unisono_extensions)
    if(NOT TARGET unisono::${unisono_extension})
        add_library(unisono::${unisono_extension} INTERFACE IMPORTED ${unisono_target_scope})
        set_target_properties(unisono::${unisono_extension} PROPERTIES INTERFACE_LINK_LIBRARIES unisono::unisono)
    endif()
endforeach()
