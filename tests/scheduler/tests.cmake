set(dir ${CMAKE_CURRENT_LIST_DIR})
# Planning has one thread.
ebb_test(test_plan
  SOURCES ${dir}/plan_cases.cpp ${dir}/plan_edits.cpp ${dir}/plan_reference.cpp ${dir}/test_last_gradient.cpp ${dir}/test_plan.cpp
    ${dir}/test_plan_across_steps.cpp ${dir}/test_chunk_trace.cpp ${dir}/test_simulate.cpp
    ${dir}/test_simulate_ranks.cpp ${dir}/test_speculated.cpp ${dir}/test_timeline.cpp ${dir}/test_traffic.cpp ${dir}/test_wait_causes.cpp
    ${dir}/test_validate.cpp ${dir}/test_validate_chunks.cpp ${dir}/test_validation_order.cpp ${dir}/test_late_stores.cpp
    ${dir}/test_kept_mappings.cpp
  LIBS ebb_scheduler COMPUTES NOT_TSAN)
ebb_test(test_progress_of_steps SOURCES ${dir}/test_progress.cpp LIBS ebb_scheduler)
