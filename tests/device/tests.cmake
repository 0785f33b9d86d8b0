set(sources counting_new.cpp test_cuda_seam.cpp test_host_blocks.cpp test_host_device.cpp test_host_event.cpp
  test_host_link.cpp test_host_stream.cpp test_host_stream_errors.cpp test_races.cpp test_sim_device.cpp
  test_thread_team.cpp)
list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
ebb_test(test_device SOURCES ${sources} LIBS ebb_device)
