// Caches of words may forget, but never give the ids of another word.
#include "tokenizer/word_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "base/checksum.h"

namespace quintet::tokenizer {
namespace {

std::string word_of(int i) { return "w" + std::to_string(i * 7919); }

// More words than the first table holds, so that it grows twice.
TEST(WordCache, KeepsWordsWhenItGrows) {
  WordCache cache;
  constexpr int kWords = 100'000;
  for (int i = 0; i < kWords; ++i) {
    const WordCache::Key key = WordCache::key(word_of(i));
    const int32_t ids[] = {i, i + 1, i + 2};
    cache.insert(key, WordCache::hash(key), std::span(ids).first(static_cast<size_t>(1 + i % 3)));
  }
  int found = 0;
  for (int i = 0; i < kWords; ++i) {
    const WordCache::Key key = WordCache::key(word_of(i));
    int32_t ids[WordCache::kMostIds] = {-1, -1, -1};
    const size_t count = cache.copy(key, WordCache::hash(key), ids);
    if (count == 0) continue;
    ++found;
    ASSERT_EQ(count, static_cast<size_t>(1 + i % 3));
    for (size_t k = 0; k < count; ++k) ASSERT_EQ(ids[k], i + static_cast<int>(k));
  }
  EXPECT_GT(found, kWords * 4 / 5);
  int32_t ids[WordCache::kMostIds];
  const WordCache::Key other = WordCache::key("other");
  EXPECT_EQ(cache.copy(other, WordCache::hash(other), ids), 0u);
}

// Of a word with more ids than a slot holds it is known that there are many, also after growing.
TEST(WordCache, RemembersThatAWordHasManyIds) {
  WordCache cache;
  const std::vector<int32_t> ids(7, 5);
  const WordCache::Key many = WordCache::key("many");
  cache.insert(many, WordCache::hash(many), ids);
  cache.insert(WordCache::key("none"), WordCache::hash(WordCache::key("none")), {});
  for (int i = 0; i < 40'000; ++i) {
    const WordCache::Key key = WordCache::key(word_of(i));
    cache.insert(key, WordCache::hash(key), std::span(ids).first(1));
  }
  int32_t out[WordCache::kMostIds];
  EXPECT_EQ(cache.copy(many, WordCache::hash(many), out), WordCache::kMany);
  const WordCache::Key none = WordCache::key("none");
  EXPECT_EQ(cache.copy(none, WordCache::hash(none), out), 0u) << "a word without ids is not kept";
}

// Both ways to a key agree for every length, whatever follows the word.
TEST(WordCache, KeysDependOnTheWordAlone) {
  const std::string a = "abcdefghijklmnopqrst";
  for (size_t size = 1; size <= WordCache::kLongest; ++size) {
    const std::string word = a.substr(0, size);
    for (const char* after : {"0123456789abcdef", "zzzzzzzzzzzzzzzz"})
      EXPECT_EQ(WordCache::key(word), WordCache::key_of_16((word + after).c_str(), size)) << size;
    EXPECT_NE(WordCache::key(word), WordCache::key(a.substr(0, size + 1))) << size;
  }
}

// Words with the same hash are distinguished, and a full cache is cleared.
TEST(LongWordCache, NeverMixesWords) {
  LongWordCache cache;
  const int32_t one[] = {1}, two[] = {2, 3};
  cache.insert("one", 42, one);
  cache.insert("two", 42, two);
  EXPECT_TRUE(std::ranges::equal(cache.find("one", 42), one));
  EXPECT_TRUE(std::ranges::equal(cache.find("two", 42), two));
  EXPECT_TRUE(cache.find("three", 42).empty());
  EXPECT_TRUE(cache.find("one", 43).empty());
  for (int i = 0; i < 300'000; ++i) {
    const std::string word = "a word of many bytes " + word_of(i);
    const uint64_t hash = base::checksum_of(std::as_bytes(std::span(word)));
    const int32_t ids[] = {i, -i};
    cache.insert(word, hash, ids);
    ASSERT_TRUE(std::ranges::equal(cache.find(word, hash), ids)) << i;
  }
  EXPECT_TRUE(cache.find("one", 42).empty()) << "it began again";
  const std::string longest(LongWordCache::kLongest + 1, 'x');
  cache.insert(longest, 7, one);
  EXPECT_TRUE(cache.find(longest, 7).empty());
}

}  // namespace
}  // namespace quintet::tokenizer
