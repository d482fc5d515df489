#include "kernels/cpu/quantize/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/fp8.h"
#include "device/thread_pool.h"

namespace quintet::kernels::cpu::quantize_test {
namespace {

using base::Bf16;
using base::DType;

std::vector<float> normal(size_t count, double stddev, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, stddev);
  std::vector<float> x(count);
  for (float& v : x) v = static_cast<float>(Bf16(static_cast<float>(draw(random))));
  return x;
}

std::vector<Bf16> to_bf16(const std::vector<float>& x) {
  std::vector<Bf16> y;
  for (const float v : x) y.emplace_back(v);
  return y;
}

double decibels(const std::vector<double>& exact, const std::vector<double>& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    signal += exact[i] * exact[i];
    noise += (exact[i] - got[i]) * (exact[i] - got[i]);
  }
  return 10 * std::log10(signal / noise);
}

// Two parts of different rows, both orders, measured, with one thread and with three.
template <class Code>
void check_codes(DType format, const base::FloatFormat& grid) {
  constexpr int64_t kColumns = 70, kRows[] = {45, 33};
  const float scale = 64;
  std::vector<float> values = normal(static_cast<size_t>((kRows[0] + kRows[1]) * kColumns), 1, 7);
  values[3] = 0;
  values[4] = 1e-30f;                                                      // becomes 0
  values[5] = static_cast<float>(Bf16(static_cast<float>(grid.largest)));  // saturates after scaling
  const std::vector<Bf16> x = to_bf16(values);
  for (const int threads : {1, 3}) {
    device::ThreadPool pool(threads);
    const std::array<QuantizePart, 2> parts = {
        {{x.data(), kRows[0]}, {x.data() + kRows[0] * kColumns, kRows[1]}}};
    const int64_t rows = kRows[0] + kRows[1];
    std::vector<Code> plain(x.size()), transposed(x.size());
    double amax = 2, rounded[3] = {10, 1, 1};
    const QuantizeArgs args{.parts = parts,
                            .rows = rows,
                            .columns = kColumns,
                            .type = DType::BF16,
                            .format = format,
                            .scale = &scale,
                            .codes = plain.data(),
                            .transposed = transposed.data(),
                            .amax = &amax,
                            .rounded = rounded,
                            .accumulate = true};
    quantize(args, pool);
    double largest = 2, saturated = 1, zeroed = 1;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        const size_t i = static_cast<size_t>(r * kColumns + c);
        const float v = static_cast<float>(x[i]);
        const Code want(v * scale);
        ASSERT_EQ(plain[i].bits, want.bits) << v;
        ASSERT_EQ(transposed[static_cast<size_t>(c * rows + r)].bits, want.bits) << r << ", " << c;
        largest = std::max(largest, std::abs(static_cast<double>(v)));
        saturated += std::abs(v * scale) > static_cast<float>(grid.largest);
        zeroed += v != 0 && static_cast<float>(want) == 0;
      }
    EXPECT_EQ(amax, largest);
    EXPECT_EQ(rounded[0], 10 + static_cast<double>(rows * kColumns));
    EXPECT_EQ(rounded[1], saturated);
    EXPECT_EQ(rounded[2], zeroed);
    EXPECT_GT(saturated, 1);
    EXPECT_GT(zeroed, 1);
    QuantizeArgs again = args;
    again.accumulate = false;
    again.codes = again.transposed = nullptr;
    amax = 1e9;
    quantize(again, pool);
    EXPECT_EQ(rounded[0], static_cast<double>(rows * kColumns));
    EXPECT_LT(amax, 1e9);
  }
}
TEST(Quantize, E4M3CodesInBothOrders) { check_codes<base::E4M3>(DType::E4M3, base::kE4M3); }
TEST(Quantize, E5M2CodesInBothOrders) { check_codes<base::E5M2>(DType::E5M2, base::kE5M2); }

TEST(Quantize, WideTypesHoldNumbersOfTheFormat) {
  device::ThreadPool pool(1);
  const std::vector<double> x = {1.03, -0.21, 700.0, 1e-9, -0.0, 3.14159};
  const double scale = 0.5;
  const QuantizePart part{x.data(), 2};
  std::vector<double> codes(6);
  quantize({.parts = {&part, 1},
            .rows = 2,
            .columns = 3,
            .type = DType::F64,
            .format = DType::E4M3,
            .scale = &scale,
            .codes = codes.data()},
           pool);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(codes[i], base::round_to(x[i] * scale, base::kE4M3));
}

TEST(Quantize, NotANumberIsTheLargestMagnitude) {
  device::ThreadPool pool(1);
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> x = {1, bad, 5, 2};
    const float scale = 1;
    const QuantizePart part{x.data(), 2};
    std::vector<float> codes(4);
    double amax = 0, rounded[3] = {};
    quantize({.parts = {&part, 1},
              .rows = 2,
              .columns = 2,
              .type = DType::F32,
              .format = DType::E5M2,
              .scale = &scale,
              .codes = codes.data(),
              .amax = &amax,
              .rounded = rounded},
             pool);
    EXPECT_FALSE(std::isfinite(amax));
    EXPECT_EQ(codes[2], 5.0f);
  }
}

// Against f64 on the same codes, and on the values before quantisation. The bounds are those of the formats:
// two E4M3 operands give about 29 dB, one of E5M2 25 dB; bf16 results end at about 53 dB.
template <class A, class B>
void check_gemm(DType a_type, DType b_type, double least) {
  constexpr int64_t m = 48, n = 80, k = 256;
  const std::vector<float> a = normal(m * k, 1, 1), b = normal(n * k, 0.02, 2);
  const float a_scale = 32, b_scale = 2048, a_factor = 1 / a_scale, b_factor = 1 / b_scale;
  std::vector<A> a_codes;
  std::vector<B> b_codes;
  for (const float v : a) a_codes.emplace_back(v * a_scale);
  for (const float v : b) b_codes.emplace_back(v * b_scale);
  std::vector<Bf16> c(m * n);
  ScaledGemmArgs args{.m = m,
                      .n = n,
                      .k = k,
                      .a = a_codes.data(),
                      .b = b_codes.data(),
                      .c = c.data(),
                      .a_type = a_type,
                      .b_type = b_type,
                      .c_type = DType::BF16,
                      .a_factor = &a_factor,
                      .b_factor = &b_factor};
  device::ThreadPool pool(2);
  std::vector<std::byte> scratch(static_cast<size_t>(scaled_gemm_workspace_bytes(args, 2)) + 64);
  auto* const aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const auto bytes = static_cast<int64_t>(scratch.size()) - 64;
  scaled_gemm(args, aligned, bytes, pool);
  std::vector<double> exact, on_codes, got;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double x = 0, y = 0;
      for (int64_t l = 0; l < k; ++l) {
        const auto ai = static_cast<size_t>(i * k + l), bj = static_cast<size_t>(j * k + l);
        x += static_cast<double>(a[ai]) * b[bj];
        y += static_cast<double>(static_cast<float>(a_codes[ai])) * static_cast<float>(b_codes[bj]);
      }
      exact.push_back(x);
      on_codes.push_back(y * a_factor * b_factor);
      got.push_back(static_cast<float>(c[static_cast<size_t>(i * n + j)]));
    }
  EXPECT_GT(decibels(on_codes, got), 50);
  EXPECT_GT(decibels(exact, got), least);
  // Accumulated twice, in f32.
  std::vector<float> sum(m * n, 0);
  args.c = sum.data();
  args.c_type = DType::F32;
  args.accumulate = true;
  std::vector<std::byte> wide(static_cast<size_t>(scaled_gemm_workspace_bytes(args, 2)) + 64);
  auto* const wide_aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(wide.data()) + 63) / 64 * 64);
  for (int i = 0; i < 2; ++i) scaled_gemm(args, wide_aligned, static_cast<int64_t>(wide.size()) - 64, pool);
  for (size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(sum[i], 2 * on_codes[i], 1e-4 * (1 + std::abs(on_codes[i])));
}
TEST(ScaledGemm, Forward) { check_gemm<base::E4M3, base::E4M3>(DType::E4M3, DType::E4M3, 28); }
TEST(ScaledGemm, Gradients) { check_gemm<base::E5M2, base::E4M3>(DType::E5M2, DType::E4M3, 24); }

TEST(DelayedScales, ArePowersOfTwoThatJustFit) {
  constexpr int64_t kLength = 4, kStride = 4;
  const std::vector<double> history = {0, 0, 0, 0, 1, 3, 2, 0, 448, 0, 0, 0, 1e-30, 0, 0, 0, 1e300, 0, 0, 0};
  const std::vector<double> largest(5, 448), initial = {8, 8, 8, 8, 8};
  std::vector<float> scales(2 * 5 * kStride, -1);
  delayed_scales<float>(history.data(), kLength, largest, initial, kStride, scales.data());
  const auto scale = [&](int64_t i) { return scales[static_cast<size_t>(i * kStride)]; };
  EXPECT_EQ(scale(0), 8);    // nothing seen
  EXPECT_EQ(scale(1), 128);  // 3 x 128 = 384, 3 x 256 is too large
  EXPECT_EQ(scale(2), 1);
  EXPECT_TRUE(std::isfinite(scale(3)) && scale(3) > 1e30f);
  EXPECT_GT(scale(4), 0);
  for (int64_t i = 0; i < 5; ++i) {
    int power = 0;
    EXPECT_EQ(std::frexp(scale(i), &power), 0.5f);
    EXPECT_EQ(scale(5 + i) * scale(i), 1);
    EXPECT_EQ(scales[static_cast<size_t>(i * kStride) + 1], 0);
  }
}

TEST(RecordAmax, ReplacesOneEntryOfEachRow) {
  constexpr int64_t kLength = 2;
  std::vector<double> history = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<double> amax = {10, 20, std::nan(""), 5, 0};
  const std::vector<int64_t> rows = {0, 0, 1, 1, 3};
  record_amax(amax.data(), rows, 1, kLength, 4, history.data());
  EXPECT_EQ(history, (std::vector<double>{1, 20, 3, 0, 5, 0, 7, 0}));
}

}  // namespace
}  // namespace quintet::kernels::cpu::quantize_test
