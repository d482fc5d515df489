#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "hardware/cost.h"

namespace quintet::hardware {
namespace {

// An output tile and the fraction of the full rate at which one unit computes it: small tiles read more
// operands per FLOP. The sizes are those that vendors' libraries choose from.
struct Tile {
  double m, n, rate;
};
constexpr Tile kTiles[] = {{256, 128, 1},   {128, 256, 1}, {128, 128, 0.92}, {64, 128, 0.78},
                           {128, 64, 0.78}, {64, 64, 0.6}, {32, 64, 0.4},    {64, 32, 0.4}};

// Time of the best tiling, in FLOPs of all units together: whole tiles in whole waves, each tile costing its
// k plus `extra`. Split-k gives more units work and costs `extra` once more for the sums. Every option is
// monotonic in m, n and k, so the best of them is too.
double tiled_flops(double m, double n, double k, double groups, const Accelerator& a, double extra) {
  double best = std::numeric_limits<double>::infinity();
  const double scale = a.tile / 128.0;
  for (const Tile& tile : kTiles)
    for (const double pieces : {1., 2., 4., 8.}) {
      const double tiles =
          std::ceil(m / (tile.m * scale)) * std::ceil(n / (tile.n * scale)) * groups * pieces;
      const double length = k / pieces + extra * (pieces > 1 ? 2 : 1);
      const double area = tile.m * tile.n * scale * scale;
      best = std::min(best, std::ceil(tiles / a.units) * a.units * 2 * area * length / tile.rate);
    }
  return best;
}

double base_share(Arithmetic a, const Efficiency& e) {
  switch (a) {
    case Arithmetic::FP8:
      return e.matmul_fp8;
    case Arithmetic::FP4:
      return e.matmul_fp4;
    default:
      return e.matmul;
  }
}

double launch(const Accelerator& accelerator, const Stack& stack) {
  return accelerator.efficiency.launch_seconds + stack.launch_seconds;
}

double stream_seconds(double bytes, const Accelerator& accelerator) {
  return bytes / (accelerator.memory_bytes_per_s * accelerator.efficiency.memory);
}

}  // namespace

Arithmetic usable_arithmetic(Arithmetic wanted, const Accelerator& accelerator) {
  constexpr Arithmetic wider[] = {Arithmetic::FP4,  Arithmetic::FP8, Arithmetic::BF16, Arithmetic::F16,
                                  Arithmetic::TF32, Arithmetic::F32, Arithmetic::F64};
  bool seen = false;
  for (const Arithmetic a : wider) {
    seen = seen || a == wanted;
    // TF32 rounds its operands: f32 never falls back to it, and a wanted TF32 falls back to f32.
    if (seen && accelerator.dense(a) > 0) return a;
  }
  base::fail_user("{} has no arithmetic for {} matmuls", accelerator.title, to_string(wanted));
}

namespace {

double arithmetic_seconds(const Matmul& mm, const Accelerator& accelerator, const Stack& stack) {
  const Efficiency& e = accelerator.efficiency;
  const double flops = 2 * mm.m * mm.n * mm.k * mm.groups;
  if (flops <= 0) return 0;
  const Arithmetic arithmetic = usable_arithmetic(mm.arithmetic, accelerator);
  const double peak = accelerator.dense(arithmetic);
  // The fixed cost of a tile is time, so faster arithmetic needs a longer k. The reference is bf16, or its
  // replacement.
  const double reference = accelerator.dense(usable_arithmetic(Arithmetic::BF16, accelerator));
  const double extra = e.half_k * peak / reference;
  const double rate = peak * base_share(arithmetic, e) * stack.matmul * (mm.groups > 1 ? stack.grouped : 1);
  const double work = tiled_flops(mm.m, mm.n, mm.k, mm.groups, accelerator, extra);
  return std::max(flops / peak, (work + e.half_flops) / rate);
}

}  // namespace

double matmul_efficiency(const Matmul& mm, const Accelerator& accelerator, const Stack& stack) {
  const double seconds = arithmetic_seconds(mm, accelerator, stack);
  if (seconds <= 0) return 0;
  const double peak = accelerator.dense(usable_arithmetic(mm.arithmetic, accelerator));
  return 2 * mm.m * mm.n * mm.k * mm.groups / (peak * seconds);
}

double matmul_seconds(const Matmul& mm, const Accelerator& accelerator, const Stack& stack) {
  return launch(accelerator, stack) +
         std::max(stream_seconds(mm.bytes, accelerator), arithmetic_seconds(mm, accelerator, stack));
}

namespace {

// Scores, softmax and dropout as separate kernels that ignore the mask: every pair of tokens is written and
// read between them. Forward: write scores (2 bytes), softmax read and write (4), dropout read, write and
// mask (5), read weights (2). Backward: write the gradient of the weights, back through dropout and softmax,
// and into three matmuls.
double unfused_attention_seconds(const Attention& attention, const Accelerator& accelerator,
                                 const Stack& stack) {
  constexpr double kForwardBytes = 13, kBackwardBytes = 19;
  const double head = static_cast<double>(attention.head_dim);
  const double masked = attention.keys > 0 ? 2 : 1;  // a causal mask keeps half
  const double pairs = masked * attention.flops / ((attention.backward ? 10 : 4) * head);
  const double flops = (attention.backward ? 8 : 4) * head * pairs;  // scores are kept, not recomputed
  const Arithmetic arithmetic = usable_arithmetic(attention.arithmetic, accelerator);
  const double rate = accelerator.dense(arithmetic) * accelerator.efficiency.matmul * head / (head + 64);
  const int kernels = attention.backward ? 6 : 4;
  return kernels * launch(accelerator, stack) +
         (flops / rate +
          stream_seconds(pairs * (attention.backward ? kBackwardBytes : kForwardBytes), accelerator)) /
             stack.attention;
}

// Our own kernels, for masks and dtypes that the libraries do not cover: 7 and 6 TFLOP/s of an H200's 67.
double plain_attention_seconds(const Attention& attention, const Accelerator& accelerator,
                               const Stack& stack) {
  const double share = attention.backward ? 0.09 : 0.105;
  const Arithmetic wide = attention.arithmetic == Arithmetic::F64 ? Arithmetic::F64 : Arithmetic::F32;
  const double rate = accelerator.dense(usable_arithmetic(wide, accelerator)) * share;
  return launch(accelerator, stack) +
         std::max(stream_seconds(attention.bytes, accelerator), attention.flops / rate);
}

}  // namespace

double attention_seconds(const Attention& attention, const Accelerator& accelerator, const Stack& stack) {
  if (!attention.tensor_cores) return plain_attention_seconds(attention, accelerator, stack);
  if (stack.unfused_attention) return unfused_attention_seconds(attention, accelerator, stack);
  const Efficiency& e = accelerator.efficiency;
  const Arithmetic arithmetic = usable_arithmetic(attention.arithmetic, accelerator);
  // The softmax between the matmuls does not speed up with narrower operands.
  constexpr double kNarrowShare = 0.7;
  const double share = attention.backward ? e.attention_backward : e.attention_forward;
  const double older = stack.older_attention ? e.older_attention : 1;
  const double half_head = attention.backward ? e.half_head_backward : e.half_head_forward;
  const double head = std::min<double>(128, static_cast<double>(attention.head_dim));
  const double by_head = head / (head + half_head) * (128 + half_head) / 128;
  const double narrow = bytes_per_element(arithmetic) < 2 ? kNarrowShare : 1;
  // On the diagonal of a causal mask, half of every 128 x 128 block is wasted. What tiles of packed documents
  // waste, and their short loops, was fitted on an H200 (docs/benchmarks/cuda-kernels.md): documents of 96,
  // 508 and on average 700 tokens.
  const double waste = attention.documents ? 850 : 128;
  const double diagonal = attention.keys > 0 ? attention.keys / (attention.keys + waste) : 1;
  const double rate = accelerator.dense(arithmetic) *
                      std::min(1.0, share * stack.attention * older * by_head * narrow * diagonal);
  return launch(accelerator, stack) +
         std::max(stream_seconds(attention.bytes, accelerator), (attention.flops + e.half_flops) / rate);
}

// At cache speed up to the cache size, at memory speed from twice that, interpolated in between.
double memory_seconds(double bytes, const Accelerator& accelerator, const Stack& stack) {
  const Efficiency& e = accelerator.efficiency;
  const double moved = bytes * stack.memory;
  const double past_cache = e.cache_bytes > 0 ? std::clamp(moved / e.cache_bytes - 1, 0.0, 1.0) : 1;
  const double speed = 1 / (past_cache + (1 - past_cache) / e.cache_speed);
  return launch(accelerator, stack) + stream_seconds(moved, accelerator) / speed;
}

}  // namespace quintet::hardware
