#include "kernels/cpu/matmul/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/f16.h"
#include "base/philox.h"

namespace quintet::kernels {
namespace {

using base::Bf16;
using base::DType;
using base::F16;
using device::ThreadPool;

struct AlignedFree {
  void operator()(std::byte* p) const { std::free(p); }
};

struct Types {
  DType ab, c;
};
constexpr Types kTypes[] = {{DType::F64, DType::F64},   {DType::F32, DType::F32}, {DType::BF16, DType::F32},
                            {DType::BF16, DType::BF16}, {DType::F16, DType::F32}, {DType::F16, DType::F16}};

struct Case {
  int64_t m, n, k;
  bool trans_a = false, trans_b = false, accumulate = false;
  int64_t pad = 0;  // Added to each leading dim.
};

double read(const std::vector<std::byte>& data, DType type, int64_t i) {
  const std::byte* p = data.data() + i * size_of(type);
  if (type == DType::F64) return *reinterpret_cast<const double*>(p);
  if (type == DType::F32) return *reinterpret_cast<const float*>(p);
  if (type == DType::F16) return static_cast<float>(*reinterpret_cast<const F16*>(p));
  return static_cast<float>(*reinterpret_cast<const Bf16*>(p));
}

void write(std::vector<std::byte>& data, DType type, int64_t i, double value) {
  std::byte* p = data.data() + i * size_of(type);
  if (type == DType::F64)
    *reinterpret_cast<double*>(p) = value;
  else if (type == DType::F32)
    *reinterpret_cast<float*>(p) = static_cast<float>(value);
  else if (type == DType::F16)
    *reinterpret_cast<F16*>(p) = F16(static_cast<float>(value));
  else
    *reinterpret_cast<Bf16*>(p) = Bf16(static_cast<float>(value));
}

// Distance from 1 to the nearest number that rounds away from it.
double unit_roundoff(DType type) {
  return type == DType::F64 ? 0x1p-53 : type == DType::F32 ? 0x1p-24 : type == DType::F16 ? 0x1p-11 : 0x1p-8;
}

// A GEMM with random operands. Matrices fill their storage exactly, so that a sanitizer sees reads past the
// last row.
struct Problem {
  Case shape;
  Types types;
  GemmArgs args;
  std::vector<std::byte> a, b, c;

  Problem(Case s, Types t) : shape(s), types(t) {
    const int64_t rows_a = s.trans_a ? s.k : s.m, cols_a = s.trans_a ? s.m : s.k;
    const int64_t rows_b = s.trans_b ? s.n : s.k, cols_b = s.trans_b ? s.k : s.n;
    args = {.trans_a = s.trans_a, .trans_b = s.trans_b, .m = s.m, .n = s.n, .k = s.k};
    args.lda = cols_a + s.pad, args.ldb = cols_b + s.pad, args.ldc = s.n + s.pad;
    args.a_type = args.b_type = t.ab, args.c_type = t.c, args.accumulate = s.accumulate;
    a = random("a", rows_a, cols_a, args.lda, t.ab);
    b = random("b", rows_b, cols_b, args.ldb, t.ab);
    c = random("c", s.m, s.n, args.ldc, t.c);
    args.a = a.data(), args.b = b.data();
  }

  // Padding between rows is NaN: reading it spoils the result.
  static std::vector<std::byte> random(std::string_view name, int64_t rows, int64_t cols, int64_t ld,
                                       DType type) {
    const int64_t count = rows == 0 || cols == 0 ? 0 : (rows - 1) * ld + cols;
    std::vector<std::byte> out(static_cast<size_t>(count * size_of(type)));
    const uint64_t key = base::stream_key(1, name);
    for (int64_t i = 0; i < count; ++i)
      write(out, type, i,
            i % ld < cols ? 2 * base::uniform(key, static_cast<uint64_t>(i)) - 1
                          : std::numeric_limits<double>::quiet_NaN());
    return out;
  }

  // Runs with scratch of the stated size between guard bytes, and returns C. threads == 0: gemm_serial.
  std::vector<std::byte> run(int threads) const {
    const int64_t bytes =
        gemm_workspace_bytes(shape.m, shape.n, shape.k, types.ab, types.c, threads == 0 ? 1 : threads);
    constexpr int64_t kGuard = 256;
    std::unique_ptr<std::byte, AlignedFree> memory(static_cast<std::byte*>(
        std::aligned_alloc(64, static_cast<size_t>((bytes + 2 * kGuard + 63) / 64 * 64))));
    // 0xff is NaN in every type, which exposes scratch that is read before it is written.
    std::memset(memory.get(), 0xff, static_cast<size_t>(bytes + 2 * kGuard));
    std::vector<std::byte> out = c;
    GemmArgs g = args;
    g.c = out.data();
    if (threads == 0) {
      gemm_serial(g, memory.get() + kGuard, bytes);
    } else {
      ThreadPool pool(threads);
      gemm(g, memory.get() + kGuard, bytes, pool);
    }
    for (int64_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(memory.get()[i], std::byte{0xff}) << "wrote before the workspace";
      EXPECT_EQ(memory.get()[kGuard + bytes + i], std::byte{0xff})
          << "wrote beyond the workspace, byte " << i;
    }
    return out;
  }

  std::string name() const {
    return fmt::format("{} {}x{}x{} {}{}{} pad {} {}->{}", to_string(gemm_isa()), shape.m, shape.n, shape.k,
                       shape.trans_a ? "T" : "N", shape.trans_b ? "T" : "N", shape.accumulate ? " +=" : "",
                       shape.pad, to_string(types.ab), to_string(types.c));
  }

  // Each element against an 80-bit sum. With unit roundoff u of the sums, a sum of k products in any order,
  // plus C, has an error of at most (k + 2) u / (1 - (k + 2) u) times the sum of magnitudes; rounding to C's
  // type adds its roundoff.
  void check(const std::vector<std::byte>& out) const {
    const double u = unit_roundoff(accumulator_of(types.ab)), gamma = (double(shape.k) + 2) * u;
    ASSERT_LT(gamma, 0.1);
    for (int64_t i = 0; i < shape.m; ++i)
      for (int64_t j = 0; j < shape.n; ++j) {
        long double sum = 0, magnitude = 0;
        if (shape.accumulate) sum = read(c, types.c, i * args.ldc + j), magnitude = std::fabs(sum);
        for (int64_t p = 0; p < shape.k; ++p) {
          const long double x = read(a, types.ab, shape.trans_a ? p * args.lda + i : i * args.lda + p);
          const long double y = read(b, types.ab, shape.trans_b ? j * args.ldb + p : p * args.ldb + j);
          sum += x * y, magnitude += std::fabs(x * y);
        }
        const double error = static_cast<double>(magnitude) * gamma / (1 - gamma);
        const double bound = error + unit_roundoff(types.c) * (std::fabs(double(sum)) + error) +
                             (types.c == DType::F16 ? 0x1p-25 : 1e-37);
        const double got = read(out, types.c, i * args.ldc + j);
        ASSERT_LE(std::fabs(got - double(sum)), bound) << name() << " at (" << i << ", " << j << "): " << got;
      }
    for (int64_t i = 0; i + 1 < shape.m; ++i)
      for (int64_t j = shape.n; j < args.ldc; ++j)
        ASSERT_TRUE(std::isnan(read(out, types.c, i * args.ldc + j)))
            << name() << ": wrote between rows of C";
  }
};

// Runs a test once per instruction set of this machine.
class Gemm : public testing::TestWithParam<GemmIsa> {
 protected:
  void SetUp() override { set_gemm_isa(GetParam()); }
  void TearDown() override { set_gemm_isa(gemm_isas().back()); }
};

INSTANTIATE_TEST_SUITE_P(Isa, Gemm, testing::ValuesIn(gemm_isas()), [](const auto& info) {
  std::string name(to_string(info.param));
  for (char& ch : name)
    if (ch == '-') ch = '_';
  return name;
});

TEST_P(Gemm, MatchesTheReferenceInEveryTransposeAndType) {
  // Around the edges of the tiles (4, 6, 14, 16, 32) and over several blocks of k.
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 33, 2},   {15, 1, 3},    {14, 32, 64},
                              {13, 31, 17},  {33, 65, 31}, {28, 64, 33},  {29, 47, 95},
                              {64, 96, 513}, {5, 7, 1100}, {70, 130, 257}};
  for (const auto& [m, n, k] : sizes)
    for (int bits = 0; bits < 8; ++bits)
      for (Types types : kTypes) {
        const Problem problem({m, n, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, bits % 3}, types);
        problem.check(problem.run(0));
        if (HasFatalFailure()) return;
      }
}

TEST_P(Gemm, MatchesTheReferenceOnRandomShapes) {
  const uint64_t key = base::stream_key(7, "shapes");
  for (uint64_t i = 0; i < 40; ++i) {
    const auto r = base::philox(key, i);
    const Case shape{1 + r[0] % 100,  1 + r[1] % 150,  1 + r[2] % 700, (r[3] & 1) != 0,
                     (r[3] & 2) != 0, (r[3] & 4) != 0, r[3] / 8 % 5};
    const Problem problem(shape, kTypes[i % std::size(kTypes)]);
    problem.check(problem.run(1 + static_cast<int>(i % 3)));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Gemm, MatchesTheReferenceOverSeveralBlocks) {
  // m larger than a thread's block and than the bf16 strip, n larger than the strip, several blocks of k.
  for (Types types : kTypes) {
    const Problem tall({2085, 3, 530, false, true}, types), wide({3, 4200, 40, true, false, true}, types);
    tall.check(tall.run(2));
    wide.check(wide.run(2));
    const Problem strip({20, 550, 1050, false, false, true}, types);
    strip.check(strip.run(3));
    if (HasFatalFailure()) return;
  }
}

TEST_P(Gemm, SameBitsForAnyNumberOfThreads) {
  const Case shapes[] = {{100, 70, 600, false, true},
                         {64, 512, 96, true, false, true},
                         {3, 300, 1100, false, false},
                         {300, 5, 700, true, true, true},
                         {1, 1, 5},
                         {2100, 33, 1030, false, true}};
  for (const Case& shape : shapes)
    for (Types types : kTypes) {
      const Problem problem(shape, types);
      const std::vector<std::byte> one = problem.run(1);
      EXPECT_TRUE(one == problem.run(0)) << problem.name() << ": serial";
      for (int threads : {2, 3, 7})
        EXPECT_TRUE(one == problem.run(threads)) << problem.name() << ": " << threads;
    }
}

TEST_P(Gemm, AnElementDoesNotDependOnItsSurroundings) {
  for (Types types : kTypes)
    for (bool accumulate : {false, true}) {
      const Problem whole({61, 75, 1090, false, true, accumulate}, types);
      const std::vector<std::byte> all = whole.run(2);
      // Rows 17.. and columns 9.. alone.
      Problem part = whole;
      const int64_t first_row = 17, first_col = 9;
      part.shape.m = part.args.m = 30, part.shape.n = part.args.n = 41;
      part.args.a = whole.a.data() + first_row * whole.args.lda * size_of(types.ab);
      part.args.b = whole.b.data() + first_col * whole.args.ldb * size_of(types.ab);
      const int64_t corner = first_row * whole.args.ldc + first_col;
      part.c.erase(part.c.begin(), part.c.begin() + corner * size_of(types.c));
      const std::vector<std::byte> some = part.run(1);
      for (int64_t i = 0; i < part.shape.m; ++i)
        EXPECT_EQ(std::memcmp(all.data() + (corner + i * whole.args.ldc) * size_of(types.c),
                              some.data() + i * part.args.ldc * size_of(types.c),
                              static_cast<size_t>(part.shape.n * size_of(types.c))),
                  0)
            << whole.name() << " row " << i;
    }
}

// A separate addend gives the bits of a C that held it; C's own content does not matter, and padding is left
// unchanged.
TEST_P(Gemm, AnAddendIsAddedAsIfCHadHeldIt) {
  const Case shapes[] = {{100, 70, 600, false, true, true}, {30, 40, 0, false, false, true},
                         {64, 2100, 96, true, false, true}, {300, 33, 1100, false, true, true, 3},
                         {1, 1, 5, false, false, true},     {460, 512, 512, false, true, true}};
  for (const Case& shape : shapes)
    for (Types types : kTypes) {
      const Problem held(shape, types);
      Problem apart = held;
      apart.args.accumulate = false;
      apart.args.addend = held.c.data();
      const double nan = std::numeric_limits<double>::quiet_NaN();
      for (int64_t i = 0; i < shape.m; ++i)
        for (int64_t j = 0; j < shape.n; ++j) write(apart.c, types.c, i * apart.args.ldc + j, nan);
      for (int threads : {0, 1, 3})
        EXPECT_TRUE(held.run(1) == apart.run(threads)) << held.name() << ": " << threads;
    }
}

TEST_P(Gemm, EmptySizes) {
  for (Types types : kTypes)
    for (bool accumulate : {false, true}) {
      const Problem no_rows({0, 5, 3, false, false, accumulate}, types),
          no_cols({5, 0, 3, false, true, accumulate}, types);
      EXPECT_TRUE(no_rows.run(2) == no_rows.c);
      EXPECT_TRUE(no_cols.run(2) == no_cols.c);
      const Problem no_sum({3, 5, 0, false, false, accumulate, 2}, types);
      no_sum.check(no_sum.run(2));
    }
}

TEST_P(Gemm, InfinityAndNanReachOnlyTheirRow) {
  for (Types types : kTypes) {
    Problem problem({20, 40, 37, false, true}, types);
    write(problem.a, types.ab, 3 * problem.args.lda + 36, std::numeric_limits<double>::infinity());
    write(problem.a, types.ab, 5 * problem.args.lda, std::numeric_limits<double>::quiet_NaN());
    const std::vector<std::byte> out = problem.run(1);
    for (int64_t i = 0; i < 20; ++i)
      for (int64_t j = 0; j < 40; ++j) {
        const double value = read(out, types.c, i * problem.args.ldc + j);
        EXPECT_EQ(std::isinf(value), i == 3) << problem.name() << " at " << i << ", " << j;
        EXPECT_EQ(std::isnan(value), i == 5) << problem.name() << " at " << i << ", " << j;
      }
  }
}

TEST_P(Gemm, Bf16ResultIsTheRoundedF32Result) {
  const Case shape{40, 50, 300, false, true};
  const Problem wide(shape, {DType::BF16, DType::F32}), narrow(shape, {DType::BF16, DType::BF16});
  const std::vector<std::byte> f32 = wide.run(1), bf16 = narrow.run(1);
  for (int64_t i = 0; i < 40 * 50; ++i)
    ASSERT_EQ(reinterpret_cast<const Bf16*>(bf16.data())[i].bits,
              Bf16(reinterpret_cast<const float*>(f32.data())[i]).bits);
}

TEST_P(Gemm, F16ResultIsTheRoundedF32Result) {
  const Case shape{40, 50, 300, false, true};
  const Problem wide(shape, {DType::F16, DType::F32}), narrow(shape, {DType::F16, DType::F16});
  const std::vector<std::byte> f32 = wide.run(1), f16 = narrow.run(1);
  for (int64_t i = 0; i < 40 * 50; ++i)
    ASSERT_EQ(reinterpret_cast<const F16*>(f16.data())[i].bits,
              F16(reinterpret_cast<const float*>(f32.data())[i]).bits);
}

TEST(GemmContract, RefusesWhatItCannotDo) {
  const Problem good({4, 5, 6}, {DType::F32, DType::F32});
  ThreadPool pool(1);
  alignas(64) static std::byte memory[1 << 16];
  std::vector<std::byte> c = good.c;
  GemmArgs g = good.args;
  g.c = c.data();
  const int64_t bytes = gemm_workspace_bytes(4, 5, 6, DType::F32, 1);
  ASSERT_LE(bytes + 1, int64_t{sizeof(memory)});
  EXPECT_NO_THROW(gemm(g, memory, bytes, pool));
  EXPECT_THROW(gemm(g, memory, 0, pool), base::InternalError);
  EXPECT_THROW(gemm(g, memory + 1, bytes, pool), base::InternalError);
  GemmArgs bad = g;
  bad.lda = 5;
  EXPECT_THROW(gemm(bad, memory, bytes, pool), base::InternalError);
  bad = g, bad.b_type = DType::F64;
  EXPECT_THROW(gemm(bad, memory, bytes, pool), base::InternalError);
  bad = g, bad.c_type = DType::BF16;
  EXPECT_THROW(gemm(bad, memory, bytes, pool), base::InternalError);
  bad = g, bad.n = -1;
  EXPECT_THROW(gemm(bad, memory, bytes, pool), base::InternalError);
}

TEST(GemmContract, WorkspaceStaysSmallerThanTheOperands) {
  // A vocabulary projection must not need a copy of its weight.
  EXPECT_LT(gemm_workspace_bytes(4096, 32000, 512, DType::F32, 2), int64_t{8} << 20);
  EXPECT_LT(gemm_workspace_bytes(4096, 512, 32000, DType::BF16, 2), int64_t{8} << 20);
  EXPECT_EQ(gemm_workspace_bytes(0, 10, 10, DType::F32, 2), 0);
}

}  // namespace
}  // namespace quintet::kernels
