#include "kernels/cuda/embedding/embedding.h"

#include "gpu/device.h"
#include "kernels/cpu/embedding/embedding.h"

namespace quintet::kernels::cuda::test {
namespace {

using Ids = std::vector<int32_t>;

struct Case {
  const char* name;
  int64_t n, begin, local;  // columns; rows [begin, begin + local) of the vocabulary
  Ids ids;
};

// Padding, many tokens of one id, and others up to `spread`.
Ids mixed(int64_t tokens, int64_t spread) {
  Ids ids;
  for (int64_t t = 0; t < tokens; ++t)
    ids.push_back(t % 11 == 5 ? -1 : t % 3 == 0 ? 1 : static_cast<int32_t>(t * t * 7919 % spread));
  return ids;
}
// `each` tokens for every row, far apart.
Ids evenly(int64_t rows, int64_t each) {
  Ids ids;
  for (int64_t t = 0; t < rows * each; ++t) ids.push_back(static_cast<int32_t>(t % rows));
  return ids;
}
// Row r has r tokens, so that rows and their segments start everywhere in a tile.
Ids growing(int64_t rows) {
  Ids ids;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < r; ++i) ids.push_back(static_cast<int32_t>(r));
  return ids;
}
// In each of 16 runs of 1024 tokens 120 to 135 have one id: just below, at and above what a warp keeps.
Ids about_what_is_kept() {
  Ids ids;
  for (int64_t t = 0; t < 16 * 1024; ++t) {
    const int64_t run = t / 1024, in_run = t % 1024;
    ids.push_back(in_run * 7 % 1024 < 120 + run ? 128 : static_cast<int32_t>(in_run % 127 + 1));
  }
  return ids;
}

std::vector<Case> cases() {
  return {
      {"one token", 8, 0, 5, mixed(1, 5)},
      {"long rows", 520, 0, 300, mixed(3000, 300)},
      {"a large vocabulary", 8, 100, 128256, mixed(5000, 128400)},
      {"rows of odd length", 7, 0, 3, mixed(4099, 2)},
      {"odd rows in two slabs", 129, 0, 40, mixed(900, 50)},
      {"wide rows in slabs", 1032, 3, 40, mixed(900, 50)},
      {"few of many rows", 24, 0, 50257, mixed(2048, 60000)},
      {"a small shard", 16, 10, 4, mixed(700, 40)},
      {"the second shard", 8, 50304, 50304, mixed(6000, 100608)},
      {"runs that end in a chunk's first half", 8, 5, 1000, mixed(20000, 1010)},
      {"more than 32768 tokens", 8, 5, 1000, mixed(40000, 1010)},
      {"more than 1024 rows in 128 buckets", 8, 0, 300000, mixed(3000, 300001)},
      {"rows of 32 tokens", 40, 0, 128, evenly(100, 32)},
      {"rows of 33 tokens", 40, 0, 128, evenly(100, 33)},
      {"rows of 64 tokens", 40, 0, 128, evenly(100, 64)},
      {"rows of 65 tokens", 40, 0, 128, evenly(100, 65)},
      {"rows of all lengths", 16, 0, 110, growing(110)},
      {"one id for all tokens", 24, 0, 50304, Ids(33000, 17)},
      {"what a warp remembers", 8, 0, 200, about_what_is_kept()},
      {"no id in the shard", 16, 1000, 77, mixed(500, 900)},
      {"padding alone", 16, 0, 77, Ids(500, -1)},
      {"no token", 16, 0, 77, {}},
  };
}

template <class T, class D>
void check_gradient(const Case& c, bool accumulate, int64_t shift) {
  SCOPED_TRACE(testing::Message() << c.name << (accumulate ? ", added" : ", written") << " + " << shift);
  device::ThreadPool pool(1);
  const auto tokens = static_cast<int64_t>(c.ids.size());
  const auto dy = random_values<T>(tokens * c.n, 2), old = random_values<D>(c.local * c.n, 3);
  auto ids = integers(c.ids);
  Device<T> bdy(dy, shift);
  Device<uint8_t> workspace(embedding_dw_workspace_bytes<T>(tokens, c.local, c.n));
  // A table that is overwritten holds NaN before, which must not be read.
  const auto run = [&](Device<D>& dtable) {
    embedding_dw<T, D>(bdy.data(), ids.data(), c.begin, c.local, dtable.data(), accumulate, tokens, c.n,
                       workspace.data(), nullptr);
  };
  Device<D> dtable(c.local * c.n, shift), again(c.local * c.n, shift);
  if (accumulate) dtable.set(old), again.set(old);
  run(dtable);
  std::vector<double> want = old, size(old.size()), magnitude = dy;
  for (double& v : magnitude) v = std::abs(v);
  cpu::embedding_dw(dy.data(), c.ids.data(), c.begin, c.local, want.data(), accumulate, tokens, c.n, pool);
  cpu::embedding_dw(magnitude.data(), c.ids.data(), c.begin, c.local, size.data(), false, tokens, c.n, pool);
  expect_close(
      dtable, want, 64, [&](size_t i) { return size[i]; }, "dtable");
  run(again);
  EXPECT_TRUE(dtable.bits() == again.bits()) << "another run gave other bits";
}

template <class T, class D>
void check_gradients() {
  for (const Case& c : cases())
    for (bool accumulate : {false, true})
      for (int64_t shift : kShifts) {
        // Types and addresses do not change how blocks share memory.
        if (under_racecheck() && (!std::is_same_v<T, Bf16> || shift != 0 || c.ids.size() > 7000)) continue;
        check_gradient<T, D>(c, accumulate, shift);
      }
}

TEST(GpuEmbedding, GradientF64) { check_gradients<double, double>(); }
TEST(GpuEmbedding, GradientF32) { check_gradients<float, float>(); }
TEST(GpuEmbedding, GradientF16ToF32) { check_gradients<F16, float>(); }
TEST(GpuEmbedding, GradientBf16ToF32) { check_gradients<Bf16, float>(); }
TEST(GpuEmbedding, GradientBf16ToBf16) { check_gradients<Bf16, Bf16>(); }

template <class T>
class GpuEmbeddingLookup : public testing::Test {};
TYPED_TEST_SUITE(GpuEmbeddingLookup, cpu::test::AllTypes);

TYPED_TEST(GpuEmbeddingLookup, RowsOfTheShard) {
  using T = TypeParam;
  device::ThreadPool pool(1);
  for (const Case& c : cases())
    for (int64_t shift : kShifts) {
      SCOPED_TRACE(testing::Message() << c.name << " + " << shift);
      const auto tokens = static_cast<int64_t>(c.ids.size());
      const auto table = random_values<T>(c.local * c.n, 1);
      auto ids = integers(c.ids);
      Device<T> btable(table, shift), y(tokens * c.n, shift);
      embedding<T>(btable.data(), ids.data(), c.begin, c.local, y.data(), tokens, c.n, nullptr);
      std::vector<double> want(static_cast<size_t>(tokens * c.n));
      cpu::embedding(table.data(), c.ids.data(), c.begin, c.local, want.data(), tokens, c.n, pool);
      EXPECT_EQ(y.values(), want);
    }
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
