#include "kernels/cpu/optimizer/newton_schulz.h"

#include <algorithm>

#include "kernels/support.h"

namespace quintet::kernels::cpu::test::newton_schulz_test {
namespace {

using Values = std::vector<double>;

Values times(const Values& a, const Values& b, int64_t m, int64_t k, int64_t n) {
  Values c(static_cast<size_t>(m * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t x = 0; x < k; ++x)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * k + x] * b[x * n + j];
  return c;
}
Values transposed(const Values& a, int64_t rows, int64_t columns) {
  Values t(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) t[j * rows + i] = a[i * columns + j];
  return t;
}

// torch.optim.Muon's _zeropower_via_newtonschulz, line by line, in double.
Values reference(Values x, int64_t rows, int64_t columns, const NewtonSchulz& p) {
  if (rows > columns)
    return transposed(reference(transposed(x, rows, columns), columns, rows, p), columns, rows);
  double squares = 0;
  for (const double v : x) squares += v * v;
  for (double& v : x) v /= std::max(std::sqrt(squares), p.eps);
  for (int step = 0; step < p.steps; ++step) {
    const Values gram = times(x, transposed(x, rows, columns), rows, columns, rows);
    Values update = times(gram, gram, rows, rows, rows);
    for (size_t i = 0; i < update.size(); ++i) update[i] = p.b * gram[i] + p.c * update[i];
    const Values product = times(update, x, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i) x[i] = p.a * x[i] + product[i];
  }
  for (double& v : x) v *= p.scale;
  return x;
}

template <class T>
class NewtonSchulzTest : public testing::Test {};
using Instances = testing::Types<double, float, Bf16>;
TYPED_TEST_SUITE(NewtonSchulzTest, Instances);

struct Shape {
  int64_t rows, columns;
};

// Two matrices in pieces: the first cut into flat ranges, the second into boxes of columns, both shuffled.
TYPED_TEST(NewtonSchulzTest, MatchesReferenceInPieces) {
  using T = TypeParam;
  for (const auto& [rows, columns] : {Shape{4, 4}, Shape{6, 20}, Shape{33, 8}, Shape{2, 96}}) {
    const NewtonSchulz p{.rows = rows,
                         .columns = columns,
                         .steps = 5,
                         .a = 3.4445,
                         .b = -4.7750,
                         .c = 2.0315,
                         .eps = 1e-7,
                         .scale = 0.5};
    const int64_t n = rows * columns, half = columns / 2, cut = n / 3;
    const std::vector<MatrixPiece> pieces = {
        {.at = n + cut, .slot = 0, .width = columns, .first = cut, .count = n - cut},
        {.at = 0, .slot = 0, .width = columns, .first = 0, .count = cut},
        {.at = cut, .slot = 1, .column = half, .width = columns - half, .count = rows * (columns - half)},
        {.at = cut + rows * (columns - half), .slot = 1, .width = half, .first = 0, .count = half},
        {.at = 2 * n + cut, .slot = 1, .row = 1, .width = half, .count = (rows - 1) * half}};
    Values whole[2];
    for (int i = 0; i < 2; ++i) {
      whole[i] = random_values<T>(n, 5 + static_cast<uint64_t>(i));
      for (double& v : whole[i]) v *= 0.01 * (i + 1);
      for (double& v : whole[i]) v = value(element<T>(v));
    }
    const auto each = [&](const auto& fn) {  // (place in the buffer, matrix, element)
      for (const MatrixPiece& piece : pieces)
        for (int64_t i = 0; i < piece.count; ++i) {
          const int64_t k = piece.first + i;
          fn(piece.at + i, piece.slot,
             (piece.row + k / piece.width) * columns + piece.column + k % piece.width);
        }
    };
    Values start(static_cast<size_t>(4 * n), 7.0);
    each([&](int64_t at, int64_t slot, int64_t i) { start[at] = whole[slot][i]; });
    const Values want[2] = {reference(whole[0], rows, columns, p), reference(whole[1], rows, columns, p)};
    run_everywhere([&](ThreadPool& pool) {
      Buffer<T> buffer(start);
      const int64_t bytes =
          newton_schulz_workspace_bytes(rows, columns, base::DTypeOf<T>::value, pool.threads());
      Buffer<double> workspace((bytes + 7) / 8);
      newton_schulz<T>(p, buffer.data(), pieces, workspace.data(), bytes, pool);
      // Small singular values, and errors of rounding with them, grow by `a` in each step.
      const double allowed = std::is_same_v<T, Bf16> ? 0.12 : 4 * unit<T>() * std::pow(p.a, p.steps);
      Values seen(start);
      each([&](int64_t at, int64_t slot, int64_t i) {
        EXPECT_NEAR(buffer[at], want[slot][i], allowed * p.scale) << rows << " x " << columns << " at " << i;
        seen[at] = 0;
      });
      for (size_t i = 0; i < seen.size(); ++i)
        if (seen[i] == 7.0) {
          EXPECT_EQ(buffer[static_cast<int64_t>(i)], 7.0);
        }
      return bytes_of(buffer);
    });
  }
}

// What comes out is nearly orthogonal, and a direction of nothing stays nothing.
TEST(NewtonSchulz, MakesOrthogonal) {
  ThreadPool pool(1);
  const int64_t rows = 12, columns = 30;
  const NewtonSchulz p{.rows = rows, .columns = columns, .a = 3.4445, .b = -4.7750, .c = 2.0315, .eps = 1e-7};
  const std::vector<MatrixPiece> pieces = {{.width = columns, .count = rows * columns}};
  const int64_t bytes = newton_schulz_workspace_bytes(rows, columns, base::DType::F64, 1);
  Buffer<double> workspace((bytes + 7) / 8), x(random_values<double>(rows * columns, 3)),
      zero(Values(static_cast<size_t>(rows * columns), 0.0));
  newton_schulz<double>(p, x.data(), pieces, workspace.data(), bytes, pool);
  newton_schulz<double>(p, zero.data(), pieces, workspace.data(), bytes, pool);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < rows; ++j) {
      double dot = 0;
      for (int64_t k = 0; k < columns; ++k) dot += x[i * columns + k] * x[j * columns + k];
      EXPECT_NEAR(dot, i == j ? 1 : 0, 0.45) << i << ", " << j;
    }
  for (int64_t i = 0; i < rows * columns; ++i) EXPECT_EQ(zero[i], 0);
}

TYPED_TEST(NewtonSchulzTest, MomentumAndDirection) {
  using T = TypeParam;
  const int64_t n = 77;
  const double clip = 0.5, mu = 0.9;
  const Values g = random_values<T>(n, 8), m = random_values<T>(n, 9);
  run_everywhere([&](ThreadPool& pool) {
    Buffer<T> momentum(m), direction(n);
    const Buffer<T> gradient(g);
    muon_momentum(momentum.data(), gradient.data(), n, clip, mu, nullptr, pool);
    for (int64_t i = 0; i < n; ++i) {
      const double next = m[i] + (1 - mu) * (clip * g[i] - m[i]);
      EXPECT_NEAR(momentum[i], next, 4 * unit<T>() * (std::abs(m[i]) + std::abs(g[i])));
    }
    for (const bool nesterov : {false, true}) {
      muon_direction(momentum.data(), gradient.data(), direction.data(), n, clip, mu, nesterov, pool);
      for (int64_t i = 0; i < n; ++i) {
        const double mean = momentum[i];
        EXPECT_NEAR(direction[i], nesterov ? clip * g[i] + mu * (mean - clip * g[i]) : mean,
                    4 * unit<T>() * (std::abs(mean) + std::abs(g[i])));
      }
    }
    return bytes_of(momentum, direction);
  });
}

// Momenta are rounded by the random numbers of their elements, wherever a range of them begins.
TEST(MuonMomentum, RoundsStochasticallyByElement) {
  const int64_t n = 40, first = 13;
  const Values g = random_values<float>(n, 8), m = random_values<Bf16>(n, 9);
  const Rounding whole{{.key = 5, .first = 0, .run = n, .stride = n, .base = 0}, 3};
  Rounding rest = whole;
  rest.origin.first = first;
  run_everywhere([&](ThreadPool& pool) {
    Buffer<Bf16> all(m), parts(m), nearest(m);
    Buffer<float> exact(m);
    const Buffer<float> gradient(g);
    muon_momentum(all.data(), gradient.data(), n, 1, 0.9, &whole, pool);
    muon_momentum(parts.data(), gradient.data(), first, 1, 0.9, &whole, pool);
    muon_momentum(parts.data() + first, gradient.data() + first, n - first, 1, 0.9, &rest, pool);
    muon_momentum(nearest.data(), gradient.data(), n, 1, 0.9, nullptr, pool);
    muon_momentum(exact.data(), gradient.data(), n, 1, 0.9, nullptr, pool);
    EXPECT_TRUE(bytes_of(all) == bytes_of(parts));
    EXPECT_FALSE(bytes_of(all) == bytes_of(nearest));
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t random = random_word(5, i, 3) & 0xffffu;
      EXPECT_EQ(all[i], double{round_stochastically(static_cast<float>(exact[i]), random)}) << i;
    }
    return bytes_of(all);
  });
}

}  // namespace
}  // namespace quintet::kernels::cpu::test::newton_schulz_test
