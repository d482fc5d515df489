// Folders and files that `datasets` and pyarrow wrote (tests/golden/make_datasets.py).
#include "data/arrow_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/temp_folder.h"
#include "support/folders.h"

namespace quintet::data {
namespace {

using test::user_error;

const base::Path kDatasets = base::Path(test::source_dir()) / "tests/golden/datasets";
const std::vector<std::string> kTexts = {"first document", "", "größer — 第三", std::string(300, 'a')};

std::vector<std::vector<int32_t>> documents_of(const Corpus& corpus) {
  std::vector<std::vector<int32_t>> documents;
  for (size_t d = 0; d + 1 < corpus.offsets().size(); ++d) {
    auto& ids = documents.emplace_back(corpus.offsets()[d + 1] - corpus.offsets()[d]);
    corpus.read(static_cast<int64_t>(corpus.offsets()[d]), ids);
  }
  return documents;
}

// A tokenizer with as many ids as the golden token lists have.
class WideBytes : public tokenizer::Tokenizer {
 public:
  tokenizer::Kind kind() const override { return tokenizer::Kind::WordLevel; }
  int64_t vocab_size() const override { return 65536; }
  void encode(std::string_view text, std::vector<int32_t>& ids, bool) const override {
    for (const unsigned char c : text) ids.push_back(c);
  }
  std::string decode(std::span<const int32_t> ids, bool) const override {
    return std::string(ids.begin(), ids.end());
  }
  std::string token(int32_t id) const override { return std::to_string(id); }
  std::optional<int32_t> id(std::string_view) const override { return std::nullopt; }
};

std::vector<std::string> texts_in(const base::Path& file) {
  std::vector<std::string> texts;
  const base::MappedFile mapped(file);
  read_arrow(
      mapped.bytes(), file.string(),
      {.text = [&](std::string_view t) { texts.emplace_back(t); },
       .tokens = [&](std::span<const int32_t>, std::span<const uint8_t>) { texts.emplace_back("tokens"); }});
  return texts;
}

TEST(ArrowFile, ReadsTextFoldersOfDatasets) {
  for (const char* name : {"text", "large_text"}) {
    ASSERT_TRUE(is_datasets_folder(kDatasets / name));
    const Opened opened = read_datasets_folder(kDatasets / name, WideBytes());
    const auto documents = documents_of(opened.corpus);
    ASSERT_EQ(documents.size(), 3U) << name;  // the empty one is skipped
    EXPECT_EQ(std::string(documents[0].begin(), documents[0].end()), kTexts[0]);
    EXPECT_EQ(std::string(documents[1].begin(), documents[1].end()), kTexts[2]);
    EXPECT_EQ(std::string(documents[2].begin(), documents[2].end()), kTexts[3]);
    EXPECT_CONTAINS(opened.reading, "4 rows in");
  }
}

TEST(ArrowFile, ReadsTokenFoldersOfDatasets) {
  std::vector<int32_t> counting(100);
  std::iota(counting.begin(), counting.end(), 0);
  for (const char* name : {"ids", "wide_ids", "small_ids"})
    EXPECT_EQ(documents_of(read_datasets_folder(kDatasets / name, WideBytes()).corpus),
              (std::vector<std::vector<int32_t>>{{1, 2, 3}, {65535}, counting}))
        << name;
}

// Of fine-tuning sets the prompts are not trained, and padding is no part of a document.
TEST(ArrowFile, LabelsAndMasksSayWhatIsTrained) {
  for (const char* name : {"labels", "masks"}) {
    const Opened opened = read_datasets_folder(kDatasets / name, WideBytes());
    EXPECT_EQ(documents_of(opened.corpus), (std::vector<std::vector<int32_t>>{{5, 6}, {1, 2, 3}, {8, 9}}))
        << name;
    const auto trained = opened.corpus.trained();
    EXPECT_EQ(std::vector<int>(trained.begin(), trained.end()), (std::vector<int>{0, 1, 0, 1, 1, 1, 1}))
        << name;
  }
  EXPECT_TRUE(read_datasets_folder(kDatasets / "ids", WideBytes()).corpus.trained().empty());
}

// An attention mask alone says what is padding, not what is trained.
TEST(ArrowFile, PaddingIsNotAMaskOfTrainedTokens) {
  const test::TempFolder folder;
  std::filesystem::copy(kDatasets / "masks", folder / "d");
  const base::Path file = folder / "d/data-00000-of-00001.arrow";
  std::string bytes = base::read_file(file);
  for (size_t at = 0; (at = bytes.find("completion_mask", at)) != std::string::npos; ++at) bytes[at] = 'x';
  base::write_file_atomically(file, bytes);
  const Opened opened = read_datasets_folder(folder / "d", WideBytes());
  EXPECT_EQ(documents_of(opened.corpus), (std::vector<std::vector<int32_t>>{{5, 6}, {1, 2, 3}, {8, 9}}));
  EXPECT_TRUE(opened.corpus.trained().empty());
}

TEST(ArrowFile, TheEndFollowsDocumentsOfTextOnly) {
  const auto documents = documents_of(read_datasets_folder(kDatasets / "text", WideBytes(), 7).corpus);
  ASSERT_EQ(documents.size(), 3U);
  for (const auto& document : documents) EXPECT_EQ(document.back(), 7);
  EXPECT_EQ(documents[0].size(), kTexts[0].size() + 1);
  EXPECT_CONTAINS(user_error([] { read_datasets_folder(kDatasets / "ids", WideBytes(), 7); }),
                  "data.end has no effect on");
}

TEST(ArrowFile, SkipsColumnsOfEveryKind) {
  for (const char* name : {"stream", "file", "dictionary"})
    EXPECT_EQ(texts_in(kDatasets / "kinds" / (std::string(name) + ".arrow")), kTexts) << name;
}

TEST(ArrowFile, RefusesWhatItCannotRead) {
  const auto refused = [](const char* name) {
    return user_error([&] { texts_in(kDatasets / "kinds" / (std::string(name) + ".arrow")); });
  };
  EXPECT_CONTAINS(refused("compressed"), "is compressed");
  EXPECT_CONTAINS(refused("null_rows"), "nulls");
  EXPECT_CONTAINS(refused("no_column"), "has the columns words; expected \"input_ids\" or \"text\"");
  EXPECT_CONTAINS(refused("wrong_type"), "column \"text\" must hold strings");
  EXPECT_CONTAINS(refused("negative"), "has the id -1");
  EXPECT_CONTAINS(refused("other_labels"), "has 3 at position 1, where the id or -100 is expected");
  EXPECT_CONTAINS(refused("short_labels"), "has 1 values for 2 ids");
  EXPECT_CONTAINS(refused("holes"), "has 0 at position 1, inside the document");
  EXPECT_CONTAINS(refused("class_labels"), "column \"labels\" must hold lists of integers");
}

// Every truncation and every flipped byte is read or refused; nothing else happens.
TEST(ArrowFile, DamageIsRefusedOrHarmless) {
  for (const char* name : {"kinds/stream", "kinds/dictionary", "ids/data-00000-of-00001"}) {
    const std::string good = base::read_file(kDatasets / (std::string(name) + ".arrow"));
    int refused = 0;
    const auto try_bytes = [&](const std::string& bytes) {
      try {
        read_arrow(std::as_bytes(std::span(bytes)), name,
                   {[](std::string_view) {}, [](std::span<const int32_t>, std::span<const uint8_t>) {}});
      } catch (const base::UserError&) {
        ++refused;
      }
    };
    // The last eight bytes are the end marker: without it rows could be missing.
    for (size_t size = 0; size < good.size(); ++size) {
      const int before = refused;
      try_bytes(good.substr(0, size));
      EXPECT_EQ(refused, before + 1) << name << " cut to " << size;
    }
    std::string negative = good;
    for (size_t at = 4; at < 8; ++at) negative[negative.size() - 8 + at] = '\xff';
    const int before = refused;
    try_bytes(negative);
    EXPECT_EQ(refused, before + 1) << name;
    for (size_t at = 0; at < good.size(); ++at)
      for (const char flip : {'\x01', '\x80', '\xff'}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ flip);
        try_bytes(bad);
      }
    EXPECT_GT(refused, static_cast<int>(good.size()) / 2) << name;
  }
}

TEST(ArrowFile, AFolderOfSplitsOrAMissingFileIsNamed) {
  const test::TempFolder folder;
  std::ofstream(folder / "dataset_dict.json") << "{\"splits\": [\"train\"]}";
  EXPECT_CONTAINS(user_error([&] { read_datasets_folder(folder.path(), WideBytes()); }), "train'");
  std::ofstream(folder / "state.json") << "{\"_data_files\": [{\"filename\": \"gone.arrow\"}]}";
  EXPECT_CONTAINS(user_error([&] { read_datasets_folder(folder.path(), WideBytes()); }), "gone.arrow");
  std::ofstream(folder / "state.json") << "[]";
  EXPECT_CONTAINS(user_error([&] { read_datasets_folder(folder.path(), WideBytes()); }), "_data_files");
}

}  // namespace
}  // namespace quintet::data
