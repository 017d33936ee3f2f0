# Installation: the program, both libraries, the public headers, a pkg-config file and a CMake package whose targets
# are kvant::kvant (shared) and kvant::kvant_static.
include(CMakePackageConfigHelpers)

file(GLOB public_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h)
install(FILES ${public_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS kvant kvant_static EXPORT kvant
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET kvant_cli)
  install(TARGETS kvant_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/kvant)
install(EXPORT kvant NAMESPACE kvant:: FILE kvantTargets.cmake DESTINATION ${package_dir})
configure_package_config_file(cmake/kvantConfig.cmake.in ${PROJECT_BINARY_DIR}/kvantConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kvantConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kvantConfig.cmake ${PROJECT_BINARY_DIR}/kvantConfigVersion.cmake
        DESTINATION ${package_dir})

# The file finds its prefix from where it lies, so that an installed tree can be moved.
file(RELATIVE_PATH pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/kvant.pc.in ${PROJECT_BINARY_DIR}/kvant.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/kvant.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
