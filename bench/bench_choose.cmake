set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_bench(bench_choose SOURCES ${dir}/bench_choose.cpp ${dir}/choose_cases.cpp LIBS ebb_tools ebb_model_zoo ebb_scheduler fmt::fmt)
