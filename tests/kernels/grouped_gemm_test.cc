#include "kernels/cpu/matmul/grouped_gemm.h"

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

using base::DType;

template <class T>
constexpr DType kType = base::DTypeOf<T>::value;

struct Case {
  const char* name;
  int64_t rows, experts, out, in, sources;
  std::vector<int32_t> received;
};

std::vector<Case> cases() {
  return {{"even", 40, 4, 24, 17, 1, {8, 8, 8, 8}},
          {"uneven, with empty experts", 40, 5, 33, 40, 1, {0, 1, 30, 0, 4}},
          {"all rows at one expert", 64, 4, 20, 9, 1, {0, 0, 64, 0}},
          {"no rows", 16, 3, 20, 9, 1, {0, 0, 0}},
          {"no room", 0, 3, 20, 9, 1, {0, 0, 0}},
          {"three sources", 50, 3, 19, 21, 3, {1, 0, 7, 2, 0, 9, 0, 0, 20}},
          {"one large expert", 320, 3, 256, 160, 1, {8, 300, 5}},
          {"long sums", 40, 2, 24, 1100, 1, {23, 9}},
          {"more experts than rows", 9, 20, 8, 8, 1, {0, 0, 1, 0, 0, 2, 0, 0, 1, 0,
                                                      0, 0, 1, 0, 0, 0, 0, 0, 3, 0}}};
}

int64_t rows_of(const Case& c, int64_t expert) {
  int64_t rows = 0;
  for (int64_t s = 0; s < c.sources; ++s) rows += c.received[static_cast<size_t>(s * c.experts + expert)];
  return rows;
}
int64_t total(const Case& c) { return std::accumulate(c.received.begin(), c.received.end(), int64_t{0}); }

// Random values in the first `used`, NaN after them.
template <class T>
Buffer<T> poisoned(int64_t used, int64_t count, uint64_t seed) {
  std::vector<double> v = random_values<T>(used, seed);
  v.resize(static_cast<size_t>(count), std::nan(""));
  return Buffer<T>(v);
}

template <class T, class C>
struct Problem {
  const Case& c;
  Buffer<T> x, dy, w;
  Buffer<T> y, dx;
  Buffer<C> dw;

  explicit Problem(const Case& k)
      : c(k),
        x(poisoned<T>(total(k) * k.in, k.rows * k.in, 1)),
        dy(poisoned<T>(total(k) * k.out, k.rows * k.out, 2)),
        w(random_values<T>(k.experts * k.out * k.in, 3)),
        y(k.rows * k.out),
        dx(k.rows * k.in),
        dw(random_values<C>(k.experts * k.out * k.in, 4)) {}

  GroupedArgs args() const {
    return {.rows = c.rows,
            .experts = c.experts,
            .out = c.out,
            .in = c.in,
            .sources = c.sources,
            .received = c.received.data(),
            .type = kType<T>,
            .c_type = kType<T>};
  }

  void grouped(ThreadPool& pool, bool accumulate) {
    GroupedArgs g = args();
    int64_t bytes = grouped_workspace_bytes(g, pool.threads());
    g.c_type = kType<C>;
    bytes = std::max(bytes, grouped_workspace_bytes(g, pool.threads()));
    Buffer<uint8_t> workspace(bytes);
    g.c_type = kType<T>;
    g.a = x.data(), g.b = w.data(), g.c = y.data();
    grouped_linear(g, workspace.data(), bytes, pool);
    g.a = dy.data(), g.c = dx.data();
    grouped_linear_dx(g, workspace.data(), bytes, pool);
    g.b = x.data(), g.c = dw.data(), g.c_type = kType<C>, g.accumulate = accumulate;
    grouped_linear_dw(g, workspace.data(), bytes, pool);
  }

  // One GEMM per expert.
  void reference(bool accumulate) {
    int64_t first = 0;
    for (int64_t e = 0; e < c.experts; ++e) {
      const int64_t n = rows_of(c, e), weight = e * c.out * c.in;
      GemmArgs p{.trans_b = true,
                 .m = n,
                 .n = c.out,
                 .k = c.in,
                 .a = x.data() + first * c.in,
                 .lda = c.in,
                 .b = w.data() + weight,
                 .ldb = c.in,
                 .c = y.data() + first * c.out,
                 .ldc = c.out,
                 .a_type = kType<T>,
                 .b_type = kType<T>,
                 .c_type = kType<T>};
      multiply(p);
      p = {.m = n,
           .n = c.in,
           .k = c.out,
           .a = dy.data() + first * c.out,
           .lda = c.out,
           .b = w.data() + weight,
           .ldb = c.in,
           .c = dx.data() + first * c.in,
           .ldc = c.in,
           .a_type = kType<T>,
           .b_type = kType<T>,
           .c_type = kType<T>};
      multiply(p);
      p = {.trans_a = true,
           .m = c.out,
           .n = c.in,
           .k = n,
           .a = dy.data() + first * c.out,
           .lda = c.out,
           .b = x.data() + first * c.in,
           .ldb = c.in,
           .c = dw.data() + weight,
           .ldc = c.in,
           .a_type = kType<T>,
           .b_type = kType<T>,
           .c_type = kType<C>,
           .accumulate = accumulate};
      multiply(p);
      first += n;
    }
  }

  static void multiply(const GemmArgs& p) {
    const int64_t bytes = gemm_workspace_bytes(p.m, p.n, p.k, p.a_type, p.c_type, 1);
    Buffer<uint8_t> workspace(bytes);
    gemm_serial(p, workspace.data(), bytes);
  }
};

template <class T, class C>
void compare_with_products() {
  for (const GemmIsa isa : gemm_isas()) {
    set_gemm_isa(isa);
    for (const Case& c : cases())
      for (const bool accumulate : {false, true})
        for (const int threads : {1, 2, 5}) {
          SCOPED_TRACE(testing::Message() << to_string(isa) << ", " << c.name << ", " << threads
                                          << " threads, accumulate " << accumulate);
          ThreadPool pool(threads);
          Problem<T, C> got(c), expected(c);
          got.grouped(pool, accumulate);
          expected.reference(accumulate);
          // Rows past the counts keep their contents: both start from the same bytes.
          EXPECT_TRUE(got.y.bytes() == expected.y.bytes()) << "y";
          EXPECT_TRUE(got.dx.bytes() == expected.dx.bytes()) << "dx";
          EXPECT_TRUE(got.dw.bytes() == expected.dw.bytes()) << "dw";
        }
  }
  set_gemm_isa(gemm_isas().back());
}

TEST(GroupedGemm, MatchesOneGemmPerExpertF64) { compare_with_products<double, double>(); }
TEST(GroupedGemm, MatchesOneGemmPerExpertF32) { compare_with_products<float, float>(); }
TEST(GroupedGemm, MatchesOneGemmPerExpertBf16) { compare_with_products<Bf16, float>(); }
TEST(GroupedGemm, MatchesOneGemmPerExpertF16) { compare_with_products<F16, float>(); }

// Against explicit sums, so that a mistake in both drivers is found.
TEST(GroupedGemm, MatchesSums) {
  const Case c = {"", 12, 3, 4, 5, 2, {1, 0, 2, 3, 0, 1}};
  Problem<double, double> p(c);
  ThreadPool pool(2);
  p.grouped(pool, false);
  const std::vector<int64_t> expert_of = {0, 0, 0, 0, 2, 2, 2};
  std::vector<double> dw(static_cast<size_t>(c.experts * c.out * c.in), 0.0);
  for (int64_t r = 0; r < static_cast<int64_t>(expert_of.size()); ++r) {
    const int64_t w = expert_of[static_cast<size_t>(r)] * c.out * c.in;
    for (int64_t o = 0; o < c.out; ++o) {
      double y = 0;
      for (int64_t i = 0; i < c.in; ++i) {
        y += p.x[r * c.in + i] * p.w[w + o * c.in + i];
        dw[static_cast<size_t>(w + o * c.in + i)] += p.dy[r * c.out + o] * p.x[r * c.in + i];
      }
      EXPECT_NEAR(p.y[r * c.out + o], y, 1e-13);
    }
    for (int64_t i = 0; i < c.in; ++i) {
      double dx = 0;
      for (int64_t o = 0; o < c.out; ++o) dx += p.dy[r * c.out + o] * p.w[w + o * c.in + i];
      EXPECT_NEAR(p.dx[r * c.in + i], dx, 1e-13);
    }
  }
  for (size_t i = 0; i < dw.size(); ++i) EXPECT_NEAR(p.dw[static_cast<int64_t>(i)], dw[i], 1e-13);
}

// dx with an addend is the sum of both, in place and separate; rows past the counts are unchanged.
TEST(GroupedGemm, AddsTheAddendToTheGradient) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    ThreadPool pool(2);
    Problem<double, double> p(c);
    p.grouped(pool, false);
    const std::vector<double> before = random_values<double>(c.rows * c.in, 9);
    Buffer<double> addend(before), apart(c.rows * c.in);
    GroupedArgs g = p.args();
    Buffer<uint8_t> workspace(grouped_workspace_bytes(g, pool.threads()));
    g.a = p.dy.data(), g.b = p.w.data(), g.c = apart.data(), g.addend = addend.data();
    grouped_linear_dx(g, workspace.data(), grouped_workspace_bytes(g, pool.threads()), pool);
    g.c = addend.data();
    grouped_linear_dx(g, workspace.data(), grouped_workspace_bytes(g, pool.threads()), pool);
    for (int64_t i = 0; i < c.rows * c.in; ++i) {
      const double old = before[static_cast<size_t>(i)];
      if (i >= total(c) * c.in) {
        EXPECT_EQ(addend.data()[i], old);
        continue;
      }
      EXPECT_NEAR(apart.data()[i], p.dx.data()[i] + old, 1e-11);
      EXPECT_EQ(apart.data()[i], addend.data()[i]);
    }
  }
}

TEST(GroupedGemm, RefusesMoreRowsThanPlanned) {
  const Case c = {"", 10, 2, 4, 5, 1, {6, 4}};
  Problem<float, float> p(c);
  ThreadPool pool(1);
  GroupedArgs g = p.args();
  const int64_t bytes = grouped_workspace_bytes(g, 1);
  Buffer<uint8_t> workspace(bytes);
  g.a = p.x.data(), g.b = p.w.data(), g.c = p.y.data();
  const std::vector<int32_t> more = {6, 5}, negative = {6, -1};
  g.received = more.data();
  EXPECT_THROW(grouped_linear(g, workspace.data(), bytes, pool), base::InternalError);
  g.received = negative.data();
  EXPECT_THROW(grouped_linear(g, workspace.data(), bytes, pool), base::InternalError);
  g.received = c.received.data();
  EXPECT_THROW(grouped_linear(g, workspace.data(), bytes - 1, pool), base::InternalError);
  EXPECT_NO_THROW(grouped_linear(g, workspace.data(), bytes, pool));
}

// A smaller GEMM may use larger blocks, but never needs more than the bound.
TEST(GroupedGemm, ScratchBoundHoldsForEverySmallerGemm) {
  const struct {
    DType ab, c;
  } types[] = {{DType::F64, DType::F64},
               {DType::F32, DType::F32},
               {DType::BF16, DType::BF16},
               {DType::BF16, DType::F32}};
  const std::vector<int64_t> sizes = {1, 13, 32, 100, 225, 449, 512, 513, 700, 1025, 2049, 2600};
  for (const auto& [ab, c] : types)
    for (const int threads : {1, 2, 7})
      for (const int64_t m : sizes)
        for (const int64_t k : sizes)
          for (const int64_t n : {int64_t{40}, int64_t{513}, int64_t{5000}}) {
            const int64_t bound = gemm_workspace_bound(m, n, k, ab, c, threads);
            for (const int64_t less_m : sizes)
              for (const int64_t less_k : sizes)
                if (less_m <= m && less_k <= k) {
                  ASSERT_LE(gemm_workspace_bytes(less_m, n, less_k, ab, c, threads), bound)
                      << less_m << " x " << n << " x " << less_k << " of " << m << " x " << k << ", "
                      << threads << " threads, " << to_string(ab) << " -> " << to_string(c);
                }
          }
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
