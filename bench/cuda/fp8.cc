// Codes of 8 bits: the bandwidth of the kernels that write them, and every GEMM of a layer beside bf16.
#include "cuda/harness.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/fp8/noise.h"
#include "kernels/cuda/fp8/quantize.h"
#include "kernels/cuda/matmul/matmul.h"

namespace quintet::bench {
namespace {

using base::DType;
using kernels::GemmArgs;

struct Space {
  float* scale;  // of noise, which is at most 1
  k::CodeMeasures measures;
};
Space space() {
  const Space s{take<float>(1), {take<double>(1), take<double>(3)}};
  k::fill<float>(s.scale, 256, 1, stream);
  k::zero(s.measures.amax, 8, stream);
  k::zero(s.measures.rounded, 24, stream);
  return s;
}
enum Orders { kRows = 1, kColumns = 2, kBoth = 3 };
k::CodeTarget target(const Space& s, int64_t rows, int64_t n, int orders, DType format = DType::E4M3) {
  return {.rows = (orders & kRows) != 0 ? take<uint8_t>(rows * n) : nullptr,
          .row_stride = n,
          .columns = (orders & kColumns) != 0 ? take<uint8_t>(rows * n) : nullptr,
          .column_stride = rows,
          .format = format,
          .scale = s.scale,
          .measures = s.measures};
}

void quantize(const Bf16* x, int64_t rows, int64_t n, const k::CodeTarget& to) {
  const kernels::QuantizePart part{x, rows};
  k::quantize({.parts = std::span(&part, 1),
               .rows = rows,
               .columns = n,
               .format = to.format,
               .scale = to.scale,
               .codes = to.rows,
               .transposed = to.columns,
               .amax = to.measures.amax,
               .rounded = to.measures.rounded,
               .accumulate = true},
              stream);
}

void kernels_of(int64_t rows, int64_t n) {
  used = 0;
  const double e = static_cast<double>(rows * n);
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(n);
  const Space s = space();
  auto *x = random<Bf16>(rows * n), *r = random<Bf16>(rows * n), *w = random<Bf16>(n),
       *sum = take<Bf16>(rows * n);
  auto* rstd = take<float>(rows);
  const auto one = [=](const k::CodeTarget& to) { return [=](int) { quantize(x, rows, n, to); }; };
  report("quantize rows" + size, 3 * e, one(target(s, rows, n, kRows)));
  report("quantize columns" + size, 3 * e, one(target(s, rows, n, kColumns)));
  report("quantize both" + size, 4 * e, one(target(s, rows, n, kBoth)));
  report("quantize both e5m2" + size, 4 * e, one(target(s, rows, n, kBoth, DType::E5M2)));
  k::CodeTarget silent = target(s, rows, n, kBoth);
  silent.measures = {};
  report("quantize both, not measured" + size, 4 * e, one(silent));
  const k::CodeTarget by_row = target(s, rows, n, kRows), by_column = target(s, rows, n, kColumns);
  report("rmsnorm to codes" + size, 3 * e,
         [=](int) { k::rmsnorm_codes(x, nullptr, w, nullptr, rstd, rows, n, 1e-5, 0, by_row, stream); });
  report("add_rmsnorm to codes" + size, 7 * e,
         [=](int) { k::rmsnorm_codes(x, r, w, sum, rstd, rows, n, 1e-5, 0, by_row, stream); });
  k::CodeTarget again = by_column;
  again.measures = {};
  report("rmsnorm again to columns" + size, 3 * e,
         [=](int) { k::rmsnorm_again_codes(x, w, rstd, rows, n, 0, again, stream); });
}

// Codes in blocks of 128 (kernels/cuda/fp8/quantize.h) and their factors.
struct BlockSpace {
  uint8_t *codes, *transposed;
  float *factors, *transposed_factors;
};
BlockSpace block_space(int64_t rows, int64_t n) {
  const int64_t factors = rows * n / k::kCodeBlock;
  return {take<uint8_t>(rows * n), take<uint8_t>(rows * n), take<float>(factors), take<float>(factors)};
}
void quantize_blocks(const Bf16* x, int64_t rows, int64_t n, bool square, int orders, const BlockSpace& s,
                     double* rounded) {
  const kernels::QuantizePart part{x, rows};
  const bool by_row = (orders & kRows) != 0, by_column = (orders & kColumns) != 0;
  k::quantize_blocks({.parts = std::span(&part, 1),
                      .rows = rows,
                      .columns = n,
                      .block = k::kCodeBlock,
                      .square = square,
                      .codes = by_row ? s.codes : nullptr,
                      .factors = by_row ? s.factors : nullptr,
                      .transposed = by_column ? s.transposed : nullptr,
                      .transposed_factors = by_column ? s.transposed_factors : nullptr,
                      .rounded = rounded,
                      .accumulate = true},
                     stream);
}
void blocks_of(int64_t rows, int64_t n) {
  used = 0;
  const double e = static_cast<double>(rows * n);
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(n);
  const Space s = space();
  const auto* const x = random<Bf16>(rows * n);
  const BlockSpace b = block_space(rows, n);
  double* const rounded = s.measures.rounded;
  for (const auto& [name, orders] : {std::pair{"rows", kRows}, {"columns", kColumns}, {"both", kBoth}})
    for (const bool square : {false, true})
      report(std::string("quantize ") + name + (square ? " in squares" : " in blocks") + size,
             (orders == kBoth ? 4 : 3) * e,
             [=](int) { quantize_blocks(x, rows, n, square, orders, b, rounded); });
}

void gates_of(int64_t rows, int64_t n) {
  used = 0;
  const double e = static_cast<double>(rows * n);
  const std::string size = " " + std::to_string(rows) + " x " + std::to_string(n);
  const Space s = space();
  auto *in = random<Bf16>(2 * rows * n), *dy = random<Bf16>(rows * n);
  const k::CodeTarget y = target(s, rows, n, kRows), y_both = target(s, rows, n, kBoth),
                      d = target(s, rows, 2 * n, kBoth, DType::E5M2);
  k::CodeTarget again = target(s, rows, n, kColumns);
  again.measures = {};
  report("swiglu to codes" + size, 5 * e,
         [=](int) { k::swiglu_codes(in, in + n, 2 * n, rows, n, kernels::Gate::Silu, y, stream); });
  report("swiglu to both" + size, 6 * e,
         [=](int) { k::swiglu_codes(in, in + n, 2 * n, rows, n, kernels::Gate::Silu, y_both, stream); });
  report("swiglu_backward to codes + y" + size, 11 * e, [=](int) {
    k::swiglu_backward_codes(dy, in, in + n, 2 * n, rows, n, kernels::Gate::Silu, d, again, stream);
  });
}

struct Rate {
  double bf16 = 0, fp8 = 0;  // milliseconds
};
// m x n results, sums over k, of codes with a scale for each block; B's may be square. Milliseconds.
double block_gemm(k::Matmul& matmul, int64_t m, int64_t n, int64_t kk, bool square) {
  used = 0;
  void* const workspace = take<char>(k::Matmul::kWorkspaceBytes);
  auto *a = random<Bf16>(m * kk), *b = random<Bf16>(n * kk), *c = take<Bf16>(m * n);
  const BlockSpace ca = block_space(m, kk), cb = block_space(n, kk);
  quantize_blocks(a, m, kk, false, kRows, ca, nullptr);
  quantize_blocks(b, n, kk, square, kRows, cb, nullptr);
  const k::BlockGemmArgs args{GemmArgs{.trans_b = true,
                                       .m = m,
                                       .n = n,
                                       .k = kk,
                                       .a = ca.codes,
                                       .lda = kk,
                                       .b = cb.codes,
                                       .ldb = kk,
                                       .c = c,
                                       .ldc = n,
                                       .a_type = DType::E4M3,
                                       .b_type = DType::E4M3,
                                       .c_type = DType::BF16,
                                       .a_scale = ca.factors,
                                       .b_scale = cb.factors},
                              square};
  matmul.tune(args, k::Matmul::kWorkspaceBytes, stream);
  return time_rested([&](int) { matmul.run(args, workspace, k::Matmul::kWorkspaceBytes, stream); });
}

// m x n results, sums over k; operands are contiguous along k as codes, and as `trans` says in bf16.
Rate gemm(k::Matmul& matmul, int64_t m, int64_t n, int64_t kk, DType a_type, bool fast, bool ta, bool tb) {
  used = 0;
  void* const workspace = take<char>(k::Matmul::kWorkspaceBytes);
  const Space s = space();
  auto *a = random<Bf16>(m * kk), *b = random<Bf16>(n * kk), *c = take<Bf16>(m * n);
  GemmArgs args{.trans_a = ta,
                .trans_b = tb,
                .m = m,
                .n = n,
                .k = kk,
                .a = a,
                .lda = ta ? m : kk,
                .b = b,
                .ldb = tb ? kk : n,
                .c = c,
                .ldc = n,
                .a_type = DType::BF16,
                .b_type = DType::BF16,
                .c_type = DType::BF16};
  GemmArgs codes = args;
  codes.trans_a = false;
  codes.trans_b = true;
  codes.lda = codes.ldb = kk;
  codes.a_type = a_type;
  codes.b_type = DType::E4M3;
  codes.fast_accumulation = fast;
  codes.a_scale = codes.b_scale = s.scale;
  auto *a8 = take<uint8_t>(m * kk), *b8 = take<uint8_t>(n * kk);
  // Codes of numbers, not random bytes: the power that a GEMM draws depends on its operands.
  const auto quantized = [&](const Bf16* x, int64_t rows, DType format, uint8_t* to) {
    quantize(x, rows, kk, {.rows = to, .format = format, .scale = s.scale});
  };
  quantized(a, m, a_type, a8);
  quantized(b, n, DType::E4M3, b8);
  codes.a = a8;
  codes.b = b8;
  matmul.tune(args, k::Matmul::kWorkspaceBytes, stream);
  matmul.tune(codes, k::Matmul::kWorkspaceBytes, stream);
  const auto run = [&](const GemmArgs& g) {
    return time_rested([&](int) { matmul.run(g, workspace, k::Matmul::kWorkspaceBytes, stream); });
  };
  return {run(args), run(codes)};
}

void gemms_of(const char* model, int64_t layers, int64_t embed, int64_t qkv, int64_t heads, int64_t ffn) {
  constexpr int64_t kRowsOf = 16384;
  k::Matmul matmul;
  Rate total;
  double flops = 0, in_blocks = 0;
  struct Linear {
    const char* name;
    int64_t out, in;
  };
  for (const Linear& l : {Linear{"qkv", qkv, embed},
                          {"out", embed, heads},
                          {"gate-up", 2 * ffn, embed},
                          {"down", embed, ffn}}) {
    const double each =
        2.0 * static_cast<double>(kRowsOf) * static_cast<double>(l.out) * static_cast<double>(l.in);
    const Rate forward = gemm(matmul, kRowsOf, l.out, l.in, DType::E4M3, true, false, true),
               dx = gemm(matmul, kRowsOf, l.in, l.out, DType::E5M2, false, false, false),
               dw = gemm(matmul, l.out, l.in, kRowsOf, DType::E5M2, false, true, false);
    std::printf("| %s %s %ld x %ld |", model, l.name, l.out, l.in);
    const double blocks[] = {block_gemm(matmul, kRowsOf, l.out, l.in, true),
                             block_gemm(matmul, kRowsOf, l.in, l.out, true),
                             block_gemm(matmul, l.out, l.in, kRowsOf, false)};
    const Rate* const rates[] = {&forward, &dx, &dw};
    for (int i = 0; i < 3; ++i) {
      const Rate& r = *rates[i];
      std::printf(" %.0f / %.0f / %.0f |", each / r.bf16 / 1e9, each / r.fp8 / 1e9, each / blocks[i] / 1e9);
      total.bf16 += r.bf16 * static_cast<double>(layers);
      total.fp8 += r.fp8 * static_cast<double>(layers);
      in_blocks += blocks[i] * static_cast<double>(layers);
      flops += each * static_cast<double>(layers);
    }
    std::printf("\n");
  }
  std::printf("| %s, all layers: %.1f ms / %.1f ms / %.1f ms | %.0f / %.0f / %.0f | | |\n", model, total.bf16,
              total.fp8, in_blocks, flops / total.bf16 / 1e9, flops / total.fp8 / 1e9,
              flops / in_blocks / 1e9);
}

}  // namespace

void fp8_kernels() {
  kernels_of(16384, 2048);
  kernels_of(16384, 4096);
  kernels_of(8192, 2048);
  blocks_of(16384, 2048);
  blocks_of(16384, 8192);
  gates_of(16384, 8192);
  gates_of(16384, 14336);
}

void fp8_gemms() {
  std::printf(
      "\n| linear, out x in | forward TFLOP/s, bf16 / fp8 fast / blocks | dX, bf16 / fp8 / blocks "
      "| dW, bf16 / fp8 / blocks |\n|---|---|---|---|\n");
  gemms_of("1b", 16, 2048, 3072, 2048, 8192);
  gemms_of("3b", 28, 3072, 5120, 3072, 8192);
  gemms_of("8b8l", 8, 4096, 6144, 4096, 14336);
}

}  // namespace quintet::bench
