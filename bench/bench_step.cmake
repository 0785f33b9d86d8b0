ebb_bench(bench_step SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_step.cpp LIBS ebb_tools ebb_model_zoo ebb_scheduler fmt::fmt)
