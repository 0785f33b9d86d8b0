// What the kernels of the host work with.
//
// The files of this folder have the host's part of the kernels (device/kernels.h): their member
// functions run() and workspace_bytes(). The arithmetic is dispatched at run time to the best
// instruction set.
#pragma once

#include "device/arithmetic.h"
#include "device/kernels.h"
#include "device/workspace.h"
#include "system/thread_team.h"

namespace ebb {

struct HostLaunch {
  ThreadTeam& team;
  const Workspace& workspace;  ///< at least workspace_bytes() while the kernel runs
  Arithmetic arithmetic;
};

}  // namespace ebb
