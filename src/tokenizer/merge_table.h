// The merges of a byte-pair encoding: the rank of a pair of tokens, and what it becomes. Half of the time of
// encoding a new word is waiting for this table, so a slot has 8 bytes, eight of them to a cache line.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/huge_pages.h"

namespace quintet::tokenizer {

class MergeTable {
 public:
  static constexpr uint32_t kNoRank = ~0u;

  struct Merge {
    int32_t left = 0, right = 0;
    uint32_t rank = 0;
    int32_t joined = 0;
  };
  MergeTable() : MergeTable({}, 1) {}
  // Of two merges of one pair the last one counts. Two merges of one rank make the same token. Every id that
  // is looked up is below `ids`, also those that no merge has.
  MergeTable(const std::vector<Merge>& merges, int32_t ids);

  // kNoRank: the pair is not merged.
  uint32_t rank(int32_t left, int32_t right) const { return rank_at(place_of(left, right)); }
  // Of two pairs: both slots are fetched before either is looked at.
  std::pair<uint32_t, uint32_t> ranks(int32_t left, int32_t middle, int32_t right) const {
    const Place a = place_of(left, middle), b = place_of(middle, right);
    __builtin_prefetch(&slots_[b.slot]);
    const uint32_t first = rank_at(a);
    return {first, rank_at(b)};
  }
  int32_t joined(uint32_t rank) const { return joined_[rank]; }
  // By rank; -1: no merge has it.
  const std::vector<int32_t>& all_joined() const { return joined_; }

 private:
  // Open addressing, at most half full. The key of a pair is a number of `key_bits_` bits, mixed by a
  // bijection; its highest bits are the first slot to look at, its lowest 32 the tag. Keys with the same tag
  // begin so far apart that no run of full slots leads from one to the other.
  struct Slot {
    uint32_t tag = 0, rank = kNoRank;
  };
  struct Place {
    size_t slot;
    uint32_t tag;
  };
  Place place_of(int32_t left, int32_t right) const {
    const uint64_t key =
        static_cast<uint64_t>(static_cast<uint32_t>(left)) << id_bits_ | static_cast<uint32_t>(right);
    const uint64_t mixed = (key * 0x9E3779B97F4A7C15ull) << (64 - key_bits_);  // the key's bits at the top
    return {static_cast<size_t>(mixed >> slot_shift_), static_cast<uint32_t>(mixed >> (64 - key_bits_))};
  }
  uint32_t rank_at(Place place) const {
    for (;; place.slot = (place.slot + 1) & (slots_.size() - 1)) {
      const Slot& slot = slots_[place.slot];
      if (slot.tag == place.tag || slot.rank == kNoRank) return slot.rank;
    }
  }
  bool fill(const std::vector<Merge>& merges, int slot_bits);

  int id_bits_ = 1, key_bits_ = 2, slot_shift_ = 0;
  std::vector<Slot, base::HugePages<Slot>> slots_;
  std::vector<int32_t> joined_;
};

}  // namespace quintet::tokenizer
