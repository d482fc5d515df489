#include "kernels/cuda/attention/segments.cuh"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda/support/vector16.cuh"

namespace quintet::kernels::cuda {
namespace {

inline constexpr int kThreads = 1024, kWarps = kThreads / 32;

// One block; each thread has a run of consecutive tokens. `starts` and `ends` hold `most` numbers.
__global__ void __launch_bounds__(kThreads)
    segments_kernel(const int32_t* documents, int tokens, int seq_len,
                    const __grid_constant__ SegmentStrides strides, const __grid_constant__ Segments out,
                    int32_t* starts, int32_t* ends) {
  await_previous();
  __shared__ int totals[kWarps];
  __shared__ int count, bad;
  if (threadIdx.x == 0) bad = 0;
  __syncthreads();
  const int each = (tokens + kThreads - 1) / kThreads, begin = static_cast<int>(threadIdx.x) * each;
  const int end = begin + each < tokens ? begin + each : tokens;
  const auto first = [&](int t) { return t % seq_len == 0; };
  const auto starts_at = [&](int t) {
    return documents[t] >= 0 && (first(t) || documents[t - 1] != documents[t]);
  };
  int own = 0;
  for (int t = begin; t < end; ++t) {
    if (!starts_at(t)) continue;
    ++own;
    if (!first(t) && (documents[t - 1] < 0 || documents[t - 1] > documents[t])) bad = 1;
  }
  int before = own;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int left = __shfl_up_sync(0xffffffffu, before, d);
    if (threadIdx.x % 32 >= d) before += left;
  }
  if (threadIdx.x % 32 == 31) totals[threadIdx.x / 32] = before;
  __syncthreads();
  before -= own;
  for (unsigned w = 0; w < threadIdx.x / 32; ++w) before += totals[w];
  if (threadIdx.x == kThreads - 1) count = before + own;
  // `before` counts the segments that begin before this thread's tokens.
  int at = before;
  for (int t = begin; t < end; ++t) {
    if (documents[t] < 0) continue;
    if (starts_at(t)) {
      if (at < out.most) starts[at] = t;
      ++at;
    }
    const bool last = t + 1 == tokens || first(t + 1) || documents[t + 1] != documents[t];
    if (last && at - 1 < out.most) ends[at - 1] = t + 1;
  }
  __syncthreads();
  const bool refused = bad != 0 || count > out.most;
  for (int64_t s = threadIdx.x; s <= out.most; s += kThreads) {
    const bool used = !refused && s < count;
    const int64_t start = used ? starts[s] : tokens;
    if (s < out.most) out.lengths[s] = used ? ends[s] - starts[s] : 0;
    out.q[s] = static_cast<int32_t>(start * strides.q);
    out.k[s] = static_cast<int32_t>(start * strides.k);
    out.v[s] = static_cast<int32_t>(start * strides.v);
    out.o[s] = static_cast<int32_t>(start * strides.o);
    out.stats[s] = static_cast<int32_t>(start * strides.stats);
  }
  if (threadIdx.x == 0) *out.refused = refused;
}

// Squares of 32 x 32: [rows, columns] -> [columns, rows].
inline constexpr int kSquare = 32, kSquareRows = 8;
__global__ void __launch_bounds__(kSquare* kSquareRows)
    transpose_kernel(const float* from, int64_t rows, int64_t columns, const int32_t* documents,
                     const int32_t* refused, float* to) {
  await_previous();
  __shared__ float square[kSquare][kSquare + 1];
  if (refused != nullptr && *refused != 0) return;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kSquare,
                column0 = static_cast<int64_t>(blockIdx.y) * kSquare;
  for (int y = static_cast<int>(threadIdx.y); y < kSquare; y += kSquareRows)
    if (row0 + y < rows && column0 + threadIdx.x < columns)
      square[y][threadIdx.x] = from[(row0 + y) * columns + column0 + threadIdx.x];
  __syncthreads();
  for (int y = static_cast<int>(threadIdx.y); y < kSquare; y += kSquareRows) {
    const int64_t row = row0 + threadIdx.x, column = column0 + y;
    if (row >= rows || column >= columns) continue;
    const bool padding = documents != nullptr && documents[row] < 0;
    to[column * rows + row] = padding ? -__int_as_float(0x7f800000) : square[threadIdx.x][y];
  }
}

// A warp per token; only padding tokens need work.
inline constexpr int kZeroThreads = 256, kZeroRows = kZeroThreads / 32;
__global__ void __launch_bounds__(kZeroThreads)
    zero_rows_kernel(const int32_t* documents, int64_t tokens, const int32_t* refused, RowPart a, RowPart b,
                     RowPart c) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kZeroRows + threadIdx.x / 32;
  if (row >= tokens || documents[row] >= 0 || *refused != 0) return;
  const int64_t lane = threadIdx.x % 32;
  for (const RowPart& part : {a, b, c}) {
    uint16_t* const to = part.data + row * part.stride;
    if (part.width % 8 == 0 && reinterpret_cast<uintptr_t>(to) % 16 == 0)
      for (int64_t i = lane; i < part.width / 8; i += 32) reinterpret_cast<uint4*>(to)[i] = uint4{};
    else
      for (int64_t i = lane; i < part.width; i += 32) to[i] = 0;
  }
}
void zero_rows(const int32_t* documents, int64_t tokens, const int32_t* refused, const RowPart& a,
               const RowPart& b, const RowPart& c, Stream stream, const char* what) {
  zero_rows_kernel<<<static_cast<unsigned>(divide_up(tokens, kZeroRows)), kZeroThreads, 0, stream>>>(
      documents, tokens, refused, a, b, c);
  check_launch(what);
}

__global__ void __launch_bounds__(256) pack_stats_kernel(const float* lse, int64_t stride, int64_t pitch,
                                                         int64_t heads, int64_t rows, float* packed) {
  await_previous();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t head = blockIdx.y, sequence = blockIdx.z;
  if (row < rows)
    packed[(sequence * heads + head) * rows + row] = lse[head * stride + sequence * pitch + row];
}

void transpose(const float* from, int64_t rows, int64_t columns, const int32_t* documents,
               const int32_t* refused, float* to, Stream stream, const char* what) {
  if (rows <= 0 || columns <= 0) return;
  const dim3 grid(static_cast<unsigned>(divide_up(rows, kSquare)),
                  static_cast<unsigned>(divide_up(columns, kSquare)));
  transpose_kernel<<<grid, dim3(kSquare, kSquareRows), 0, stream>>>(from, rows, columns, documents, refused,
                                                                    to);
  check_launch(what);
}

}  // namespace

Segments Segments::at(void* memory, int64_t most) {
  auto* next = static_cast<int32_t*>(memory);
  const auto take = [&](int64_t n) {
    int32_t* const begin = next;
    next += n;
    return begin;
  };
  Segments s{.most = most};
  s.lengths = take(most);
  s.q = take(most + 1);
  s.k = take(most + 1);
  s.v = take(most + 1);
  s.o = take(most + 1);
  s.stats = take(most + 1);
  s.refused = take(1);
  return s;
}

void find_segments(const int32_t* documents, int64_t sequences, int64_t seq_len,
                   const SegmentStrides& strides, const Segments& segments, Stream stream) {
  int32_t* const starts = segments.refused + 1;
  segments_kernel<<<1, kThreads, 0, stream>>>(documents, static_cast<int>(sequences * seq_len),
                                              static_cast<int>(seq_len), strides, segments, starts,
                                              starts + segments.most);
  check_launch("find_segments");
}

void finish_forward(const int32_t* documents, int64_t tokens, int64_t heads, const float* stats,
                    const int32_t* refused, float* lse, uint16_t* o, int64_t o_stride, int64_t o_width,
                    Stream stream) {
  if (tokens <= 0) return;
  transpose(stats, tokens, heads, documents, refused, lse, stream, "attention finish_forward");
  zero_rows(documents, tokens, refused, RowPart{o, o_stride, o_width}, RowPart{}, RowPart{}, stream,
            "attention finish_forward");
}

void pack_stats(const float* lse, int64_t stride, int64_t pitch, int64_t heads, int64_t sequences,
                int64_t rows, float* packed, Stream stream) {
  if (heads <= 0 || sequences <= 0 || rows <= 0) return;
  const dim3 grid(static_cast<unsigned>(divide_up(rows, 256)), static_cast<unsigned>(heads),
                  static_cast<unsigned>(sequences));
  pack_stats_kernel<<<grid, 256, 0, stream>>>(lse, stride, pitch, heads, rows, packed);
  check_launch("attention pack_stats");
}

void begin_backward(int64_t tokens, int64_t heads, const float* lse, float* stats, Stream stream) {
  transpose(lse, heads, tokens, nullptr, nullptr, stats, stream, "attention begin_backward");
}

void finish_backward(const int32_t* documents, int64_t tokens, const int32_t* refused, const RowPart& dq,
                     const RowPart& dk, const RowPart& dv, Stream stream) {
  if (tokens <= 0) return;
  zero_rows(documents, tokens, refused, dq, dk, dv, stream, "attention finish_backward");
}

}  // namespace quintet::kernels::cuda
