// Tokenizers that are trained here, other formats, and files that are damaged.
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/temp_folder.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/expressions.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"

namespace quintet::tokenizer {
namespace {

std::string trained(std::string_view text, int32_t vocab) {
  WordCounts counts(*known_pattern(kLlama3));
  counts.add(text);
  return train_bpe(counts, {vocab, {"<|endoftext|>"}, kLlama3});
}

TEST(TrainBpe, JoinsTheMostFrequentPairsFirst) {
  // "ab" occurs 5 times, "abc" 3 times, " x" twice.
  const auto tokenizer = load_hf_tokenizer(trained("abc\nabc\nabc\nab\nab x x", 257 + 3));
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  EXPECT_EQ(tokenizer->token(257), "ab");
  EXPECT_EQ(tokenizer->token(258), "abc");
  EXPECT_EQ(tokenizer->token(259), "\u0120x");  // how such files spell a space
  EXPECT_EQ(tokenizer->encode("abc x<|endoftext|>"), (std::vector<int32_t>{258, 259, 0}));
}

TEST(TrainBpe, EveryTextRoundTrips) {
  const auto tokenizer = load_hf_tokenizer(trained("the quick brown fox jumps over the lazy dog", 300));
  for (const char* text : {"the dog", "\u6f22\u5b57 \U0001F600\r\n\t  ", "", "a\u0301'S 1234"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(TrainBpe, StopsWhenNoPairIsLeft) {
  EXPECT_EQ(load_hf_tokenizer(trained("ab ab", 100000))->vocab_size(), 257 + 2);  // "ab", " ab"
  EXPECT_CONTAINS(test::user_error([] { trained("ab", 200); }), "the smallest is 257");
}

TEST(NormalForms, ComposeAsThePackageDoes) {
  auto json = nlohmann::json::parse(trained("ab ab", 300));
  json["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = load_hf_tokenizer(json.dump());
  const auto normal = [&](const char* text) { return tokenizer->decode(tokenizer->encode(text)); };
  EXPECT_EQ(normal("e\u0301"), "\u00e9");
  EXPECT_EQ(normal("\u1100\u1161\u11a8"), "\uac01");  // leading, vowel, trailing
  EXPECT_EQ(normal("\uac00\u11a8"), "\uac01");
  // The character before the first trailing consonant, and the one after the last, are none.
  EXPECT_EQ(normal("\uac00\u11a7"), "\uac00\u11a7");
  EXPECT_EQ(normal("\u1100\u1161\u11a7\u11a8"), "\uac00\u11a7\u11a8");
  EXPECT_EQ(normal("\uac00\u11c3"), "\uac00\u11c3");
  // A mark that the package does not know keeps its place, and is in the way of others.
  EXPECT_EQ(normal("e\u0898\u0301"), "e\u0898\u0301");
  EXPECT_EQ(normal("e\u0316\u0301"), "\u00e9\u0316");
}

TEST(Tiktoken, RanksAreMerges) {
  // Every byte, then "ab" and "abc"; named after GPT-4's file, whose expression splits text.
  std::string file;
  const auto base64 = [](std::string_view bytes) {
    static const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (size_t i = 0; i < bytes.size(); i += 3) {
      uint32_t bits = 0;
      for (size_t k = 0; k < 3; ++k)
        bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
      for (size_t k = 0; k < 4; ++k)
        out.push_back(i + k <= bytes.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=');
    }
    return out;
  };
  for (int byte = 0; byte < 256; ++byte)
    file += base64(std::string(1, static_cast<char>(byte))) + " " + std::to_string(byte) + "\n";
  file += base64("ab") + " 256\n" + base64("abc") + " 257\n";
  const auto tokenizer = load_tiktoken(file, "cl100k_base.tiktoken");
  EXPECT_EQ(tokenizer->encode("abcabab"), (std::vector<int32_t>{257, 256, 256}));
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), (std::vector<int32_t>{100257}));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{257, 100257}, true), "abc");
  EXPECT_CONTAINS(test::user_error([&] { load_tiktoken(file, "mine.tiktoken"); }),
                  "does not say how it splits text");
  EXPECT_CONTAINS(test::user_error([&] { load_tiktoken(file.substr(7), "cl100k"); }),
                  "no token for the byte 0");
}

TEST(TokenizerFile, DamageIsNamed) {
  const auto error = [](std::string_view json) { return test::user_error([&] { load_hf_tokenizer(json); }); };
  EXPECT_CONTAINS(error("{"), "not a JSON object");
  EXPECT_CONTAINS(error("{}"), "no \"model\"");
  EXPECT_CONTAINS(error(R"({"model": {"type": "Neural"}})"), "'Neural' is not supported");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"),
                  "needs the token 'b'");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["ab"]}})"), "merge 0");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"), "id -1");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "dropout": 0.1}})"), "dropout");
  EXPECT_CONTAINS(error(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 7}})"),
                  "unk_id is 7");
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "normalizer": {"type": "Magic"}})"),
                  "'Magic'");
  EXPECT_CONTAINS(
      error(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "pre_tokenizer": {"type": "Split", "pattern":
                        {"Regex": "(a"}, "behavior": "Isolated"}})"),
      "no ')' for a '('");
  std::string deep;
  for (int i = 0; i < 50000; ++i) deep += R"({"type": "Sequence", "normalizers": [)";
  deep += R"({"type": "NFC"})";
  for (int i = 0; i < 50000; ++i) deep += "]}";
  EXPECT_CONTAINS(error(R"({"model": {"type": "BPE", "vocab": {"a": 0}}, "normalizer": )" + deep + "}"),
                  "JSON that nests deeper than 256 levels");
  EXPECT_CONTAINS(test::user_error([] { load_sentencepiece("nothing of the kind"); }), "SentencePiece");
}

// SentencePiece's library follows a trie without looking whether it ends.
TEST(CharsMap, IsSoundIfNoLookupLeavesIt) {
  const auto map = [](std::vector<std::pair<size_t, uint32_t>> units, size_t replacements) {
    std::string bytes(4 + 4 * 256, '\0');
    bytes[1] = 4;  // 1,024 bytes of trie
    for (const auto& [at, unit] : units) std::memcpy(bytes.data() + 4 + 4 * at, &unit, 4);
    return bytes + std::string(replacements, 'x');
  };
  constexpr uint32_t kLeaf = 1 << 8, kValue = 1u << 31;
  EXPECT_TRUE(is_sound_charsmap(map({}, 1)));
  // From the root, "a" leads to a leaf whose value is at 2 ^ 'a': a place in the replacements.
  const auto to_a = [&](uint32_t value) {
    return std::vector<std::pair<size_t, uint32_t>>{{'a', 2u << 10 | kLeaf | 'a'}, {'a' ^ 2, kValue | value}};
  };
  EXPECT_TRUE(is_sound_charsmap(map(to_a(4), 5)));
  EXPECT_FALSE(is_sound_charsmap(map(to_a(5), 5)));
  EXPECT_FALSE(is_sound_charsmap(map({{0, 256u << 10}}, 5)));               // the root's children
  EXPECT_FALSE(is_sound_charsmap(map({{'a', 256u << 10 | 'a'}}, 5)));       // those of "a"
  EXPECT_FALSE(is_sound_charsmap(map({{0, 0x1fffffu << 10 | 0x200}}, 5)));  // far away
  EXPECT_TRUE(is_sound_charsmap(map({{'a', 'a'}}, 5)));                     // a circle is harmless
  EXPECT_FALSE(is_sound_charsmap(map({}, 0).substr(0, 1000)));
  EXPECT_FALSE(is_sound_charsmap("abc"));
}

TEST(TokenizerFile, IsFoundInAFolder) {
  const test::TempFolder folder;
  EXPECT_CONTAINS(test::user_error([&] { load_tokenizer(folder.path().string()); }), "has no tokenizer.json");
  base::write_file_atomically(folder.path() / "tokenizer.json", trained("ab ab", 258));
  EXPECT_EQ(load_tokenizer(folder.path().string())->vocab_size(), 258);
}

}  // namespace
}  // namespace quintet::tokenizer
