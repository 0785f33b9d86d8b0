ebb_bench(bench_copy SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_copy.cpp LIBS ebb_cpu_adam ebb_device fmt::fmt)
