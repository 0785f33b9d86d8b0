# One static library for each module, so that each builds and is tested alone. The shared library contains all of them.
#   ebb_module(NAME SOURCES ... VECTOR_SOURCES ... LIBS ... [COMPUTES])    the library of a module, target ebb_NAME
#   ebb_test_objects(NAME SOURCES ... LIBS ... [COMPUTES])    what several tests are made of, compiled once: $<TARGET_OBJECTS:NAME>
#   ebb_test(NAME SOURCES ... LIBS ... [SLOW] [NOT_TSAN] [NOT_SANITIZED] [COMPUTES])    a GoogleTest executable registered with CTest
#   ebb_bench(NAME SOURCES ... LIBS ...)   a benchmark executable

add_library(ebb_options INTERFACE)
target_compile_features(ebb_options INTERFACE cxx_std_20)
target_compile_options(ebb_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-ffp-contract=off;-fno-math-errno>)
target_include_directories(ebb_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
if(EBB_SANITIZE)
  # The last option counts, and those of a target itself come before these.
  target_compile_options(ebb_options INTERFACE -fsanitize=${EBB_SANITIZE} -fno-omit-frame-pointer -g1
    -fno-sanitize-recover=undefined $<$<BOOL:$<TARGET_PROPERTY:EBB_IS_TEST>>:-fno-sanitize=undefined>)
  target_link_options(ebb_options INTERFACE -fsanitize=${EBB_SANITIZE})
else()
  target_link_options(ebb_options INTERFACE LINKER:-z,relro,-z,now)
endif()
# Compiles vectorised code for AVX2, for later instruction sets, and for the baseline of CPUs before 2013. The two instruction
# sets between took two fifths of the compile time.
target_compile_definitions(ebb_options INTERFACE "HWY_DISABLED_TARGETS=(HWY_SSSE3|HWY_SSE4)")

# Release builds end with a message when they find a broken stack or an overflow of a buffer whose size the compiler knows. The
# sanitizers find more, and _FORTIFY_SOURCE would hide errors from them.
function(ebb_harden target)
  if(EBB_SANITIZE)
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong;-fstack-clash-protection>
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release,RelWithDebInfo>>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>)
endfunction()

# COMPUTES: the code is optimised also under sanitizers; without it, code for text, files and models compiles in three fifths of
# the time. Then g++ also warns about unreachable ends of functions under ThreadSanitizer. VECTOR_SOURCES: SIMD code. -O1 would
# keep the sums of a tile in memory, and the sanitizers would check each of them in the innermost loop (70 % of a test's time).
# Use after scope is not checked there: the marks took half of the compile time. Fuzz targets run no SIMD code, so it is compiled
# quickly for them; the parsers are optimised.
# With EBB_UNITY, several files of a module or of a test are compiled as one: builds of CI are made from nothing, and headers took
# most of the time. So names in unnamed namespaces differ between the files of a module. A file of tests
# whose names would not has a namespace of its own (tests_of_NAME).
function(ebb_module name)
  cmake_parse_arguments(ARG "COMPUTES" "" "SOURCES;VECTOR_SOURCES;LIBS" ${ARGN})
  add_library(ebb_${name} STATIC ${ARG_SOURCES} ${ARG_VECTOR_SOURCES})
  if(EBB_SANITIZE)
    set(options -O2 -fno-sanitize-address-use-after-scope)
    if(EBB_SANITIZE MATCHES fuzzer)
      set(options -O0 -fno-sanitize=all)
    elseif(NOT ARG_COMPUTES)
      target_compile_options(ebb_${name} PRIVATE -O0 -Wno-return-type)
    endif()
    set_source_files_properties(${ARG_VECTOR_SOURCES} PROPERTIES COMPILE_OPTIONS "${options}")
  endif()
  # A file of SIMD code includes itself once for each instruction set, so it is compiled alone.
  set_source_files_properties(${ARG_VECTOR_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  set_target_properties(ebb_${name} PROPERTIES UNITY_BUILD ${EBB_UNITY})
  ebb_harden(ebb_${name})
  set_target_properties(ebb_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(ebb_${name} PUBLIC ebb_options ${ARG_LIBS})
  set_property(GLOBAL APPEND PROPERTY EBB_MODULES ebb_${name})
endfunction()

# Sets the time limit of a test, its labels (fast or slow, and the sanitizers of this build) and the options of sanitizers. A
# data race ends the test program, because reports of planted races would take a minute.
function(ebb_test_properties name speed)
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${speed}"
    ENVIRONMENT_MODIFICATION "UBSAN_OPTIONS=set:print_stacktrace=1;TSAN_OPTIONS=set:second_deadlock_stack=1:halt_on_error=1")
  if(EBB_SANITIZE)
    set_property(TEST ${name} APPEND PROPERTY LABELS "-fsanitize=${EBB_SANITIZE}")
  endif()
endfunction()

# The options of a test: no optimisation (-O0), or little of it (-O1), with which g++ 12 warns about std::string without a reason.
# UBSan checks the code under test and not that of tests (EBB_IS_TEST), which then compiles in three fifths of the time. So it checks
# a function of a header only where the code under test has it inline, because the linker may keep the copy of the test.
function(ebb_set_test_options name level)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU,Clang>:${level}>
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>)
  set_target_properties(${name} PROPERTIES EBB_IS_TEST ON)
endfunction()

# A quarter of the time to compile a test is for these headers. They are compiled once for each level of optimisation, but not if
# ccache is used: ccache stores no object that was compiled with a precompiled header.
function(ebb_precompile_test_headers name level)
  if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CCACHE_DISABLE})
    return()
  endif()
  set(headers ebb_test_headers${level})
  if(NOT TARGET ${headers})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${headers}.cpp CONTENT "")
    add_library(${headers} OBJECT ${CMAKE_BINARY_DIR}/${headers}.cpp)
    target_link_libraries(${headers} PRIVATE ebb_options GTest::gtest)
    ebb_set_test_options(${headers} ${level})
    target_precompile_headers(${headers} PRIVATE <gtest/gtest.h> <algorithm> <array> <cmath> <cstdint> <filesystem> <functional>
      <map> <memory> <optional> <random> <span> <string> <string_view> <vector>)
  endif()
  # Where other options do not fit (for example -fno-sanitize), the compiler reads the headers themselves.
  set_target_properties(${name} PROPERTIES PCH_WARN_INVALID OFF)
  target_precompile_headers(${name} REUSE_FROM ${headers})
endfunction()

# Compiles a test without optimisation, which takes half the time; the library under test is optimised. COMPUTES: with -O1, for
# tests whose fp64 references would run too long.
function(ebb_compile_test_quickly name computes)
  set(level -O0)
  if(computes)
    set(level -O1)
  endif()
  ebb_set_test_options(${name} ${level})
  set_target_properties(${name} PROPERTIES UNITY_BUILD ${EBB_UNITY})
  ebb_precompile_test_headers(${name} ${level})
endfunction()

function(ebb_test_objects name)
  cmake_parse_arguments(ARG "COMPUTES" "" "SOURCES;LIBS" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ebb_options ${ARG_LIBS} GTest::gtest)
  ebb_compile_test_quickly(${name} "${ARG_COMPUTES}")
endfunction()

# The property EBB_TEST_ARGUMENTS of the target has arguments for the test, such as --gtest_filter. A property of the test would also
# count for the tests with the same name in other builds, when tools/test runs several builds together.
# SLOW: not in the fast set. NOT_TSAN: not under ThreadSanitizer, because another test runs the same threads. NOT_SANITIZED: under no
# sanitizer, because other tests run the same code there. Sanitizers run only the fast set; slow tests are built there only by name.
function(ebb_test name)
  cmake_parse_arguments(ARG "SLOW;NOT_TSAN;NOT_SANITIZED;COMPUTES" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ebb_options ${ARG_LIBS} GTest::gtest GTest::gtest_main)
  ebb_compile_test_quickly(${name} "${ARG_COMPUTES}")
  add_test(NAME ${name} COMMAND ${name} $<TARGET_PROPERTY:${name},EBB_TEST_ARGUMENTS> COMMAND_EXPAND_LISTS)
  if(ARG_SLOW OR (ARG_NOT_TSAN AND EBB_SANITIZE MATCHES thread) OR (ARG_NOT_SANITIZED AND EBB_SANITIZE))
    ebb_test_properties(${name} slow)
    if(EBB_SANITIZE)
      set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
  else()
    ebb_test_properties(${name} fast)
  endif()
endfunction()

function(ebb_bench name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ebb_options ${ARG_LIBS})
endfunction()
