find_package(Eigen3 REQUIRED)
set(dir ${CMAKE_CURRENT_LIST_DIR})
ebb_bench(bench_gemm SOURCES ${dir}/bench_gemm.cpp ${dir}/bench_gemm_eigen.cpp ${dir}/peak.cpp ${dir}/peak_dot.cpp
  LIBS ebb_host_kernels PkgConfig::HWY Eigen3::Eigen fmt::fmt)
set_source_files_properties(${dir}/bench_gemm_eigen.cpp PROPERTIES COMPILE_OPTIONS
  "-march=x86-64-v4;-ffp-contract=fast;-Wno-maybe-uninitialized")  # the warning is about g++ 12's own headers
