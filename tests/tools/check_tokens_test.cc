// `quintet data check`, and what runs make of the checksums that it leaves.
#include "tools/check_tokens.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/block_checksums.h"
#include "data/foreign_file.h"
#include "data/open_corpus.h"
#include "data/token_file.h"
#include "tools/run_support.h"
#include "train/run_data.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::Sets;
using test::SmallRun;
using test::user_error;
using test::operator+;

class CheckTokens : public testing::Test {
 protected:
  std::vector<tools::CheckedFile> check(const base::Path& path,
                                        const std::string& tokenizer = "bytes") const {
    return tools::check_token_files({.inputs = {path.string()}, .tokenizer = tokenizer, .threads = 2});
  }
  // 16-bit ids i % 200 without an index.
  base::Path shard(const std::string& name, int tokens, uint16_t last = 7) const {
    std::string bytes;
    for (int i = 0; i < tokens; ++i) {
      const auto id = static_cast<uint16_t>(i + 1 < tokens ? i % 200 : last);
      bytes.append(reinterpret_cast<const char*>(&id), sizeof id);
    }
    base::write_file_atomically(run_ / name, bytes);
    return run_ / name;
  }
  train::RunData load(const base::Path& path) const {
    return train::load_data(
        run_.recipe({"data.path=\"" + path.string() + "\"", "data.validation_fraction=0"}));
  }
  SmallRun run_;
};

TEST_F(CheckTokens, LeavesChecksumsBesideFilesWithoutThem) {
  const base::Path file = shard("a.bin", 600'000);
  const auto checked = check(file);
  ASSERT_EQ(checked.size(), 1U);
  EXPECT_EQ(checked[0].tokens, 600'000);
  EXPECT_EQ(checked[0].largest, 199);
  EXPECT_EQ(checked[0].written, run_ / "a.json");
  EXPECT_EQ(test::read_json(run_ / "a.json").at("largest_id"), 199);
  EXPECT_EQ(load(file).train.mixture().tokens(), 600'000);
  EXPECT_TRUE(check(file)[0].written.empty());  // they are there

  // From now on damage is noticed, also where the ids stay within the vocabulary.
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(1'100'000).write("\1", 1);
  const std::string error = user_error([&] { load(file); });
  EXPECT_CONTAINS(error, "block 1 of 2 (bytes 1048576 to 1199999)");
  EXPECT_CONTAINS(error, "remove '" + (run_ / "a.json").string() + "' and run 'quintet data check'");
  EXPECT_CONTAINS(user_error([&] { check(file); }), "block 1 of 2");
  std::filesystem::resize_file(file, 1'000'000);
  EXPECT_CONTAINS(user_error([&] { load(file); }), "checksums of 2 blocks");
}

TEST_F(CheckTokens, ReportsTheFirstIdBeyondTheTokenizer) {
  const base::Path file = shard("a.bin", 1000, 256);
  EXPECT_CONTAINS(user_error([&] { check(file); }), "token 256");
  EXPECT_FALSE(base::file_exists(run_ / "a.json"));

  // What was checked with a larger vocabulary is refused with a smaller one, at once.
  base::write_file_atomically(
      run_ / "a.json",
      R"({"largest_id": 256, "block_bytes": 1048576, "block_xxh3": ")" + std::string(16, '0') + "\"}");
  EXPECT_CONTAINS(user_error([&] { load(file); }), "contains ids up to 256");
  for (const char* largest : {"-1", "\"7\"", "1.5"}) {
    base::write_file_atomically(run_ / "a.json", fmt::format(R"({{"largest_id": {}, "block_bytes": 1048576,)"
                                                             R"( "block_xxh3": "0000000000000000"}})",
                                                             largest));
    EXPECT_CONTAINS(user_error([&] { load(file); }), "\"largest_id\" must be a number");
  }
}

TEST_F(CheckTokens, TakesEveryKindOfTokenFile) {
  data::MegatronWriter megatron(run_ / "m", 256);
  megatron.add_document(std::vector<int32_t>{1, 2, 255}, std::vector<uint8_t>{0, 1, 1});
  megatron.finish();
  EXPECT_EQ(check(run_ / "m")[0].written, run_ / "m.json");
  data::TokenFileWriter ours(run_ / "q", 256);
  ours.add_document(std::vector<int32_t>{1, 2, 3});
  ours.finish();
  EXPECT_EQ(check(run_ / "q.idx")[0].largest, 3);
  EXPECT_FALSE(base::file_exists(run_ / "q.json"));  // its index has them
  const std::string header = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }";
  using namespace std::string_literals;
  base::write_file_atomically(run_ / "n.npy", "\x93NUMPY\1\0"s + static_cast<char>(header.size()) + "\0"s +
                                                  header + "\1\0\2\0\11\0"s);
  EXPECT_EQ(check(run_ / "n.npy")[0].written, run_ / "n.npy.json");
  EXPECT_EQ(check(run_ / "n.npy")[0].largest, 9);
  // A folder of shards; what is in the place of checksums stays.
  base::make_directories(run_ / "shards");
  shard("shards/a.bin", 10), shard("shards/b.bin", 20);
  EXPECT_EQ(check(run_ / "shards").size(), 2U);
  shard("c.bin", 10);
  base::write_file_atomically(run_ / "c.json", "{\"mine\": 1}");
  EXPECT_CONTAINS(user_error([&] { check(run_ / "c.bin"); }), "move it away");
  EXPECT_EQ(base::read_file(run_ / "c.json"), "{\"mine\": 1}");
  EXPECT_CONTAINS(user_error([&] { check(run_ / "data.txt"); }), "is neither a token file");
  EXPECT_CONTAINS(user_error([&] { check(run_ / "nothere"); }), "there is no file or folder");
}

// Files of more than 2^32 tokens are not read at every start: without checksums they are refused, with them
// they are mapped. (The file has a hole, and takes no room.)
TEST_F(CheckTokens, LargeFilesNeedChecksums) {
  const base::Path file = run_ / "large.bin";
  const int64_t blocks = (int64_t{1} << 13) + 1;
  std::ofstream(file).close();
  std::filesystem::resize_file(file, static_cast<uintmax_t>(blocks * data::kChecksumBlock));
  const std::string error = user_error([&] { load(file); });
  EXPECT_CONTAINS(error, "too many to compare their ids with the vocabulary of 256 at every start");
  EXPECT_CONTAINS(error, "quintet data check PATH --tokenizer bytes");

  const std::vector<std::byte> zeros(static_cast<size_t>(data::kChecksumBlock));
  const std::string sum = data::text_of_sums(data::block_sums(zeros));
  std::string sums;
  for (int64_t i = 0; i < blocks; ++i) sums += i == 2 ? std::string(16, '0') : sum;
  base::write_file_atomically(run_ / "large.json",
                              R"({"largest_id": 0, "block_bytes": 1048576, "block_xxh3": ")" + sums + "\"}");
  const train::RunData data = load(file);
  EXPECT_EQ(data.train.mixture().tokens(), blocks << 19);
  // A block is verified before a step trains on it.
  const data::Corpus& corpus = data.train.mixture().dataset(0).corpus();
  std::vector<int32_t> ids(100);
  corpus.read(0, ids);
  EXPECT_CONTAINS(user_error([&] { corpus.read((3 << 19) - 200, ids); }), "block 2 of 8193");
}

}  // namespace
}  // namespace quintet
