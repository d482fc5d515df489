// Distributes pairs to their experts. Experts come in tiles; a tile's first column collects the pairs of all
// lower tiles, which are only counted.
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/reduce/columns.cuh"

namespace quintet::kernels::cuda {
namespace {

struct Route {
  struct Item {
    int column;
    uint32_t pair;
  };
  const int32_t* kept;
  uint32_t experts, slots, each;  // `each`: slots per expert if padded
  bool padded;
  int column_count;
  int32_t *order, *send;

  __device__ __forceinline__ int columns() const { return column_count; }
  __device__ __forceinline__ uint32_t first_expert() const { return blockIdx.y * uint32_t{kRouteTile}; }

  __device__ __forceinline__ Item read(uint32_t i) const {
    const auto expert = static_cast<uint32_t>(kept[i]);  // a negative one becomes larger than all
    const uint32_t first = first_expert();
    const bool none = expert >= experts || expert >= first + kRouteTile;
    return {none ? -1 : expert < first ? 0 : static_cast<int>(expert - first + 1), i};
  }
  __device__ __forceinline__ void put(const Item& item, uint32_t start, uint32_t rank) const {
    if (item.column == 0) return;
    const uint32_t expert = first_expert() + static_cast<uint32_t>(item.column) - 1;
    const uint32_t slot = padded ? expert * each + rank : start + rank;
    if (padded ? rank < each : slot < slots) order[slot] = static_cast<int32_t>(item.pair);
  }
  __device__ __forceinline__ void skip(const Item&) const {}
  __device__ __forceinline__ void finish(const uint32_t* starts, const uint32_t* totals) const {
    const uint32_t first = first_expert(), mine = min(experts - first, uint32_t{kRouteTile});
    const bool last = blockIdx.y == gridDim.y - 1;
    if (blockIdx.x == 0)
      for (uint32_t e = threadIdx.x; e < mine; e += blockDim.x)
        send[first + e] = static_cast<int32_t>(padded ? each : totals[e + 1]);
    // Unused slots.
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    if (padded) {
      const uint32_t end = last ? slots : (first + mine) * each;
      for (uint32_t s = first * each + thread; s < end; s += step) {
        const uint32_t e = each > 0 ? s / each - first : mine;
        if (e >= mine || s - (first + e) * each >= totals[e + 1]) order[s] = -1;
      }
    } else if (last) {
      for (uint32_t s = starts[mine] + totals[mine] + thread; s < slots; s += step) order[s] = -1;
    }
  }
};

}  // namespace

void route(const int32_t* kept, int64_t tokens, int64_t choices, int64_t experts, bool padded, int64_t slots,
           int32_t* order, int32_t* send, void* workspace, Stream stream) {
  constexpr int64_t kMaxPairs = int64_t{1} << 31;
  if (tokens * choices >= kMaxPairs || slots >= kMaxPairs || experts > kRouteTile * 65535)
    fail("route: " + std::to_string(slots) + " slots of " + std::to_string(experts) +
         " experts, fewer than 2^31 slots and at most " + std::to_string(int64_t{65535} * kRouteTile) +
         " experts are supported");
  const Route body{.kept = kept,
                   .experts = static_cast<uint32_t>(experts),
                   .slots = static_cast<uint32_t>(slots),
                   .each = experts > 0 ? static_cast<uint32_t>(slots / experts) : 0,
                   .padded = padded,
                   .column_count = static_cast<int>(route_columns(experts)),
                   .order = order,
                   .send = send};
  deal(body, tokens * choices, route_tiles(experts), 1, static_cast<uint32_t*>(workspace), stream, "route");
}

}  // namespace quintet::kernels::cuda
