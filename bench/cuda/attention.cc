// Attention: the native tiled kernels compared with cuDNN, over dense shapes, packed documents and a window.
#include "kernels/cuda/attention/attention.h"

#include <algorithm>
#include <cmath>

#include "cuda/harness.h"
#include "kernels/cuda/attention/tiled.h"

namespace quintet::bench {
namespace {

struct Shape {
  const char* what;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim;
  int64_t documents = 0;  // tokens of each; negative: their mean, log-normal; 0: one per sequence
  int64_t window = 0;
};

// Document ids by row; `pairs` receives the number of visible query-key pairs.
std::vector<int32_t> draw_documents(const Shape& p, double& pairs) {
  std::vector<int32_t> ids;
  uint32_t state = 7;
  const auto uniform = [&] {
    state = state * 1664525u + 1013904223u;
    return ((state >> 8) + 0.5) * 0x1p-24;
  };
  const auto draw = [&]() -> int64_t {
    if (p.documents >= 0) return p.documents > 0 ? p.documents : p.seq_len;
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(6.283185307179586 * uniform());
    return std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(-p.documents) * std::exp(normal - 0.5)));
  };
  pairs = 0;
  for (int64_t s = 0; s < p.sequences; ++s) {
    int32_t id = 0;
    for (int64_t t = 0, begin = 0, end = draw(); t < p.seq_len; ++t) {
      if (t == end) {
        ++id;
        begin = t;
        end = t + draw();
      }
      ids.push_back(id);
      const int64_t seen = t - begin + 1;
      pairs += static_cast<double>(p.window > 0 ? std::min(seen, p.window) : seen);
    }
  }
  return ids;
}

std::string rate(double flops, double ms) { return std::to_string(static_cast<int>(flops / ms / 1e9)); }

}  // namespace

// FLOPs over visible pairs; backward counts two and a half times the matmuls of forward.
void attentions() {
  const Shape shapes[] = {{"1b", 4, 4096, 32, 8, 64, 64},
                          {"1b, documents of 508", 4, 4096, 32, 8, 64, 64, 508},
                          {"1b, documents of 96", 4, 4096, 32, 8, 64, 64, 96},
                          {"3b", 4, 4096, 24, 8, 128, 128},
                          {"8b", 4, 4096, 32, 8, 128, 128},
                          {"8b, documents of 700, log-normal", 4, 4096, 32, 8, 128, 128, -700},
                          {"8b, long", 2, 8192, 32, 8, 128, 128},
                          {"8b, long, window 1024", 2, 8192, 32, 8, 128, 128, 0, 1024},
                          {"heads of 64, long, window 1024", 2, 8192, 32, 8, 64, 64, 0, 1024},
                          {"125m", 32, 1024, 12, 12, 64, 64},
                          {"125m, documents of 300, log-normal", 32, 1024, 12, 12, 64, 64, -300},
                          {"heads of 96", 4, 4096, 24, 8, 96, 96},
                          {"latent", 4, 4096, 16, 16, 192, 128},
                          {"heads of 256", 4, 4096, 16, 8, 256, 256}};
  std::printf(
      "\n| attention | sequences x rows, heads, sizes | cuDNN forward TFLOP/s | backward | deterministic | "
      "own forward | "
      "own backward | deterministic | sm_80 kernels forward | backward | cuDNN scratch MB | own |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Shape& p : shapes) {
    used = 0;
    k::AttentionShape s;
    s.q_rows = s.k_rows = {.seq_len = p.seq_len, .sequences = p.sequences};
    s.heads = p.heads;
    s.kv_heads = p.kv_heads;
    s.head_dim = p.head_dim;
    s.value_dim = p.value_dim;
    s.q_stride = s.dq_stride = p.heads * p.head_dim;
    s.k_stride = s.dk_stride = p.kv_heads * p.head_dim;
    s.v_stride = s.dv_stride = p.kv_heads * p.value_dim;
    s.o_stride = p.heads * p.value_dim;
    s.window = p.window;
    s.scale = 0.1;
    const int64_t rows = p.sequences * p.seq_len;
    const auto masks = p.documents != 0 ? k::AttentionMasks::Documents : k::AttentionMasks::Dense;
    double pairs = 0;
    s.documents = s.key_documents = integers(draw_documents(p, pairs));
    auto *q = random<Bf16>(rows * s.q_stride), *key = random<Bf16>(rows * s.k_stride),
         *v = random<Bf16>(rows * s.v_stride), *dout = random<Bf16>(rows * s.o_stride);
    auto *o = take<Bf16>(rows * s.o_stride), *dq = take<Bf16>(rows * s.q_stride),
         *dk = take<Bf16>(rows * s.k_stride), *dv = take<Bf16>(rows * s.v_stride);
    float* lse = take<float>(rows * p.heads);
    k::AttentionShape fixed = s, own = s;
    fixed.deterministic = true;
    if (masks == k::AttentionMasks::Dense) own.documents = own.key_documents = nullptr;
    const int64_t library_bytes = std::max({k::Attention::workspace_bytes(s, masks, false),
                                            k::Attention::workspace_bytes(s, masks, true),
                                            k::Attention::workspace_bytes(fixed, masks, true)}),
                  own_bytes = std::max(k::TiledAttention::workspace_bytes(own, false),
                                       k::TiledAttention::workspace_bytes(own, true));
    void* space = take<char>(std::max(library_bytes, own_bytes));
    const double both = static_cast<double>(p.head_dim + p.value_dim),
                 forward = 2.0 * static_cast<double>(p.heads) * both * pairs,
                 backward = 2.0 * static_cast<double>(p.heads) * pairs *
                            static_cast<double>(3 * p.head_dim + 2 * p.value_dim);
    std::string times[8] = {"none", "none", "none", "none", "none", "none", "none", "none"};
    for (const bool deterministic : {false, true}) {
      k::Attention library;
      s.deterministic = deterministic;
      if (!library.prepare(s, masks, false, library_bytes)) continue;
      const double ms = time_of(
          [&](int) { library.forward(s, masks, q, key, v, o, lse, space, library_bytes, stream); }, 1);
      if (!deterministic) times[0] = rate(forward, ms);
      if (!k::Attention::has_gradients(s, masks) || !library.prepare(s, masks, true, library_bytes)) continue;
      times[deterministic ? 2 : 1] =
          rate(backward, time_of(
                             [&](int) {
                               library.backward(s, masks, dout, q, key, v, o, lse, dq, dk, dv, space,
                                                library_bytes, stream);
                             },
                             1));
    }
    const float* const none = nullptr;
    for (const int kernels : {0, 1, 2}) {  // the default, deterministic, those for Ampere on
      const bool portable = kernels == 2;
      const k::TiledOptions options{.portable = portable};
      own.deterministic = kernels > 0;
      if (kernels != 1)
        times[portable ? 6 : 3] =
            rate(forward, time_of(
                              [&](int) {
                                k::TiledAttention::forward<Bf16, Bf16>(own, options, q, key, v, none, none, o,
                                                                       lse, space, stream);
                              },
                              1));
      times[kernels == 0   ? 4
            : kernels == 1 ? 5
                           : 7] =
          rate(backward, time_of(
                             [&](int) {
                               k::TiledAttention::backward<Bf16, Bf16>(own, options, dout, q, key, v, o, lse,
                                                                       none, dq, dk, dv, space, stream);
                             },
                             1));
    }
    std::printf("| %s | %ld x %ld, %ld / %ld, %ld / %ld |", p.what, p.sequences, p.seq_len, p.heads,
                p.kv_heads, p.head_dim, p.value_dim);
    for (const std::string& t : times) std::printf(" %s |", t.c_str());
    std::printf(" %ld | %ld |\n", library_bytes >> 20, own_bytes >> 20);
    std::fflush(stdout);
  }
}

}  // namespace quintet::bench
