# The installed package: the rooms as quintet::engine, the tool, the recipes, and the public headers <quintet/...>.
# The headers of rooms that the public ones need are installed below quintet/internal (tools/public_headers.py).
include(CMakePackageConfigHelpers)
get_property(rooms GLOBAL PROPERTY QUINTET_ROOMS)

add_library(quintet_engine INTERFACE)
add_library(quintet::engine ALIAS quintet_engine)
set_target_properties(quintet_engine PROPERTIES EXPORT_NAME engine)
target_include_directories(quintet_engine INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
install(TARGETS quintet_engine EXPORT quintetTargets)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
install(CODE "execute_process(COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/public_headers.py
  --install \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\" COMMAND_ERROR_IS_FATAL ANY)")

# Static libraries pass their dependencies on to their users, so the package has to find those again.
set(quintet_dependencies fmt Threads)
foreach(room ${rooms})
  target_link_libraries(quintet_engine INTERFACE quintet_${room})
  get_target_property(libraries quintet_${room} INTERFACE_LINK_LIBRARIES)
  string(GENEX_STRIP "${libraries}" public)
  # GENEX_STRIP drops LINK_ONLY entries too, and those are needed at link time.
  string(REGEX MATCHALL "LINK_ONLY:[A-Za-z_0-9]+::" private "${libraries}")
  foreach(library ${public} ${private})
    if(library MATCHES "(MPI|OpenMP|nlohmann_json)::")
      list(APPEND quintet_dependencies ${CMAKE_MATCH_1})
    endif()
  endforeach()
endforeach()
list(REMOVE_DUPLICATES quintet_dependencies)
# Libraries in addition to the rooms' own, in builds with CUDA.
foreach(library device_cuda kernels_cuda comm_nccl)
  if(TARGET quintet_${library})
    install(TARGETS quintet_${library} EXPORT quintetTargets ARCHIVE)
  endif()
endforeach()
if(QUINTET_CUDA)
  list(APPEND quintet_dependencies CUDAToolkit)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/quintet)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/quintetConfig.cmake.in ${PROJECT_BINARY_DIR}/quintetConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/quintetConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/quintetConfig.cmake ${PROJECT_BINARY_DIR}/quintetConfigVersion.cmake DESTINATION ${package_dir})
install(EXPORT quintetTargets NAMESPACE quintet:: DESTINATION ${package_dir})
if(TARGET quintet)
  install(TARGETS quintet RUNTIME)
  # Man pages and completion scripts are written by the tool itself, from its options.
  install(CODE "
    set(share \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}\")
    file(MAKE_DIRECTORY \${share}/bash-completion/completions \${share}/zsh/site-functions \${share}/fish/vendor_completions.d)
    execute_process(COMMAND $<TARGET_FILE:quintet> man --write \${share}/man COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND $<TARGET_FILE:quintet> completion bash
      OUTPUT_FILE \${share}/bash-completion/completions/quintet COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND $<TARGET_FILE:quintet> completion zsh
      OUTPUT_FILE \${share}/zsh/site-functions/_quintet COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND $<TARGET_FILE:quintet> completion fish
      OUTPUT_FILE \${share}/fish/vendor_completions.d/quintet.fish COMMAND_ERROR_IS_FATAL ANY)")
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/quintet)
