#include "kernels/cpu/elementwise/heads.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class T>
class Heads : public testing::Test {};
TYPED_TEST_SUITE(Heads, AllTypes);

TYPED_TEST(Heads, JoinAndItsGradient) {
  using T = TypeParam;
  const int64_t rows = 37, heads = 5, d1 = 12, d2 = 9, d = d1 + d2;
  for (const bool shared : {false, true}) {
    const int64_t b_heads = shared ? 1 : heads;
    const auto a = random_values<T>(rows * heads * d1, 71), b = random_values<T>(rows * b_heads * d2, 72),
               dy = random_values<T>(rows * heads * d, 73);
    std::vector<double> y(dy.size()), da(a.size()), db(b.size(), 0.0), size(b.size(), 0.0);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t i = 0; i < d; ++i) {
          const size_t at = static_cast<size_t>((r * heads + h) * d + i);
          if (i < d1) {
            const size_t from = static_cast<size_t>((r * heads + h) * d1 + i);
            y[at] = a[from];
            da[from] = dy[at];
          } else {
            const size_t from = static_cast<size_t>((r * b_heads + (shared ? 0 : h)) * d2 + i - d1);
            y[at] = b[from];
            db[from] += dy[at];
            size[from] += std::abs(dy[at]);
          }
        }
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> ba(a), bb(b), bdy(dy);
      Buffer<T> by(rows * heads * d), bda(rows * heads * d1), bdb(rows * b_heads * d2);
      join_heads<T>(ba.data(), bb.data(), shared, by.data(), rows, heads, d1, d2, pool);
      join_heads_backward<T>(bdy.data(), shared, bda.data(), bdb.data(), rows, heads, d1, d2, pool);
      EXPECT_EQ(by.values(), y);
      EXPECT_EQ(bda.values(), da);
      expect_near(
          bdb, db, [&](int64_t i) { return 5 * unit<Stat<T>>() * size[static_cast<size_t>(i)]; }, "db");
      return bytes_of(by, bda, bdb);
    });
  }
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
