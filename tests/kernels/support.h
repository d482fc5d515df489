// Shared by the kernel tests: guarded buffers, random inputs, bounds, and runs over instruction sets and
// threads.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "base/philox.h"
#include "kernels/cpu/support/isa.h"
#include "kernels/cpu/support/types.h"

namespace quintet::kernels::cpu::test {

template <class T>
inline constexpr bool kHalf = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

template <class T>
double value(T v) {
  if constexpr (kHalf<T>)
    return static_cast<double>(static_cast<float>(v));
  else
    return static_cast<double>(v);
}
template <class T>
T element(double v) {
  if constexpr (!kHalf<T>) {
    return static_cast<T>(v);
  } else {
    // Through float there may be two roundings: take the nearest neighbour, or the even one of two.
    const T guess(static_cast<float>(v));
    if (!std::isfinite(v) || !std::isfinite(static_cast<float>(guess))) return guess;
    T best = guess;
    for (int step : {-1, 1}) {
      T other;
      other.bits = static_cast<uint16_t>(guess.bits + step);
      const double d = std::abs(value(other) - v), least = std::abs(value(best) - v);
      if (d < least || (d == least && other.bits % 2 == 0)) best = other;
    }
    return best;
  }
}

// Half an ulp relative to 1: the error of one rounding.
template <class T>
constexpr double unit() {
  return std::is_same_v<T, double>  ? 0x1p-53
         : std::is_same_v<T, float> ? 0x1p-24
         : std::is_same_v<T, F16>   ? 0x1p-11
                                    : 0x1p-8;
}
// The error of one rounding of numbers that are too small for that.
template <class T>
constexpr double least() {
  return std::is_same_v<T, F16> ? 0x1p-25 : 0;
}

// n elements of T between guard bytes, aligned like a workspace; the guards are checked by the destructor.
template <class T>
class Buffer {
 public:
  explicit Buffer(int64_t n) : n_(n), bytes_(static_cast<size_t>(n) * sizeof(T)) {
    const size_t total = (bytes_ + 2 * kGuard + 63) / 64 * 64;
    raw_.reset(static_cast<uint8_t*>(std::aligned_alloc(64, total)));
    std::memset(raw_.get(), 0xA5, total);
  }
  Buffer(const std::vector<double>& from) : Buffer(static_cast<int64_t>(from.size())) {
    for (int64_t i = 0; i < n_; ++i) data()[i] = element<T>(from[static_cast<size_t>(i)]);
  }
  Buffer(Buffer&&) = default;
  ~Buffer() {
    if (raw_ == nullptr) return;
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(raw_.get()[i], 0xA5) << "byte " << i << " before the buffer was written";
      EXPECT_EQ(raw_.get()[kGuard + bytes_ + i], 0xA5) << "byte " << i << " past the end was written";
    }
  }
  T* data() { return reinterpret_cast<T*>(raw_.get() + kGuard); }
  const T* data() const { return reinterpret_cast<const T*>(raw_.get() + kGuard); }
  double operator[](int64_t i) const { return value(data()[i]); }
  int64_t size() const { return n_; }
  std::vector<uint8_t> bytes() const { return {raw_.get() + kGuard, raw_.get() + kGuard + bytes_}; }
  std::vector<double> values() const {
    std::vector<double> out(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) out[static_cast<size_t>(i)] = (*this)[i];
    return out;
  }

 private:
  static constexpr size_t kGuard = 64;
  struct Free {
    void operator()(uint8_t* p) const { std::free(p); }
  };
  int64_t n_;
  size_t bytes_;
  std::unique_ptr<uint8_t, Free> raw_;
};

// Standard normal numbers, rounded to T so that reference and kernel start from the same values.
template <class T>
std::vector<double> random_values(int64_t n, uint64_t seed, double scale = 1.0, double shift = 0.0) {
  std::vector<double> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    out[static_cast<size_t>(i)] =
        value(element<T>(shift + scale * base::normal(seed * 7919 + 13, static_cast<uint64_t>(i))));
  return out;
}

inline std::vector<Isa> instruction_sets() {
  limit_isa(Isa::Avx512);
  std::vector<Isa> sets;
  for (Isa set : {Isa::Baseline, Isa::Avx2, Isa::Avx512})
    if (set <= isa()) sets.push_back(set);
  return sets;
}

// Runs `compute` with every instruction set this machine has and with 1, 2 and 5 threads; the bytes it
// returns must not depend on the number of threads. `compute` checks the values itself.
inline void run_everywhere(const std::function<std::vector<uint8_t>(ThreadPool&)>& compute) {
  for (Isa set : instruction_sets()) {
    SCOPED_TRACE(testing::Message() << "instruction set " << static_cast<int>(set));
    limit_isa(set);
    std::vector<uint8_t> first;
    for (int threads : {1, 2, 5}) {
      ThreadPool pool(threads);
      const std::vector<uint8_t> got = compute(pool);
      if (threads == 1) first = got;
      EXPECT_TRUE(got == first) << "the bits differ with " << threads << " threads";
    }
  }
  limit_isa(Isa::Avx512);
}

inline void append(std::vector<uint8_t>& all, const std::vector<uint8_t>& more) {
  all.insert(all.end(), more.begin(), more.end());
}
template <class... B>
std::vector<uint8_t> bytes_of(const B&... buffers) {
  std::vector<uint8_t> all;
  (append(all, buffers.bytes()), ...);
  return all;
}

// Each got[i] within one rounding to T of expected[i], plus slack[i] (the error of its sums).
template <class T, class Slack>
void expect_near(const Buffer<T>& got, const std::vector<double>& expected, Slack slack, const char* what) {
  ASSERT_EQ(got.size(), static_cast<int64_t>(expected.size()));
  int wrong = 0;
  for (int64_t i = 0; i < got.size() && wrong < 5; ++i) {
    const double e = expected[static_cast<size_t>(i)],
                 bound = unit<T>() * std::abs(e) * 1.0001 + least<T>() + slack(i);
    const double g = got[i];
    if (e == g) continue;
    if (!(std::abs(g - e) <= bound)) {
      ++wrong;
      ADD_FAILURE() << what << "[" << i << "] = " << g << ", expected " << e << ", off by " << std::abs(g - e)
                    << ", allowed " << bound;
    }
  }
}

using AllTypes = testing::Types<double, float, Bf16, F16>;

// Calls fn.operator()<X, Y>() for every pair of these types.
template <class F>
void every_pair(F fn) {
  const auto with = [&]<class X>() {
    fn.template operator()<X, double>();
    fn.template operator()<X, float>();
    fn.template operator()<X, Bf16>();
  };
  with.template operator()<double>();
  with.template operator()<float>();
  with.template operator()<Bf16>();
}

// The derivative of f with respect to x[i] by central differences.
inline double difference(std::vector<double>& x, int64_t i, const std::function<double()>& f,
                         double h = 1e-5) {
  double& at = x[static_cast<size_t>(i)];
  const double old = at;
  at = old + h;
  const double up = f();
  at = old - h;
  const double down = f();
  at = old;
  return (up - down) / (2 * h);
}

}  // namespace quintet::kernels::cpu::test
