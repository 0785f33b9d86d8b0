set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_bench(bench_train SOURCES ${dir}/bench_train.cpp ${dir}/peak.cpp ${dir}/peak_dot.cpp
  LIBS ebb_model_zoo ebb_scheduler PkgConfig::HWY fmt::fmt)
