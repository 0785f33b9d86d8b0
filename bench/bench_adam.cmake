ebb_bench(bench_adam SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_adam.cpp LIBS ebb_cpu_adam)
