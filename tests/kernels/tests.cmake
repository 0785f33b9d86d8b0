ebb_test(test_kernels
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/harness.cpp ${CMAKE_CURRENT_LIST_DIR}/reference.cpp ${CMAKE_CURRENT_LIST_DIR}/test_linear.cpp ${CMAKE_CURRENT_LIST_DIR}/test_norm.cpp ${CMAKE_CURRENT_LIST_DIR}/test_rms_norm.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_rotary.cpp ${CMAKE_CURRENT_LIST_DIR}/test_swiglu.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_elementwise.cpp ${CMAKE_CURRENT_LIST_DIR}/test_embedding.cpp ${CMAKE_CURRENT_LIST_DIR}/test_attention.cpp ${CMAKE_CURRENT_LIST_DIR}/test_loss.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_gradient.cpp ${CMAKE_CURRENT_LIST_DIR}/test_adamw.cpp ${CMAKE_CURRENT_LIST_DIR}/test_same_bits.cpp ${CMAKE_CURRENT_LIST_DIR}/test_contracts.cpp
  LIBS ebb_host_kernels ebb_cpu_adam)
