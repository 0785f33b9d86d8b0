ebb_bench(bench_undo SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_undo.cpp LIBS ebb_cpu_adam)
