ebb_bench(bench_plan SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_plan.cpp LIBS ebb_model_zoo)
