set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test_objects(training_cases SOURCES ${dir}/cases.cpp ${dir}/matrix.cpp ${dir}/identity.cpp LIBS ebb_model_zoo)
set(cases $<TARGET_OBJECTS:training_cases>)
# Under ThreadSanitizer the runs of test_identity_races stand for the whole cover.
ebb_test(test_identity SOURCES ${cases} ${dir}/test_identity.cpp ${dir}/test_sliced_head.cpp LIBS ebb_model_zoo NOT_TSAN)
ebb_test(test_identity_races SOURCES ${cases} ${dir}/test_identity_races.cpp LIBS ebb_model_zoo)
ebb_test(test_identity_slow SOURCES ${cases} ${dir}/test_identity_slow.cpp LIBS ebb_model_zoo SLOW)
ebb_test(test_trainer
  SOURCES ${cases} ${dir}/counting_malloc.cpp ${dir}/fault_drill.cpp ${dir}/test_memory.cpp
    ${dir}/test_faults.cpp ${dir}/test_numeric.cpp ${dir}/test_fp16.cpp ${dir}/test_refusals.cpp ${dir}/test_micro_batches.cpp ${dir}/test_planted.cpp
    ${dir}/test_rehearsal.cpp ${dir}/test_choose.cpp
  LIBS ebb_model_zoo)
# Some of it is in test_identity_races.
ebb_test(test_speculation
  SOURCES ${cases} ${dir}/test_speculation.cpp ${dir}/test_speculation_faults.cpp LIBS ebb_model_zoo NOT_TSAN)
ebb_test(test_checkpoint
  SOURCES ${cases} ${dir}/test_checkpoint.cpp ${dir}/test_state_loan.cpp
    ${dir}/test_state_on_device.cpp LIBS ebb_model_zoo)
ebb_test(test_inference SOURCES ${cases} ${dir}/test_inference.cpp LIBS ebb_model_zoo)
ebb_test(test_trainer_slow SOURCES ${cases} ${dir}/fault_drill.cpp ${dir}/test_faults_slow.cpp LIBS ebb_model_zoo SLOW)
