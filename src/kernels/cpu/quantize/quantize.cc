#include "kernels/cpu/quantize/quantize.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/fp8.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/support/round_up.h"

namespace quintet::kernels::cpu {
namespace {

using base::Bf16;
using base::DType;
using base::E4M3;
using base::E5M2;

constexpr int64_t kTile = 32;  // rows and columns of a tile that is transposed in cache
constexpr int64_t kLine = 64;

// The arithmetic of x's type.
template <class X>
using Wide = std::conditional_t<std::is_same_v<X, double>, double, float>;

// A code of one byte, or a number of the format in its own type.
template <class Code, class T>
Code encode(T scaled, const base::FloatFormat& format) {
  if constexpr (sizeof(Code) == 1)
    return Code(scaled);
  else
    return base::round_to(scaled, format);
}
template <class Code>
bool is_zero(Code code) {
  if constexpr (sizeof(Code) == 1)
    return (code.bits & 0x7f) == 0;
  else
    return code == 0;
}

// Magnitudes are not negative, so their order is that of their bits, and NaN is above all.
struct Measured {
  uint64_t amax = 0;
  int64_t saturated = 0, zeroed = 0;
};

template <class X, class Code>
class Run {
 public:
  explicit Run(const QuantizeArgs& args)
      : args_(args),
        format_(base::format_of(args.format)),
        scale_(*static_cast<const Wide<X>*>(args.scale)) {}

  void operator()(device::ThreadPool& pool) {
    std::atomic<uint64_t> amax{0};
    std::atomic<int64_t> saturated{0}, zeroed{0};
    int64_t first = 0;
    for (const QuantizePart& part : args_.parts) {
      pool.parallel_for(0, part.rows, kTile, [&](int64_t begin, int64_t end, int) {
        Measured m;
        for (int64_t row = begin; row < end; row += kTile)
          for (int64_t column = 0; column < args_.columns; column += kTile)
            tile(part, first, row, std::min(row + kTile, end), column,
                 std::min(column + kTile, args_.columns), m);
        uint64_t seen = amax.load();
        while (seen < m.amax && !amax.compare_exchange_weak(seen, m.amax)) {
        }
        saturated += m.saturated;
        zeroed += m.zeroed;
      });
      first += part.rows;
    }
    if (args_.amax == nullptr) return;
    if (!args_.accumulate) *args_.amax = 0, std::fill_n(args_.rounded, 3, 0.0);
    const uint64_t before = std::bit_cast<uint64_t>(*args_.amax);
    *args_.amax = std::bit_cast<double>(std::max(before, amax.load()));
    args_.rounded[0] += static_cast<double>(args_.rows * args_.columns - args_.padding);
    args_.rounded[1] += static_cast<double>(saturated.load());
    args_.rounded[2] += static_cast<double>(zeroed.load());
  }

 private:
  void tile(const QuantizePart& part, int64_t first, int64_t row, int64_t row_end, int64_t column,
            int64_t column_end, Measured& m) const {
    const auto largest = static_cast<Wide<X>>(format_.largest);
    for (int64_t r = row; r < row_end; ++r) {
      const X* const x = static_cast<const X*>(part.x) + r * args_.columns;
      for (int64_t c = column; c < column_end; ++c) {
        const auto value = static_cast<Wide<X>>(x[c]), scaled = value * scale_;
        const Code code = encode<Code>(scaled, format_);
        if (args_.codes != nullptr) static_cast<Code*>(args_.codes)[(first + r) * args_.columns + c] = code;
        if (args_.transposed != nullptr)
          static_cast<Code*>(args_.transposed)[c * args_.rows + first + r] = code;
        if (args_.amax == nullptr) continue;
        m.amax = std::max(m.amax, std::bit_cast<uint64_t>(std::abs(static_cast<double>(value))));
        m.saturated += std::abs(scaled) > largest;
        m.zeroed += value != 0 && is_zero(code);
      }
    }
  }

  const QuantizeArgs& args_;
  const base::FloatFormat format_;
  const Wide<X> scale_;
};

// Blocks in both directions at once: a tile is block x block values, or less at the end of rows or columns
// that are not blocked.
template <class X, class Code>
class RunBlocks {
 public:
  using W = Wide<X>;
  explicit RunBlocks(const QuantizeBlocksArgs& args) : args_(args), format_(base::format_of(args.format)) {}

  void operator()(device::ThreadPool& pool) {
    std::atomic<int64_t> zeroed{0};
    int64_t first = 0;
    for (const QuantizePart& part : args_.parts) {
      pool.parallel_for(0, (part.rows + args_.block - 1) / args_.block, 1,
                        [&](int64_t begin, int64_t end, int) {
                          Tile tile(args_.block);
                          int64_t here = 0;
                          for (int64_t at = begin; at < end; ++at)
                            for (int64_t column = 0; column < args_.columns; column += args_.block)
                              here += write(part, first, at * args_.block, column, tile);
                          zeroed += here;
                        });
      first += part.rows;
    }
    if (args_.rounded == nullptr) return;
    if (!args_.accumulate) std::fill_n(args_.rounded, 3, 0.0);
    args_.rounded[0] += static_cast<double>(args_.rows * args_.columns - args_.padding);
    args_.rounded[2] += static_cast<double>(zeroed.load());
  }

 private:
  struct Tile {
    explicit Tile(int64_t block) : by_row(static_cast<size_t>(block)), by_column(by_row) {}
    std::vector<W> by_row, by_column;  // largest magnitudes, then scales
  };

  // The scale of a block, from its largest magnitude; its reciprocal is exact.
  W scale_of(W amax) const {
    if (!std::isfinite(amax)) return std::numeric_limits<W>::quiet_NaN();
    if (amax == 0) return 1;
    return std::ldexp(W{1}, block_scale_exponent(static_cast<double>(amax), format_.largest));
  }
  // NaN stays.
  static void raise(W& most, W magnitude) {
    if (!(magnitude <= most) && !std::isnan(most)) most = magnitude;
  }

  // Returns how many values became 0.
  int64_t write(const QuantizePart& part, int64_t first, int64_t row, int64_t column, Tile& tile) const {
    const int64_t rows = std::min(args_.block, part.rows - row),
                  columns = std::min(args_.block, args_.columns - column);
    std::fill(tile.by_row.begin(), tile.by_row.end(), W{0});
    std::fill(tile.by_column.begin(), tile.by_column.end(), W{0});
    const auto at = [&](int64_t r, int64_t c) {
      return static_cast<W>(static_cast<const X*>(part.x)[(row + r) * args_.columns + column + c]);
    };
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const W magnitude = std::abs(at(r, c));
        raise(tile.by_row[static_cast<size_t>(r)], magnitude);
        raise(tile.by_column[static_cast<size_t>(c)], magnitude);
      }
    if (args_.square) {
      W most = 0;
      for (const W m : tile.by_row) raise(most, m);
      std::fill(tile.by_row.begin(), tile.by_row.end(), most);
      std::fill(tile.by_column.begin(), tile.by_column.end(), most);
    }
    for (W& m : tile.by_row) m = scale_of(m);
    for (W& m : tile.by_column) m = scale_of(m);
    write_factors(first + row, rows, column, columns, tile);
    int64_t zeroed = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        const W value = at(r, c);
        const auto code = [&](const std::vector<W>& scales, int64_t i) {
          return encode<Code>(static_cast<W>(value * scales[static_cast<size_t>(i)]), format_);
        };
        const int64_t to_row = first + row + r, to_column = column + c;
        Code plain{};
        if (args_.codes != nullptr)
          plain = static_cast<Code*>(args_.codes)[to_row * args_.columns + to_column] = code(tile.by_row, r);
        if (args_.transposed != nullptr) {
          const Code turned = code(tile.by_column, c);
          static_cast<Code*>(args_.transposed)[to_column * args_.rows + to_row] = turned;
          if (args_.codes == nullptr) plain = turned;
        }
        zeroed += value != 0 && is_zero(plain);
      }
    return zeroed;
  }

  void write_factors(int64_t row, int64_t rows, int64_t column, int64_t columns, const Tile& tile) const {
    const int64_t row_block = row / args_.block, column_block = column / args_.block;
    auto *const factors = static_cast<W*>(args_.factors), *const transposed =
                                                              static_cast<W*>(args_.transposed_factors);
    if (args_.square) {
      const W factor = 1 / tile.by_row[0];
      if (factors != nullptr) factors[row_block * (args_.columns / args_.block) + column_block] = factor;
      if (transposed != nullptr) transposed[column_block * (args_.rows / args_.block) + row_block] = factor;
      return;
    }
    for (int64_t r = 0; r < rows && factors != nullptr; ++r)
      factors[column_block * args_.rows + row + r] = 1 / tile.by_row[static_cast<size_t>(r)];
    for (int64_t c = 0; c < columns && transposed != nullptr; ++c)
      transposed[row_block * args_.columns + column + c] = 1 / tile.by_column[static_cast<size_t>(c)];
  }

  const QuantizeBlocksArgs& args_;
  const base::FloatFormat format_;
};

// Decodes rows of k codes: to[row, i] = code x the factor of (row, i), which `factor_of` returns for all i of
// a run of `run` codes.
template <class Code, class Out, class FactorOf>
void decode(const Code* codes, int64_t rows, int64_t k, int64_t run, const FactorOf& factor_of, Out* to,
            device::ThreadPool& pool) {
  if (k == 0) return;
  pool.parallel_for(0, rows, std::max<int64_t>(1, 4096 / k), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t first = 0; first < k; first += run) {
        const Wide<Out> factor = factor_of(row, first);
        const int64_t last = row * k + std::min(first + run, k);
        for (int64_t i = row * k + first; i < last; ++i)
          to[i] = static_cast<Out>(static_cast<Wide<Out>>(codes[i]) * factor);
      }
  });
}

template <class Out, class FactorOf>
void decode_any(const void* codes, DType type, int64_t rows, int64_t k, int64_t run,
                const FactorOf& factor_of, Out* to, device::ThreadPool& pool) {
  if constexpr (std::is_same_v<Out, Bf16>) {
    if (type == DType::E4M3)
      decode(static_cast<const E4M3*>(codes), rows, k, run, factor_of, to, pool);
    else
      decode(static_cast<const E5M2*>(codes), rows, k, run, factor_of, to, pool);
  } else {
    decode(static_cast<const Out*>(codes), rows, k, run, factor_of, to, pool);
  }
}

// The operands of a GEMM as numbers of type T.
template <class T>
void decode_operands(const ScaledGemmArgs& g, T* a, T* b, device::ThreadPool& pool) {
  const auto *const fa = static_cast<const Wide<T>*>(g.a_factor), *const fb =
                                                                      static_cast<const Wide<T>*>(g.b_factor);
  if (g.block == 0) {
    decode_any(
        g.a, g.a_type, g.m, g.k, g.k, [&](int64_t, int64_t) { return *fa; }, a, pool);
    decode_any(
        g.b, g.b_type, g.n, g.k, g.k, [&](int64_t, int64_t) { return *fb; }, b, pool);
    return;
  }
  const int64_t block = g.block, blocks = g.k / block;
  const auto of_a = [&](int64_t row, int64_t i) { return fa[i / block * g.a_stride + row]; };
  decode_any(g.a, g.a_type, g.m, g.k, block, of_a, a, pool);
  const auto of_b = [&](int64_t row, int64_t i) {
    return fb[g.square_b ? row / block * blocks + i / block : i / block * g.n + row];
  };
  decode_any(g.b, g.b_type, g.n, g.k, block, of_b, b, pool);
}

DType decoded_type(DType codes) { return base::is_fp8(codes) ? DType::BF16 : codes; }

struct Decoded {
  DType type;
  int64_t b, gemm;  // where the decoded b and the scratch of the GEMM begin
};
Decoded decoded(const ScaledGemmArgs& g) {
  const DType type = decoded_type(g.a_type);
  const int64_t a = round_up(g.m * g.k * base::size_of(type), kLine),
                b = round_up(g.n * g.k * base::size_of(type), kLine);
  return {type, a, a + b};
}

}  // namespace

void quantize(const QuantizeArgs& args, device::ThreadPool& pool) {
  switch (args.type) {
    case DType::BF16:
      if (args.format == DType::E4M3) return Run<Bf16, E4M3>(args)(pool);
      return Run<Bf16, E5M2>(args)(pool);
    case DType::F32:
      return Run<float, float>(args)(pool);
    case DType::F64:
      return Run<double, double>(args)(pool);
    default:
      base::fail_internal("no quantisation of {}", base::to_string(args.type));
  }
}

void quantize_blocks(const QuantizeBlocksArgs& args, device::ThreadPool& pool) {
  switch (args.type) {
    case DType::BF16:
      if (args.format == DType::E4M3) return RunBlocks<Bf16, E4M3>(args)(pool);
      return RunBlocks<Bf16, E5M2>(args)(pool);
    case DType::F32:
      return RunBlocks<float, float>(args)(pool);
    case DType::F64:
      return RunBlocks<double, double>(args)(pool);
    default:
      base::fail_internal("no quantisation of {}", base::to_string(args.type));
  }
}

int64_t scaled_gemm_workspace_bytes(const ScaledGemmArgs& g, int threads) {
  const Decoded d = decoded(g);
  return d.gemm + gemm_workspace_bytes(g.m, g.n, g.k, d.type, g.c_type, threads);
}

void scaled_gemm(const ScaledGemmArgs& g, void* workspace, int64_t workspace_bytes,
                 device::ThreadPool& pool) {
  const Decoded d = decoded(g);
  auto* const base = static_cast<std::byte*>(workspace);
  const auto run = [&]<class T>(T) {
    T *const a = reinterpret_cast<T*>(base), *const b = reinterpret_cast<T*>(base + d.b);
    decode_operands(g, a, b, pool);
    gemm({.trans_b = true,
          .m = g.m,
          .n = g.n,
          .k = g.k,
          .a = a,
          .lda = g.k,
          .b = b,
          .ldb = g.k,
          .c = g.c,
          .ldc = g.n,
          .a_type = d.type,
          .b_type = d.type,
          .c_type = g.c_type,
          .accumulate = g.accumulate,
          .addend = g.addend},
         base + d.gemm, workspace_bytes - d.gemm, pool);
  };
  if (d.type == DType::BF16)
    run(Bf16());
  else if (d.type == DType::F32)
    run(float());
  else
    run(double());
}

template <class T>
void delayed_scales(const double* history, int64_t length, std::span<const double> largest,
                    std::span<const double> initial, int64_t stride, T* scales) {
  const auto n = static_cast<int64_t>(largest.size());
  std::fill_n(scales, 2 * n * stride, T{0});
  for (int64_t s = 0; s < n; ++s) {
    const double amax = *std::max_element(history + s * length, history + (s + 1) * length);
    double scale = initial[static_cast<size_t>(s)];
    if (amax > 0) {
      // Scale and reciprocal are normal numbers of f32 as well.
      const int power = std::clamp(std::ilogb(largest[static_cast<size_t>(s)] / amax), -126, 126);
      scale = std::ldexp(1.0, power);
    }
    scales[s * stride] = static_cast<T>(scale);
    scales[(n + s) * stride] = static_cast<T>(1 / scale);
  }
}
template void delayed_scales<float>(const double*, int64_t, std::span<const double>, std::span<const double>,
                                    int64_t, float*);
template void delayed_scales<double>(const double*, int64_t, std::span<const double>, std::span<const double>,
                                     int64_t, double*);

void record_amax(const double* amax, std::span<const int64_t> rows, int64_t slot, int64_t length,
                 int64_t num_rows, double* history) {
  for (int64_t r = 0; r < num_rows; ++r) {
    double largest = 0;
    bool finite = true;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] != r) continue;
      finite = finite && std::isfinite(amax[i]);
      largest = std::max(largest, amax[i]);
    }
    history[r * length + slot] = finite ? largest : 0;
  }
}

}  // namespace quintet::kernels::cpu
