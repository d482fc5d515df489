// Fixed splits of reductions: functions of the size alone, so that boundaries depend neither on the number of
// threads nor on the instruction set.
#pragma once

#include <cstdint>

namespace quintet::kernels::cpu {

// Rows of a column reduction are cut into at most 64 chunks of at least 32 rows (one chunk if there are
// fewer).
constexpr int64_t column_chunks(int64_t rows) {
  const int64_t chunks = rows / 32;
  return chunks < 1 ? 1 : chunks > 64 ? 64 : chunks;
}

// Elements per chunk of a flat reduction, and bytes per chunk of a hash.
inline constexpr int64_t kFlatChunk = 16384;
inline constexpr int64_t kHashChunk = 65536;
constexpr int64_t chunk_count(int64_t n, int64_t chunk) { return (n + chunk - 1) / chunk; }

}  // namespace quintet::kernels::cpu
