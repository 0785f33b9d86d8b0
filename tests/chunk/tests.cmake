set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_test(test_chunk SOURCES ${dir}/test_chunk_table.cpp ${dir}/test_home.cpp ${dir}/test_index.cpp ${dir}/test_layout.cpp LIBS ebb_chunk COMPUTES)
