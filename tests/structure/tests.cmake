# Tests of the structure: include rules, retired words, headers that compile alone, and the installed package in a separate
# project. They do not run with sanitizers, because the separate project would need the runtime of the sanitizer.
if(EBB_SANITIZE)
  return()
endif()
set(dir ${CMAKE_CURRENT_LIST_DIR})
find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

add_test(NAME test_includes
  COMMAND Python3::Interpreter ${dir}/check_includes.py --root ${PROJECT_SOURCE_DIR} --public ${EBB_PUBLIC_HEADERS})
ebb_test_properties(test_includes fast)
add_test(NAME test_check_includes COMMAND Python3::Interpreter ${dir}/test_check_includes.py)
ebb_test_properties(test_check_includes fast)

add_test(NAME test_cycles COMMAND Python3::Interpreter ${dir}/check_cycles.py --root ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_cycles fast)
add_test(NAME test_check_cycles COMMAND Python3::Interpreter ${dir}/test_check_cycles.py)
ebb_test_properties(test_check_cycles fast)
add_test(NAME test_options COMMAND Python3::Interpreter ${dir}/check_options.py --root ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_options fast)
add_test(NAME test_check_options COMMAND Python3::Interpreter ${dir}/test_check_options.py)
ebb_test_properties(test_check_options fast)
add_test(NAME test_words COMMAND Python3::Interpreter ${dir}/check_words.py --root ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_words fast)
add_test(NAME test_check_words COMMAND Python3::Interpreter ${dir}/test_check_words.py)
ebb_test_properties(test_check_words fast)

set(sources)
foreach(header ${EBB_PUBLIC_HEADERS})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/alone/${header}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND sources ${source})
endforeach()
add_library(ebb_headers_alone OBJECT ${sources})
target_link_libraries(ebb_headers_alone PRIVATE ebb_options)

add_test(NAME test_install
  COMMAND ${CMAKE_COMMAND} -D BUILD_DIR=${PROJECT_BINARY_DIR} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D PYTHON=${Python3_EXECUTABLE}
    -D WORK_DIR=${CMAKE_CURRENT_BINARY_DIR}/install -D GENERATOR=${CMAKE_GENERATOR} -D COMPILER=${CMAKE_CXX_COMPILER}
    -D LIBRARY_DIR=${CMAKE_INSTALL_LIBDIR} -D SONAME=libebb.so.${PROJECT_VERSION_MAJOR} -D VERSION=${PROJECT_VERSION}
    -P ${dir}/test_install.cmake)
ebb_test_properties(test_install fast)

add_test(NAME test_package COMMAND sh ${dir}/test_package ${CMAKE_CPACK_COMMAND} ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/package)
ebb_test_properties(test_package fast)
set_tests_properties(test_package PROPERTIES SKIP_RETURN_CODE 77 FIXTURES_SETUP package)

# The same on Ubuntu 24.04. Both tests are skipped if its archive cannot be reached.
add_test(NAME test_package_on_ubuntu
  COMMAND sh ${dir}/test_package_on_ubuntu ${CMAKE_CURRENT_BINARY_DIR}/package/packages ${CMAKE_CURRENT_BINARY_DIR}/package_on_ubuntu)
ebb_test_properties(test_package_on_ubuntu fast)
set_tests_properties(test_package_on_ubuntu PROPERTIES SKIP_RETURN_CODE 77 FIXTURES_REQUIRED package)
add_test(NAME test_build_on_ubuntu COMMAND sh ${dir}/test_build_on_ubuntu ${PROJECT_BINARY_DIR}/ubuntu)
ebb_test_properties(test_build_on_ubuntu slow)
set_tests_properties(test_build_on_ubuntu PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 7200)

# The files for containers. Their commands run in roots that debootstrap makes, because tests have no Docker.
add_test(NAME test_containers_files COMMAND Python3::Interpreter ${dir}/check_containers.py --root ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_containers_files fast)
add_test(NAME test_check_containers COMMAND Python3::Interpreter ${dir}/test_check_containers.py)
ebb_test_properties(test_check_containers fast)
foreach(dockerfile Dockerfile Dockerfile.cuda)
  add_test(NAME test_containers_${dockerfile}
    COMMAND Python3::Interpreter ${dir}/test_containers --root ${PROJECT_SOURCE_DIR} --work ${PROJECT_BINARY_DIR}/containers
      --dockerfile ${dockerfile})
  ebb_test_properties(test_containers_${dockerfile} slow)
  set_tests_properties(test_containers_${dockerfile} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 7200 RESOURCE_LOCK containers)
endforeach()

# The commands in the README and in docs/ must work.
set(docs_dir ${dir}/../docs)
add_test(NAME test_docs
  COMMAND Python3::Interpreter ${docs_dir}/run_commands.py --root ${PROJECT_SOURCE_DIR} --ebb $<TARGET_FILE:ebb>)
ebb_test_properties(test_docs fast)
# The README shows a first run, plans, status and limits before its tour of the code, in few words.
add_test(NAME test_readme_length COMMAND sh -c [[test "$(sed '/^## One step/,$d' README.md | wc -w)" -le 1200]]
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_readme_length fast)
add_test(NAME test_plan_table COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/docs/plan_table $<TARGET_FILE:ebb>
  --check ${PROJECT_SOURCE_DIR}/README.md)
ebb_test_properties(test_plan_table fast)
add_test(NAME test_check_plan_table COMMAND Python3::Interpreter ${docs_dir}/test_plan_table.py)
ebb_test_properties(test_check_plan_table fast)
# The tables of measured figures in docs/results.md and the README are those of the records in bench/results/.
add_test(NAME test_figures COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/docs/figures --check)
ebb_test_properties(test_figures fast)
add_test(NAME test_check_figures COMMAND Python3::Interpreter ${docs_dir}/test_figures.py)
ebb_test_properties(test_check_figures fast)
add_test(NAME test_quotes COMMAND Python3::Interpreter ${docs_dir}/check_quotes.py --root ${PROJECT_SOURCE_DIR})
ebb_test_properties(test_quotes fast)
add_test(NAME test_check_quotes COMMAND Python3::Interpreter ${docs_dir}/test_check_quotes.py)
ebb_test_properties(test_check_quotes fast)
add_test(NAME test_check_docs COMMAND Python3::Interpreter ${docs_dir}/test_run_commands.py)
ebb_test_properties(test_check_docs fast)

# Installs several gigabytes unless EBB_PYTHON names a Python with these modules. Skipped if it cannot install them.
add_test(NAME test_with_transformers
  COMMAND sh ${dir}/../with_transformers ${PROJECT_BINARY_DIR}/python ${PROJECT_BINARY_DIR})
ebb_test_properties(test_with_transformers slow)
set_tests_properties(test_with_transformers PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800)
