// Finds libebb_mpi.so, which connects Ebb to MPI (comm/mpi/ebb_mpi.h).
#pragma once

#include "comm/mpi/ebb_mpi.h"

namespace ebb {

/// Searches the paths of the loader, then the folder of the program or library that contains this
/// code, and the folders of libraries beside it. The library stays loaded. Throws ConfigError where
/// it is not found or not of this version; the message says how to build it. Thread-safe.
const MpiFunctions& load_mpi_library();

}  // namespace ebb
