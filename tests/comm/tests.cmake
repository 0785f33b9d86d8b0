set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test(test_comm SOURCES ${dir}/rank_cases.cpp ${dir}/test_futex_word.cpp ${dir}/test_thread_ranks.cpp LIBS ebb_comm fmt::fmt)
