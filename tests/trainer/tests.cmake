set(dir ${CMAKE_CURRENT_LIST_DIR})
set(cases ${dir}/cases.cpp ${dir}/matrix.cpp ${dir}/identity.cpp)
# Under ThreadSanitizer the runs of test_identity_races stand for the whole cover.
set(cover_label)
if(EBB_SANITIZE MATCHES thread)
  set(cover_label SLOW)
endif()
ebb_test(test_identity SOURCES ${cases} ${dir}/test_identity.cpp ${dir}/test_sliced_head.cpp LIBS ebb_model_zoo ${cover_label})
ebb_test(test_identity_races SOURCES ${cases} ${dir}/test_identity_races.cpp LIBS ebb_model_zoo)
ebb_test(test_identity_slow SOURCES ${cases} ${dir}/test_identity_slow.cpp LIBS ebb_model_zoo SLOW)
ebb_test(test_trainer
  SOURCES ${cases} ${dir}/counting_malloc.cpp ${dir}/fault_drill.cpp ${dir}/test_memory.cpp
    ${dir}/test_faults.cpp ${dir}/test_numeric.cpp ${dir}/test_refusals.cpp ${dir}/test_micro_batches.cpp ${dir}/test_planted.cpp
    ${dir}/test_rehearsal.cpp ${dir}/test_choose.cpp
  LIBS ebb_model_zoo)
ebb_test(test_checkpoint
  SOURCES ${cases} ${dir}/test_checkpoint.cpp ${dir}/test_state_loan.cpp LIBS ebb_model_zoo)
ebb_test(test_trainer_slow SOURCES ${cases} ${dir}/fault_drill.cpp ${dir}/test_faults_slow.cpp LIBS ebb_model_zoo SLOW)
