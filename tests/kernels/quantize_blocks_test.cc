// Quantisation in blocks, and a linear layer on such codes forward and backward, against a reference that
// shares nothing with the kernels: it lists the numbers of E4M3 and searches for scales.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/fp8.h"
#include "device/thread_pool.h"
#include "kernels/cpu/quantize/quantize.h"

namespace quintet::kernels::cpu::quantize_blocks_test {
namespace {

using base::Bf16;
using base::DType;

// The numbers of E4M3 from the format's definition, by code without sign.
std::vector<double> numbers() {
  std::vector<double> all;
  for (int code = 0; code < 127; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    all.push_back(exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
  }
  return all;
}

// The nearest number, ties to the even code.
double nearest(double x) {
  static const std::vector<double> all = numbers();
  size_t best = 0;
  for (size_t i = 1; i < all.size(); ++i) {
    const double a = std::abs(std::abs(x) - all[i]), b = std::abs(std::abs(x) - all[best]);
    if (a < b || (a == b && i % 2 == 0)) best = i;
  }
  return std::copysign(all[best], x);
}

double scale_for(double amax) {
  if (amax == 0) return 1;
  double scale = std::ldexp(1.0, 126);
  while (amax * scale > 448 && scale > std::ldexp(1.0, -126)) scale /= 2;
  return scale;
}

// A matrix whose blocks of `rows` x `columns` are rounded as the format does.
struct Matrix {
  int64_t rows, columns;
  std::vector<double> v;
  double& at(int64_t r, int64_t c) { return v[static_cast<size_t>(r * columns + c)]; }
  double at(int64_t r, int64_t c) const { return v[static_cast<size_t>(r * columns + c)]; }

  Matrix rounded(int64_t block_rows, int64_t block_columns) const {
    Matrix out = *this;
    for (int64_t r0 = 0; r0 < rows; r0 += block_rows)
      for (int64_t c0 = 0; c0 < columns; c0 += block_columns) {
        double amax = 0;
        for (int64_t r = r0; r < r0 + block_rows; ++r)
          for (int64_t c = c0; c < c0 + block_columns; ++c) amax = std::max(amax, std::abs(at(r, c)));
        const double scale = scale_for(amax);
        for (int64_t r = r0; r < r0 + block_rows; ++r)
          for (int64_t c = c0; c < c0 + block_columns; ++c) out.at(r, c) = nearest(at(r, c) * scale) / scale;
      }
    return out;
  }
};

Matrix random_matrix(int64_t rows, int64_t columns, double size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> draw(0, size);
  Matrix m{rows, columns, {}};
  for (int64_t i = 0; i < rows * columns; ++i)
    m.v.push_back(static_cast<float>(Bf16(static_cast<float>(draw(random) * std::exp(draw(random) / size)))));
  return m;
}

template <class T>
std::vector<T> stored(const Matrix& m) {
  std::vector<T> out;
  for (const double v : m.v) out.push_back(static_cast<T>(static_cast<float>(v)));
  return out;
}

// Codes of a matrix in both orders with their factors. X: its type; Code: of a code; F: of a factor.
template <class X, class Code, class F>
struct Codes {
  Codes(const Matrix& m, DType type, int64_t block, bool square)
      : x(stored<X>(m)),
        codes(x.size()),
        transposed(x.size()),
        factors(x.size() / static_cast<size_t>(square ? block * block : block)),
        transposed_factors(factors.size()),
        part{x.data(), m.rows} {
    args = {.parts = {&part, 1},
            .rows = m.rows,
            .columns = m.columns,
            .type = type,
            .format = DType::E4M3,
            .block = block,
            .square = square,
            .codes = codes.data(),
            .factors = factors.data(),
            .transposed = transposed.data(),
            .transposed_factors = transposed_factors.data(),
            .rounded = rounded.data()};
  }
  Codes(const Codes&) = delete;
  std::vector<X> x;
  std::vector<Code> codes, transposed;
  std::vector<F> factors, transposed_factors;
  std::array<double, 3> rounded{};
  QuantizePart part;
  QuantizeBlocksArgs args;
};

template <class X, class Code, class F>
void check_codes(DType type, int64_t block, bool square) {
  SCOPED_TRACE(testing::Message() << base::to_string(type) << " " << block << (square ? " square" : ""));
  const int64_t rows = 3 * block, columns = 2 * block;
  Matrix m = random_matrix(rows, columns, 1e-3, 3);
  m.at(1, 1) = 700;  // an outlier, and numbers that become 0 beside it
  m.at(1, 2) = 0x1p-30;
  m.at(rows - 1, columns - 1) = 0;
  for (const int threads : {1, 3}) {
    device::ThreadPool pool(threads);
    Codes<X, Code, F> q(m, type, block, square);
    quantize_blocks(q.args, pool);
    const Matrix plain = m.rounded(square ? block : 1, block), turned = m.rounded(block, square ? block : 1);
    double zeroed = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const auto at = static_cast<size_t>(r * columns + c), back = static_cast<size_t>(c * rows + r);
        const size_t f = static_cast<size_t>(square ? r / block * (columns / block) + c / block
                                                    : c / block * rows + r),
                     tf = static_cast<size_t>(square ? c / block * (rows / block) + r / block
                                                     : r / block * columns + c);
        const double got = static_cast<double>(static_cast<F>(q.codes[at])) * q.factors[f],
                     other =
                         static_cast<double>(static_cast<F>(q.transposed[back])) * q.transposed_factors[tf];
        ASSERT_EQ(got, plain.at(r, c)) << r << ", " << c << ": " << m.at(r, c);
        ASSERT_EQ(other, turned.at(r, c)) << "transposed " << r << ", " << c;
        zeroed += m.at(r, c) != 0 && plain.at(r, c) == 0;
      }
    EXPECT_GT(zeroed, 0);
    EXPECT_EQ(q.rounded, (std::array<double, 3>{static_cast<double>(rows * columns), 0, zeroed}));
  }
}

TEST(QuantizeBlocks, AgreeWithTheDefinition) {
  for (const auto& [block, square] :
       {std::pair<int64_t, bool>{128, false}, {128, true}, {32, false}, {16, true}}) {
    check_codes<Bf16, base::E4M3, float>(DType::BF16, block, square);
    check_codes<double, double, double>(DType::F64, block, square);
  }
}

// Every magnitude of bf16 alone in a block: the code is between half of the largest number and it, except
// where the exponent ends.
TEST(QuantizeBlocks, EveryMagnitudeFits) {
  device::ThreadPool pool(2);
  Matrix m{1 << 15, 1, {}};
  for (int i = 0; i < 1 << 15; ++i)
    m.v.push_back(static_cast<float>(std::bit_cast<Bf16>(static_cast<uint16_t>(i))));
  Codes<Bf16, base::E4M3, float> q(m, DType::BF16, 1, false);
  quantize_blocks(q.args, pool);
  for (size_t i = 0; i < m.v.size(); ++i) {
    const double x = m.v[i], code = static_cast<float>(q.codes[i]), factor = q.factors[i];
    if (!std::isfinite(x)) {
      EXPECT_TRUE(std::isnan(code * factor)) << "a value that is not finite is not hidden";
      continue;
    }
    int power = 0;
    ASSERT_EQ(std::frexp(factor, &power), 0.5) << x;
    ASSERT_EQ(code * factor, nearest(x * scale_for(x)) / scale_for(x)) << x;
    ASSERT_GE(code, x >= 448 * 0x1p-126 ? 224 : 0) << x;
  }
}

TEST(QuantizeBlocks, OneBadValueSpoilsItsBlockOnly) {
  device::ThreadPool pool(1);
  Matrix m = random_matrix(4, 8, 1, 5);
  m.at(1, 2) = std::numeric_limits<double>::infinity();
  Codes<Bf16, base::E4M3, float> q(m, DType::BF16, 4, false);
  quantize_blocks(q.args, pool);
  for (int64_t r = 0; r < 4; ++r)
    for (int64_t c = 0; c < 8; ++c) {
      const double value = static_cast<double>(static_cast<float>(q.codes[static_cast<size_t>(r * 8 + c)])) *
                           q.factors[static_cast<size_t>(c / 4 * 4 + r)];
      EXPECT_EQ(std::isnan(value), r == 1 && c < 4) << r << ", " << c;
    }
}

Matrix product(const Matrix& a, const Matrix& b) {  // a b^T
  Matrix y{a.rows, b.rows, std::vector<double>(static_cast<size_t>(a.rows * b.rows), 0)};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j)
      for (int64_t k = 0; k < a.columns; ++k) y.at(i, j) += a.at(i, k) * b.at(j, k);
  return y;
}
Matrix transposed(const Matrix& m) {
  Matrix t{m.columns, m.rows, std::vector<double>(m.v.size())};
  for (int64_t r = 0; r < m.rows; ++r)
    for (int64_t c = 0; c < m.columns; ++c) t.at(c, r) = m.at(r, c);
  return t;
}
double decibels(const Matrix& exact, const Matrix& got) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < exact.v.size(); ++i) {
    signal += exact.v[i] * exact.v[i];
    noise += (exact.v[i] - got.v[i]) * (exact.v[i] - got.v[i]);
  }
  return 10 * std::log10(signal / noise);
}

// y = x w^T, dx = dy w, dw = dy^T x: codes as linear layers have them. X, Code, F as in Codes.
template <class X, class Code, class F>
void check_linear(DType type, int64_t block, bool square, double on_codes) {
  SCOPED_TRACE(testing::Message() << base::to_string(type) << " " << block);
  const int64_t tokens = 2 * block, in = 3 * block, out = 2 * block;
  const auto gaussian = [](int64_t rows, int64_t columns, double size, uint64_t seed) {
    Matrix m = random_matrix(rows, columns, 1, seed);
    for (double& v : m.v) v = static_cast<float>(Bf16(static_cast<float>(v * size)));
    return m;
  };
  const Matrix x = gaussian(tokens, in, 1, 1), w = gaussian(out, in, 0.02, 2),
               dy = gaussian(tokens, out, 1e-4, 3);
  device::ThreadPool pool(2);
  Codes<X, Code, F> qx(x, type, block, false), qw(w, type, block, square), qdy(dy, type, block, false);
  for (auto* q : {&qx, &qw, &qdy}) quantize_blocks(q->args, pool);
  const DType code_type = sizeof(Code) == 1 ? DType::E4M3 : type;
  const auto gemm = [&](const void* a, const void* fa, const void* b, const void* fb, int64_t m, int64_t n,
                        int64_t k, bool square_b) {
    std::vector<X> c(static_cast<size_t>(m * n));
    const ScaledGemmArgs args{.m = m,
                              .n = n,
                              .k = k,
                              .a = a,
                              .b = b,
                              .c = c.data(),
                              .a_type = code_type,
                              .b_type = code_type,
                              .c_type = type,
                              .a_factor = fa,
                              .b_factor = fb,
                              .block = block,
                              .a_stride = m,
                              .square_b = square_b};
    std::vector<std::byte> scratch(static_cast<size_t>(scaled_gemm_workspace_bytes(args, 2)) + 64);
    auto* const at =
        reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    scaled_gemm(args, at, static_cast<int64_t>(scratch.size()) - 64, pool);
    Matrix y{m, n, {}};
    for (const X v : c) y.v.push_back(static_cast<double>(static_cast<F>(v)));
    return y;
  };
  const int64_t side = square ? block : 1;
  const auto check = [&](const char* what, const Matrix& got, const Matrix& a, const Matrix& b,
                         const Matrix& rounded_a, const Matrix& rounded_b) {
    EXPECT_GE(decibels(product(rounded_a, rounded_b), got), on_codes) << what << " on the same codes";
    EXPECT_GE(decibels(product(a, b), got), 28) << what;
  };
  check("y",
        gemm(qx.codes.data(), qx.factors.data(), qw.codes.data(), qw.factors.data(), tokens, out, in, square),
        x, w, x.rounded(1, block), w.rounded(side, block));
  check("dx",
        gemm(qdy.codes.data(), qdy.factors.data(), qw.transposed.data(), qw.transposed_factors.data(), tokens,
             in, out, square),
        dy, transposed(w), dy.rounded(1, block), transposed(w.rounded(block, side)));
  check("dw",
        gemm(qdy.transposed.data(), qdy.transposed_factors.data(), qx.transposed.data(),
             qx.transposed_factors.data(), out, in, tokens, false),
        transposed(dy), transposed(x), transposed(dy.rounded(block, 1)), transposed(x.rounded(block, 1)));
}

TEST(BlockLinear, ForwardAndBackwardAgreeWithTheDefinition) {
  for (const auto& [block, square] : {std::pair<int64_t, bool>{128, true}, {32, false}}) {
    check_linear<Bf16, base::E4M3, float>(DType::BF16, block, square, 50);
    check_linear<double, double, double>(DType::F64, block, square, 250);
  }
}

}  // namespace
}  // namespace quintet::kernels::cpu::quantize_blocks_test
