ebb_bench(bench_speculation SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_speculation.cpp LIBS ebb_model_zoo ebb_scheduler fmt::fmt)
