// Adafactor. Arithmetic is in double; sums have a fixed order, so that runs are equal in every bit.
#include <algorithm>

#include "kernels/cuda/optimizer/adafactor.h"
#include "kernels/cuda/optimizer/update.cuh"
#include "kernels/cuda/support/thread_group.cuh"

namespace quintet::kernels::cuda {
namespace {

template <class T>
__device__ __forceinline__ double number(const T* p) {
  return static_cast<double>(values<T, 1>(fetch<1>(p)).v[0]);
}

// u = g / max(sqrt(factors), eps1)
struct Direction {
  double clip_scale, least;  // eps1^2
  __device__ explicit Direction(const AdafactorScalars& k)
      : clip_scale(*k.clip_scale), least(k.eps1 * k.eps1) {}
  __device__ double operator()(const FactoredRange& r, const Cell& c, int64_t i, double gradient) const {
    const double v = r.rows > 0 ? r.row[c.row] * r.column[c.column + i] : r.column[c.column + i];
    return gradient * clip_scale / sqrt(fmax(v, least));
  }
};

// A block has a row.
template <class Gradient>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(const __grid_constant__ FactoredRange r, const Gradient* grad, const double* clip_scale) {
  await_previous();
  __shared__ double shared[32];
  const Cell c = cell_of(r, blockIdx.x);
  double sum = 0;
  for (int64_t i = threadIdx.x; i < c.count; i += kThreads) {
    const double g = number(grad + c.first + i) * *clip_scale;
    sum = fma(g, g, sum);
  }
  sum = block_fold(sum, shared, Plus{});
  if (threadIdx.x == 0 && c.count > 0) r.row[c.row] += sum;
}

// A thread has a column, of the cells that belong to its slice of those from `first` on.
template <class Gradient>
__global__ void __launch_bounds__(kThreads)
    column_terms_kernel(const __grid_constant__ FactoredRange r, const Gradient* grad,
                        const double* clip_scale, int64_t width, int64_t first, int64_t cells,
                        double* terms) {
  await_previous();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= width) return;
  const int64_t begin = cells * blockIdx.y / gridDim.y, end = cells * (blockIdx.y + 1) / gridDim.y;
  double sum = 0;
  for (int64_t n = begin; n < end; ++n) {
    const Cell c = cell_of(r, first + n);
    const int64_t i = column - (c.first + r.origin.first) % width;  // of a cell that is cut
    if (i < 0 || i >= c.count) continue;
    const double g = number(grad + c.first + i) * *clip_scale;
    sum = fma(g, g, sum);
  }
  terms[blockIdx.y * width + column] = sum;
}
__global__ void __launch_bounds__(kThreads)
    column_sums_kernel(const double* terms, int slices, int64_t width, double* columns) {
  await_previous();
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (column >= width) return;
  double sum = 0;
  for (int s = 0; s < slices; ++s) sum += terms[s * width + column];
  columns[column] += sum;
}

// The parameters of a launch, with a block for every matrix.
struct Shapes {
  static constexpr int kMaxShapes = 64;
  int count = 0;
  FactoredShape shape[kMaxShapes];
  int64_t block_end[kMaxShapes];
};
template <class Launch>
void each_launch(std::span<const FactoredShape> params, Launch&& launch) {
  for (size_t first = 0; first < params.size(); first += Shapes::kMaxShapes) {
    Shapes shapes;
    for (const FactoredShape& p :
         params.subspan(first, std::min(params.size() - first, size_t{Shapes::kMaxShapes}))) {
      const int i = shapes.count++;
      shapes.shape[i] = p;
      shapes.block_end[i] = (i > 0 ? shapes.block_end[i - 1] : 0) + p.each;
    }
    launch(shapes, static_cast<unsigned>(shapes.block_end[shapes.count - 1]));
  }
}
// The parameter of a block, and which of its matrices.
struct OwnMatrix {
  FactoredShape p;
  int64_t index;
};
__device__ OwnMatrix own_matrix(const Shapes& shapes) {
  int i = 0;
  while (static_cast<int64_t>(blockIdx.x) >= shapes.block_end[i]) ++i;
  return {shapes.shape[i], static_cast<int64_t>(blockIdx.x) - (i > 0 ? shapes.block_end[i - 1] : 0)};
}

template <class Average>
__global__ void __launch_bounds__(kThreads)
    update_factors_kernel(const __grid_constant__ Shapes shapes, double* values, Average* averages,
                          AdafactorScalars k) {
  await_previous();
  __shared__ double shared[32];
  if (*k.ok == 0) return;
  const auto [p, e] = own_matrix(shapes);
  const double weight = pow(*k.step, -k.decay);
  const auto advance = [&](int64_t i, double mean) {
    const double before = static_cast<double>(averages[i]), next = before + weight * (mean - before);
    averages[i] = static_cast<Average>(next);
    return next;
  };
  if (p.rows > 0) {
    const int64_t first = p.first + e * p.rows;
    double sum = 0;
    for (int64_t i = first + threadIdx.x; i < first + p.rows; i += kThreads)
      sum += values[i] = advance(i, values[i] / static_cast<double>(p.columns));
    sum = block_fold(sum, shared, Plus{});
    const double mean = fmax(sum / static_cast<double>(p.rows), k.eps1);
    for (int64_t i = first + threadIdx.x; i < first + p.rows; i += kThreads) values[i] /= mean;
  }
  const int64_t columns = p.first + p.each * p.rows + e * p.columns;
  for (int64_t i = columns + threadIdx.x; i < columns + p.columns; i += kThreads)
    values[i] = advance(i, values[i] / static_cast<double>(p.rows > 0 ? p.rows : 1));
}

__global__ void factor_sizes_kernel(const __grid_constant__ Shapes shapes, const double* norms, double* sizes,
                                    AdafactorScalars k) {
  await_previous();
  const auto [p, e] = own_matrix(shapes);
  const int64_t m = p.matrix + e;
  const double count = static_cast<double>((p.rows > 0 ? p.rows : 1) * p.columns);
  const double update = sqrt(norms[2 * m + 1] / count), weight = sqrt(norms[2 * m] / count);
  sizes[m] = (k.relative ? fmax(weight, k.eps2) : 1.0) / fmax(1.0, update / k.clip);
}

// Terms of the sums of a matrix, whose cells are `cells` from `first` on.
template <class Master, class Gradient>
__global__ void __launch_bounds__(kThreads)
    factor_terms_kernel(const __grid_constant__ FactoredRange r, Master master, const Gradient* grad,
                        AdafactorScalars k, int64_t first, int64_t cells, double* terms) {
  await_previous();
  __shared__ double shared[2][32];
  const Direction direction(k);
  const int64_t begin = cells * blockIdx.x / gridDim.x, end = cells * (blockIdx.x + 1) / gridDim.x;
  double weights = 0, updates = 0;
  for (int64_t n = begin; n < end; ++n) {
    const Cell c = cell_of(r, first + n);
    for (int64_t i = threadIdx.x; i < c.count; i += kThreads) {
      const int64_t at = c.first + i;
      const double p = static_cast<double>(Master::template value<1>(master.template read<1>(at)).v[0]);
      const double u = direction(r, c, i, number(grad + at));
      weights = fma(p, p, weights);
      updates = fma(u, u, updates);
    }
  }
  weights = block_fold(weights, shared[0], Plus{});
  updates = block_fold(updates, shared[1], Plus{});
  if (threadIdx.x == 0) {
    terms[2 * blockIdx.x] = weights;
    terms[2 * blockIdx.x + 1] = updates;
  }
}
__global__ void factor_totals_kernel(const double* terms, double* norms) {
  await_previous();
  double sum = 0;
  for (int t = 0; t < kFactorTerms; ++t) sum += terms[2 * t + threadIdx.x];
  norms[threadIdx.x] += sum;
}

template <class Master, class Gradient>
__global__ void __launch_bounds__(kThreads)
    adafactor_kernel(const __grid_constant__ FactoredRange r, Master master, const Gradient* grad,
                     AdafactorScalars k, int64_t cells) {
  await_previous();
  if (*k.ok == 0) return;
  using P = typename Master::Arithmetic;
  const Direction direction(k);
  const double lr = *k.lr * r.lr_factor, rate = k.relative ? fmin(lr, 1.0 / sqrt(*k.step)) : lr;
  const double keep = 1.0 - lr * decay_of(k, r.weight_decay);
  for (int64_t n = blockIdx.x; n < cells; n += gridDim.x) {
    const Cell c = cell_of(r, n);
    const double step = rate * r.size[c.matrix];
    for (int64_t i = threadIdx.x; i < c.count; i += kThreads) {
      const int64_t at = c.first + i;
      auto p = Master::template value<1>(master.template read<1>(at));
      const double u = direction(r, c, i, number(grad + at));
      p.v[0] = static_cast<P>(fma(static_cast<double>(p.v[0]), keep, -(step * u)));
      master.template write<1>(at, p);
    }
  }
}

// Calls fn(matrix, first cell, cells) for the matrices of a range: their cells are consecutive.
template <class F>
void each_matrix(const FactoredRange& r, F&& fn) {
  const int64_t cells = r.cells();
  for (int64_t begin = 0; begin < cells;) {
    const int64_t matrix = cell_of(r, begin).matrix;
    int64_t low = begin, high = cells;  // low is of this matrix, high is not
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (cell_of(r, middle).matrix == matrix ? low : high) = middle;
    }
    fn(matrix, begin, high - begin);
    begin = high;
  }
}

template <class Master, class Gradient>
void norms_of(const FactoredRange& r, Master master, const Gradient* grad, const AdafactorScalars& k,
              void* workspace, Stream stream) {
  auto* const terms = static_cast<double*>(workspace);
  each_matrix(r, [&](int64_t matrix, int64_t first, int64_t cells) {
    factor_terms_kernel<<<kFactorTerms, kThreads, 0, stream>>>(r, master, grad, k, first, cells, terms);
    check_launch("factor_norms");
    factor_totals_kernel<<<1, 2, 0, stream>>>(terms, r.norms + 2 * matrix);
    check_launch("factor_norms");
  });
}

template <class Master, class Gradient>
void update_of(const FactoredRange& r, Master master, const Gradient* grad, const AdafactorScalars& k,
               Stream stream) {
  const int64_t cells = r.cells();
  if (cells == 0) return;
  constexpr int64_t kMaxBlocks = 4096;
  adafactor_kernel<<<static_cast<unsigned>(std::min(cells, kMaxBlocks)), kThreads, 0, stream>>>(
      r, master, grad, k, cells);
  check_launch("adafactor");
}

}  // namespace

template <class Gradient>
void factor_sums(const FactoredRange& r, const Gradient* grad, const double* clip_scale, void* workspace,
                 Stream stream) {
  const int64_t cells = r.cells(), width = r.width();
  if (cells == 0) return;
  if (r.rows > 0) {
    row_sums_kernel<<<static_cast<unsigned>(cells), kThreads, 0, stream>>>(r, grad, clip_scale);
    check_launch("factor_sums");
  }
  auto* const terms = static_cast<double*>(workspace);
  const auto blocks = static_cast<unsigned>(divide_up(width, int64_t{kThreads}));
  each_matrix(r, [&](int64_t, int64_t first, int64_t count) {
    column_terms_kernel<<<dim3(blocks, kFactorSlices), kThreads, 0, stream>>>(r, grad, clip_scale, width,
                                                                              first, count, terms);
    check_launch("factor_sums");
    // Where the columns of a whole cell begin.
    const Cell c = cell_of(r, first);
    double* const columns = r.column + c.column - (c.first + r.origin.first) % width;
    column_sums_kernel<<<blocks, kThreads, 0, stream>>>(terms, kFactorSlices, width, columns);
    check_launch("factor_sums");
  });
}

template <class Average>
void update_factors(std::span<const FactoredShape> params, double* values, Average* averages,
                    const AdafactorScalars& k, Stream stream) {
  each_launch(params, [&](const Shapes& shapes, unsigned blocks) {
    update_factors_kernel<<<blocks, kThreads, 0, stream>>>(shapes, values, averages, k);
    check_launch("update_factors");
  });
}

template <class Master, class Gradient>
void factor_norms(const FactoredRange& r, const Master* p, const Gradient* grad, const AdafactorScalars& k,
                  void* workspace, Stream stream) {
  norms_of(r, PlainMaster<Master, Master>{const_cast<Master*>(p), nullptr}, grad, k, workspace, stream);
}
template <class Gradient>
void factor_norms_split(const FactoredRange& r, const Bf16* weight, const int16_t* remainder,
                        const Gradient* grad, const AdafactorScalars& k, void* workspace, Stream stream) {
  norms_of(r, SplitMaster{const_cast<Bf16*>(weight), const_cast<int16_t*>(remainder)}, grad, k, workspace,
           stream);
}

void factor_sizes(std::span<const FactoredShape> params, const double* norms, double* sizes,
                  const AdafactorScalars& k, Stream stream) {
  each_launch(params, [&](const Shapes& shapes, unsigned blocks) {
    factor_sizes_kernel<<<blocks, 1, 0, stream>>>(shapes, norms, sizes, k);
    check_launch("factor_sizes");
  });
}

template <class Master, class Gradient, class Copy>
void adafactor(const FactoredRange& r, Master* p, const Gradient* grad, Copy* copy, const AdafactorScalars& k,
               Stream stream) {
  update_of(r, PlainMaster<Master, Copy>{p, copy}, grad, k, stream);
}
template <class Gradient>
void adafactor_split(const FactoredRange& r, Bf16* weight, int16_t* remainder, const Gradient* grad,
                     const AdafactorScalars& k, Stream stream) {
  update_of(r, SplitMaster{weight, remainder}, grad, k, stream);
}

template void factor_sums(const FactoredRange&, const float*, const double*, void*, Stream);
template void factor_sums(const FactoredRange&, const double*, const double*, void*, Stream);
template void factor_sums(const FactoredRange&, const Bf16*, const double*, void*, Stream);
template void update_factors(std::span<const FactoredShape>, double*, float*, const AdafactorScalars&,
                             Stream);
template void update_factors(std::span<const FactoredShape>, double*, double*, const AdafactorScalars&,
                             Stream);
#define INSTANTIATE_NORMS(M, G)                                                                        \
  template void factor_norms(const FactoredRange&, const M*, const G*, const AdafactorScalars&, void*, \
                             Stream);
INSTANTIATE_NORMS(double, double)
INSTANTIATE_NORMS(float, float)
INSTANTIATE_NORMS(float, Bf16)
#define INSTANTIATE(M, G, C) \
  template void adafactor(const FactoredRange&, M*, const G*, C*, const AdafactorScalars&, Stream);
INSTANTIATE(double, double, double)
INSTANTIATE(double, double, float)
INSTANTIATE(double, double, Bf16)
INSTANTIATE(float, float, float)
INSTANTIATE(float, float, Bf16)
INSTANTIATE(float, float, F16)
INSTANTIATE(float, Bf16, Bf16)
#define INSTANTIATE_SPLIT(G)                                                                              \
  template void factor_norms_split(const FactoredRange&, const Bf16*, const int16_t*, const G*,           \
                                   const AdafactorScalars&, void*, Stream);                               \
  template void adafactor_split(const FactoredRange&, Bf16*, int16_t*, const G*, const AdafactorScalars&, \
                                Stream);
INSTANTIATE_SPLIT(float)
INSTANTIATE_SPLIT(Bf16)

}  // namespace quintet::kernels::cuda
