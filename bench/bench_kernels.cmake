set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_bench(bench_kernels SOURCES ${dir}/bench_kernels.cpp ${dir}/peak.cpp ${dir}/peak_dot.cpp
  LIBS ebb_host_kernels PkgConfig::HWY fmt::fmt)
