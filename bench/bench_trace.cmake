ebb_bench(bench_trace SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_trace.cpp LIBS ebb_tools)
