set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test_objects(rank_cases SOURCES ${dir}/rank_cases.cpp LIBS fmt::fmt)
ebb_test(test_comm SOURCES ${dir}/test_futex_word.cpp ${dir}/test_thread_ranks.cpp $<TARGET_OBJECTS:rank_cases> LIBS ebb_comm)
# A program of its own: it forks, so it has one thread.
ebb_test(test_process_ranks SOURCES ${dir}/child_ranks.cpp ${dir}/test_process_ranks.cpp $<TARGET_OBJECTS:rank_cases> LIBS ebb_comm)
