set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test(test_system
  SOURCES ${dir}/test_copy.cpp ${dir}/test_numa.cpp ${dir}/test_pages.cpp ${dir}/test_parallel_loop.cpp ${dir}/test_record_counter.cpp ${dir}/test_thread_queue.cpp ${dir}/test_thread_team.cpp
  LIBS ebb_device)

# The same tests on a machine of two nodes that HWLOC_SYNTHETIC describes. Not with sanitizers: with them oneTBB cannot load
# the library that reads the description.
if(NOT EBB_SANITIZE)
  add_test(NAME test_two_nodes COMMAND test_system --gtest_filter=*TeamOfNodes*:Synthetic*:ThreadTeam*:MachineNodes*)
  ebb_test_properties(test_two_nodes fast)
  set_property(TEST test_two_nodes APPEND PROPERTY ENVIRONMENT "HWLOC_SYNTHETIC=node:2 core:4 pu:1")
endif()
