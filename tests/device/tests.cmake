# On every device that computes: the host's, the GPU where there is one, and the emulated GPU. Compiled once for all.
set(on_devices counting_new.cpp test_device_memory.cpp test_races.cpp test_stream.cpp test_stream_errors.cpp test_stream_loops.cpp)
list(TRANSFORM on_devices PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
ebb_test_objects(device_tests SOURCES ${on_devices} LIBS ebb_device)
set(sources test_arithmetic.cpp test_copy.cpp test_cuda_seam.cpp test_f16.cpp test_host_blocks.cpp test_host_device.cpp test_host_event.cpp
  test_host_link.cpp test_loop_queue.cpp test_numa.cpp test_pretend.cpp test_pretended_blocks.cpp test_sim_device.cpp test_staging.cpp
  test_thread_team.cpp)
list(TRANSFORM sources PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
ebb_test(test_device SOURCES ${sources} $<TARGET_OBJECTS:device_tests> LIBS ebb_device)

# The same on a described machine of two nodes, which need not be there. Not for the sanitizers: they do not let oneTBB
# load the library with which it reads a machine.
if(NOT EBB_SANITIZE)
  add_test(NAME test_two_nodes COMMAND test_device --gtest_filter=*TeamOfNodes*:Synthetic*:ThreadTeam*:*LoopQueue*:*StreamLoops*:MachineNodes*)
  ebb_test_properties(test_two_nodes fast)
  set_property(TEST test_two_nodes APPEND PROPERTY ENVIRONMENT "HWLOC_SYNTHETIC=node:2 core:4 pu:1")
endif()
