#include "kernels/cuda/loss/loss.h"

#include "gpu/device.h"
#include "kernels/cpu/loss/loss.h"

namespace quintet::kernels::cuda::test {
namespace {

template <class T>
class GpuLoss : public testing::Test {};
TYPED_TEST_SUITE(GpuLoss, cpu::test::AllTypes);

template <class T>
constexpr double kExpUnits = cpu::test::kHalf<T> ? 256 : 64;

std::vector<int32_t> labels_for(int64_t rows, int64_t vocab) {
  std::vector<int32_t> labels;
  for (int64_t r = 0; r < rows; ++r)
    labels.push_back(r % 5 == 3 ? -1 : static_cast<int32_t>((r * 7919 + 3) % vocab));
  return labels;
}

constexpr int64_t kSizes[][3] = {
    {1, 1, 1},           {7, 50, 50},       {33, 1024, 1000},  {5, 50304, 50257},
    {4, 131072, 128256}, {4, 1001, 900},    {6, 20000, 19993},  // a row in one block's shared memory
    {220, 36880, 36865},                                        // clusters
    {2, 120000, 119993}, {3, 131072, 90001}};                   // clusters of six; some with padding only

TYPED_TEST(GpuLoss, WholeVocabulary) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  for (const auto& [rows, columns, valid] : kSizes)
    for (int64_t shift : kShifts) {
      if (rows > 100 && shift > 0) continue;  // covered by the smaller cases
      SCOPED_TRACE(testing::Message() << rows << " x " << columns << " + " << shift);
      const auto x = random_values<T>(rows * columns, 1, 3.0);
      const auto labels = labels_for(rows, valid);
      const double seed = 0.37;
      std::vector<double> want = x, row_loss(static_cast<size_t>(rows));
      double loss = 0;
      cpu::cross_entropy(want.data(), rows, columns, valid, labels.data(), &seed, true, &loss, false,
                         row_loss.data(), nullptr, pool);
      Device<T> logits(x, shift);
      auto bl = integers(labels);
      Device<double> bseed(std::vector<double>{seed}), sum(std::vector<double>{1.5}), rows_out(rows);
      Device<uint8_t> workspace(cross_entropy_workspace_bytes(rows));
      cross_entropy<T>(logits.data(), rows, columns, valid, bl.data(), bseed.data(), false, sum.data(), true,
                       rows_out.data(), nullptr, nullptr);
      EXPECT_EQ(logits.values(), x) << "without write_dlogits the logits stay";
      const double bound = unit<Stat<T>>() * kExpUnits<T> * 20;
      for (int64_t r = 0; r < rows; ++r) EXPECT_NEAR(rows_out.values()[r], row_loss[r], bound);
      EXPECT_NEAR(sum.values()[0], loss + 1.5, bound * static_cast<double>(rows));
      cross_entropy<T>(logits.data(), rows, columns, valid, bl.data(), bseed.data(), true, sum.data(), false,
                       nullptr, workspace.data(), nullptr);
      EXPECT_NEAR(sum.values()[0], loss, bound * static_cast<double>(rows));
      expect_close(
          logits, want, kExpUnits<T>, [&](size_t i) { return std::abs(want[i]) * 20 + 1e-30; }, "dlogits");
    }
}

// The pieces over two shards of the vocabulary, combined as ranks would, against the whole.
TYPED_TEST(GpuLoss, ShardsOfTheVocabulary) {
  using T = TypeParam;
  using S = Stat<T>;
  device::ThreadPool pool(1);
  const int64_t rows = 19, columns = 520, vocab = 1003;  // the second shard has 483 columns and padding
  const auto x = random_values<T>(rows * 2 * columns, 1, 3.0);
  const auto labels = labels_for(rows, vocab);
  const double seed = -1.25;
  std::vector<double> whole(static_cast<size_t>(rows * vocab)), row_loss(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < vocab; ++c)
      whole[static_cast<size_t>(r * vocab + c)] =
          x[static_cast<size_t>(c / columns * rows * columns + r * columns + c % columns)];
  double loss = 0;
  cpu::cross_entropy(whole.data(), rows, vocab, vocab, labels.data(), &seed, true, &loss, false,
                     row_loss.data(), nullptr, pool);
  const std::vector<double> first(x.begin(), x.begin() + rows * columns),
      second(x.begin() + rows * columns, x.end());
  Device<T> a(first), b(second);
  auto bl = integers(labels);
  Device<S> max_a(rows), max_b(rows), exp_a(rows), exp_b(rows), target_a(rows), target_b(rows);
  row_max<T>(a.data(), rows, columns, columns, max_a.data(), nullptr);
  row_max<T>(b.data(), rows, columns, vocab - columns, max_b.data(), nullptr);
  std::vector<double> max = max_a.values();
  for (size_t r = 0; r < max.size(); ++r) max[r] = std::max(max[r], max_b.values()[r]);
  max_a.set(max);
  row_sumexp<T>(a.data(), rows, columns, columns, 0, bl.data(), max_a.data(), exp_a.data(), target_a.data(),
                nullptr);
  row_sumexp<T>(b.data(), rows, columns, vocab - columns, columns, bl.data(), max_a.data(), exp_b.data(),
                target_b.data(), nullptr);
  std::vector<double> sumexp = exp_a.values(), target = target_a.values();
  for (size_t r = 0; r < max.size(); ++r) {
    sumexp[r] += exp_b.values()[r];
    target[r] += target_b.values()[r];
  }
  exp_a.set(sumexp);
  target_a.set(target);
  Device<double> bseed(std::vector<double>{seed}), sum(1);
  Device<uint8_t> workspace(cross_entropy_workspace_bytes(rows));
  cross_entropy_backward<T>(a.data(), rows, columns, columns, 0, bl.data(), max_a.data(), exp_a.data(),
                            target_a.data(), bseed.data(), true, sum.data(), false, nullptr, workspace.data(),
                            nullptr);
  EXPECT_NEAR(sum.values()[0], loss, unit<S>() * kExpUnits<T> * 20 * rows);
  cross_entropy_backward<T>(b.data(), rows, columns, vocab - columns, columns, bl.data(), max_a.data(),
                            exp_a.data(), target_a.data(), bseed.data(), true, sum.data(), false, nullptr,
                            workspace.data(), nullptr);
  std::vector<double> want_a, want_b;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      want_a.push_back(whole[static_cast<size_t>(r * vocab + c)]);
      want_b.push_back(columns + c < vocab ? whole[static_cast<size_t>(r * vocab + columns + c)] : 0.0);
    }
  expect_close(
      a, want_a, kExpUnits<T>, [&](size_t i) { return std::abs(want_a[i]) * 20; }, "first shard");
  expect_close(
      b, want_b, kExpUnits<T>, [&](size_t i) { return std::abs(want_b[i]) * 20; }, "second shard");
}

TYPED_TEST(GpuLoss, NanIsSeen) {
  using T = TypeParam;
  for (const int64_t columns : {300, 20000})
    for (const bool write : {false, true}) {
      SCOPED_TRACE(testing::Message() << columns << " columns, " << write);
      const int64_t rows = 2;
      auto x = random_values<T>(rows * columns, 1);
      x[static_cast<size_t>(columns + 17)] = std::nan("");
      Device<T> logits(x);
      Device<Stat<T>> max(rows);
      auto labels = integers<int32_t>({1, 2});
      Device<double> seed(std::vector<double>{1}), sum(1), losses(rows);
      row_max<T>(logits.data(), rows, columns, columns, max.data(), nullptr);
      EXPECT_FALSE(std::isnan(max.values()[0]));
      EXPECT_TRUE(std::isnan(max.values()[1]));
      cross_entropy<T>(logits.data(), rows, columns, columns, labels.data(), seed.data(), write, sum.data(),
                       false, losses.data(), nullptr, nullptr);
      EXPECT_FALSE(std::isnan(losses.values()[0]));
      EXPECT_TRUE(std::isnan(losses.values()[1]));
      EXPECT_TRUE(std::isnan(sum.values()[0]));
    }
}

// Forbidden columns: logits of -inf contribute nothing, also where a thread has no others.
TYPED_TEST(GpuLoss, MinusInfinityHasNoShare) {
  using T = TypeParam;
  for (const int64_t columns : {640, 20000}) {
    SCOPED_TRACE(testing::Message() << columns << " columns");
    std::vector<double> x(static_cast<size_t>(columns), -std::numeric_limits<double>::infinity());
    for (int64_t c = columns - 100; c < columns; ++c) x[static_cast<size_t>(c)] = 2;
    Device<T> logits(x);
    auto labels = integers<int32_t>({static_cast<int32_t>(columns - 3)});
    Device<double> seed(std::vector<double>{1}), sum(1), losses(1);
    cross_entropy<T>(logits.data(), 1, columns, columns, labels.data(), seed.data(), true, sum.data(), false,
                     losses.data(), nullptr, nullptr);
    EXPECT_NEAR(losses.values()[0], std::log(100.0), 1e-6);
    std::vector<double> want(x.size());
    for (int64_t c = columns - 100; c < columns; ++c)
      want[static_cast<size_t>(c)] = c == columns - 3 ? -0.99 : 0.01;
    expect_close(logits, want, kExpUnits<T>, "dlogits");
  }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
