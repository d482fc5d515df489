// Shared by the parts of cuda_kernels_bench: one stream, one pool of device memory, timing of captured
// launches, and the output row that compares a kernel with a copy.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/copy.h"
#include "device/cuda/device.h"
#include "kernels/cuda/elementwise/pointwise.h"

namespace quintet::bench {

namespace k = kernels::cuda;
using k::Bf16;

inline void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::printf("CUDA: %s\n", cudaGetErrorString(status));
  std::exit(1);
}

inline std::unique_ptr<device::cuda::Stream> recorder;
inline cudaStream_t stream;       // of the recorder
inline double copy_rate = 0;      // bytes per second
inline std::string shape_wanted;  // attention: part of the names of the shapes to time

// One pool, reused from its start for every measurement.
inline unsigned char* pool;
inline size_t pool_bytes = size_t{40} << 30, used = 0;
template <class T>
T* take(int64_t n) {
  T* const here = reinterpret_cast<T*>(pool + used);
  used += (static_cast<size_t>(n) * sizeof(T) + 255) / 256 * 256;
  if (used > pool_bytes) {
    std::printf("the device memory pool is too small\n");
    std::exit(1);
  }
  return here;
}
template <class T>
T* random(int64_t n) {
  T* const here = take<T>(n);
  k::fill_noise(here, n, stream);
  return here;
}
inline int32_t* integers(const std::vector<int32_t>& from) {
  int32_t* const here = take<int32_t>(static_cast<int64_t>(from.size()));
  require(cudaMemcpy(here, from.data(), from.size() * 4, cudaMemcpyHostToDevice));
  return here;
}
inline double* doubles(const std::vector<double>& from) {
  double* const here = take<double>(static_cast<int64_t>(from.size()));
  require(cudaMemcpy(here, from.data(), from.size() * 8, cudaMemcpyHostToDevice));
  return here;
}

// Median milliseconds of f(set), cycling through the sets.
inline double time_of(const std::function<void(int)>& f, int sets, int inner = 4) {
  constexpr int kRuns = 15;
  cudaEvent_t at[kRuns + 1];
  for (auto& e : at) require(cudaEventCreate(&e));
  for (int i = 0; i < 3; ++i) f(i % sets);
  int n = 0;
  require(cudaEventRecord(at[0], stream));
  for (int i = 0; i < kRuns; ++i) {
    for (int j = 0; j < inner; ++j) f(n++ % sets);
    require(cudaEventRecord(at[i + 1], stream));
  }
  require(cudaEventSynchronize(at[kRuns]));
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    float ms = 0;
    require(cudaEventElapsedTime(&ms, at[i], at[i + 1]));
    times.push_back(static_cast<double>(ms) / inner);
  }
  for (auto& e : at) cudaEventDestroy(e);
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

// The same after a pause: at the power limit a rate would depend on what ran before.
inline double time_rested(const std::function<void(int)>& f) {
  require(cudaStreamSynchronize(stream));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return time_of(f, 1);
}

// The same for a graph that contains a dozen launches.
inline double time_of_captured(const std::function<void(int)>& f, int sets) {
  constexpr int kInner = 12;
  for (int i = 0; i < 2; ++i) f(i % sets);  // load the kernels outside the capture
  recorder->begin_capture();
  for (int i = 0; i < kInner; ++i) f(i % sets);
  const device::cuda::Graph graph = recorder->end_capture();
  return time_of([&](int) { graph.launch(stream); }, 1, 1) / kInner;
}

// Median milliseconds of a copy that reads and writes `bytes` in total, placed after the memory in use. At
// some sizes, captured copies of the runtime reach only two thirds of their rate, so a copy kernel is timed
// too, and the faster counts.
inline double time_of_copy(double bytes) {
  unsigned char* const from = pool + (used + 255) / 256 * 256;
  const auto half = static_cast<size_t>(bytes / 2);
  unsigned char* const to = from + half / 256 * 256 + 256;
  const auto by_library = [=](int) {
    require(cudaMemcpyAsync(to, from, half, cudaMemcpyDeviceToDevice, stream));
  };
  const auto by_kernel = [=](int) { copy_by_kernel(from, to, static_cast<int64_t>(half), stream); };
  return std::min(time_of_captured(by_library, 1), time_of_captured(by_kernel, 1));
}

inline void report(const std::string& name, double bytes, const std::function<void(int)>& f, int sets = 1) {
  const double ms = time_of_captured(f, sets), rate = bytes / ms * 1e3;
  std::printf("| %-44s | %9.1f | %8.1f | %7.0f | %5.1f %% | %5.1f %% |\n", name.c_str(), bytes / 1e6,
              ms * 1e3, rate / 1e9, 100 * rate / copy_rate, 100 * time_of_copy(bytes) / ms);
}

// decode.cc: one token per sequence.
void decoding();
// experts.cc: the kernels of mixtures of experts.
void experts();
// fp8.cc: codes of 8 bits, and their GEMMs.
void fp8_kernels();
void fp8_gemms();
// attention.cc: the native kernels compared with cuDNN; the rate of one of them over time.
void attentions();
void attention_under_load();
// hops.cc: attention by hops of a ring.
void hops();
void hop_merges();

}  // namespace quintet::bench
