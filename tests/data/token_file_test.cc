#include "data/token_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "base/file_system.h"
#include "base/temp_folder.h"
#include "data/dataset.h"
#include "data/foreign_file.h"

namespace quintet::data {
namespace {

using test::TempFolder;
using test::user_error;
using Documents = std::vector<std::vector<int32_t>>;

void write(const base::Path& prefix, int64_t vocab, const Documents& documents) {
  TokenFileWriter writer(prefix, vocab);
  for (const auto& ids : documents) writer.add_document(ids);
  writer.finish();
}

Documents read_all(const Corpus& corpus) {
  Documents documents;
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const auto begin = corpus.offsets()[static_cast<size_t>(d)],
               end = corpus.offsets()[static_cast<size_t>(d) + 1];
    corpus.read(static_cast<int64_t>(begin), documents.emplace_back(end - begin));
  }
  return documents;
}

// Applies `change` to the contents of the file.
void edit(const base::Path& path, const std::function<void(std::string&)>& change) {
  std::string bytes = base::read_file(path);
  change(bytes);
  base::write_file_atomically(path, bytes);
}

// Recomputes the checksum of an edited index, as a faulty writer would.
void seal(std::string& idx) {
  const auto body = std::as_bytes(std::span(idx)).first(idx.size() - 8);
  const uint64_t sum = base::checksum_of(body);
  std::memcpy(idx.data() + idx.size() - 8, &sum, 8);
}

void put(std::string& idx, size_t at, uint64_t value) { std::memcpy(idx.data() + at, &value, 8); }

class TokenFile : public testing::Test {
 protected:
  void SetUp() override { write(prefix, 300, {{1, 2, 299}, {}, {4}, {5, 6}}); }
  TempFolder folder;
  const base::Path prefix = folder / "corpus", bin = folder / "corpus.bin", idx = folder / "corpus.idx";
  void expect_refused(const std::string& part) {
    EXPECT_CONTAINS(user_error([&] { open_token_file(prefix); }), part);
    EXPECT_CONTAINS(user_error([&] { verify_token_file(prefix); }), part);
  }
};

TEST_F(TokenFile, RoundTripsInEveryWidth) {
  for (const auto& [vocab, width] : {std::pair<int64_t, TokenWidth>{1, TokenWidth::U8},
                                     {256, TokenWidth::U8},
                                     {257, TokenWidth::U16},
                                     {65536, TokenWidth::U16},
                                     {65537, TokenWidth::U32},
                                     {int64_t{1} << 31, TokenWidth::U32}}) {
    const auto last = static_cast<int32_t>(vocab - 1);
    const Documents documents = {{0, last}, {last}, {0, 0, last / 2}};
    write(folder / "w", vocab, documents);
    for (const char* name : {"w", "w.bin", "w.idx"}) {
      const Corpus corpus = verify_token_file(folder / name);
      EXPECT_EQ(corpus.width(), width);
      EXPECT_EQ(corpus.vocab(), vocab);
      EXPECT_EQ(corpus.tokens(), 6);
      EXPECT_EQ(read_all(corpus), documents);
    }
  }
}

TEST_F(TokenFile, LargeFileCrossesBuffers) {
  Documents documents;
  for (int32_t d = 0; d < 50; ++d) {
    auto& ids = documents.emplace_back(30'011 + static_cast<size_t>(d));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int32_t>((i * 7 + static_cast<size_t>(d)) % 70'000);
  }
  write(folder / "large", 70'000, documents);
  EXPECT_EQ(read_all(verify_token_file(folder / "large")), documents);
}

TEST_F(TokenFile, EmptyDocumentsAreLeftOut) {
  const Corpus corpus = open_token_file(prefix);
  EXPECT_EQ(read_all(corpus), (Documents{{1, 2, 299}, {4}, {5, 6}}));
  EXPECT_EQ(corpus.document_of(0), 0);
  EXPECT_EQ(corpus.document_of(2), 0);
  EXPECT_EQ(corpus.document_of(3), 1);
  EXPECT_EQ(corpus.document_of(5), 2);
}

TEST_F(TokenFile, CorpusOutlivesItsOrigin) {
  auto first = std::make_unique<Corpus>(open_token_file(prefix));
  const Corpus copy = *first;
  first.reset();
  EXPECT_EQ(read_all(copy).size(), 3u);
}

TEST_F(TokenFile, NamesArePrefixOrEitherFile) {
  EXPECT_TRUE(is_token_file(prefix));
  EXPECT_TRUE(is_token_file(bin));
  EXPECT_FALSE(is_token_file(folder / "other"));
  EXPECT_FALSE(is_token_file(folder.path()));
}

TEST_F(TokenFile, Missing) {
  base::remove_file(idx);
  expect_refused("'" + idx.string() + "' is missing");
}

TEST_F(TokenFile, WrongMagic) {
  edit(idx, [](std::string& s) { s[0] = 'X'; });
  expect_refused("does not start with");
}

TEST_F(TokenFile, WrongVersion) {
  edit(idx, [](std::string& s) { s[8] = 9; });
  expect_refused("version 9");
}

TEST_F(TokenFile, EmptyFiles) {
  base::write_file_atomically(bin, "");
  expect_refused("is empty: 0 bytes, but its index declares 6 tokens of 2 bytes = 12 bytes");
  base::write_file_atomically(idx, "");
  expect_refused("is empty");
}

TEST_F(TokenFile, EveryTruncationOfTheIndexIsRefused) {
  const std::string whole = base::read_file(idx);
  for (size_t size = 0; size < whole.size(); ++size) {
    base::write_file_atomically(idx, whole.substr(0, size));
    EXPECT_THROW(open_token_file(prefix), base::UserError) << size;
  }
  base::write_file_atomically(idx, whole.substr(0, 20));
  expect_refused("truncated: 20 bytes");
  base::write_file_atomically(idx, whole + "x");
  expect_refused("wrong size");
}

TEST_F(TokenFile, EveryFlippedByteOfTheIndexIsRefused) {
  const std::string whole = base::read_file(idx);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bad = whole;
    bad[at] ^= 0x10;
    base::write_file_atomically(idx, bad);
    EXPECT_THROW(open_token_file(prefix), base::UserError) << at;
  }
}

TEST_F(TokenFile, WrongSizeOfTokens) {
  edit(bin, [](std::string& s) { s.pop_back(); });
  expect_refused("is truncated: 11 bytes, but its index declares 6 tokens of 2 bytes = 12 bytes");
  edit(bin, [](std::string& s) { s += "abc"; });
  expect_refused("is too long: 14 bytes");
}

TEST_F(TokenFile, HeaderOfAFaultyWriter) {
  const std::string whole = base::read_file(idx);
  const auto with = [&](size_t at, uint64_t value) {
    std::string bad = whole;
    put(bad, at, value);
    seal(bad);
    base::write_file_atomically(idx, bad);
  };
  with(16, 0);
  expect_refused("declares no tokens");
  with(16, uint64_t{1} << 63);
  expect_refused("at most 2^60 are allowed");
  with(24, 0);
  expect_refused("a vocabulary of 0;");
  with(24, uint64_t{1} << 40);
  expect_refused("a vocabulary of 1099511627776");
  with(32, ~uint64_t{0});
  expect_refused("wrong size");
  with(8, 2 | uint64_t{3} << 32);
  expect_refused("a token size of 3 bytes");
  with(48, 1);  // first offset
  expect_refused("invalid document offsets");
  with(56, 4);  // equal to the next
  expect_refused("invalid document offsets");
  with(72, 5);  // last is not the number of tokens
  expect_refused("invalid document offsets");
}

// Version 1 has no checksums of blocks: without those of one block, and with its number.
void make_version_1(std::string& idx) {
  idx.erase(idx.size() - 16, 8);
  idx[8] = 1;
  seal(idx);
}

TEST_F(TokenFile, VersionOneIsReadWithoutBlocks) {
  edit(idx, make_version_1);
  EXPECT_EQ(read_all(verify_token_file(prefix)), (Documents{{1, 2, 299}, {4}, {5, 6}}));
  edit(bin, [](std::string& s) { s[0] ^= 1; });
  EXPECT_EQ(read_all(open_token_file(prefix)), (Documents{{0, 2, 299}, {4}, {5, 6}}));
  EXPECT_CONTAINS(user_error([&] { verify_token_file(prefix); }), "checksum mismatch");
}

TEST_F(TokenFile, DamagedBlocksAreFoundWhenTheyAreRead) {
  constexpr int64_t kTokens = 5 * kChecksumBlock / 4;  // of two bytes: two blocks and a half
  write(folder / "long", 300, {std::vector<int32_t>(kTokens, 7), {8, 9}});
  const base::Path file = folder / "long.bin";
  edit(file, [](std::string& s) { s[kChecksumBlock + 5] ^= 1; });
  const Corpus corpus = open_token_file(folder / "long");
  std::vector<int32_t> some(1000);
  corpus.read(0, some);                                    // block 0
  corpus.read(kTokens - 900, std::span(some).first(902));  // block 2, to the last token
  const int64_t second = kChecksumBlock / 2;               // its first token
  for (const int64_t at : {second, second - 1, 2 * second - 1, 2 * second - 999}) {
    const std::string message = user_error([&] { corpus.read(at, some); });
    EXPECT_CONTAINS(
        message, "'" + file.string() + "' is damaged: block 1 of 3 (bytes 1048576 to 2097151) has checksum ");
    EXPECT_CONTAINS(message, ", expected ");
  }
  corpus.read(second - 1000, some);  // ends before it
  edit(file, [](std::string& s) { s[kChecksumBlock + 5] ^= 1; });
  EXPECT_EQ(verify_token_file(folder / "long").tokens(), kTokens + 2);
}

TEST_F(TokenFile, AnIndexHasOneSumPerBlock) {
  edit(idx, [](std::string& s) {
    s.insert(s.size() - 8, 8, 'x');
    seal(s);
  });
  expect_refused("12 bytes, which are 1 blocks, but checksums of 2 blocks");
}

TEST_F(TokenFile, TokenBeyondTheVocabulary) {
  edit(idx, make_version_1);
  edit(bin, [](std::string& s) { s[7] = 2; });  // token 3 becomes 4 + 512
  const Corpus corpus = open_token_file(prefix);
  std::vector<int32_t> three(3), four(4);
  corpus.read(0, three);  // valid tokens can still be read
  EXPECT_CONTAINS(user_error([&] { corpus.read(0, four); }),
                  "token 516 at position 3 (document 1) is outside the vocabulary of 300 (ids 0 to 299)");
  EXPECT_CONTAINS(user_error([&] { verify_token_file(prefix); }), "token 516");
}

TEST_F(TokenFile, DamageWithinTheVocabularyIsFoundByVerify) {
  edit(bin, [](std::string& s) { s[0] ^= 1; });
  EXPECT_CONTAINS(user_error([&] { verify_token_file(prefix); }),
                  "block 0 of 1 (bytes 0 to 11) has checksum");
}

TEST_F(TokenFile, WriterRefusesBadTokensAndLeavesTheOldPair) {
  for (const int32_t bad : {-1, 300}) {
    EXPECT_CONTAINS(
        user_error([&] {
          write(prefix, 300, {{1, 2}, {3, bad}});
        }),
        "token " + std::to_string(bad) + " at position 1 of a document is outside the vocabulary of 300");
  }
  EXPECT_CONTAINS(user_error([&] { write(prefix, 300, {{}, {}}); }), "must contain at least one token");
  EXPECT_CONTAINS(user_error([&] { write(prefix, 0, {{}}); }), "the vocabulary size is 0");
  EXPECT_EQ(verify_token_file(prefix).tokens(), 6);
  EXPECT_EQ(base::list_files(folder.path()).size(), 2u);
}

TEST_F(TokenFile, ModelsVocabularyMustHoldAllIds) {
  const Corpus corpus = open_token_file(prefix);
  corpus.require_vocab(300);
  EXPECT_CONTAINS(user_error([&] { corpus.require_vocab(299); }),
                  "contains ids up to 299, but the model's vocabulary is 299");
}

// What is announced is fetched before anybody asks for it.
TEST(TokenReadAhead, FetchesFromTheDisk) {
  const test::TempFolder folder;
  const base::Path file = folder / "a.bin";
  {
    std::vector<uint16_t> ids(size_t{8} << 20, 7);
    base::write_file_atomically(file, {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
  }
  const Corpus corpus = *open_foreign_file(file, 1000);
  base::forget_cached(file);
  const base::InputFile cache(file);
  const int64_t begin = int64_t{5} << 20, count = int64_t{1} << 18;  // tokens
  if (cache.is_cached(2 * begin, 2 * count)) GTEST_SKIP() << "this file system does not forget files";
  corpus.will_read(begin, count);
  for (int waits = 0; waits < 3000 && !cache.is_cached(2 * begin, 2 * count); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(cache.is_cached(2 * begin, 2 * count));
  EXPECT_FALSE(cache.is_cached(0, 2 * begin)) << "what was not announced";

  // A sample announces its own tokens, or those of the positions that are wanted.
  constexpr int64_t kLength = int64_t{1} << 18;  // half a MiB
  const Dataset dataset(corpus, kLength, false, 0, 8);
  const PositionRange half{kLength / 2, kLength / 2};
  for (const auto& [sample, wanted, first] :
       {std::tuple{3, Positions(), int64_t{0}}, {6, Positions(&half, 1), kLength / 2}}) {
    const int64_t at = 2 * (sample * kLength + first), bytes = 2 * (kLength - first);
    base::forget_cached(file);
    ASSERT_FALSE(cache.is_cached(at, bytes));
    dataset.will_read(sample, wanted);
    for (int waits = 0; waits < 3000 && !cache.is_cached(at, bytes); ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(cache.is_cached(at, bytes)) << sample;
  }
}

}  // namespace
}  // namespace quintet::data
