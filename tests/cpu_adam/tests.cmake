set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test_objects(adamw_reference SOURCES ${dir}/reference.cpp LIBS Eigen3::Eigen COMPUTES)
ebb_test(test_cpu_adam
  SOURCES $<TARGET_OBJECTS:adamw_reference> ${dir}/state.cpp ${dir}/test_adamw.cpp ${dir}/test_same_bits.cpp
          ${dir}/test_master.cpp ${dir}/test_gradient_norm.cpp ${dir}/test_state_hash.cpp
          ${dir}/test_ordered_sum.cpp ${dir}/test_undo.cpp
  LIBS ebb_cpu_adam Eigen3::Eigen COMPUTES)
if(EBB_SANITIZE MATCHES thread)
  # Types and rounding bounds do not change what the threads do, so bf16 stands for all types.
  string(JOIN ":" left_out *fp16* */fp32_* */bf16_gradient_fp32* *StaysWithinTheRoundingBound* SplitMaster.*)
  set_property(TARGET test_cpu_adam PROPERTY EBB_TEST_ARGUMENTS "--gtest_filter=-${left_out}")
endif()
ebb_test(test_cpu_adam_slow
  SOURCES ${dir}/state.cpp ${dir}/test_all_masters.cpp ${dir}/test_undo_slow.cpp LIBS ebb_cpu_adam SLOW)
ebb_test(test_cpu_adam_error
  SOURCES $<TARGET_OBJECTS:adamw_reference> ${dir}/state.cpp ${dir}/test_error.cpp
  LIBS ebb_cpu_adam Eigen3::Eigen nlohmann_json::nlohmann_json NOT_TSAN)
target_compile_definitions(test_cpu_adam_error PRIVATE EBB_FIXTURES="${PROJECT_SOURCE_DIR}/tests/fixtures")
