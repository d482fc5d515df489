// Bandwidth of every memory-bound CUDA kernel at training sizes, compared with device copies in the same run:
// a 4 GiB copy by the runtime, and a copy of as many bytes as the kernel moves, by the runtime or by a copy
// kernel, whichever is faster. Kernels and small copies are captured a dozen at a time and replayed, as in a
// step. Then the rates of tuned GEMMs, grouped GEMMs and attention. Times are medians of CUDA events.
//   cuda_kernels_bench [norm | activation | rope | loss | embedding | update | experts | hops | fp8 |
//                       matmul | grouped | attention [part of a shape's name] | ring | load | decode]
#include <cmath>
#include <cstring>

#include "cuda/harness.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/dropout.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/embedding/embedding.h"
#include "kernels/cuda/embedding/row_groups.cuh"
#include "kernels/cuda/loss/loss.h"
#include "kernels/cuda/matmul/grouped_matmul.h"
#include "kernels/cuda/matmul/matmul.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/optimizer/blockwise.h"
#include "kernels/cuda/optimizer/optimizer.h"
#include "kernels/cuda/optimizer/scalars.h"
#include "kernels/cuda/reduce/reduce.h"
#include "kernels/cuda/support/touched_bytes.h"

namespace quintet::bench {
namespace {

using base::DType;
using kernels::GemmArgs;
using kernels::GroupedArgs;

const char* only = "";
bool wanted(const std::string& name) { return std::strstr(name.c_str(), only) != nullptr; }

void norms(int64_t rows, int64_t n) {
  const double row = static_cast<double>(rows * n) * 2;
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(n);
  used = 0;
  auto *x = random<Bf16>(rows * n), *r = random<Bf16>(rows * n), *w = random<Bf16>(n),
       *y = take<Bf16>(rows * n), *s = take<Bf16>(rows * n), *dx = take<Bf16>(rows * n);
  auto *rstd = take<float>(rows), *mean = take<float>(rows), *dw = take<float>(n), *db = take<float>(n);
  void* space = take<char>(k::layernorm_dw_workspace_bytes<Bf16>(rows, n));
  k::layernorm<Bf16>(x, w, w, y, mean, rstd, rows, n, 1e-5, stream);
  report("rmsnorm" + size, 2 * row, [=](int) { k::rmsnorm<Bf16>(x, w, y, rstd, rows, n, 1e-5, stream); });
  report("add_rmsnorm" + size, 4 * row,
         [=](int) { k::add_rmsnorm<Bf16>(x, r, w, s, y, rstd, rows, n, 1e-5, stream); });
  report("rmsnorm_dx + addend" + size, 4 * row,
         [=](int) { k::rmsnorm_dx<Bf16>(y, x, w, rstd, r, dx, rows, n, stream); });
  report("rmsnorm_backward + addend" + size, 4 * row, [=](int) {
    k::rmsnorm_backward<Bf16>(y, x, w, rstd, r, dx, nullptr, dw, false, rows, n, space, stream);
  });
  report("rmsnorm_backward + addend + y" + size, 5 * row,
         [=](int) { k::rmsnorm_backward<Bf16>(y, x, w, rstd, r, dx, s, dw, false, rows, n, space, stream); });
  report("rmsnorm_dw" + size, 2 * row,
         [=](int) { k::rmsnorm_dw<Bf16>(y, x, rstd, dw, false, rows, n, space, stream); });
  report("layernorm" + size, 2 * row,
         [=](int) { k::layernorm<Bf16>(x, w, w, y, mean, rstd, rows, n, 1e-5, stream); });
  report("add_layernorm" + size, 4 * row,
         [=](int) { k::add_layernorm<Bf16>(x, r, w, w, s, y, mean, rstd, rows, n, 1e-5, stream); });
  report("layernorm_dx + addend" + size, 4 * row,
         [=](int) { k::layernorm_dx<Bf16>(y, x, w, mean, rstd, r, dx, rows, n, stream); });
  report("layernorm_dw" + size, 2 * row,
         [=](int) { k::layernorm_dw<Bf16>(y, x, mean, rstd, dw, db, false, rows, n, space, stream); });
  report("layernorm_backward + addend" + size, 4 * row, [=](int) {
    k::layernorm_backward<Bf16>(y, x, w, w, mean, rstd, r, dx, nullptr, dw, db, false, rows, n, space,
                                stream);
  });
  report("layernorm_backward + addend + y" + size, 5 * row, [=](int) {
    k::layernorm_backward<Bf16>(y, x, w, w, mean, rstd, r, dx, s, dw, db, false, rows, n, space, stream);
  });
}

void activations(int64_t rows, int64_t n) {
  const double row = static_cast<double>(rows * n) * 2;
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(n);
  used = 0;
  auto *in = random<Bf16>(2 * rows * n), *y = take<Bf16>(rows * n), *dy = random<Bf16>(rows * n),
       *d = take<Bf16>(2 * rows * n);
  report("swiglu" + size, 3 * row, [=](int) { k::swiglu<Bf16>(in, in + n, 2 * n, y, rows, n, stream); });
  report("swiglu_backward" + size, 5 * row,
         [=](int) { k::swiglu_backward<Bf16>(dy, in, in + n, 2 * n, d, d + n, nullptr, rows, n, stream); });
  report("swiglu_backward + y" + size, 6 * row,
         [=](int) { k::swiglu_backward<Bf16>(dy, in, in + n, 2 * n, d, d + n, y, rows, n, stream); });
  report("gelu" + size, 2 * row, [=](int) { k::gelu<Bf16>(in, y, rows * n, stream); });
  report("gelu_backward" + size, 3 * row, [=](int) { k::gelu_backward<Bf16>(dy, in, d, rows * n, stream); });
  report("add" + size, 3 * row, [=](int) { k::add<Bf16>(in, dy, y, rows * n, stream); });
  report("add_bias" + size, 2 * row, [=](int) { k::add_bias<Bf16>(in, dy, y, rows, n, stream); });
  auto* sums = take<float>(n);
  void* space = take<char>(k::column_sum_workspace_bytes<Bf16>(rows, n));
  report("column_sum" + size, row,
         [=](int) { k::column_sum<Bf16>(dy, sums, false, rows, n, space, stream); });
  std::vector<int32_t> at(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) at[static_cast<size_t>(i)] = static_cast<int32_t>(i % 4096);
  int32_t* places = integers(at);
  const auto* key = reinterpret_cast<const uint64_t*>(dy);  // arbitrary bits
  report("dropout" + size, 2 * row,
         [=](int) { k::dropout<Bf16>(dy, places, places, key, 0.1, 0, y, rows, n, stream); });
}

void rope(int64_t tokens, int64_t heads, int64_t kv, int64_t dim) {
  used = 0;
  const int64_t stride = (heads + 2 * kv) * dim;
  auto* x = random<Bf16>(tokens * stride);
  std::vector<int32_t> at(static_cast<size_t>(tokens));
  std::vector<double> freq;
  for (int64_t i = 0; i < tokens; ++i) at[static_cast<size_t>(i)] = static_cast<int32_t>(i % 4096);
  for (int64_t d = 0; d < dim / 2; ++d) freq.push_back(std::pow(5e5, -2.0 * static_cast<double>(d) / dim));
  int32_t* places = integers(at);
  double* f = doubles(freq);
  report("rope in place, Q and K of packed " + std::to_string(heads) + "+" + std::to_string(kv) + " x " +
             std::to_string(dim),
         4.0 * static_cast<double>(tokens * (heads + kv) * dim), [=](int) {
           k::rope<Bf16>(x, stride, places, f, 1.0, x, stride, tokens, heads + kv, dim, false, stream);
         });
}

void losses(int64_t rows, int64_t vocab) {
  used = 0;
  constexpr int kSets = 2;
  Bf16* logits[kSets];
  for (auto& l : logits) l = random<Bf16>(rows * vocab);
  std::vector<int32_t> labels(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) labels[static_cast<size_t>(r)] = static_cast<int32_t>(r * 7919 % vocab);
  int32_t* at = integers(labels);
  double *seed = doubles({1e-3}), *sum = doubles({0});
  auto *max = take<float>(rows), *sumexp = take<float>(rows), *target = take<float>(rows);
  void* space = take<char>(k::cross_entropy_workspace_bytes(rows));
  const double row = static_cast<double>(rows * vocab) * 2;
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(vocab);
  report(
      "row_max" + size, row, [=](int i) { k::row_max<Bf16>(logits[i], rows, vocab, vocab, max, stream); }, 2);
  report(
      "row_sumexp" + size, row,
      [=](int i) { k::row_sumexp<Bf16>(logits[i], rows, vocab, vocab, 0, at, max, sumexp, target, stream); },
      2);
  report(
      "cross_entropy_backward" + size, 2 * row,
      [=](int i) {
        k::cross_entropy_backward<Bf16>(logits[i], rows, vocab, vocab, 0, at, max, sumexp, target, seed, true,
                                        sum, false, nullptr, space, stream);
      },
      2);
  report(
      "cross_entropy whole" + size, 2 * row,
      [=](int i) {
        k::cross_entropy<Bf16>(logits[i], rows, vocab, vocab, at, seed, true, sum, false, nullptr, space,
                               stream);
      },
      2);
}

void embeddings(int64_t tokens, int64_t vocab, int64_t n) {
  used = 0;
  auto *table = random<Bf16>(vocab * n), *dy = random<Bf16>(tokens * n), *y = take<Bf16>(tokens * n);
  auto* dtable = take<float>(vocab * n);
  std::vector<int32_t> ids;
  uint32_t h = 1;
  for (int64_t t = 0; t < tokens; ++t) {
    h = h * 1664525u + 1013904223u;
    const double u = (h >> 8) * 0x1p-24;
    ids.push_back(
        static_cast<int32_t>(u * u * u * static_cast<double>(vocab)));  // frequent ids and rare ones
  }
  int32_t* at = integers(ids);
  std::sort(ids.begin(), ids.end());
  const auto distinct = static_cast<double>(std::unique(ids.begin(), ids.end()) - ids.begin());
  void* space = take<char>(k::embedding_dw_workspace_bytes<Bf16>(tokens, vocab, n));
  const double row = static_cast<double>(tokens * n) * 2;
  const std::string size =
      " " + std::to_string(tokens) + " of " + std::to_string(vocab) + " x " + std::to_string(n);
  report("embedding" + size, 2 * row,
         [=](int) { k::embedding<Bf16>(table, at, 0, vocab, y, tokens, n, stream); });
  // The preparation for a gradient's sums: latency, not bandwidth.
  const k::EmbeddingScratch sizes = k::embedding_scratch(tokens, vocab, n);
  const k::RowGroups groups{.bits = k::embedding_bucket_bits(vocab),
                            .by_row = take<k::RowToken>(tokens),
                            .used = take<uint32_t>(1),
                            .present = take<uint32_t>(sizes.present_bytes / 4)};
  auto* arrived = take<uint32_t>(sizes.arrived_bytes / 4);
  report("group_by_row" + size, static_cast<double>(tokens * 4 + sizes.by_row_bytes), [=](int) {
    k::group_by_row({at, static_cast<uint32_t>(tokens), 0, static_cast<uint32_t>(vocab)}, groups, arrived,
                    sizes.arrived_bytes / 4, stream);
  });
  report("embedding_dw added to f32" + size, row + distinct * static_cast<double>(n) * 8, [=](int) {
    k::embedding_dw<Bf16, float>(dy, at, 0, vocab, dtable, true, tokens, n, space, stream);
  });
  report("embedding_dw whole bf16" + size, row + static_cast<double>(vocab * n) * 2,
         [=](int) { k::embedding_dw<Bf16, Bf16>(dy, at, 0, vocab, table, false, tokens, n, space, stream); });
}

void updates(int64_t n) {
  used = 0;
  auto *p = random<float>(n), *m = random<float>(n), *v = random<float>(n), *g = random<float>(n);
  auto *low = take<Bf16>(n), *small = random<Bf16>(n), *weight = take<Bf16>(n);
  auto* rest = take<int16_t>(n);
  k::scale<float>(v, 0.0, v, n, stream);
  k::split_master(p, weight, rest, n, stream);
  const double* s = doubles({1e-4, 1e5, 0.5, 1});
  const k::AdamWScalars scalars{.lr = s, .step = s + 1, .clip_scale = s + 2, .ok = s + 3};
  // Two ranges, one without weight decay.
  const auto plain = [=](auto* master, auto* moment, auto* square, const auto* gradient, auto* copy) {
    const kernels::UpdateRange one{master, moment, square, gradient, copy, n / 2, 1.0, 0.1};
    return std::vector{one, kernels::UpdateRange{master + n / 2, moment + n / 2, square + n / 2,
                                                 gradient + n / 2, copy + n / 2, n - n / 2}};
  };
  const auto split = [=](auto* moment, auto* square, const auto* gradient) {
    const kernels::SplitUpdateRange one{weight, rest, moment, square, gradient, n / 2, 1.0, 0.1};
    return std::vector{one, kernels::SplitUpdateRange{weight + n / 2, rest + n / 2, moment + n / 2,
                                                      square + n / 2, gradient + n / 2, n - n / 2}};
  };
  const auto adamw = [=](const auto& ranges) {
    return [=](int) { k::adamw(std::span(ranges), scalars, stream); };
  };
  const double e = static_cast<double>(n);
  const std::string size = " " + std::to_string(n >> 20) + " Mi";
  report("adamw f32 gradient, bf16 copy" + size, e * 30, adamw(plain(p, m, v, g, low)));
  report("adamw bf16 gradient, bf16 copy" + size, e * 28, adamw(plain(p, m, v, small, low)));
  report("adamw_split bf16 gradient" + size, e * 26, adamw(split(m, v, small)));
  report("adamw_split bf16 moments and gradient" + size, e * 18,
         adamw(split(reinterpret_cast<Bf16*>(m), reinterpret_cast<Bf16*>(v), small)));
  // 8-bit moments: codes and scales are read and written.
  constexpr int64_t kBlock = 256;
  auto *m8 = take<uint8_t>(n), *v8 = take<uint8_t>(n);
  auto *m_scale = take<float>(n / kBlock + 1), *v_scale = take<float>(n / kBlock + 1);
  k::zero(m8, n, stream), k::zero(v8, n, stream);
  k::zero(m_scale, (n / kBlock + 1) * 4, stream), k::zero(v_scale, (n / kBlock + 1) * 4, stream);
  const double coded = 4 + 16.0 / kBlock;
  report("adamw8bit bf16 gradient, bf16 copy" + size, e * (12 + coded),
         [=, ranges = std::vector{kernels::BlockUpdateRange<float, Bf16, Bf16>{
                 p, m8, v8, m_scale, v_scale, small, low, n, 1.0, 0.1}}](int) {
           k::adamw8bit(std::span(ranges), kBlock, scalars, stream);
         });
  report("adamw8bit split, bf16 gradient" + size, e * (10 + coded),
         [=, ranges = std::vector{kernels::SplitBlockUpdateRange<Bf16>{weight, rest, m8, v8, m_scale, v_scale,
                                                                       small, n, 1.0, 0.1}}](int) {
           k::adamw8bit(std::span(ranges), kBlock, scalars, stream);
         });
  report("sgd with momentum, bf16 copy" + size, e * 22, [=, ranges = plain(p, m, v, g, low)](int) {
    k::sgd(std::span(ranges), {.lr = s, .momentum = 0.9}, stream);
  });
  double* out = doubles({0});
  void* space = take<char>(k::reduce_workspace_bytes(n));
  report("sum_squares f32" + size, e * 4,
         [=](int) { k::sum_squares<float>(g, n, out, false, space, stream); });
  report("sum_squares bf16" + size, e * 2,
         [=](int) { k::sum_squares<Bf16>(small, n, out, false, space, stream); });
  report("cast f32 -> bf16" + size, e * 6, [=](int) { k::cast<float, Bf16>(g, low, n, stream); });
  report("accumulate bf16 into f32" + size, e * 10,
         [=](int) { k::accumulate<Bf16, float>(small, g, 1.0, n, stream); });
  report("cast bf16 -> f32" + size, e * 6, [=](int) { k::cast<Bf16, float>(small, g, n, stream); });
  report("accumulate f32 into f32" + size, e * 12,
         [=](int) { k::accumulate<float, float>(g, p, 1.0, n, stream); });
  report("scale f32" + size, e * 8, [=](int) { k::scale<float>(g, 0.5, p, n, stream); });
  report("scale_by f32" + size, e * 8, [=](int) { k::scale_by<float>(g, s + 2, p, n, stream); });
  report("fill f32" + size, e * 4, [=](int) { k::fill<float>(m, 1.0, n, stream); });
  report("copy_rows of 3/4" + size, e * 6,
         [=](int) { k::copy_rows(g, p, n >> 12, 12 << 10, 16 << 10, stream); });
  auto* flag = take<int32_t>(1);
  report("any_nonfinite bf16" + size, e * 2,
         [=](int) { k::any_nonfinite<Bf16>(small, n, flag, false, space, stream); });
  auto* top = take<unsigned long long>(1);
  k::zero(m, n * 4, stream);
  report("last_changed" + size, e * 4,
         [=](int) { k::last_changed(reinterpret_cast<std::byte*>(m), n * 4, 0, top, stream); });
  report("zero" + size, e * 4, [=](int) { k::zero(m, n * 4, stream); });
  report("swap_blocks 8 x 64" + size, e * 8, [=](int) { k::swap_blocks(g, p, 8, 64, n / 512 * 4, stream); });
}

void matmuls() {
  struct Shape {
    const char* what;
    int64_t m, n, k;
    bool ta, tb;
    DType c;
    bool accumulate;
  };
  // 16384 tokens of a 1B Llama (width 2048, ffn 8192): gate-up forward, dX, dW; then 4096 wide.
  const Shape shapes[] = {{"gate-up forward", 16384, 16384, 2048, false, true, DType::BF16, false},
                          {"gate-up dX", 16384, 2048, 16384, false, false, DType::BF16, false},
                          {"gate-up dW += f32", 16384, 2048, 16384, true, false, DType::F32, true},
                          {"gate-up dW bf16", 16384, 2048, 16384, true, false, DType::BF16, false},
                          {"down + residual", 16384, 2048, 8192, false, true, DType::BF16, true},
                          {"square", 8192, 8192, 8192, false, true, DType::BF16, false}};
  k::Matmul matmul, plain;
  std::printf("\n| matmul | m x n x k | first guess TFLOP/s | tuned TFLOP/s |\n|---|---|---|---|\n");
  for (const Shape& s : shapes) {
    used = 0;
    void* space = take<char>(k::Matmul::kWorkspaceBytes);
    auto *a = random<Bf16>(s.m * s.k), *b = random<Bf16>(s.n * s.k);
    void* c = s.c == DType::F32 ? static_cast<void*>(random<float>(s.m * s.n)) : random<Bf16>(s.m * s.n);
    GemmArgs args{.trans_a = s.ta,
                  .trans_b = s.tb,
                  .m = s.m,
                  .n = s.n,
                  .k = s.k,
                  .a = a,
                  .lda = s.ta ? s.m : s.k,
                  .b = b,
                  .ldb = s.tb ? s.k : s.n,
                  .c = c,
                  .ldc = s.n,
                  .a_type = DType::BF16,
                  .b_type = DType::BF16,
                  .c_type = s.c,
                  .accumulate = s.accumulate};
    if (!std::strcmp(s.what, "down + residual")) {
      args.accumulate = false;
      args.addend = random<Bf16>(s.m * s.n);
    }
    const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
    matmul.tune(args, k::Matmul::kWorkspaceBytes, stream);
    // The GPU slows down as it warms up, so the two alternate.
    std::vector<double> first, best;
    for (int round = 0; round < 5; ++round) {
      first.push_back(time_of([&](int) { plain.run(args, space, k::Matmul::kWorkspaceBytes, stream); }, 1));
      best.push_back(time_of([&](int) { matmul.run(args, space, k::Matmul::kWorkspaceBytes, stream); }, 1));
    }
    std::sort(first.begin(), first.end());
    std::sort(best.begin(), best.end());
    const double guess = first[2], tuned = best[2];
    std::printf("| %s | %ld x %ld x %ld | %.0f | %.0f |\n", s.what, s.m, s.n, s.k, flops / guess / 1e9,
                flops / tuned / 1e9);
  }
}

// Experts with equal numbers of rows.
void grouped_matmuls() {
  std::printf(
      "\n| grouped matmul | rows, experts, out x in | forward TFLOP/s | dX | dW |\n|---|---|---|---|---|\n");
  for (const auto& [rows, experts, out, in] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t>{32768, 8, 14336, 4096},
        {65536, 64, 1408, 2048},
        {131072, 128, 768, 2048}}) {
    used = 0;
    const std::vector<int32_t> counts(static_cast<size_t>(experts), static_cast<int32_t>(rows / experts));
    auto *x = random<Bf16>(rows * in), *w = random<Bf16>(experts * out * in), *dy = random<Bf16>(rows * out);
    auto *y = take<Bf16>(rows * out), *dx = take<Bf16>(rows * in);
    float* dw = take<float>(experts * out * in);
    GroupedArgs g{.rows = rows,
                  .experts = experts,
                  .out = out,
                  .in = in,
                  .sources = 1,
                  .received = integers(counts),
                  .a = x,
                  .b = w,
                  .c = y,
                  .type = DType::BF16,
                  .c_type = DType::BF16};
    void* space = take<char>(k::grouped_workspace_bytes(g));
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
    GroupedArgs back = g, weights = g;
    back.a = dy;
    back.c = dx;
    weights.a = dy;
    weights.b = x;
    weights.c = dw;
    weights.c_type = DType::BF16;
    std::printf("| bf16 | %ld, %ld, %ld x %ld | %.0f | %.0f | %.0f |\n", rows, experts, out, in,
                flops / time_of([&](int) { k::grouped_linear(g, space, stream); }, 1) / 1e9,
                flops / time_of([&](int) { k::grouped_linear_dx(back, space, stream); }, 1) / 1e9,
                flops / time_of([&](int) { k::grouped_linear_dw(weights, space, stream); }, 1) / 1e9);
  }
}

void run() {
  recorder = std::make_unique<device::cuda::Stream>();
  stream = recorder->handle();
  require(cudaMalloc(&pool, pool_bytes));
  cudaDeviceProp properties;
  require(cudaGetDeviceProperties(&properties, 0));
  const int64_t bytes = int64_t{4} << 30;
  k::fill_noise(reinterpret_cast<float*>(pool), bytes / 4, stream);
  const auto copy = [&](int) {
    require(
        cudaMemcpyAsync(pool + bytes, pool, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream));
  };
  copy_rate = 2.0 * static_cast<double>(bytes) / time_of(copy, 1) * 1e3;
  std::printf("%s; copy of 4 GiB: %.0f GB/s read and written\n\n", properties.name, copy_rate / 1e9);
  std::printf(
      "| kernel | MB | us | GB/s | of copy of 4 GiB | of copy of as much |\n|---|---|---|---|---|---|\n");
  if (wanted("norm")) {
    norms(16384, 2048);
    norms(16384, 4096);
    norms(32768, 768);
    norms(16384 * 32, 128);
  }
  if (wanted("activation")) activations(16384, 8192);
  if (wanted("rope")) {
    rope(16384, 32, 8, 64);
    rope(16384, 32, 8, 128);
  }
  if (wanted("loss")) losses(4096, 128256), losses(4096, 32000), losses(4096, 50304);
  if (wanted("embedding")) {
    embeddings(16384, 128256, 2048);
    embeddings(32768, 50304, 768);
  }
  if (wanted("update")) updates(int64_t{256} << 20);
  if (wanted("experts")) experts();
  if (wanted("hops")) hop_merges();
  if (wanted("fp8")) fp8_kernels(), fp8_gemms();
  if (wanted("matmul")) matmuls();
  if (wanted("grouped")) grouped_matmuls();
  if (wanted("attention")) attentions();
  if ((wanted("attention") && shape_wanted.empty()) || wanted("ring")) hops();
  if (wanted("load")) attention_under_load();
  if (wanted("decode")) decoding();
  require(cudaStreamSynchronize(stream));
  require(cudaGetLastError());
}

}  // namespace
}  // namespace quintet::bench

int main(int argc, char** argv) {
  if (argc > 1) quintet::bench::only = argv[1];
  if (argc > 2) quintet::bench::shape_wanted = argv[2];
  try {
    quintet::bench::run();
  } catch (const std::exception& e) {  // usually no GPU
    std::fprintf(stderr, "cuda_kernels_bench: %s\n", e.what());
    return 2;
  }
  return 0;
}
