#include "cuda/kernels/gpu_launch.h"

namespace ebb {

void OwnKernel::run(const GpuLaunch& gpu) const { functions_->run_on_gpu(storage_, gpu.stream); }

}  // namespace ebb
