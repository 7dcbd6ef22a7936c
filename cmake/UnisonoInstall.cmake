# Install rules: headers, the CMake package (cmake/unisono-config.cmake.in) and unisono.pc. They
# depend neither on the prefix nor on the machine. tools/ adds its programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/unisono)
install(DIRECTORY include/unisono TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(TARGETS unisono EXPORT unisono-targets)
install(EXPORT unisono-targets NAMESPACE unisono:: DESTINATION ${package_dir})
set(version_arguments COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
# The library has targets and a pkg-config file of its own, so that nothing else depends on the
# machine.
if(UNISONO_COMPILED)
    install(TARGETS unisono_compiled EXPORT unisono-compiled-targets)
    install(EXPORT unisono-compiled-targets NAMESPACE unisono:: DESTINATION ${package_dir})
    set(version_arguments COMPATIBILITY SameMinorVersion)
endif()
if(UNISONO_DEVICES)
    install(TARGETS unisono_devices EXPORT unisono-devices-targets)
    install(EXPORT unisono-devices-targets NAMESPACE unisono:: DESTINATION ${package_dir})
    set(version_arguments COMPATIBILITY SameMinorVersion)
endif()
configure_package_config_file(cmake/unisono-config.cmake.in ${PROJECT_BINARY_DIR}/unisono-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unisono-config-version.cmake
                                 ${version_arguments})
install(FILES ${PROJECT_BINARY_DIR}/unisono-config.cmake ${PROJECT_BINARY_DIR}/unisono-config-version.cmake
              cmake/UnisonoCompiler.cmake cmake/UnisonoExtensions.cmake cmake/UnisonoLibfabric.cmake cmake/UnisonoMpi.cmake
              cmake/UnisonoNccl.cmake cmake/UnisonoThrust.cmake
        DESTINATION ${package_dir})

# install_pkg_config(NAME DIRECTORY): installs NAME.pc in DIRECTORY. The file stays valid if the
# prefix is moved.
function(install_pkg_config name pc_dir)
    if(IS_ABSOLUTE "${pc_dir}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
        set(unisono_pc_prefix ${CMAKE_INSTALL_PREFIX})
        set(unisono_pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
        set(unisono_pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
    else()
        file(RELATIVE_PATH up "/prefix/${pc_dir}" "/prefix")
        string(REGEX REPLACE "/$" "" up "${up}")
        set(unisono_pc_prefix "\${pcfiledir}/${up}")
        set(unisono_pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
        set(unisono_pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    endif()
    configure_file(cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_dir})
endfunction()
# All in one folder, so that one entry of PKG_CONFIG_PATH finds them: the library's if there is one.
if(UNISONO_COMPILED)
    install_pkg_config(unisono ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install_pkg_config(unisono-compiled ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
else()
    install_pkg_config(unisono ${CMAKE_INSTALL_DATADIR}/pkgconfig)
endif()
