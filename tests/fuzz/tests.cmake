# The fuzz targets, one for each parser of files. Each is built in one of two ways:
#   test_fuzz_NAME   in every build: each seed, and CHANGES changed seeds (fast; all targets together take less than ten seconds)
#   fuzz_NAME        in a build with clang's libFuzzer (preset fuzz): EBB_FUZZ_SECONDS of new inputs (slow)
# In other builds the test fuzz (slow) makes the build with libFuzzer and runs all targets there.
# Parsers have no threads, so ThreadSanitizer does not run them.
if(EBB_SANITIZE MATCHES thread)
  return()
endif()
set(dir ${CMAKE_CURRENT_LIST_DIR})
set(EBB_FUZZ_SECONDS 60 CACHE STRING "Seconds for each fuzz target with libFuzzer")
add_custom_target(fuzz)

# The entry point; without libFuzzer also the program that changes seeds.
add_library(fuzz_main OBJECT EXCLUDE_FROM_ALL ${dir}/fuzz.cpp)
if(NOT EBB_SANITIZE MATCHES fuzzer)
  target_sources(fuzz_main PRIVATE ${dir}/mutations.cpp)
  ebb_set_test_options(fuzz_main -O0)
endif()
target_include_directories(fuzz_main PUBLIC ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(fuzz_main PUBLIC ebb_options)

# seeds/NAME: inputs from which others are made. pieces.dict: numbers at the ends of their ranges, and parts of the formats.
function(ebb_fuzz name changes)
  set(seeds ${dir}/seeds/${name})
  if(EBB_SANITIZE MATCHES fuzzer)
    set(target fuzz_${name})
    set(found ${PROJECT_BINARY_DIR}/found/${name})
    file(MAKE_DIRECTORY ${found})
    add_executable(${target} EXCLUDE_FROM_ALL ${dir}/${name}.cpp)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    add_test(NAME ${target} COMMAND ${target} -max_total_time=${EBB_FUZZ_SECONDS} -max_len=65536 -timeout=10 -malloc_limit_mb=512
      -rss_limit_mb=1024 -dict=${dir}/pieces.dict -artifact_prefix=${PROJECT_BINARY_DIR}/found/${name}- -print_final_stats=1
      ${found} ${seeds})
    ebb_test_properties(${target} slow)
    set_property(TEST ${target} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=quarantine_size_mb=16")
    add_dependencies(fuzz ${target})
  else()
    set(target test_fuzz_${name})
    if(EBB_SANITIZE) # these builds take about five times as long
      math(EXPR changes "${changes} / 5")
    endif()
    add_executable(${target} ${dir}/${name}.cpp)
    add_test(NAME ${target} COMMAND ${target} ${seeds} ${dir}/pieces.dict ${changes})
    ebb_set_test_options(${target} -O0)
    ebb_test_properties(${target} fast)
  endif()
  target_link_libraries(${target} PRIVATE fuzz_main ${ARGN})
endfunction()

#        name           changes  library
ebb_fuzz(config            5000  ebb_model_zoo)
ebb_fuzz(documents        10000  ebb_io)
ebb_fuzz(index             5000  ebb_io)
ebb_fuzz(labels           10000  ebb_io)
ebb_fuzz(machine           5000  ebb_tools)
ebb_fuzz(run_log           1000  ebb_tools)
ebb_fuzz(safetensors     100000  ebb_io)
ebb_fuzz(state             5000  ebb_io)
ebb_fuzz(tokens            2000  ebb_io)
ebb_fuzz(token_record      5000  ebb_io)
ebb_fuzz(toml             10000  ebb_tools)
ebb_fuzz(training          5000  ebb_tools)

if(NOT EBB_SANITIZE)
  add_test(NAME fuzz COMMAND sh ${dir}/run_fuzz ${EBB_FUZZ_SECONDS})
  ebb_test_properties(fuzz slow)
  set_tests_properties(fuzz PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 7200)
endif()
