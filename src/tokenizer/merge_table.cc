#include "tokenizer/merge_table.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace quintet::tokenizer {

MergeTable::MergeTable(const std::vector<Merge>& merges, int32_t ids) {
  uint32_t ranks = 0;
  for (const Merge& merge : merges) {
    QUINTET_CHECK(std::max(merge.left, merge.right) < ids, "a merge of {} and {} among {} ids", merge.left,
                  merge.right, ids);
    ranks = std::max(ranks, merge.rank + 1);
  }
  joined_.assign(ranks, -1);
  for (const Merge& merge : merges) joined_[merge.rank] = merge.joined;
  // A pair of larger ids would have the key of another pair.
  id_bits_ = static_cast<int>(std::bit_width(static_cast<uint32_t>(std::max(ids - 1, 1))));
  key_bits_ = 2 * id_bits_;
  int slot_bits = std::max<int>({4, static_cast<int>(std::bit_width(2 * merges.size())), key_bits_ - 28});
  while (!fill(merges, slot_bits)) ++slot_bits;
}

// False if a search could end at another key with the same tag.
bool MergeTable::fill(const std::vector<Merge>& merges, int slot_bits) {
  const size_t size = size_t{1} << slot_bits;
  slots_.assign(size, {});
  slot_shift_ = 64 - slot_bits;
  for (const Merge& merge : merges) {
    auto [slot, tag] = place_of(merge.left, merge.right);
    while (slots_[slot].rank != kNoRank && slots_[slot].tag != tag) slot = (slot + 1) & (size - 1);
    slots_[slot] = {tag, merge.rank};
  }
  // Keys with the same tag differ by a multiple of 2^32, their first slots by a multiple of this.
  const int apart_bits = std::min(slot_bits, slot_bits + 32 - key_bits_);
  size_t run = 0, longest = 0;
  for (size_t i = 0; i < 2 * size; ++i) {
    run = slots_[i & (size - 1)].rank != kNoRank ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest < size_t{1} << apart_bits;
}

}  // namespace quintet::tokenizer
