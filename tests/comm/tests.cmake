set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test_objects(rank_cases SOURCES ${dir}/rank_cases.cpp LIBS fmt::fmt)
ebb_test(test_comm SOURCES ${dir}/test_futex_word.cpp ${dir}/test_thread_ranks.cpp $<TARGET_OBJECTS:rank_cases> LIBS ebb_comm)
# A program of its own: it forks, so it has one thread.
ebb_test(test_process_ranks SOURCES ${dir}/child_ranks.cpp ${dir}/test_process_ranks.cpp $<TARGET_OBJECTS:rank_cases> LIBS ebb_comm)
# Ranks that meet through MPI. Is reported as skipped where there is no mpirun or no libebb_mpi.so. Not under sanitizers: they
# report OpenMPI's own leaks and races.
if(NOT EBB_SANITIZE)
  add_executable(machine_rank ${dir}/machine_rank.cpp $<TARGET_OBJECTS:rank_cases>)
  target_link_libraries(machine_rank PRIVATE ebb_options ebb_comm)
  ebb_set_test_options(machine_rank -O0)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
  add_test(NAME test_machine_ranks COMMAND Python3::Interpreter ${dir}/test_machine_ranks.py $<TARGET_FILE:machine_rank>
    $<TARGET_FILE:ebb>)
  ebb_test_properties(test_machine_ranks fast)
  # Its processes must answer each other within 1.5 s, so no other test runs beside it on two cores.
  set_tests_properties(test_machine_ranks PROPERTIES SKIP_RETURN_CODE 77 PROCESSORS 2)
endif()
