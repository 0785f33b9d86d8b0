# Tests of the programs and scripts for GPU machines that need no GPU: the GPU benchmarks on the emulated GPU, and gpu_check.
if(EBB_SANITIZE)
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/gpu/*.cpp)
add_executable(bench_gpu_emulated ${sources} ${PROJECT_SOURCE_DIR}/tests/cuda_emulation/with_attention_library.cpp)
target_link_libraries(bench_gpu_emulated PRIVATE ebb_options ebb_cuda_emulated ebb_tools ebb_model_zoo fmt::fmt)
add_test(NAME test_bench_gpu_emulated COMMAND bench_gpu_emulated all --small)
ebb_test_properties(test_bench_gpu_emulated fast)

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
add_test(NAME test_gpu_check COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_gpu_check.py)
ebb_test_properties(test_gpu_check fast)

add_test(NAME test_static COMMAND Python3::Interpreter ${CMAKE_CURRENT_LIST_DIR}/test_static.py)
ebb_test_properties(test_static fast)

# A toy model on the host trains to the same bits with two budgets, and its plan is printed next to the measurement.
add_test(NAME test_claims COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/bench/gpu/claims.py $<TARGET_FILE:ebb> toy)
ebb_test_properties(test_claims fast)
