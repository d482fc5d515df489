// What reading a checkpoint takes of a rank's memory: measured in a process of its own, as the most that was
// resident.
#include <gtest/gtest.h>

#include <cstring>

#include "base/temp_folder.h"
#include "checkpoint/reader.h"
#include "checkpoint/shard.h"
#include "checkpoint/store.h"
#include "support/memory_peak.h"

namespace quintet::checkpoint {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// As of a job of 1,000 ranks: 30,000 pieces, each a quarter of a box.
Manifest large_manifest() {
  Manifest m{.step = 1, .run = Json::object(), .files = {}, .tensors = {}};
  constexpr int64_t kRanks = 1000, kRows = 32;
  for (int64_t r = 0; r < kRanks; ++r)
    m.files.push_back({.name = shard_name(r), .bytes = kMiB, .header_bytes = 4096, .header_sum = 1});
  for (int t = 0; t < 15; ++t) {
    SavedTensor tensor{
        .info = {.name = fmt::format("blocks.{:03}.attn.wq.weight", t), .shape = {kRows * kRanks / 2, 64}},
        .pieces = {}};
    const uint64_t sum = 0x123456789abcdef;
    for (int64_t r = 0; r < 2 * kRanks; ++r) {
      Region region = Region::whole(tensor.info.shape);
      region.begin[0] = r / 4 * kRows, region.size[0] = kRows;
      region.count = region.box_count() / 4;
      region.first = r % 4 * region.count;
      tensor.pieces.add({.file = static_cast<int>(r / 2),
                         .position = 16384 * (t + 1),
                         .region = std::move(region),
                         .sums = std::span(&sum, 1)});
    }
    m.tensors.push_back(std::move(tensor));
  }
  return m;
}

TEST(Memory, AManifestTakesNoMoreThanItsText) {
  const Manifest m = large_manifest();
  const std::string text = to_text(m);
  ASSERT_GT(std::ssize(text), 3 * kMiB);
  EXPECT_EQ(to_text(parse_manifest(text, "again")), text);
  if (!test::kMeasuresMemory) GTEST_SKIP() << "not with sanitizers";
  const int64_t parsed = test::peak_of([&](test::PeakMeter&) { parse_manifest(text, "test"); });
  EXPECT_LT(parsed, std::ssize(text)) << "a tree of its JSON takes eight times as much";
  EXPECT_GT(parsed, 0);
}

// A region is read through one buffer, whatever the size of the tensor that it is part of.
TEST(Memory, AReadHoldsItsRegionAndOneBuffer) {
  const test::TempFolder folder;
  class : public base::FileSystem {
    void sync(int, const base::Path&) override {}
    void sync_directory(const base::Path&) override {}
  } quick;
  Store store(folder.path(), quick);
  const TensorInfo info{.name = "w", .dtype = base::DType::F32, .shape = {24 * kMiB / 4}};
  store.begin(1);
  write_shard(store.folder_of(1) / shard_name(0), {{info, Region::whole(info.shape)}},
              [](size_t, int64_t first, std::span<std::byte> out) {
                std::memset(out.data(), static_cast<int>(first >> 10), out.size());
              },
              {.files = &quick, .step = 1});
  store.commit(1, 1, Json::object(), {info});
  if (!test::kMeasuresMemory) GTEST_SKIP() << "not with sanitizers";
  const int64_t share = 6 * kMiB;  // a quarter, across the ends of chunks
  const int64_t peak = test::peak_of([&](test::PeakMeter&) {
    Reader reader(store.folder_of(1));
    std::vector<std::byte> out(static_cast<size_t>(share));
    reader.read(reader.at("w"), 5 * kMiB / 4, out);
  });
  EXPECT_GT(peak, share);
  EXPECT_LT(peak, share + kChunkBytes + 4 * kMiB) << "the buffer may begin a huge page";
}

}  // namespace
}  // namespace quintet::checkpoint
