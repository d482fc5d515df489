#include "kernels/cpu/reduce/reduce.h"

#include <set>

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

template <class T>
class Reduce : public testing::Test {};
TYPED_TEST_SUITE(Reduce, AllTypes);

TYPED_TEST(Reduce, SumSquaresAndNonFinite) {
  using T = TypeParam;
  for (int64_t n : {0, 1, 7, 65, 16384, 16385, 100003}) {
    const auto x = random_values<T>(n, 71);
    long double want = 0;
    for (double v : x) want += static_cast<long double>(v) * v;
    run_everywhere([&](ThreadPool& pool) {
      Buffer<T> in(x);
      Buffer<uint8_t> workspace(reduce_workspace_bytes(n));
      double sum = 3, fresh = 3;
      sum_squares<T>(in.data(), n, &sum, true, workspace.data(), pool);
      sum_squares<T>(in.data(), n, &fresh, false, workspace.data(), pool);
      const double bound = 0x1p-53 * (16384.0 / 32 + 64) * static_cast<double>(want + 3);
      EXPECT_NEAR(fresh, static_cast<double>(want), bound);
      EXPECT_NEAR(sum, static_cast<double>(want) + 3, bound);
      int32_t found = 7;
      any_nonfinite<T>(in.data(), n, &found, false, workspace.data(), pool);
      EXPECT_EQ(found, 0);
      for (double bad :
           {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan("")})
        for (int64_t at : {int64_t{0}, n / 2, n - 1}) {
          if (n == 0) continue;
          const T old = in.data()[at];
          in.data()[at] = element<T>(bad);
          any_nonfinite<T>(in.data(), n, &found, false, workspace.data(), pool);
          EXPECT_EQ(found, 1) << bad << " at " << at;
          in.data()[at] = old;
          any_nonfinite<T>(in.data(), n, &found, true, workspace.data(), pool);
          EXPECT_EQ(found, 1) << "an earlier finding is kept";
        }
      std::vector<uint8_t> out(sizeof(double));
      std::memcpy(out.data(), &fresh, sizeof(double));
      return out;
    });
  }
}

TYPED_TEST(Reduce, ColumnSum) {
  using T = TypeParam;
  for (const auto& [rows, n] : {std::pair<int64_t, int64_t>{0, 3}, {1, 1}, {66, 7}, {5000, 65}, {100, 520}}) {
    const auto x = random_values<T>(rows * n, 72), start = random_values<float>(n, 73);
    std::vector<double> want(n), magnitude(n), more(start);
    for (int64_t i = 0; i < rows * n; ++i) {
      want[i % n] += x[i];
      more[i % n] += x[i];
      magnitude[i % n] += std::abs(x[i]);
    }
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> in(x);
      Buffer<uint8_t> workspace(column_sum_workspace_bytes<T>(rows, n));
      Buffer<Grad<T>> db(n), sum(start);
      column_sum<T>(in.data(), db.data(), false, rows, n, workspace.data(), pool);
      column_sum<T>(in.data(), sum.data(), true, rows, n, workspace.data(), pool);
      const double depth = static_cast<double>(rows) / 64 + 32 + 64 + 8;
      const auto slack = [&](int64_t i) {
        return unit<Grad<T>>() * depth * (magnitude[i] + std::abs(start[i]));
      };
      expect_near(db, want, slack, "db");
      expect_near(sum, more, slack, "accumulated db");
      return bytes_of(db, sum);
    });
  }
}

TEST(Hash, SameEverywhereAndEveryBitCounts) {
  std::vector<uint8_t> data(200001);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 131 + i / 251);
  std::set<uint64_t> of_lengths;
  ThreadPool one(1);
  for (int64_t n : {0, 1, 63, 64, 65, 65536, 65537, 200001}) {
    limit_isa(Isa::Baseline);
    Buffer<uint8_t> workspace(hash_workspace_bytes(n));
    const uint64_t want = hash_bytes(data.data(), n, 9, workspace.data(), one);
    of_lengths.insert(want);
    run_everywhere([&](ThreadPool& pool) {
      EXPECT_EQ(hash_bytes(data.data(), n, 9, workspace.data(), pool), want)
          << "differs between instruction sets";
      return std::vector<uint8_t>{};
    });
  }
  EXPECT_EQ(of_lengths.size(), 8u);
  Buffer<uint8_t> workspace(hash_workspace_bytes(130000));
  std::set<uint64_t> seen = {hash_bytes(data.data(), 130000, 9, workspace.data(), one)};
  EXPECT_TRUE(seen.insert(hash_bytes(data.data(), 130000, 10, workspace.data(), one)).second) << "seed";
  for (size_t at : {0u, 7u, 64u, 65535u, 65536u, 129999u})
    for (int bit = 0; bit < 8; ++bit) {
      data[at] ^= static_cast<uint8_t>(1 << bit);
      EXPECT_TRUE(seen.insert(hash_bytes(data.data(), 130000, 9, workspace.data(), one)).second)
          << at << "." << bit;
      data[at] ^= static_cast<uint8_t>(1 << bit);
    }
  // Two chunks swapped.
  std::rotate(data.begin(), data.begin() + 65536, data.begin() + 131072);
  EXPECT_TRUE(seen.insert(hash_bytes(data.data(), 130000, 9, workspace.data(), one)).second);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
