// A small hash for comparing sequences.
#pragma once

#include <cstdint>

namespace quintet::comm {

// Combines the hash so far with one more word.
inline uint64_t mixed(uint64_t so_far, uint64_t word) {
  uint64_t x = so_far * 0x9e3779b97f4a7c15ull + word + 0x632be59bd9b4e019ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace quintet::comm
