// MinHash signatures: of two texts, the share of equal entries estimates the Jaccard similarity of their sets
// of five-word shingles. Words are lower-cased runs of letters and digits; a code point from U+3000 on, where
// scripts have no spaces, is a word of its own. A text of fewer than five words is one shingle.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace quintet::prepare {

inline constexpr size_t kHashes = 128;
using Signature = std::array<uint32_t, kHashes>;

Signature minhash(std::string_view text);
double similarity(std::span<const uint32_t, kHashes> a, std::span<const uint32_t, kHashes> b);

// Texts are compared if all rows of one of the bands are equal: with similarity s, that happens with
// probability 1 - (1 - s^rows)^bands.
struct Bands {
  int bands = 0, rows = 0;
};
// The cut of the signature with the most rows in a band that compares texts at the threshold with at least
// this probability.
inline constexpr double kCompared = 0.95;
Bands bands_for(double threshold);
// The key of one band: equal in two signatures if all of its rows are.
uint64_t band_key(std::span<const uint32_t, kHashes> signature, const Bands& bands, int band);

}  // namespace quintet::prepare
