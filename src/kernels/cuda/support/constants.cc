#include "kernels/cuda/support/constants.h"

#include "kernels/cuda/support/launch.cuh"

namespace quintet::kernels::cuda {

Constants::~Constants() {
  for (const auto& [bytes, copy] : held_) cudaFree(copy);
}

const std::byte* Constants::add(std::span<const std::byte> bytes) {
  const auto [at, added] =
      held_.try_emplace(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), nullptr);
  if (!added) return at->second;
  void* copy = nullptr;
  check(cudaMalloc(&copy, bytes.empty() ? 1 : bytes.size()), "constants");
  at->second = static_cast<std::byte*>(copy);
  check(cudaMemcpy(copy, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "constants");
  return at->second;
}

}  // namespace quintet::kernels::cuda
