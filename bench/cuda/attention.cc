// Attention: the native tiled kernels compared with cuDNN, over dense shapes, packed documents and a window.
#include "kernels/cuda/attention/attention.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "cuda/harness.h"
#include "kernels/cuda/attention/tiled.h"

namespace quintet::bench {
namespace {

struct Shape {
  const char* what;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim;
  int64_t documents = 0;  // tokens of each; negative: their mean, log-normal; 0: one per sequence
  int64_t window = 0;
  double soft_cap = 0, dropout = 0;  // cuDNN is not timed with these
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

// How the rate of the largest forward pass falls as the GPU reaches its power limit, after a second of rest.
void attention_under_load() {
  used = 0;
  constexpr int64_t kSequences = 2, kLength = 8192, kHeads = 32, kKvHeads = 8, kDim = 128;
  constexpr auto kMasks = k::AttentionMasks::Dense;
  k::AttentionShape s;
  s.q_rows = s.k_rows = {.seq_len = kLength, .sequences = kSequences};
  s.heads = kHeads;
  s.kv_heads = kKvHeads;
  s.head_dim = s.value_dim = kDim;
  s.q_stride = s.o_stride = s.dq_stride = kHeads * kDim;
  s.k_stride = s.v_stride = s.dk_stride = s.dv_stride = kKvHeads * kDim;
  s.scale = 0.1;
  const int64_t rows = kSequences * kLength;
  auto *q = random<Bf16>(rows * s.q_stride), *key = random<Bf16>(rows * s.k_stride),
       *v = random<Bf16>(rows * s.v_stride), *o = take<Bf16>(rows * s.o_stride);
  float* lse = take<float>(rows * kHeads);
  const int64_t bytes =
      std::max(k::Attention::workspace_bytes(s, kMasks, false), k::TiledAttention::workspace_bytes(s, false));
  void* space = take<char>(bytes);
  k::Attention library;
  if (!library.prepare(s, kMasks, false, bytes)) return;
  const double flops = 4.0 * kHeads * kDim * kSequences * kLength * (kLength + 1) / 2;
  const float* const none = nullptr;
  const std::function<void(int)> runs[] = {
      [&](int) { library.forward(s, kMasks, q, key, v, o, lse, space, bytes, stream); },
      [&](int) {
        k::TiledAttention::forward<Bf16, Bf16>(s, {}, q, key, v, none, none, o, lse, space, stream);
      }};
  std::printf(
      "\n| forward of 2 x 8192, 32 / 8 heads of 128, after this many calls in a row | cuDNN TFLOP/s | own "
      "|\n|---|---|---|\n");
  constexpr int kParts[] = {3, 12, 30, 60, 100, 200, 400, 800};
  std::vector<double> rates[2];
  for (const int round : {0, 1}) {
    for (int which : {0, 1}) {
      const auto& run = runs[which];
      run(0);
      require(cudaStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::seconds(1));
      cudaEvent_t begin, end;
      require(cudaEventCreate(&begin));
      require(cudaEventCreate(&end));
      int done = 0;
      for (size_t part = 0; part < std::size(kParts); ++part) {
        require(cudaEventRecord(begin, stream));
        for (int i = done; i < kParts[part]; ++i) run(0);
        require(cudaEventRecord(end, stream));
        require(cudaEventSynchronize(end));
        float ms = 0;
        require(cudaEventElapsedTime(&ms, begin, end));
        if (round == 1) rates[which].push_back(flops * (kParts[part] - done) / static_cast<double>(ms) / 1e9);
        done = kParts[part];
      }
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
    }
  }
  for (size_t part = 0; part < std::size(kParts); ++part)
    std::printf("| %d | %.0f | %.0f |\n", kParts[part], rates[0][part], rates[1][part]);
}

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
                          {"heads of 96, documents of 700, log-normal", 4, 4096, 24, 8, 96, 96, -700},
                          {"latent", 4, 4096, 16, 16, 192, 128},
                          {"latent, documents of 700, log-normal", 4, 4096, 16, 16, 192, 128, -700},
                          {"heads of 256", 4, 4096, 16, 8, 256, 256},
                          {"heads of 256, documents of 700, log-normal", 4, 4096, 16, 8, 256, 256, -700},
                          {"heads of 256, long, window 1024", 2, 8192, 16, 8, 256, 256, 0, 1024},
                          {"ulysses of 4: 8b", 4, 16384, 8, 2, 128, 128},
                          {"ulysses of 4: 8b, documents of 3000", 4, 16384, 8, 2, 128, 128, 3000},
                          {"8b, soft cap", 4, 4096, 32, 8, 128, 128, 0, 0, 50},
                          {"8b, dropout", 4, 4096, 32, 8, 128, 128, 0, 0, 0, 0.1},
                          {"1b, soft cap", 4, 4096, 32, 8, 64, 64, 0, 0, 50},
                          {"1b, dropout", 4, 4096, 32, 8, 64, 64, 0, 0, 0, 0.1}};
  std::printf(
      "\n| attention | sequences x rows, heads, sizes | cuDNN forward TFLOP/s | backward | deterministic | "
      "own forward | "
      "own backward | deterministic | sm_80 kernels forward | backward | cuDNN scratch MB | own |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Shape& p : shapes) {
    if (std::string_view(p.what).find(shape_wanted) == std::string_view::npos) continue;
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
    if (p.dropout > 0) {
      std::vector<int32_t> places(static_cast<size_t>(rows));
      for (size_t i = 0; i < places.size(); ++i)
        places[i] = static_cast<int32_t>(i % static_cast<size_t>(p.seq_len));
      own.dropout_p = p.dropout;
      own.positions = own.key_positions = integers(places);
      own.samples = integers(std::vector<int32_t>(places.size()));
      own.dropout_key = reinterpret_cast<const uint64_t*>(doubles({0.1}));  // any bits
    }
    const double both = static_cast<double>(p.head_dim + p.value_dim),
                 forward = 2.0 * static_cast<double>(p.heads) * both * pairs,
                 backward = 2.0 * static_cast<double>(p.heads) * pairs *
                            static_cast<double>(3 * p.head_dim + 2 * p.value_dim);
    std::string times[8] = {"none", "none", "none", "none", "none", "none", "none", "none"};
    const bool extra = p.soft_cap > 0 || p.dropout > 0;
    for (const bool deterministic : {false, true}) {
      if (extra) break;
      k::Attention library;
      s.deterministic = deterministic;
      if (!library.prepare(s, masks, false, library_bytes)) continue;
      const double ms = time_rested(
          [&](int) { library.forward(s, masks, q, key, v, o, lse, space, library_bytes, stream); });
      if (!deterministic) times[0] = rate(forward, ms);
      if (!k::Attention::has_gradients(s, masks) || !library.prepare(s, masks, true, library_bytes)) continue;
      times[deterministic ? 2 : 1] = rate(backward, time_rested([&](int) {
                                            library.backward(s, masks, dout, q, key, v, o, lse, dq, dk, dv,
                                                             space, library_bytes, stream);
                                          }));
    }
    const float* const none = nullptr;
    for (const int kernels : {0, 1, 2}) {  // the default, deterministic, those for Ampere on
      const bool portable = kernels == 2;
      const k::TiledOptions options{.soft_cap = p.soft_cap, .portable = portable};
      own.deterministic = kernels > 0;
      if (kernels != 1)
        times[portable ? 6 : 3] = rate(forward, time_rested([&](int) {
                                         k::TiledAttention::forward<Bf16, Bf16>(own, options, q, key, v, none,
                                                                                none, o, lse, space, stream);
                                       }));
      times[kernels == 0   ? 4
            : kernels == 1 ? 5
                           : 7] =
          rate(backward, time_rested([&](int) {
                 k::TiledAttention::backward<Bf16, Bf16>(own, options, dout, q, key, v, o, lse, none, dq, dk,
                                                         dv, space, stream);
               }));
    }
    std::printf("| %s | %ld x %ld, %ld / %ld, %ld / %ld |", p.what, p.sequences, p.seq_len, p.heads,
                p.kv_heads, p.head_dim, p.value_dim);
    for (const std::string& t : times) std::printf(" %s |", t.c_str());
    std::printf(" %ld | %ld |\n", library_bytes >> 20, own_bytes >> 20);
    std::fflush(stdout);
  }
}

}  // namespace quintet::bench
