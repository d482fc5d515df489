#include <algorithm>
#include <string>

#include "kernels/cuda/elementwise/each.cuh"
#include "kernels/cuda/optimizer/newton_schulz.h"
#include "kernels/cuda/optimizer/rounding.cuh"
#include "kernels/cuda/reduce/reduce.h"

namespace quintet::kernels::cuda {
namespace {

template <class V, class G, class Rounding>
struct Momentum {
  V* m;
  const G* g;
  const double *clip, *ok, *update;
  double momentum;
  Rounding rounding;
  using P = Stat<V>;
  template <int N>
  struct Loaded {
    Pack<V, N> m;
    Pack<G, N> g;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t i) const {
    return {fetch<N>(m + i), fetch<N>(g + i)};
  }
  template <int N>
  __device__ void store(int64_t i, const Loaded<N>& in) const {
    if (*ok == 0) return;
    auto mean = values<V, N>(in.m);
    const auto gradient = values<G, N>(in.g);
    const P scale = P(*clip), rest = P(1.0 - momentum);
#pragma unroll
    for (int k = 0; k < N; ++k) mean.v[k] = fma(rest, P(gradient.v[k]) * scale - P(mean.v[k]), P(mean.v[k]));
    rounding.round(i, update, mean, static_cast<decltype(&mean)>(nullptr));
    cuda::store<N>(m + i, mean);
  }
};

template <class T, class V, class G>
struct Direction {
  const V* m;
  const G* g;
  T* out;
  const double* clip;
  double momentum;
  bool nesterov;
  using P = Stat<V>;
  template <int N>
  struct Loaded {
    Pack<V, N> m;
    Pack<G, N> g;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t i) const {
    return {fetch<N>(m + i), fetch<N>(g + i)};
  }
  template <int N>
  __device__ void store(int64_t i, const Loaded<N>& in) const {
    const auto mean = values<V, N>(in.m);
    const auto gradient = values<G, N>(in.g);
    const P scale = P(*clip), mu = P(momentum);
    Vals<Stat<T>, N> d;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const P g = P(gradient.v[k]) * scale, m = P(mean.v[k]);
      d.v[k] = static_cast<Stat<T>>(nesterov ? fma(mu, m - g, g) : m);
    }
    cuda::store<N>(out + i, d);
  }
};

// Copies the elements of a piece, in order, into X or out of it.
template <class T, bool kBack>
__global__ void __launch_bounds__(kEachThreads)
    piece_kernel(T* buffer, T* x, MatrixPiece piece, int64_t columns) {
  await_previous();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kEachThreads + threadIdx.x;
  if (i >= piece.count) return;
  const int64_t k = piece.first + i, row = piece.row + k / piece.width,
                column = piece.column + k % piece.width;
  T &part = buffer[piece.at + i], &whole = x[row * columns + column];
  if constexpr (kBack)
    part = whole;
  else
    whole = part;
}

template <class T, bool kBack>
void move_piece(T* buffer, T* x, const MatrixPiece& piece, int64_t columns, Stream stream) {
  const auto blocks = static_cast<unsigned>(divide_up(piece.count, int64_t{kEachThreads}));
  piece_kernel<T, kBack><<<blocks, kEachThreads, 0, stream>>>(buffer, x, piece, columns);
  check_launch("newton_schulz pieces");
}

template <class T>
struct Normalize {
  T* x;
  const double* squares;
  double eps;
  template <int N>
  __device__ Pack<T, N> load(int64_t i) const {
    return fetch<N>(x + i);
  }
  template <int N>
  __device__ void store(int64_t i, const Pack<T, N>& in) const {
    auto v = values<T, N>(in);
    const double norm = sqrt(*squares);
    const auto factor = static_cast<Stat<T>>(1.0 / (norm > eps ? norm : eps));
#pragma unroll
    for (int k = 0; k < N; ++k) v.v[k] *= factor;
    cuda::store<N>(x + i, v);
  }
};

// square = a I + b gram + c square
template <class T>
struct Polynomial {
  const T* gram;
  T* square;
  int64_t n;
  Stat<T> a, b, c;
  template <int N>
  struct Loaded {
    Pack<T, N> gram, square;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t i) const {
    return {fetch<N>(gram + i), fetch<N>(square + i)};
  }
  template <int N>
  __device__ void store(int64_t i, const Loaded<N>& in) const {
    const auto g = values<T, N>(in.gram);
    auto s = values<T, N>(in.square);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      s.v[k] = fma(c, s.v[k], b * g.v[k]);
      if ((i + k) / n == (i + k) % n) s.v[k] += a;
    }
    cuda::store<N>(square + i, s);
  }
};

// Elements per 16-byte vector of the widest type.
template <class T, class V = T>
inline constexpr int kPerThread = sizeof(T) == 8 || sizeof(V) == 8 ? 2 : 4;

// Offsets of the parts of the workspace.
struct Parts {
  std::byte *x, *y, *gram, *square, *squares, *partial, *library;
};
Parts parts_of(const NewtonSchulz& p, base::DType dtype, void* workspace) {
  const int64_t small = std::min(p.rows, p.columns), element = base::size_of(dtype);
  auto* at = static_cast<std::byte*>(workspace);
  const auto take = [&](int64_t bytes) {
    std::byte* const data = at;
    at += aligned(bytes);
    return data;
  };
  Parts parts{};
  parts.x = take(p.rows * p.columns * element);
  parts.y = take(p.rows * p.columns * element);
  parts.gram = take(small * small * element);
  parts.square = take(small * small * element);
  parts.squares = take(int64_t{sizeof(double)});
  parts.partial = take(reduce_workspace_bytes(p.rows * p.columns));
  parts.library = at;
  return parts;
}

}  // namespace

std::vector<GemmArgs> newton_schulz_products(const NewtonSchulz& p, base::DType dtype, void* workspace) {
  const Parts parts = parts_of(p, dtype, workspace);
  const bool tall = p.rows > p.columns;
  const int64_t small = std::min(p.rows, p.columns), large = std::max(p.rows, p.columns);
  GemmArgs gram{.trans_a = tall,
                .trans_b = !tall,
                .m = small,
                .n = small,
                .k = large,
                .a = parts.x,
                .lda = p.columns,
                .b = parts.x,
                .ldb = p.columns,
                .c = parts.gram,
                .ldc = small};
  GemmArgs square{.m = small,
                  .n = small,
                  .k = small,
                  .a = parts.gram,
                  .lda = small,
                  .b = parts.gram,
                  .ldb = small,
                  .c = parts.square,
                  .ldc = small};
  GemmArgs apply{.m = p.rows,
                 .n = p.columns,
                 .k = small,
                 .a = tall ? parts.x : parts.square,
                 .lda = small,
                 .b = tall ? parts.square : parts.x,
                 .ldb = p.columns,
                 .c = parts.y,
                 .ldc = p.columns};
  std::vector<GemmArgs> list = {gram, square, apply};
  for (GemmArgs& g : list) g.a_type = g.b_type = g.c_type = dtype;
  return list;
}

template <class T>
void newton_schulz(const NewtonSchulz& p, T* buffer, std::span<const MatrixPiece> pieces, Matmul& matmul,
                   void* workspace, int64_t workspace_bytes, Stream stream) {
  constexpr base::DType type = base::DTypeOf<T>::value;
  const Parts parts = parts_of(p, type, workspace);
  const int64_t small = std::min(p.rows, p.columns), n = p.rows * p.columns,
                library_bytes = workspace_bytes - (parts.library - static_cast<std::byte*>(workspace));
  if (library_bytes < Matmul::kWorkspaceBytes)
    fail("newton_schulz: " + std::to_string(workspace_bytes) + " bytes of scratch are too few");
  const std::vector<GemmArgs> products = newton_schulz_products(p, type, workspace);
  const auto multiply = [&](const GemmArgs& args) { matmul.run(args, parts.library, library_bytes, stream); };
  for (size_t begin = 0, end; begin < pieces.size(); begin = end) {
    end = begin + 1;
    while (end < pieces.size() && pieces[end].slot == pieces[begin].slot) ++end;
    auto *x = reinterpret_cast<T*>(parts.x), *y = reinterpret_cast<T*>(parts.y);
    auto* const squares = reinterpret_cast<double*>(parts.squares);
    for (size_t i = begin; i < end; ++i) move_piece<T, false>(buffer, x, pieces[i], p.columns, stream);
    sum_squares<T>(x, n, squares, false, parts.partial, stream);
    each<kPerThread<T>, 2>(Normalize<T>{x, squares, p.eps}, n, true, stream, "newton_schulz norm");
    for (int step = 0; step < p.steps; ++step) {
      const double scale = step + 1 == p.steps ? p.scale : 1.0;
      GemmArgs gram = products[0], apply = products[2];
      gram.a = gram.b = x;
      multiply(gram);
      multiply(products[1]);
      auto* const square = reinterpret_cast<T*>(parts.square);
      each<kPerThread<T>, 2>(
          Polynomial<T>{reinterpret_cast<const T*>(parts.gram), square, small,
                        static_cast<Stat<T>>(p.a * scale), static_cast<Stat<T>>(p.b * scale),
                        static_cast<Stat<T>>(p.c * scale)},
          small * small, true, stream, "newton_schulz polynomial");
      (p.rows > p.columns ? apply.a : apply.b) = x;
      apply.c = y;
      multiply(apply);
      std::swap(x, y);
    }
    for (size_t i = begin; i < end; ++i) move_piece<T, true>(buffer, x, pieces[i], p.columns, stream);
  }
}

template <class V, class G>
void muon_momentum(V* m, const G* gradient, int64_t n, const double* clip, const double* ok,
                   const double* update, double momentum, const Origin& origin, Stream stream) {
  constexpr int kWidth = kPerThread<V>;
  const auto launch = [&](auto rounding) {
    each<kWidth, 2>(Momentum<V, G, decltype(rounding)>{m, gradient, clip, ok, update, momentum, rounding}, n,
                    aligned16(m) && aligned16(gradient), stream, "muon_momentum");
  };
  if constexpr (!std::is_same_v<V, float>)
    if (origin.random()) return launch(Stochastic{origin});
  launch(Nearest{});
}

template <class T, class V, class G>
void muon_direction(const V* m, const G* gradient, T* direction, int64_t n, const double* clip,
                    double momentum, bool nesterov, Stream stream) {
  each<kPerThread<T, V>, 2>(Direction<T, V, G>{m, gradient, direction, clip, momentum, nesterov}, n,
                            aligned16(m) && aligned16(gradient) && aligned16(direction), stream,
                            "muon_direction");
}

#define INSTANTIATE(V, G)                                                                                  \
  template void muon_momentum(V*, const G*, int64_t, const double*, const double*, const double*, double,  \
                              const Origin&, Stream);                                                      \
  template void muon_direction(const V*, const G*, double*, int64_t, const double*, double, bool, Stream); \
  template void muon_direction(const V*, const G*, float*, int64_t, const double*, double, bool, Stream);  \
  template void muon_direction(const V*, const G*, Bf16*, int64_t, const double*, double, bool, Stream);
INSTANTIATE(double, double)
INSTANTIATE(float, float)
INSTANTIATE(float, Bf16)
INSTANTIATE(Bf16, float)
INSTANTIATE(Bf16, Bf16)
#undef INSTANTIATE
#define INSTANTIATE(T)                                                                               \
  template void newton_schulz(const NewtonSchulz&, T*, std::span<const MatrixPiece>, Matmul&, void*, \
                              int64_t, Stream);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bf16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
