#include "kernels/cpu/optimizer/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/support/round_up.h"
#include "kernels/stochastic_rounding.h"

namespace quintet::kernels::cpu {
namespace {

constexpr int64_t kPieceGrain = 4096;

template <class To, class From>
To rounded(From x) {
  if constexpr (std::is_same_v<To, From>)
    return x;
  else if constexpr (sizeof(To) == 2)
    return To(static_cast<float>(x));
  else
    return static_cast<To>(static_cast<Stat<From>>(x));
}

// One matrix X, m x n with m <= n, and its scratch.
template <class T>
struct Scratch {
  int64_t m, n;
  T *x, *y;          // m x n
  T *gram, *square;  // m x m
  void* gemm;
  int64_t gemm_bytes;
};

int64_t scratch_bytes(int64_t bytes) { return round_up(bytes, kWorkspaceAlignment); }

// Copies pieces into X, or X into pieces.
template <class T, bool kBack>
void move_pieces(const NewtonSchulz& p, T* buffer, std::span<const MatrixPiece> pieces, T* x, int64_t stride,
                 ThreadPool& pool) {
  const bool transposed = p.rows > p.columns;
  for (const MatrixPiece& piece : pieces)
    pool.parallel_for(0, piece.count, kPieceGrain, [&](int64_t begin, int64_t end, int) {
      int64_t row = piece.row + (piece.first + begin) / piece.width,
              in_row = (piece.first + begin) % piece.width;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = piece.column + in_row;
        T& whole = x[transposed ? column * stride + row : row * stride + column];
        T& part = buffer[piece.at + i];
        if (kBack)
          part = whole;
        else
          whole = part;
        if (++in_row == piece.width) {
          in_row = 0;
          ++row;
        }
      }
    });
}

// Divides X by its norm; squares are summed in double, row by row.
template <class T>
void normalize(T* x, int64_t m, int64_t n, double eps, ThreadPool& pool) {
  double sum = 0;
  for (int64_t i = 0; i < m; ++i) {
    double row = 0;
    for (int64_t j = 0; j < n; ++j) {
      const auto v = static_cast<double>(static_cast<Stat<T>>(x[i * n + j]));
      row += v * v;
    }
    sum += row;
  }
  const double norm = std::max(std::sqrt(sum), eps);
  pool.parallel_for(0, m * n, kPieceGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      x[i] = rounded<T>(static_cast<double>(static_cast<Stat<T>>(x[i])) / norm);
  });
}

template <class T>
void iterate(const NewtonSchulz& p, Scratch<T>& s, double scale, ThreadPool& pool) {
  constexpr base::DType type = base::DTypeOf<T>::value;
  const auto multiply = [&](const T* a, const T* b, bool trans_b, T* c, int64_t n, int64_t k) {
    gemm({.trans_b = trans_b,
          .m = s.m,
          .n = n,
          .k = k,
          .a = a,
          .lda = k,
          .b = b,
          .ldb = trans_b ? k : n,
          .c = c,
          .ldc = n,
          .a_type = type,
          .b_type = type,
          .c_type = type},
         s.gemm, s.gemm_bytes, pool);
  };
  multiply(s.x, s.x, true, s.gram, s.m, s.n);
  multiply(s.gram, s.gram, false, s.square, s.m, s.m);
  // a I + b G + c G^2 overwrites G^2.
  using S = Stat<T>;
  const S a = static_cast<S>(p.a * scale), b = static_cast<S>(p.b * scale), c = static_cast<S>(p.c * scale);
  pool.parallel_for(0, s.m, std::max<int64_t>(1, kPieceGrain / s.m), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < s.m; ++j) {
        const int64_t at = i * s.m + j;
        const S sum = b * static_cast<S>(s.gram[at]) + c * static_cast<S>(s.square[at]);
        s.square[at] = rounded<T>(i == j ? sum + a : sum);
      }
  });
  multiply(s.square, s.x, false, s.y, s.n, s.m);
  std::swap(s.x, s.y);
}

}  // namespace

template <class Moment, class Gradient>
void muon_momentum(Moment* m, const Gradient* gradient, int64_t n, double clip, double momentum,
                   const Rounding* rounding, ThreadPool& pool) {
  using S = Stat<Moment>;
  const S scale = static_cast<S>(clip), rest = static_cast<S>(1.0 - momentum);
  pool.parallel_for(0, n, kPieceGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const S g = static_cast<S>(gradient[i]) * scale, before = static_cast<S>(m[i]);
      S next = before + rest * (g - before);
      if (rounding != nullptr) {
        const Origin& at = rounding->origin;
        next = round_stochastically(next, random_word(at.key, at.element(i), rounding->update) & 0xffffu);
      }
      m[i] = rounded<Moment>(next);
    }
  });
}

template <class T, class Moment, class Gradient>
void muon_direction(const Moment* m, const Gradient* gradient, T* direction, int64_t n, double clip,
                    double momentum, bool nesterov, ThreadPool& pool) {
  using S = Stat<Moment>;
  const S scale = static_cast<S>(clip), mu = static_cast<S>(momentum);
  pool.parallel_for(0, n, kPieceGrain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const S g = static_cast<S>(gradient[i]) * scale, mean = static_cast<S>(m[i]);
      direction[i] = rounded<T>(nesterov ? g + mu * (mean - g) : mean);
    }
  });
}

int64_t newton_schulz_workspace_bytes(int64_t rows, int64_t columns, base::DType dtype, int threads) {
  const int64_t m = std::min(rows, columns), n = std::max(rows, columns), element = base::size_of(dtype);
  return 2 * scratch_bytes(m * n * element) + 2 * scratch_bytes(m * m * element) +
         scratch_bytes(gemm_workspace_bound(m, n, n, dtype, dtype, threads));
}

template <class T>
void newton_schulz(const NewtonSchulz& p, T* buffer, std::span<const MatrixPiece> pieces, void* workspace,
                   int64_t workspace_bytes, ThreadPool& pool) {
  const int64_t m = std::min(p.rows, p.columns), n = std::max(p.rows, p.columns);
  const int64_t element = static_cast<int64_t>(sizeof(T));
  QUINTET_CHECK(workspace_bytes >=
                    newton_schulz_workspace_bytes(p.rows, p.columns, base::DTypeOf<T>::value, pool.threads()),
                "{} bytes of scratch for Newton-Schulz on {} x {}", workspace_bytes, p.rows, p.columns);
  auto* at = static_cast<std::byte*>(workspace);
  const auto take = [&](int64_t count) {
    auto* const data = reinterpret_cast<T*>(at);
    at += scratch_bytes(count * element);
    return data;
  };
  Scratch<T> s{.m = m,
               .n = n,
               .x = take(m * n),
               .y = take(m * n),
               .gram = take(m * m),
               .square = take(m * m),
               .gemm = nullptr,
               .gemm_bytes = 0};
  s.gemm = at;
  s.gemm_bytes = workspace_bytes - (at - static_cast<std::byte*>(workspace));
  for (size_t begin = 0, end; begin < pieces.size(); begin = end) {
    end = begin + 1;
    while (end < pieces.size() && pieces[end].slot == pieces[begin].slot) ++end;
    const auto own = pieces.subspan(begin, end - begin);
    move_pieces<T, false>(p, buffer, own, s.x, n, pool);
    normalize(s.x, m, n, p.eps, pool);
    for (int i = 0; i < p.steps; ++i) iterate(p, s, i + 1 == p.steps ? p.scale : 1.0, pool);
    move_pieces<T, true>(p, buffer, own, s.x, n, pool);
  }
}

#define INSTANTIATE(V, G)                                                                                \
  template void muon_momentum(V*, const G*, int64_t, double, double, const Rounding*, ThreadPool&);      \
  template void muon_direction(const V*, const G*, double*, int64_t, double, double, bool, ThreadPool&); \
  template void muon_direction(const V*, const G*, float*, int64_t, double, double, bool, ThreadPool&);  \
  template void muon_direction(const V*, const G*, Bf16*, int64_t, double, double, bool, ThreadPool&);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(float, Bf16)
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                               \
  template void newton_schulz(const NewtonSchulz&, T*, std::span<const MatrixPiece>, void*, int64_t, \
                              ThreadPool&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cpu
