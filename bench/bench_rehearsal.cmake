ebb_bench(bench_rehearsal SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_rehearsal.cpp LIBS ebb_tools ebb_model_zoo ebb_scheduler fmt::fmt)
