# Finds MPI, with which ranks of several machines reach each other: sets EBB_WITH_MPI. Without MPI, libebb_mpi.so is left out, and
# nothing else changes. The compiler of MPI is MPI_CXX_COMPILER or mpicxx.
set(EBB_WITH_MPI OFF)
if(NOT EBB_MPI)
  message(STATUS "ranks on several machines: left out (EBB_MPI is off)")
  return()
endif()

set(MPI_CXX_SKIP_MPICXX ON)  # the C++ bindings, which MPI has dropped
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(MPI 3.0 QUIET COMPONENTS CXX)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
if(NOT MPI_CXX_FOUND)
  message(STATUS "ranks on several machines: left out (no MPI 3.0 or later was found; Debian has libopenmpi-dev)")
  return()
endif()
set(EBB_WITH_MPI ON)
message(STATUS "ranks on several machines: libebb_mpi.so with MPI ${MPI_CXX_VERSION}")
