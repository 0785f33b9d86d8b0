// Replaces libcuda in test_cudnn_plans. cuDNN compiles kernels for GPUs that do not exist and loads
// them into this driver. Calls whose results are not used do nothing.
namespace {

using Object = void*;
int one_object(Object* made) {
  if (made != nullptr) *made = reinterpret_cast<Object>(16);
  return 0;
}

}  // namespace

extern "C" {

/// Returns CUDA_ERROR_NO_DEVICE, so that NVRTC makes no further calls.
int cuInit(unsigned) { return 100; }
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return 0;
}
int cuLibraryLoadData(Object* made) { return one_object(made); }
int cuLibraryGetKernel(Object* made) { return one_object(made); }
int cuModuleLoadData(Object* made) { return one_object(made); }
int cuModuleLoadDataEx(Object* made) { return one_object(made); }
int cuModuleGetFunction(Object* made) { return one_object(made); }
int cuCtxGetCurrent(Object* made) { return one_object(made); }

int cuCtxGetDevice() { return 0; }
int cuCtxGetLimit() { return 0; }
int cuCtxPopCurrent() { return 0; }
int cuCtxPushCurrent() { return 0; }
int cuDeviceGet() { return 0; }
int cuDeviceGetAttribute() { return 0; }
int cuDevicePrimaryCtxRelease() { return 0; }
int cuDevicePrimaryCtxReset() { return 0; }
int cuDevicePrimaryCtxRetain() { return 0; }
int cuFuncGetAttribute() { return 0; }
int cuFuncSetAttribute() { return 0; }
int cuGetErrorName() { return 0; }
int cuGetErrorString() { return 0; }
int cuKernelGetAttribute() { return 0; }
int cuKernelGetFunction(Object* function) { return one_object(function); }
int cuKernelSetAttribute() { return 0; }
int cuLaunchCooperativeKernel() { return 0; }
int cuLaunchKernel() { return 0; }
int cuLaunchKernelEx() { return 0; }
int cuLibraryLoadFromFile() { return 0; }
int cuLibraryUnload() { return 0; }
int cuLinkAddData() { return 0; }
int cuLinkAddData_v2() { return 0; }
int cuLinkAddFile_v2() { return 0; }
int cuLinkComplete() { return 0; }
int cuLinkCreate() { return 0; }
int cuLinkCreate_v2() { return 0; }
int cuLinkDestroy() { return 0; }
int cuMemcpyDtoH_v2() { return 0; }
int cuModuleGetGlobal_v2() { return 0; }
int cuModuleLoadFatBinary() { return 0; }
int cuModuleUnload() { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor() { return 0; }
int cuOccupancyMaxPotentialClusterSize() { return 0; }
int cuStreamGetCtx() { return 0; }
int cuStreamSynchronize() { return 0; }
int cuTensorMapEncodeIm2col() { return 0; }
int cuTensorMapEncodeTiled() { return 0; }

}  // extern "C"
