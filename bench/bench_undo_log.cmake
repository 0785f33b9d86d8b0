ebb_bench(bench_undo_log SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_undo_log.cpp
  LIBS ebb_tools ebb_model_zoo ebb_scheduler fmt::fmt)
