/* A GPU's driver without a GPU: what Triton's launchers call, for tests.

   Memory of the device is memory of this process. Modules are not looked into; a launch goes to `on_launch`, with the
   function's number, the grid, threads of a program, bytes of shared memory, the stream, and the addresses of the
   arguments. Compiled as libcuda.so.1, or with SIMULATE_HIP as libamdhip64.so. */

#include <stdint.h>
#include <string.h>

typedef int (*launch_t)(uintptr_t function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared,
                        uintptr_t stream, void **arguments);
typedef uintptr_t (*load_t)(const void *image, const char *name);

static launch_t on_launch;
static load_t on_load;
static int architecture, most_shared;
static char chip[32];

/* load : gives each function a number, 0 where there is none of the name; shared : bytes that a program can have */
void simulate(load_t load, launch_t launch, const char *name, int number, int shared) {
  on_load = load;
  on_launch = launch;
  architecture = number;
  most_shared = shared;
  strncpy(chip, name, sizeof chip - 1);
}

static const char *const failed = "the simulated GPU refused it";

#ifdef SIMULATE_HIP

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#include <hip/hip_deprecated.h>

/* By its plain name the linker finds the older one; `hipGetProcAddress` gives the newer. */
#define PROPERTIES(name, type)                                                                                         \
  hipError_t name(type *found, int device) {                                                                           \
    memset(found, 0, sizeof *found);                                                                                   \
    strcpy(found->gcnArchName, chip);                                                                                  \
    strcat(found->gcnArchName, ":sramecc+:xnack-");                                                                    \
    found->warpSize = strncmp(chip, "gfx9", 4) ? 32 : 64;                                                              \
    found->multiProcessorCount = 304;                                                                                  \
    found->sharedMemPerBlock = most_shared;                                                                             \
    found->regsPerBlock = 65536;                                                                                       \
    found->maxThreadsPerMultiProcessor = 2048;                                                                         \
    return hipSuccess;                                                                                                 \
  }

PROPERTIES(hipGetDevicePropertiesR0600, hipDeviceProp_tR0600)
#undef hipGetDeviceProperties
PROPERTIES(hipGetDeviceProperties, hipDeviceProp_tR0000)

hipError_t hipModuleLoadDataEx(hipModule_t *module, const void *image, unsigned count, hipJitOption *options,
                               void **values) {
  *module = (hipModule_t)image;
  return hipSuccess;
}

hipError_t hipModuleUnload(hipModule_t module) { return hipSuccess; }

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name) {
  *function = (hipFunction_t)on_load(module, name);
  return *function ? hipSuccess : hipErrorNotFound;
}

hipError_t hipFuncGetAttribute(int *value, hipFunction_attribute which, hipFunction_t function) {
  *value = which == HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return hipSuccess;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                                 unsigned, unsigned shared, hipStream_t stream, void **arguments, void **extra) {
  return on_launch((uintptr_t)function, x, y, z, threads, shared, (uintptr_t)stream, arguments)
             ? hipErrorLaunchFailure
             : hipSuccess;
}

hipError_t hipPointerGetAttribute(void *found, hipPointer_attribute which, hipDeviceptr_t asked) {
  *(hipDeviceptr_t *)found = asked;
  return hipSuccess;
}

hipError_t hipGetLastError(void) { return hipSuccess; }

const char *hipGetErrorString(hipError_t error) { return failed; }

hipError_t hipDriverGetVersion(int *version) {
  *version = 60443482;
  return hipSuccess;
}

hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t function, unsigned x, unsigned y, unsigned z, unsigned threads,
                                            unsigned, unsigned, unsigned shared, hipStream_t stream,
                                            void **arguments) {
  return hipModuleLaunchKernel(function, x, y, z, threads, 1, 1, shared, stream, arguments, 0);
}

hipError_t hipGetProcAddress(const char *symbol, void **found, int version, uint64_t flags,
                             hipDriverProcAddressQueryResult *status) {
  static const struct {
    const char *name;
    void *function;
  } known[] = {
      {"hipGetLastError", hipGetLastError},
      {"hipGetErrorString", hipGetErrorString},
      {"hipGetDeviceProperties", hipGetDevicePropertiesR0600},
      {"hipGetDevicePropertiesR0600", hipGetDevicePropertiesR0600},
      {"hipModuleLoadDataEx", hipModuleLoadDataEx},
      {"hipModuleUnload", hipModuleUnload},
      {"hipModuleGetFunction", hipModuleGetFunction},
      {"hipFuncGetAttribute", hipFuncGetAttribute},
      {"hipModuleLaunchKernel", hipModuleLaunchKernel},
      {"hipModuleLaunchCooperativeKernel", hipModuleLaunchCooperativeKernel},
      {"hipPointerGetAttribute", hipPointerGetAttribute},
  };
  for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
    if (!strcmp(symbol, known[i].name)) {
      *found = known[i].function;
      return hipSuccess;
    }
  *found = 0;
  return hipErrorNotFound;
}

#else

#include <cuda.h>

CUresult cuInit(unsigned flags) { return CUDA_SUCCESS; }

CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = failed;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  *version = 12080;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int number) {
  *device = number;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute which, CUdevice device) {
  switch (which) {
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = architecture / 10; break;
  case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = architecture % 10; break;
  case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
  case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = most_shared; break;
  case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: *value = most_shared + 1024; break;
  default: *value = 65536;
  }
  return CUDA_SUCCESS;
}

static int context;

CUresult cuCtxGetCurrent(CUcontext *found) {
  *found = (CUcontext)&context;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext given) { return CUDA_SUCCESS; }

CUresult cuCtxGetDevice(CUdevice *device) {
  *device = 0;
  return CUDA_SUCCESS;
}

#undef cuDevicePrimaryCtxRetain
CUresult cuDevicePrimaryCtxRetain(CUcontext *found, CUdevice device) { return cuCtxGetCurrent(found); }

CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  *value = 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) { return CUDA_SUCCESS; }

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = (CUmodule)image;
  return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) { return CUDA_SUCCESS; }

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  *function = (CUfunction)on_load(module, name);
  return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which, CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute which, int value) { return CUDA_SUCCESS; }

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) { return CUDA_SUCCESS; }

CUresult cuOccupancyMaxActiveClusters(int *count, CUfunction function, const CUlaunchConfig *config) {
  *count = 1;
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *found, CUpointer_attribute which, CUdeviceptr asked) {
  *(CUdeviceptr *)found = asked;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments, void **extra) {
  return on_launch((uintptr_t)function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                   config->sharedMemBytes, (uintptr_t)config->hStream, arguments)
             ? CUDA_ERROR_LAUNCH_FAILED
             : CUDA_SUCCESS;
}

#endif
