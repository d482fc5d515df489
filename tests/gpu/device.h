// Shared by the GPU tests: device buffers between guards, and comparison with double references.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "kernels/cuda/support/types.h"
#include "kernels/support.h"

namespace quintet::kernels::cuda::test {

using cpu::test::element;
using cpu::test::random_values;
using cpu::test::unit;
using cpu::test::value;

inline void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

// n elements on the device, `shift` elements after a 256-byte boundary (odd shifts force the scalar paths),
// filled with NaN bytes to expose what a kernel does not write; bytes around them must stay unchanged.
template <class T>
class Device {
 public:
  explicit Device(int64_t n, int64_t shift = 0)
      : n_(n), at_(kGuard + static_cast<size_t>(shift) * sizeof(T)) {
    total_ = at_ + bytes() + kGuard;
    void* raw = nullptr;
    require(cudaMalloc(&raw, total_));
    raw_ = static_cast<uint8_t*>(raw);
    require(cudaMemset(raw_, 0xff, total_));
  }
  explicit Device(const std::vector<double>& from, int64_t shift = 0)
      : Device(static_cast<int64_t>(from.size()), shift) {
    set(from);
  }
  Device(const Device&) = delete;
  ~Device() {
    std::vector<uint8_t> all(total_);
    EXPECT_EQ(cudaMemcpy(all.data(), raw_, total_, cudaMemcpyDeviceToHost), cudaSuccess);
    for (size_t i = 0; i < at_; ++i) EXPECT_EQ(all[i], 0xff) << "byte before the buffer was written";
    for (size_t i = at_ + bytes(); i < total_; ++i) EXPECT_EQ(all[i], 0xff) << "byte behind it was written";
    cudaFree(raw_);
  }
  void set(const std::vector<double>& from) {
    std::vector<T> host;
    for (double v : from) {
      if constexpr (std::is_integral_v<T>)
        host.push_back(static_cast<T>(v));
      else
        host.push_back(element<T>(v));
    }
    require(cudaMemcpy(data(), host.data(), bytes(), cudaMemcpyHostToDevice));
  }
  T* data() { return reinterpret_cast<T*>(raw_ + at_); }
  std::vector<T> get() {
    std::vector<T> host(static_cast<size_t>(n_));
    require(cudaDeviceSynchronize());
    require(cudaMemcpy(host.data(), data(), bytes(), cudaMemcpyDeviceToHost));
    return host;
  }
  std::vector<double> values() {
    std::vector<double> out;
    for (T v : get()) out.push_back(value(v));
    return out;
  }
  std::vector<uint8_t> bits() {
    const auto host = get();
    const auto* p = reinterpret_cast<const uint8_t*>(host.data());
    return {p, p + bytes()};
  }
  size_t bytes() const { return static_cast<size_t>(n_) * sizeof(T); }

 private:
  static constexpr size_t kGuard = 256;
  int64_t n_;
  size_t at_, total_ = 0;
  uint8_t* raw_ = nullptr;
};

template <class T>
Device<T> integers(const std::vector<T>& from) {
  return Device<T>(std::vector<double>(from.begin(), from.end()));
}

// Each got[i] within one rounding to T of expected[i] plus slack * scale(i): the error of the preceding
// arithmetic, in units of the Stat type.
template <class T, class Scale>
void expect_close(Device<T>& got, const std::vector<double>& expected, double slack, Scale scale,
                  const char* what) {
  const std::vector<double> g = got.values();
  ASSERT_EQ(g.size(), expected.size());
  int wrong = 0;
  for (size_t i = 0; i < g.size() && wrong < 4; ++i) {
    const double e = expected[i], bound = unit<T>() * std::abs(e) * 1.01 + cpu::test::least<T>() +
                                          slack * unit<Stat<T>>() * scale(i);
    if (e == g[i]) continue;
    if (!(std::abs(g[i] - e) <= bound)) {
      ++wrong;
      ADD_FAILURE() << what << "[" << i << "] = " << g[i] << ", expected " << e << ", off by "
                    << std::abs(g[i] - e) << ", allowed " << bound;
    }
  }
}
template <class T>
void expect_close(Device<T>& got, const std::vector<double>& expected, double slack, const char* what) {
  expect_close(
      got, expected, slack, [&](size_t i) { return std::abs(expected[i]); }, what);
}

// Sizes are deliberately ragged; a shift of 1 removes the alignment that wide accesses need.
inline constexpr int64_t kShifts[] = {0, 1};

// Set by run_all.sh. racecheck slows kernels down a thousandfold, so some tests skip cases that show it
// nothing new.
inline bool under_racecheck() { return std::getenv("QUINTET_RACECHECK") != nullptr; }

}  // namespace quintet::kernels::cuda::test
