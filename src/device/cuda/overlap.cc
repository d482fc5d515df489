#include "device/cuda/overlap.h"

#include <cuda_runtime_api.h>

#include <map>
#include <string_view>
#include <vector>

#include "device/cuda/check.h"

namespace quintet::device::cuda {
namespace {

bool is_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type;
  check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
  return type == cudaGraphNodeTypeKernel;
}

// Whether the kernel is Quintet's and has code that can wait: compiled for Hopper or later.
bool is_native(cudaGraphNode_t kernel) {
  cudaKernelNodeParams params{};
  cudaFuncAttributes attributes{};
  const char* name = nullptr;
  // The runtime does not know a library's kernels; that answers the question too.
  if (cudaGraphKernelNodeGetParams(kernel, &params) != cudaSuccess ||
      cudaFuncGetName(&name, params.func) != cudaSuccess ||
      cudaFuncGetAttributes(&attributes, params.func) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return attributes.ptxVersion >= 90 &&
         std::string_view(name).find("7quintet7kernels4cuda") != std::string_view::npos;
}

}  // namespace

void overlap_launches(cudaGraph_t graph) {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  if (major < 9) return;
  size_t count = 0;
  check(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &count), "cudaGraphGetEdges");
  std::vector<cudaGraphNode_t> from(count), to(count);
  std::vector<cudaGraphEdgeData> kinds(count);
  check(cudaGraphGetEdges(graph, from.data(), to.data(), kinds.data(), &count), "cudaGraphGetEdges");
  std::map<cudaGraphNode_t, int> waits_for;
  for (const cudaGraphNode_t node : to) ++waits_for[node];
  cudaGraphEdgeData programmatic{};
  programmatic.from_port = cudaGraphKernelNodePortProgrammatic;
  programmatic.type = cudaGraphDependencyTypeProgrammatic;
  for (size_t i = 0; i < count; ++i) {
    if (waits_for[to[i]] != 1 || kinds[i].type != cudaGraphDependencyTypeDefault || !is_kernel(from[i]) ||
        !is_kernel(to[i]) || !is_native(to[i]))
      continue;
    check(cudaGraphRemoveDependencies(graph, &from[i], &to[i], &kinds[i], 1), "cudaGraphRemoveDependencies");
    check(cudaGraphAddDependencies(graph, &from[i], &to[i], &programmatic, 1), "cudaGraphAddDependencies");
  }
}

}  // namespace quintet::device::cuda
