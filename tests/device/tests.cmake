ebb_test(test_device
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/counting_new.cpp ${CMAKE_CURRENT_LIST_DIR}/test_cuda_seam.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_host_blocks.cpp ${CMAKE_CURRENT_LIST_DIR}/test_host_device.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_host_event.cpp ${CMAKE_CURRENT_LIST_DIR}/test_host_link.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_host_stream.cpp ${CMAKE_CURRENT_LIST_DIR}/test_host_stream_errors.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_races.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_sim_device.cpp
    ${CMAKE_CURRENT_LIST_DIR}/test_thread_team.cpp
  LIBS ebb_device)
