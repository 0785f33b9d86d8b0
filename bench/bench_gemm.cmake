find_package(Eigen3 REQUIRED)
ebb_bench(bench_gemm SOURCES ${CMAKE_CURRENT_LIST_DIR}/bench_gemm.cpp
  LIBS ebb_host_kernels PkgConfig::HWY Eigen3::Eigen fmt::fmt)
