#include "prepare/duplicates.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>

#include "base/temp_folder.h"
#include "prepare/external_sort.h"

namespace quintet::prepare {
namespace {

using test::TempFolder;

TEST(ExternalSort, SortsAsMemoryWould) {
  const TempFolder folder;
  std::mt19937_64 random(3);
  std::vector<uint64_t> values(10'000);
  for (uint64_t& v : values) v = random() % 3000;
  for (const int64_t memory : {8, 800, 16'000, 8 << 20}) {
    ExternalSort<uint64_t> sort(folder.path(), "t", memory);
    for (const uint64_t v : values) sort.add(v);
    EXPECT_EQ(sort.runs() > 0, memory < 80'000);
    std::vector<uint64_t> sorted;
    if (memory == 8) continue;  // one run per value: only that it works
    sort.for_each([&](uint64_t v) { sorted.push_back(v); });
    auto expected = values;
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(sorted, expected);
  }
  EXPECT_TRUE(base::list_files(folder.path()).empty()) << "runs are removed";
}

// A text of `count` words of a small vocabulary.
std::vector<std::string> random_words(std::mt19937& random, int count) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) words.push_back("w" + std::to_string(random() % 500));
  return words;
}
std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word + " ";
  return text;
}
std::set<std::string> shingles(const std::vector<std::string>& words) {
  std::set<std::string> out;
  for (size_t i = 0; i + 5 <= words.size(); ++i)
    out.insert(
        joined({words.begin() + static_cast<ptrdiff_t>(i), words.begin() + static_cast<ptrdiff_t>(i) + 5}));
  return out;
}
double jaccard(const std::set<std::string>& a, const std::set<std::string>& b) {
  size_t common = 0;
  for (const std::string& s : a) common += b.count(s);
  return static_cast<double>(common) / static_cast<double>(a.size() + b.size() - common);
}

TEST(MinHash, EstimatesTheJaccardSimilarity) {
  std::mt19937 random(4);
  double sum = 0, squares = 0;
  constexpr int kPairs = 200;
  for (int i = 0; i < kPairs; ++i) {
    auto a = random_words(random, 200), b = a;
    const int changed = i % 20;
    for (int k = 0; k < changed; ++k) b[random() % b.size()] = "other" + std::to_string(k);
    const double exact = jaccard(shingles(a), shingles(b)),
                 found = similarity(minhash(joined(a)), minhash(joined(b)));
    const double deviation = std::sqrt(std::max(1e-9, exact * (1 - exact)) / kHashes);
    const double z = (found - exact) / std::max(deviation, 1e-4);
    EXPECT_LT(std::abs(z), 5) << exact << " " << found;
    sum += z, squares += z * z;
  }
  EXPECT_LT(std::abs(sum / kPairs), 0.3) << "no bias";
  EXPECT_LT(squares / kPairs, 1.6) << "the spread of 128 independent hashes";
}

TEST(MinHash, IgnoresCaseAndPunctuation) {
  EXPECT_EQ(minhash("The quick, brown FOX jumps over it."), minhash("the quick brown fox - jumps over it"));
  EXPECT_NE(minhash("one two three"), minhash("one two four"));
  EXPECT_NE(minhash("..."), minhash("!!!"));
  EXPECT_EQ(minhash(""), minhash(""));
  EXPECT_GT(similarity(minhash("\u4e00\u4e01\u4e02\u4e03\u4e04\u4e05\u4e06\u4e07"),
                       minhash("\u4e00\u4e01\u4e02\u4e03\u4e04\u4e05\u4e06\u4e08")),
            0.2)
      << "scripts without spaces have words too";
}

// Bands find nearly all pairs at the threshold, counted by drawing signatures that agree in each hash with
// that probability, with as many rows as that allows.
TEST(MinHash, BandsFindPairsAtTheThreshold) {
  std::mt19937 random(8);
  for (const double threshold : {0.5, 0.7, 0.8, 0.9}) {
    const auto found = [&](const Bands& bands) {
      int count = 0;
      for (int i = 0; i < 2000; ++i) {
        Signature a{}, b{};
        for (size_t k = 0; k < kHashes; ++k) b[k] = random() < threshold * 0x1p32 ? 0 : 1;
        bool agree = false;
        for (int band = 0; band < bands.bands; ++band)
          agree = agree || band_key(a, bands, band) == band_key(b, bands, band);
        count += agree;
      }
      return count / 2000.0;
    };
    const Bands bands = bands_for(threshold);
    EXPECT_GT(found(bands), kCompared - 0.02) << threshold;
    EXPECT_LT(found({static_cast<int>(kHashes) / (bands.rows + 1), bands.rows + 1}), kCompared + 0.02);
  }
}

std::vector<int64_t> list(const DropList& drops) {
  return {drops.documents().begin(), drops.documents().end()};
}

TEST(Duplicates, ExactOnesOfAnyMemory) {
  const TempFolder folder;
  std::mt19937 random(5);
  std::vector<base::Hash> keys;
  for (int i = 0; i < 5000; ++i) keys.push_back(base::hash_of(std::to_string(random() % 3000)));
  std::vector<int64_t> expected;
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t i = 0; i < keys.size(); ++i)
    if (!seen.insert({keys[i].high, keys[i].low}).second) expected.push_back(static_cast<int64_t>(i));
  for (const int64_t memory : {int64_t{4000}, int64_t{1} << 24})
    EXPECT_EQ(list(find_exact(5000, [&](int64_t i) { return keys[static_cast<size_t>(i)]; },
                              {folder.path(), memory})),
              expected);
}

// Against all pairs: documents near an earlier one are dropped, others are kept, in any memory.
TEST(Duplicates, NearOnesOfAnyMemory) {
  const TempFolder folder;
  std::mt19937 random(6);
  std::vector<std::vector<std::string>> texts;
  for (int i = 0; i < 400; ++i) {
    if (i % 4 != 0 && i > 8) {
      texts.push_back(texts[random() % texts.size()]);
      const auto changes = static_cast<int>(random() % 12);
      for (int k = 0; k < changes; ++k)
        texts.back()[random() % texts.back().size()] = "n" + std::to_string(random());
    } else {
      texts.push_back(random_words(random, 150));
    }
  }
  std::vector<Signature> signatures;
  for (const auto& words : texts) signatures.push_back(minhash(joined(words)));
  const auto find = [&](int64_t memory, const DropList& skip) {
    return list(find_near(
        400,
        [&](int64_t i) { return std::span<const uint32_t, kHashes>(signatures[static_cast<size_t>(i)]); },
        0.7, skip, {folder.path(), memory}));
  };
  const auto dropped = find(int64_t{1} << 24, {});
  EXPECT_EQ(find(2000, {}), dropped);
  const std::set<int64_t> set(dropped.begin(), dropped.end());
  int clear = 0;
  for (int64_t i = 0; i < 400; ++i) {
    double nearest = 0;
    for (int64_t k = 0; k < i; ++k)
      nearest = std::max(nearest,
                         similarity(signatures[static_cast<size_t>(k)], signatures[static_cast<size_t>(i)]));
    if (nearest < 0.7) {
      EXPECT_FALSE(set.contains(i)) << nearest;
    }
    if (nearest > 0.9) {
      EXPECT_TRUE(set.contains(i)) << nearest;
      ++clear;
    }
  }
  EXPECT_GT(clear, 50);
  EXPECT_LT(dropped.size(), 390u);
}

}  // namespace
}  // namespace quintet::prepare
