# Install rules: headers, the CMake package (cmake/unisono-config.cmake.in) and unisono.pc. Nothing in them depends on where the
# prefix is, nor on the machine; tools/ adds its programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/unisono)
install(DIRECTORY include/unisono TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS unisono EXPORT unisono-targets)
install(EXPORT unisono-targets NAMESPACE unisono:: DESTINATION ${package_dir})
configure_package_config_file(cmake/unisono-config.cmake.in ${PROJECT_BINARY_DIR}/unisono-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unisono-config-version.cmake
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${PROJECT_BINARY_DIR}/unisono-config.cmake ${PROJECT_BINARY_DIR}/unisono-config-version.cmake
              cmake/UnisonoCompiler.cmake cmake/UnisonoLibfabric.cmake cmake/UnisonoMpi.cmake
              cmake/UnisonoNccl.cmake cmake/UnisonoThrust.cmake
        DESTINATION ${package_dir})

set(pc_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(unisono_pc_prefix ${CMAKE_INSTALL_PREFIX})
    set(unisono_pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else() # wherever the prefix is moved to
    file(RELATIVE_PATH up "/prefix/${pc_dir}" "/prefix")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(unisono_pc_prefix "\${pcfiledir}/${up}")
    set(unisono_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/unisono.pc.in ${PROJECT_BINARY_DIR}/unisono.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/unisono.pc DESTINATION ${pc_dir})
