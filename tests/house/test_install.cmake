# Installs the build, then configures, builds and runs the example as an outside project that knows the prefix alone.
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} ended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

function(expect condition)
  cmake_language(EVAL CODE "if(NOT (${condition}))\n message(FATAL_ERROR [=[not true: ${condition}\n${output}]=])\nendif()")
endfunction()

set(prefix ${WORK_DIR}/prefix)
file(REMOVE_RECURSE ${WORK_DIR})
run("the installation" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
expect("EXISTS ${prefix}/include/ebb/ebb/ebb.h")
expect("EXISTS ${prefix}/include/ebb/device/device.h")
expect("NOT EXISTS ${prefix}/include/ebb/cuda")
expect("EXISTS ${prefix}/${LIBRARY_DIR}/${SONAME}")
expect("IS_SYMLINK ${prefix}/${LIBRARY_DIR}/${SONAME}")
run("the installed command" ${prefix}/bin/ebb --version)
expect("\"${output}\" MATCHES \"${VERSION}\"")

# Ebb's own dependencies must not be needed by those who use it.
set(hidden)
foreach(package TBB fmt nlohmann_json PkgConfig Eigen3 CUDAToolkit)
  list(APPEND hidden -D CMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
run("configuring the example" ${CMAKE_COMMAND} -S ${EXAMPLE_DIR} -B ${WORK_DIR}/build -G ${GENERATOR}
  -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${prefix}
  -D "CMAKE_CXX_FLAGS=-Wall -Wextra -Wpedantic -Werror" ${hidden})
run("building the example" ${CMAKE_COMMAND} --build ${WORK_DIR}/build)
run("the example" ${WORK_DIR}/build/embed)
message("${output}")
string(REGEX MATCH "loss ([0-9.]+) -> ([0-9.]+)" _ "${output}")
set(first ${CMAKE_MATCH_1})
set(last ${CMAKE_MATCH_2})
expect("\"${first}\" GREATER 0 AND \"${last}\" LESS \"${first}\"")
