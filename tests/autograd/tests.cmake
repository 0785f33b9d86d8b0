set(dir ${CMAKE_CURRENT_LIST_DIR})
# Under ThreadSanitizer the tests of the trainer use the same threads.
ebb_test(test_autograd
  SOURCES ${dir}/test_activated.cpp ${dir}/test_arena.cpp ${dir}/test_classifier.cpp ${dir}/test_gradient_check.cpp ${dir}/test_large_head.cpp
    ${dir}/test_micro_batches.cpp ${dir}/test_recompute.cpp ${dir}/test_shape_errors.cpp ${dir}/test_tape.cpp
  LIBS ebb_model_zoo ebb_scheduler Eigen3::Eigen COMPUTES NOT_TSAN)
