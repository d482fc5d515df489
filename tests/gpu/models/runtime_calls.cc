#include "gpu/models/runtime_calls.h"

#include <cuda_runtime_api.h>

#include <atomic>

namespace {

std::atomic<int64_t> allocations, waits, graph_launches;

}  // namespace

// One pair per name in CMakeLists.txt.
#define QUINTET_COUNTED(counter, name, parameters, arguments) \
  extern "C" cudaError_t __real_##name parameters;            \
  extern "C" cudaError_t __wrap_##name parameters {           \
    ++counter;                                                \
    return __real_##name arguments;                           \
  }

QUINTET_COUNTED(allocations, cudaMalloc, (void** p, size_t n), (p, n))
QUINTET_COUNTED(allocations, cudaMallocAsync, (void** p, size_t n, cudaStream_t s), (p, n, s))
QUINTET_COUNTED(allocations, cudaMallocHost, (void** p, size_t n), (p, n))
QUINTET_COUNTED(allocations, cudaHostAlloc, (void** p, size_t n, unsigned flags), (p, n, flags))
QUINTET_COUNTED(allocations, cudaFree, (void* p), (p))
QUINTET_COUNTED(waits, cudaStreamSynchronize, (cudaStream_t s), (s))
QUINTET_COUNTED(waits, cudaEventSynchronize, (cudaEvent_t e), (e))
QUINTET_COUNTED(waits, cudaDeviceSynchronize, (), ())
QUINTET_COUNTED(waits, cudaMemcpy, (void* to, const void* from, size_t n, cudaMemcpyKind kind),
                (to, from, n, kind))
QUINTET_COUNTED(graph_launches, cudaGraphLaunch, (cudaGraphExec_t g, cudaStream_t s), (g, s))

namespace quintet::test {

RuntimeCalls runtime_calls() { return {allocations, waits, graph_launches}; }

}  // namespace quintet::test
