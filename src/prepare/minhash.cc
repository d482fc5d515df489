#include "prepare/minhash.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/checksum.h"
#include "base/philox.h"

namespace quintet::prepare {
namespace {

constexpr size_t kShingle = 5;  // words

struct Multipliers {
  std::array<uint32_t, kHashes> factor, offset;
};

const Multipliers& multipliers() {
  static const Multipliers table = [] {
    Multipliers m;
    const uint64_t key = base::stream_key(0, "prepare.minhash");
    for (size_t i = 0; i < kHashes; ++i) {
      const auto words = base::philox(key, i);
      m.factor[i] = words[0] | 1;  // odd: a permutation of the 32-bit numbers
      m.offset[i] = words[1];
    }
    return m;
  }();
  return table;
}

uint64_t mixed(uint64_t x) {  // the finaliser of SplitMix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

bool in_word(unsigned char c) {
  return c >= 0x80 || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
}

// Hashes of the words, in order.
std::vector<uint64_t> words_of(std::string_view text) {
  std::vector<uint64_t> words;
  for (size_t at = 0; at < text.size();) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (!in_word(c)) {
      ++at;
      continue;
    }
    uint64_t hash = 0xCBF29CE484222325;
    const auto add = [&](unsigned char byte) { hash = (hash ^ byte) * 0x100000001B3; };
    if (c >= 0xE3) {
      const size_t end = std::min(text.size(), at + (c >= 0xF0 ? 4 : 3));
      for (; at < end; ++at) add(static_cast<unsigned char>(text[at]));
    } else {
      for (; at < text.size(); ++at) {
        const auto b = static_cast<unsigned char>(text[at]);
        if (!in_word(b) || b >= 0xE3) break;
        add(b >= 'A' && b <= 'Z' ? b + 32 : b);
      }
    }
    words.push_back(mixed(hash));
  }
  return words;
}

}  // namespace

Signature minhash(std::string_view text) {
  const std::vector<uint64_t> words = words_of(text);
  const Multipliers& m = multipliers();
  Signature out;
  out.fill(UINT32_MAX);
  const auto add = [&](uint64_t shingle) {
    const auto h = static_cast<uint32_t>(mixed(shingle) >> 32);
    for (size_t i = 0; i < kHashes; ++i) out[i] = std::min(out[i], m.factor[i] * h + m.offset[i]);
  };
  if (words.empty()) add(base::checksum_of(std::as_bytes(std::span(text))));
  for (size_t first = 0; first == 0 || first + kShingle <= words.size(); ++first) {
    if (words.empty()) break;
    uint64_t hash = 0;
    for (size_t i = first; i < std::min(words.size(), first + kShingle); ++i) hash = mixed(hash + words[i]);
    add(hash);
  }
  return out;
}

double similarity(std::span<const uint32_t, kHashes> a, std::span<const uint32_t, kHashes> b) {
  int equal = 0;
  for (size_t i = 0; i < kHashes; ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / kHashes;
}

// More rows in a band mean fewer needless comparisons, fewer rows fewer missed duplicates. Whole signatures
// decide in the end, so only what is missed counts.
Bands bands_for(double threshold) {
  for (int rows = static_cast<int>(kHashes); rows > 1; --rows) {
    const int bands = static_cast<int>(kHashes) / rows;
    if (1 - std::pow(1 - std::pow(threshold, rows), bands) >= kCompared) return {bands, rows};
  }
  return {static_cast<int>(kHashes), 1};
}

uint64_t band_key(std::span<const uint32_t, kHashes> signature, const Bands& bands, int band) {
  uint64_t key = mixed(static_cast<uint64_t>(band) + 1);
  for (int i = 0; i < bands.rows; ++i)
    key = mixed(
        key +
        signature[static_cast<size_t>(band) * static_cast<size_t>(bands.rows) + static_cast<size_t>(i)]);
  return key;
}

}  // namespace quintet::prepare
