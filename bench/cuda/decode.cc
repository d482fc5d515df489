// Decoding of one token per sequence with Llama 3 8B's sizes: the matmuls, attention to a cache, and whole
// layers, compared with the time to read their weights and cache once.
#include "cuda/harness.h"
#include "kernels/cuda/elementwise/activation.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/generate/generate.h"
#include "kernels/cuda/matmul/narrow.h"
#include "kernels/cuda/norm/norm.h"
#include "kernels/cuda/support/read_rate.h"

namespace quintet::bench {
namespace {

using kernels::GemmArgs;

constexpr int64_t kEmbed = 4096, kHeads = 32, kKvHeads = 8, kDim = 128, kFfn = 14336, kVocab = 128256,
                  kContext = 1152, kPageRows = 64, kPages = 20;  // pages of a sequence
constexpr int kSets = 12;

double read_rate = 0;

void row(const std::string& name, double bytes, double ms) {
  const double rate = bytes / ms * 1e3;
  std::printf("| %-40s | %8.1f | %8.2f | %6.0f | %5.1f %% |\n", name.c_str(), bytes / 1e6, ms * 1e3,
              rate / 1e9, 100 * rate / read_rate);
}

struct Matmul {
  GemmArgs args;
  void* workspace;
  uint32_t* counters;
  void operator()() const { k::narrow_matmul(args, true, workspace, counters, stream); }
};
Matmul matmul(int64_t m, int64_t n, int64_t width, const Bf16* x, Bf16* y, const Bf16* addend,
              void* workspace, uint32_t* counters) {
  return {.args = {.trans_b = true,
                   .m = m,
                   .n = n,
                   .k = width,
                   .a = x,
                   .lda = width,
                   .b = random<Bf16>(n * width),
                   .ldb = width,
                   .c = y,
                   .ldc = n,
                   .a_type = base::DType::BF16,
                   .b_type = base::DType::BF16,
                   .c_type = base::DType::BF16,
                   .addend = addend},
          .workspace = workspace,
          .counters = counters};
}

// What the kernels of a layer exchange.
struct Rows {
  int64_t m;
  Bf16 *x = random<Bf16>(m * kEmbed), *y = take<Bf16>(m * kEmbed),
       *qkv = random<Bf16>(m * (kHeads + 2 * kKvHeads) * kDim), *o = random<Bf16>(m * kHeads * kDim),
       *gate_up = random<Bf16>(m * 2 * kFfn), *act = random<Bf16>(m * kFfn);
  Bf16* logits = take<Bf16>(m * kVocab);
  float* rstd = take<float>(m);
  void* workspace = take<char>(int64_t{32} << 20);
  uint32_t* counters = take<uint32_t>(1 << 16);
  int32_t *table, *sequences, *positions;
  double* inv_freq;

  explicit Rows(int64_t rows) : m(rows) {
    require(cudaMemsetAsync(counters, 0, 4 << 16, stream));
    std::vector<int32_t> pages, all, at;
    for (int64_t i = 0; i < m * kPages; ++i) pages.push_back(static_cast<int32_t>(i));
    for (int64_t i = 0; i < m; ++i) all.push_back(static_cast<int32_t>(i)), at.push_back(kContext - 1);
    table = integers(pages);
    sequences = integers(all);
    positions = integers(at);
    inv_freq = doubles(std::vector<double>(kDim / 2, 0.01));
  }
};

struct Cache {
  Bf16 *keys, *values;
  explicit Cache(const Rows& r)
      : keys(random<Bf16>(r.m * kPages * kPageRows * kKvHeads * kDim)),
        values(random<Bf16>(r.m * kPages * kPageRows * kKvHeads * kDim)) {}
  static double bytes(int64_t m) { return static_cast<double>(m * kContext * kKvHeads * kDim) * 4; }
};

void attend(const Rows& r, const Cache& c) {
  const kernels::CachedAttention a{
      .tokens = r.m,
      .heads = kHeads,
      .kv_heads = kKvHeads,
      .d = kDim,
      .dv = kDim,
      .q_row = (kHeads + 2 * kKvHeads) * kDim,
      .k_row = (kHeads + 2 * kKvHeads) * kDim,
      .v_row = (kHeads + 2 * kKvHeads) * kDim,
      .pages = {.table = r.table, .page_rows = kPageRows, .pages_per_sequence = kPages},
      .scores = {.window = 0, .scale = 0.088, .soft_cap = 0},
      .sequences = r.sequences,
      .positions = r.positions};
  k::cached_attention<Bf16>(a, r.qkv, r.qkv + kHeads * kDim, r.qkv + (kHeads + kKvHeads) * kDim, c.keys,
                            c.values, r.o, r.workspace, r.counters, stream);
}

struct Layer {
  Matmul qkv, out, gate_up, down;
  Bf16* norm;
  Cache cache;
};

// Parts of a layer to run.
struct Parts {
  bool matmuls = true, attention = true, others = true;
};

void run_layer(const Rows& r, const Layer& l, const Parts& parts) {
  const auto norm = [&] {
    if (parts.others) k::rmsnorm<Bf16>(r.x, l.norm, r.y, r.rstd, r.m, kEmbed, 1e-5, stream);
  };
  norm();
  if (parts.matmuls) l.qkv();
  if (parts.others)
    k::rope<Bf16>(r.qkv, (kHeads + 2 * kKvHeads) * kDim, r.positions, r.inv_freq, 1, r.qkv,
                  (kHeads + 2 * kKvHeads) * kDim, r.m, kHeads + kKvHeads, kDim, false, stream);
  if (parts.attention) attend(r, l.cache);
  if (parts.matmuls) l.out();
  norm();
  if (parts.matmuls) l.gate_up();
  if (parts.others) k::swiglu<Bf16>(r.gate_up, r.gate_up + kFfn, 2 * kFfn, r.act, r.m, kFfn, stream);
  if (parts.matmuls) l.down();
}

void decode_of(int64_t m) {
  const auto weights = [](int64_t n, int64_t width) { return 2.0 * static_cast<double>(n * width); };
  struct Shape {
    const char* name;
    int64_t n, width;
  };
  for (const Shape& s :
       {Shape{"qkv", (kHeads + 2 * kKvHeads) * kDim, kEmbed}, Shape{"out", kEmbed, kHeads * kDim},
        Shape{"gate-up", 2 * kFfn, kEmbed}, Shape{"down", kEmbed, kFfn}, Shape{"head", kVocab, kEmbed}}) {
    used = 0;
    const Rows r(m);
    std::vector<Matmul> sets;
    for (int i = 0; i < kSets; ++i)
      sets.push_back(
          matmul(m, s.n, s.width, s.width == kFfn ? r.act : r.x, r.logits, nullptr, r.workspace, r.counters));
    row(std::string(s.name) + ", " + std::to_string(m) + " rows", weights(s.n, s.width),
        time_of_captured([&](int i) { sets[static_cast<size_t>(i)](); }, kSets));
  }
  used = 0;
  const Rows r(m);
  std::vector<Layer> layers;
  for (int i = 0; i < kSets; ++i)
    layers.push_back(
        {.qkv =
             matmul(m, (kHeads + 2 * kKvHeads) * kDim, kEmbed, r.y, r.qkv, nullptr, r.workspace, r.counters),
         .out = matmul(m, kEmbed, kHeads * kDim, r.o, r.x, r.x, r.workspace, r.counters),
         .gate_up = matmul(m, 2 * kFfn, kEmbed, r.y, r.gate_up, nullptr, r.workspace, r.counters),
         .down = matmul(m, kEmbed, kFfn, r.act, r.x, r.x, r.workspace, r.counters),
         .norm = random<Bf16>(kEmbed),
         .cache = Cache(r)});
  const double matmuls =
      weights((kHeads + 2 * kKvHeads) * kDim + kHeads * kDim, kEmbed) + 3 * weights(kFfn, kEmbed);
  const auto time = [&](const char* what, double bytes, const Parts& parts) {
    row(std::string(what) + ", " + std::to_string(m) + " rows", bytes,
        time_of_captured([&](int i) { run_layer(r, layers[static_cast<size_t>(i)], parts); }, kSets));
  };
  time("attention", Cache::bytes(m), {.matmuls = false, .others = false});
  time("norms, rope, swiglu", 0, {.matmuls = false, .attention = false});
  time("matmuls of a layer", matmuls, {.attention = false, .others = false});
  time("a layer without attention", matmuls, {.attention = false});
  time("a layer", matmuls + Cache::bytes(m), {});
}

}  // namespace

void decoding() {
  used = 0;
  const int64_t bytes = int64_t{4} << 30;
  const auto* memory = random<float>(bytes / 4);
  auto* result = take<uint32_t>(1);
  read_rate =
      static_cast<double>(bytes) / time_of([&](int) { k::read_all(memory, bytes, result, stream); }, 1) * 1e3;
  std::printf("\n| decoding, %ld keys | MB | us | GB/s | of %.0f GB/s read |\n|---|---|---|---|---|\n",
              static_cast<long>(kContext), read_rate / 1e9);
  for (const int64_t m : {1, 32}) decode_of(m);
}

}  // namespace quintet::bench
