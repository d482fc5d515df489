#include "data/foreign_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "base/temp_folder.h"
#include "data/dataset.h"
#include "data/open_corpus.h"
#include "support/folders.h"
#include "tokenizer/tokenizer.h"

namespace quintet::data {
namespace {

std::string bytes_of(const base::Path& path) { return base::read_file(path); }

void write_raw(const base::Path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<int32_t> tokens_of(const Corpus& corpus) {
  std::vector<int32_t> ids(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, ids);
  return ids;
}

TEST(MegatronFile, HasTheBytesThatMegatronWrites) {
  const test::TempFolder folder;
  MegatronWriter writer(folder.path() / "a", 1000);
  writer.add_document(std::vector<int32_t>{1, 2, 3});
  writer.add_document(std::vector<int32_t>{});
  writer.add_document(std::vector<int32_t>{999});
  writer.finish();
  using namespace std::string_view_literals;
  EXPECT_EQ(bytes_of(folder.path() / "a.bin"), "\1\0\2\0\3\0\xE7\3"sv);
  EXPECT_EQ(bytes_of(folder.path() / "a.idx"),
            "MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0"
            "\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0"
            "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0"sv);
}

// tests/hf/megatron_test.py writes the files with megatron-core: tests/golden/megatron, and others for `make
// test-hf`.
TEST(MegatronFile, ReadsWhatMegatronCoreWrites) {
  const char* const others = std::getenv("QUINTET_MEGATRON_FILES");
  const base::Path files =
      others != nullptr ? base::Path(others) : base::Path(test::source_dir() + "/tests/golden/megatron");
  const auto expected = nlohmann::json::parse(base::read_file(files / "ids.json"));
  ASSERT_EQ(expected.size(), 3u);
  for (const auto& [name, content] : expected.items()) {
    const auto corpus = open_foreign_file(files / name, content.at("vocab").get<int64_t>());
    ASSERT_TRUE(corpus) << name;
    std::vector<int32_t> ids;
    std::vector<uint64_t> offsets = {0};
    for (const auto& document : content.at("documents")) {
      for (const auto& id : document) ids.push_back(id.get<int32_t>());
      offsets.push_back(ids.size());
    }
    EXPECT_EQ(tokens_of(*corpus), ids) << name;
    EXPECT_EQ(std::vector<uint64_t>(corpus->offsets().begin(), corpus->offsets().end()), offsets) << name;
  }
}

TEST(MegatronFile, RoundTripsInBothWidths) {
  for (const int64_t vocab : {1000, 200000}) {
    const test::TempFolder folder;
    MegatronWriter writer(folder.path() / "a", vocab);
    writer.add_document(std::vector<int32_t>{5, 6});
    writer.add_document(std::vector<int32_t>{static_cast<int32_t>(vocab) - 1});
    writer.finish();
    for (const char* name : {"a", "a.bin", "a.idx"}) {
      const auto corpus = open_foreign_file(folder.path() / name, vocab);
      ASSERT_TRUE(corpus);
      EXPECT_EQ(tokens_of(*corpus), (std::vector<int32_t>{5, 6, static_cast<int32_t>(vocab) - 1}));
      EXPECT_EQ(std::vector<uint64_t>(corpus->offsets().begin(), corpus->offsets().end()),
                (std::vector<uint64_t>{0, 2, 3}));
    }
    const auto small = open_foreign_file(folder.path() / "a", vocab - 1);
    EXPECT_CONTAINS(test::user_error([&] { tokens_of(*small); }), std::to_string(vocab - 1));
  }
}

TEST(MegatronFile, MaskHoldsTheTrainedFlags) {
  const test::TempFolder folder;
  const base::Path prefix = folder.path() / "a", mask = folder.path() / "a.mask";
  const auto write = [&](bool masked) {
    MegatronWriter writer(prefix, 1000);
    writer.add_document(std::vector<int32_t>{1, 2, 3});
    writer.add_document(std::vector<int32_t>{4, 5},
                        masked ? std::vector<uint8_t>{0, 1} : std::vector<uint8_t>{});
    writer.add_document(std::vector<int32_t>{6});
    writer.finish();
    EXPECT_EQ(writer.mask_checksum().has_value(), masked);
    if (masked) {
      const std::string bytes = bytes_of(mask);
      EXPECT_EQ(*writer.mask_checksum(), base::checksum_of(std::as_bytes(std::span(bytes))));
    }
  };
  write(true);
  using namespace std::string_view_literals;
  EXPECT_EQ(bytes_of(mask), "\1\1\1\0\1\1"sv);
  const auto corpus = open_foreign_file(prefix, 1000);
  EXPECT_EQ(std::vector<uint8_t>(corpus->trained().begin(), corpus->trained().end()),
            (std::vector<uint8_t>{1, 1, 1, 0, 1, 1}));
  corpus->check_tokens();
  write_raw(mask, "\1\1\1\0\1"sv);
  EXPECT_CONTAINS(test::user_error([&] { open_foreign_file(prefix, 1000); }), "5 trained flags");
  write_raw(mask, "\1\1\1\0\1\7"sv);
  EXPECT_CONTAINS(test::user_error([&] { open_foreign_file(prefix, 1000)->check_tokens(); }),
                  "the trained flag of token 5 is 7");
  // The mask of an earlier pair does not survive a pair without one.
  write(false);
  EXPECT_FALSE(base::file_exists(mask));
  EXPECT_TRUE(open_foreign_file(prefix, 1000)->trained().empty());
}

// The manifest that `quintet prepare` writes has the checksums of .bin.
TEST(MegatronFile, DamagedBlocksAreFoundThroughTheManifest) {
  const test::TempFolder folder;
  MegatronWriter writer(folder.path() / "a", 1000);
  writer.add_document(std::vector<int32_t>(kChecksumBlock / 2 + 10, 5));  // a block and 20 bytes
  writer.finish();
  ASSERT_EQ(writer.block_sums().size(), 2u);
  const auto manifest = [&](const std::string& sums) {
    write_raw(folder.path() / "a.json", R"({"block_bytes": 1048576, "block_xxh3": ")" + sums + "\"}");
  };
  const auto read = [&] { return tokens_of(*open_foreign_file(folder.path() / "a", 1000)); };
  const std::string sums = text_of_sums(writer.block_sums());
  manifest(sums);
  EXPECT_EQ(read().size(), static_cast<size_t>(kChecksumBlock / 2 + 10));
  std::string bytes = bytes_of(folder.path() / "a.bin");
  bytes[kChecksumBlock + 1] = 1;
  write_raw(folder.path() / "a.bin", bytes);
  const std::string message = test::user_error(read);
  EXPECT_CONTAINS(message, "a.bin' is damaged: block 1 of 2 (bytes 1048576 to 1048595) has checksum ");
  EXPECT_CONTAINS(message, "expected " + sums.substr(16));
  manifest(sums.substr(0, 16));
  EXPECT_CONTAINS(test::user_error(read), "2 blocks, but checksums of 1 blocks");
  manifest(sums.substr(1));
  EXPECT_CONTAINS(test::user_error(read), "16 hexadecimal digits per block");
  // Manifests of others, or none.
  for (const char* other : {"{}", "[1]", "not JSON"}) {
    write_raw(folder.path() / "a.json", other);
    EXPECT_EQ(read()[0], 5) << other;
  }
}

TEST(MegatronFile, EveryTruncationAndFlippedSizeIsRefused) {
  const test::TempFolder folder;
  MegatronWriter writer(folder.path() / "a", 1000);
  for (int i = 1; i < 4; ++i) writer.add_document(std::vector<int32_t>(static_cast<size_t>(i), i));
  writer.finish();
  const std::string index = bytes_of(folder.path() / "a.idx");
  for (size_t size = 9; size < index.size(); ++size) {
    write_raw(folder.path() / "a.idx", std::string_view(index).substr(0, size));
    EXPECT_NE(test::user_error([&] { open_foreign_file(folder.path() / "a", 1000); }), "") << size;
  }
  for (size_t at = 9; at < index.size(); ++at) {  // after the magic every byte matters
    std::string damaged = index;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    write_raw(folder.path() / "a.idx", damaged);
    EXPECT_NE(test::user_error([&] { open_foreign_file(folder.path() / "a", 1000); }), "") << at;
  }
  write_raw(folder.path() / "a.idx", index);
  write_raw(folder.path() / "a.bin", "12345");
  EXPECT_CONTAINS(test::user_error([&] { open_foreign_file(folder.path() / "a", 1000); }), "is truncated");
}

TEST(NanoGptFile, IsOneDocumentOf16BitIds) {
  const test::TempFolder folder;
  using namespace std::string_view_literals;
  write_raw(folder.path() / "train.bin", "\1\0\2\1"sv);
  EXPECT_EQ(tokens_of(*open_foreign_file(folder.path() / "train.bin", 50257)),
            (std::vector<int32_t>{1, 258}));
  write_raw(folder.path() / "train.bin", "\1\0\2"sv);
  EXPECT_CONTAINS(test::user_error([&] { open_foreign_file(folder.path() / "train.bin", 50257); }), "odd");
  std::string header(1024, '\0');
  const int32_t fields[] = {20240520, 1, 2};
  std::memcpy(header.data(), fields, sizeof fields);
  write_raw(folder.path() / "train.bin", header + std::string("\7\0\1\0", 4));
  EXPECT_EQ(tokens_of(*open_foreign_file(folder.path() / "train.bin", 50257)), (std::vector<int32_t>{7, 1}));
  write_raw(folder.path() / "train.bin", header);
  EXPECT_CONTAINS(test::user_error([&] { open_foreign_file(folder.path() / "train.bin", 50257); }),
                  "declares 2 tokens");
}

// Several token files as one set: what one file with the same documents gives.
TEST(TokenFileList, ReadsAsOneFileWithTheSameDocuments) {
  const test::TempFolder folder;
  const auto bytes = tokenizer::load_tokenizer("bytes");
  std::vector<std::vector<int32_t>> documents;
  for (uint64_t i = 0; i < 60; ++i) {
    documents.emplace_back(1 + base::philox(7, i)[0] % 40);
    for (size_t k = 0; k < documents.back().size(); ++k)
      documents.back()[k] = static_cast<int32_t>(base::philox(8, i, k)[0] % 256);
  }
  MegatronWriter whole(folder / "whole", 256);
  for (const auto& document : documents) whole.add_document(document);
  whole.finish();
  for (int part = 0; part < 3; ++part) {
    base::make_directories(folder / "shards");
    MegatronWriter writer(folder / "shards" / ("train_" + std::to_string(part)), 256);
    for (int i = part * 20; i < part * 20 + 20; ++i) writer.add_document(documents[static_cast<size_t>(i)]);
    writer.finish();
  }
  const Corpus one = open_corpus({folder / "whole.bin"}, *bytes, 1 << 20).corpus;
  const std::vector<base::Path> folder_only = {folder / "shards"};
  EXPECT_TRUE(is_tokenised(folder_only));
  for (const std::vector<base::Path>& paths :
       {folder_only,
        {folder / "shards/train_0.bin", folder / "shards/train_1", folder / "shards/train_2.idx"}}) {
    const Corpus list = open_corpus(paths, *bytes, 1 << 20).corpus;
    EXPECT_EQ(list.tokens(), one.tokens());
    EXPECT_TRUE(std::ranges::equal(list.offsets(), one.offsets()));
    for (const bool best_fit : {false, true}) {
      DatasetOptions options{.seq_len = 16, .separate_documents = true, .validation_fraction = 0.2};
      if (best_fit) options.best_fit = config::LongDocuments::Split;
      const Splits a = make_splits(one, options), b = make_splits(list, options);
      for (const auto& [x, y] : {std::pair(&a.train, &b.train), std::pair(&*a.validation, &*b.validation)}) {
        ASSERT_EQ(x->size(), y->size());
        for (int64_t i = 0; i < x->size(); ++i) {
          x->will_read(i), y->will_read(i);
          EXPECT_EQ(x->get(i).tokens, y->get(i).tokens);
          EXPECT_EQ(x->get(i).labels, y->get(i).labels);
        }
      }
    }
    list.check_tokens();
    EXPECT_NE(
        list.fingerprint(),
        open_corpus({folder / "shards/train_1", folder / "shards/train_0"}, *bytes, 0).corpus.fingerprint());
  }
  std::filesystem::rename(folder / "shards/train_2.bin", folder / "shards/val_2.bin");
  std::filesystem::rename(folder / "shards/train_2.idx", folder / "shards/val_2.idx");
  EXPECT_CONTAINS(test::user_error([&] { open_corpus(folder_only, *bytes, 0); }),
                  "the name of 'val_2' says that it is held out");
  base::write_file_atomically(folder / "a.txt", "text");
  EXPECT_CONTAINS(test::user_error([&] {
                    open_corpus({folder / "a.txt", folder / "whole.bin"}, *bytes, 0);
                  }),
                  "token files may be listed together");
}

// The first of the ids that no token has is reported, whichever thread finds one.
TEST(NanoGptFile, AllIdsAreCheckedByThreads) {
  const test::TempFolder folder;
  std::vector<uint16_t> ids(5'000'000, 7);
  ids[3'500'000] = 2000;
  ids[4'900'000] = 3000;
  const auto write = [&] {
    base::write_file_atomically(folder / "train.bin",
                                {reinterpret_cast<const char*>(ids.data()), 2 * ids.size()});
    return *open_foreign_file(folder / "train.bin", 1000);
  };
  const Corpus bad = write();
  EXPECT_FALSE(bad.has_checksums());
  for (const int threads : {1, 4})
    EXPECT_CONTAINS(test::user_error([&] { bad.check_tokens(threads); }), "token 2000 at position 3500000");
  ids[3'500'000] = ids[4'900'000] = 999;
  write().check_tokens(4);
  ids.back() = 3000;
  EXPECT_CONTAINS(test::user_error([&] { write().check_tokens(4); }), "token 3000 at position 4999999");
}

}  // namespace
}  // namespace quintet::data
