// The GEMM driver: blocks C, packs A and B, hands panels to the register tile. k is never split between
// threads and its blocks depend on k alone: this makes the bits independent of the number of threads and of
// m and n.
#include "kernels/cpu/matmul/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/matmul/tile.h"
#include "kernels/cpu/support/round_up.h"

namespace quintet::kernels {
namespace {

using base::DType;

constexpr int64_t kLine = 64;
// A C of bf16 or f16 whose k spans several blocks is summed in an f32 strip of at most this size.
constexpr int64_t kStripRows = 2048, kStripCols = 512;

bool is_narrow(DType t) { return t == DType::BF16 || t == DType::F16; }

// Equal blocks of at most `largest`, a multiple of `step`.
int64_t even_block(int64_t size, int64_t largest, int64_t step) {
  return round_up(ceil_div(size, ceil_div(size, largest)), step);
}

// How one GEMM is blocked, and the layout of its scratch.
struct Cut {
  int64_t mc, nc, kc;        // Blocks of m (per worker), n and k.
  int64_t strip_rows;        // Rows of C that one pass over k covers: m when there is no strip.
  bool strip;                // Sums go to an f32 strip first.
  int64_t blocks_m;          // Blocks of m in one pass.
  int workers_m, workers_n;  // The grid of workers over one pass.
  int64_t a_offset, a_stride, strip_offset, bytes;

  Cut(int64_t m, int64_t n, int64_t k, const TileShape& s, DType c_type, int threads) {
    kc = even_block(k, s.kc, s.k_step);
    strip = is_narrow(c_type) && k > kc;
    nc = even_block(n, strip ? std::min(s.nc, kStripCols) : s.nc, s.nr);
    strip_rows = strip ? std::min(m, kStripRows) : m;
    const int64_t panels_m = ceil_div(strip_rows, s.mr), panels_n = ceil_div(std::min(n, nc), s.nr);
    // The grid with the least work for the busiest worker. Each worker packs the rows of A it uses, which
    // costs about as much as two more panels of columns.
    int64_t best = INT64_MAX;
    for (int g = threads; g >= 1; --g) {
      const int64_t work = ceil_div(panels_m, g) * (ceil_div(panels_n, threads / g) + 2);
      if (work < best) best = work, workers_m = g, workers_n = threads / g;
    }
    // As many blocks as a worker's scratch requires, a multiple of the workers. Workers take the next block
    // as they finish one: with several blocks each, a core slowed down by other work delays nobody.
    blocks_m = round_up(ceil_div(panels_m, s.mc / s.mr), workers_m);
    mc = ceil_div(panels_m, blocks_m) * s.mr;
    a_offset = round_up(nc * kc * s.packed_size, kLine);
    a_stride = round_up(mc * kc * s.packed_size, kLine);
    strip_offset = a_offset + a_stride * workers_m * workers_n;
    bytes = strip_offset + (strip ? round_up(strip_rows * nc * int64_t{sizeof(float)}, kLine) : 0);
  }
};

template <class Fn>
void each(device::ThreadPool* pool, int64_t count, const Fn& fn) {
  if (pool == nullptr)
    fn(int64_t{0}, count);
  else
    pool->parallel_for(0, count, 1, [&](int64_t b, int64_t e, int) { fn(b, e); });
}

const std::byte* element(const void* base, int64_t index, DType type) {
  return static_cast<const std::byte*>(base) + index * size_of(type);
}
std::byte* element(void* base, int64_t index, DType type) {
  return static_cast<std::byte*>(base) + index * size_of(type);
}

// One tile of C whose sums are not written in place: it extends past C, or C is narrow.
template <class Sum>
void edge_tile(const TileKernel& kernel, int64_t k, const void* a, const void* b, Sum* c, int64_t ldc,
               int64_t rows, int64_t cols, bool add) {
  alignas(kLine) Sum sums[kMaxTile];
  const int nr = kernel.shape.nr;
  if (add)
    for (int64_t i = 0; i < kernel.shape.mr; ++i)
      for (int64_t j = 0; j < nr; ++j) sums[i * nr + j] = i < rows && j < cols ? c[i * ldc + j] : Sum{0};
  kernel.tile(k, a, b, sums, nr, add);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) c[i * ldc + j] = sums[i * nr + j];
}

void narrow_tile(const TileKernel& kernel, int64_t k, const void* a, const void* b, uint16_t* c, int64_t ldc,
                 int64_t rows, int64_t cols, bool add) {
  alignas(kLine) float sums[kMaxTile];
  for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(c + i * ldc, 1);
  kernel.tile(k, a, b, sums, kernel.shape.nr, false);
  kernel.round(sums, kernel.shape.nr, rows, cols, c, ldc, add);
}

// A block of C as one pass over a block of k sees it: C itself, or the strip.
struct Target {
  void* data;
  int64_t ld;
  DType type;
  bool add;
};

class GemmRun {
 public:
  GemmRun(const GemmArgs& g, const TileKernel& kernel, const Cut& cut, std::byte* workspace,
          device::ThreadPool* pool)
      : g_(g), kernel_(kernel), s_(kernel.shape), cut_(cut), workspace_(workspace), pool_(pool) {}

  void run() {
    for (int64_t j = 0; j < g_.n; j += cut_.nc)
      for (int64_t i = 0; i < g_.m; i += cut_.strip_rows) {
        const int64_t rows = std::min(cut_.strip_rows, g_.m - i), cols = std::min(cut_.nc, g_.n - j);
        for (int64_t p = 0; p < g_.k; p += cut_.kc) {
          const int64_t depth = std::min(cut_.kc, g_.k - p);
          pack_b(j, cols, p, depth);
          if (cut_.strip)
            multiply(i, rows, j, cols, p, depth, {strip(), cut_.nc, DType::F32, p > 0});
          else
            multiply(i, rows, j, cols, p, depth, {c(i, j), g_.ldc, g_.c_type, adds() || p > 0});
        }
        if (cut_.strip) finish_strip(i, rows, j, cols);
      }
  }

 private:
  void* c(int64_t i, int64_t j) const { return element(g_.c, i * g_.ldc + j, g_.c_type); }
  bool adds() const { return g_.accumulate || g_.addend != nullptr; }
  float* strip() const { return reinterpret_cast<float*>(workspace_ + cut_.strip_offset); }
  int64_t panel_bytes(int rows, int64_t depth) const {
    return round_up(depth, s_.k_step) * rows * s_.packed_size;
  }

  void pack_b(int64_t j, int64_t cols, int64_t p, int64_t depth) {
    each(pool_, ceil_div(cols, s_.nr), [&](int64_t first, int64_t last) {
      for (int64_t q = first; q < last; ++q) {
        const int64_t col = j + q * s_.nr;
        const void* from = element(g_.b, g_.trans_b ? col * g_.ldb + p : p * g_.ldb + col, g_.b_type);
        kernel_.pack_b(from, g_.ldb, g_.trans_b, std::min<int64_t>(s_.nr, cols - q * s_.nr), depth,
                       workspace_ + q * panel_bytes(s_.nr, depth));
      }
    });
  }

  // Rows i.. of C (or of the strip) += A block * the packed B block. Which worker computes a block does not
  // affect its bits.
  void multiply(int64_t i, int64_t rows, int64_t j, int64_t cols, int64_t p, int64_t depth,
                const Target& to) {
    const int64_t panels_m = ceil_div(rows, s_.mr), panels_n = ceil_div(cols, s_.nr);
    const int64_t blocks_m = cut_.blocks_m;
    const int64_t tasks = blocks_m * cut_.workers_n;
    std::atomic<int64_t> next{0};
    each(pool_, cut_.workers_m * cut_.workers_n, [&](int64_t worker, int64_t) {
      if (kernel_.begin != nullptr) kernel_.begin();
      std::byte* a_block = workspace_ + cut_.a_offset + worker * cut_.a_stride;
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
        const int64_t block = task % blocks_m, wn = task / blocks_m;
        const int64_t r = panels_m * block / blocks_m * s_.mr;
        const int64_t r_end = std::min(rows, panels_m * (block + 1) / blocks_m * s_.mr);
        const int64_t q_begin = panels_n * wn / cut_.workers_n, q_end = panels_n * (wn + 1) / cut_.workers_n;
        if (q_begin >= q_end || r >= r_end) continue;
        if (p == 0)
          take_addend(i + r, r_end - r, j + q_begin * s_.nr, std::min(cols, q_end * s_.nr) - q_begin * s_.nr);
        multiply_block(i, r, r_end - r, q_begin, q_end, cols, p, depth, a_block, to);
      }
      if (kernel_.end != nullptr) kernel_.end();
    });
  }

  // Copies the addend into a block of C just before its sums, so that it is still in the cache for them.
  void take_addend(int64_t i, int64_t rows, int64_t j, int64_t cols) {
    if (g_.addend == nullptr || g_.addend == g_.c) return;
    for (int64_t row = i; row < i + rows; ++row)
      std::memcpy(c(row, j), element(g_.addend, row * g_.ldc + j, g_.c_type),
                  static_cast<size_t>(cols * size_of(g_.c_type)));
  }

  void multiply_block(int64_t i, int64_t r, int64_t rows, int64_t q_begin, int64_t q_end, int64_t cols,
                      int64_t p, int64_t depth, std::byte* a_block, const Target& to) {
    const int64_t a_panel = panel_bytes(s_.mr, depth), b_panel = panel_bytes(s_.nr, depth);
    const int64_t k = round_up(depth, s_.k_step);
    for (int64_t t = 0; t * s_.mr < rows; ++t) {
      const int64_t row = i + r + t * s_.mr;
      const void* from = element(g_.a, g_.trans_a ? p * g_.lda + row : row * g_.lda + p, g_.a_type);
      kernel_.pack_a(from, g_.lda, !g_.trans_a, std::min<int64_t>(s_.mr, rows - t * s_.mr), depth,
                     a_block + t * a_panel);
    }
    for (int64_t q = q_begin; q < q_end; ++q)
      for (int64_t t = 0; t * s_.mr < rows; ++t)
        multiply_tile(k, a_block + t * a_panel, workspace_ + q * b_panel,
                      element(to.data, (r + t * s_.mr) * to.ld + q * s_.nr, to.type), to,
                      std::min<int64_t>(s_.mr, rows - t * s_.mr), std::min<int64_t>(s_.nr, cols - q * s_.nr));
  }

  void multiply_tile(int64_t k, const void* a, const void* b, void* c, const Target& to, int64_t rows,
                     int64_t cols) {
    if (is_narrow(to.type))
      narrow_tile(kernel_, k, a, b, static_cast<uint16_t*>(c), to.ld, rows, cols, to.add);
    else if (rows == s_.mr && cols == s_.nr)
      kernel_.tile(k, a, b, c, to.ld, to.add);
    else if (to.type == DType::F32)
      edge_tile(kernel_, k, a, b, static_cast<float*>(c), to.ld, rows, cols, to.add);
    else
      edge_tile(kernel_, k, a, b, static_cast<double*>(c), to.ld, rows, cols, to.add);
  }

  void finish_strip(int64_t i, int64_t rows, int64_t j, int64_t cols) {
    each(pool_, rows, [&](int64_t first, int64_t last) {
      kernel_.round(strip() + first * cut_.nc, cut_.nc, last - first, cols,
                    static_cast<uint16_t*>(c(i + first, j)), g_.ldc, adds());
    });
  }

  const GemmArgs& g_;
  const TileKernel& kernel_;
  const TileShape& s_;
  const Cut& cut_;
  std::byte* workspace_;
  device::ThreadPool* pool_;
};

void check(const GemmArgs& g) {
  const bool narrow = is_narrow(g.a_type);
  QUINTET_CHECK(g.m >= 0 && g.n >= 0 && g.k >= 0, "negative size of a GEMM: {} x {} x {}", g.m, g.n, g.k);
  QUINTET_CHECK((narrow || g.a_type == DType::F32 || g.a_type == DType::F64) && g.a_type == g.b_type &&
                    (g.c_type == g.a_type || (narrow && g.c_type == DType::F32)),
                "unsupported dtypes of a GEMM: {} x {} -> {}", to_string(g.a_type), to_string(g.b_type),
                to_string(g.c_type));
  QUINTET_CHECK(g.lda >= (g.trans_a ? g.m : g.k) && g.ldb >= (g.trans_b ? g.k : g.n) && g.ldc >= g.n,
                "leading dims {}, {}, {} are too small for a GEMM {} x {} x {}, transposes {} {}", g.lda,
                g.ldb, g.ldc, g.m, g.n, g.k, g.trans_a, g.trans_b);
}

void multiply(const GemmArgs& g, void* workspace, int64_t workspace_bytes, device::ThreadPool* pool) {
  check(g);
  if (g.m == 0 || g.n == 0) return;
  if (g.k == 0) {
    for (int64_t i = 0; i < g.m; ++i) {
      std::byte* row = element(g.c, i * g.ldc, g.c_type);
      const size_t bytes = static_cast<size_t>(g.n * size_of(g.c_type));
      if (g.addend != nullptr && g.addend != g.c)
        std::memcpy(row, element(g.addend, i * g.ldc, g.c_type), bytes);
      else if (g.addend == nullptr && !g.accumulate)
        std::memset(row, 0, bytes);
    }
    return;
  }
  const TileKernel& kernel = tile_kernel(g.a_type);
  const Cut cut(g.m, g.n, g.k, kernel.shape, g.c_type, pool == nullptr ? 1 : pool->threads());
  QUINTET_CHECK(cut.bytes <= workspace_bytes, "a GEMM {} x {} x {} of {} needs {} bytes of scratch, got {}",
                g.m, g.n, g.k, to_string(g.a_type), cut.bytes, workspace_bytes);
  QUINTET_CHECK(reinterpret_cast<uintptr_t>(workspace) % kLine == 0,
                "scratch at {} is not aligned to 64 bytes", workspace);
  GemmRun(g, kernel, cut, static_cast<std::byte*>(workspace), pool).run();
}

}  // namespace

int64_t gemm_workspace_bytes(int64_t m, int64_t n, int64_t k, DType ab_type, DType c_type, int threads) {
  if (m == 0 || n == 0 || k == 0) return 0;
  int64_t bytes = 0;
  for (GemmIsa isa : {GemmIsa::Portable, GemmIsa::Avx2, GemmIsa::Avx512, GemmIsa::Avx512Bf16, GemmIsa::Amx})
    bytes = std::max(bytes, Cut(m, n, k, tile_shape(isa, ab_type), c_type, threads).bytes);
  return bytes;
}

int64_t gemm_workspace_bound(int64_t m, int64_t n, int64_t k, DType ab_type, DType c_type, int threads) {
  int64_t bytes = 0;
  for (GemmIsa isa : {GemmIsa::Portable, GemmIsa::Avx2, GemmIsa::Avx512, GemmIsa::Avx512Bf16, GemmIsa::Amx}) {
    const TileShape s = tile_shape(isa, ab_type);
    const int64_t rows = std::min(round_up(m, s.mr), s.mc), cols = std::min(round_up(n, s.nr), s.nc),
                  depth = std::min(round_up(k, s.k_step), s.kc);
    int64_t need = round_up(cols * depth * s.packed_size, kLine) +
                   threads * round_up(rows * depth * s.packed_size, kLine);
    if (is_narrow(c_type) && k > s.kc)
      need += round_up(std::min(m, kStripRows) * std::min(cols, kStripCols) * int64_t{sizeof(float)}, kLine);
    bytes = std::max(bytes, need);
  }
  return bytes;
}

void gemm(const GemmArgs& args, void* workspace, int64_t workspace_bytes, device::ThreadPool& pool) {
  multiply(args, workspace, workspace_bytes, &pool);
}

void gemm_serial(const GemmArgs& args, void* workspace, int64_t workspace_bytes) {
  multiply(args, workspace, workspace_bytes, nullptr);
}

}  // namespace quintet::kernels
