// The ids of words seen before, since few words make up most of a text. One per thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/huge_pages.h"

namespace quintet::tokenizer {

// Words of up to 15 bytes, nearly all with at most three ids: a slot holds the word itself and is half a
// cache line, so a word that is there costs one access. Of a word with more ids it is only known that there
// are (LongWordCache has them). A set is two slots; a table that is half full grows, up to 32 MiB, and then
// the older word of a full set is evicted.
class WordCache {
 public:
  static constexpr size_t kLongest = 15, kMostIds = 3;
  static constexpr size_t kMany = kMostIds + 1;  // in place of a number of ids: they are elsewhere

  struct Key {
    uint64_t low = 0, high = 0;  // the bytes, zero-padded; the length in the last byte
    bool operator==(const Key&) const = default;
  };
  // Reads no byte outside the word. One that is too long has a key that no word in the cache has.
  static Key key(std::string_view word) {
    const char* p = word.data();
    const size_t size = word.size();
    if (size > kLongest) return {~0ull, ~0ull};
    Key key;
    if (size >= 8) {
      key.low = load<uint64_t>(p);
      key.high = size == 8 ? 0 : load<uint64_t>(p + size - 8) >> (8 * (16 - size));
    } else if (size >= 4) {  // both halves, which may overlap
      key.low = load<uint32_t>(p) | static_cast<uint64_t>(load<uint32_t>(p + size - 4)) << (8 * (size - 4));
    } else {
      const auto byte = [&](size_t i) {
        return static_cast<uint64_t>(static_cast<uint8_t>(p[i])) << (8 * i);
      };
      key.low = byte(0) | byte(size / 2) | byte(size - 1);
    }
    key.high |= static_cast<uint64_t>(size) << 56;
    return key;
  }

  // The same, where 16 bytes are readable: without a branch on the length.
  static Key key_of_16(const char* p, size_t size) {
    const Masks& masks = kMasks[std::min(size, kLongest + 1)];
    return {load<uint64_t>(p) & masks.low, (load<uint64_t>(p + 8) & masks.high) | masks.length};
  }

  static uint64_t hash(const Key& key) {
    const auto product =
        static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15ull) * (key.high ^ 0xD6E8FEB86659FD93ull);
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  // Asks for the slots of a word that is looked up soon.
  void prefetch(uint64_t hash) const { __builtin_prefetch(&sets_[hash >> shift_]); }

  // Writes the ids of the word to `out`, which has room for kMostIds. Returns their number; 0: it is not
  // there; kMany: nothing of use was written.
  size_t copy(const Key& key, uint64_t hash, int32_t* out) const {
    const Set& set = sets_[hash >> shift_];
    const Slot& slot = set.slots[set.slots[0].key == key ? 0 : 1];
    std::memcpy(out, slot.ids, sizeof slot.ids);
    return slot.key == key ? slot.count : 0;
  }
  void insert(const Key& key, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.empty()) return;
    if (++inserted_ > sets_.size() && shift_ > 64 - kMostBits) grow();
    Slot slot{key, static_cast<uint32_t>(std::min(ids.size(), kMany)), {}};
    if (ids.size() <= kMostIds) std::memcpy(slot.ids, ids.data(), ids.size_bytes());
    put(slot, hash);
  }

 private:
  struct Slot {
    Key key;
    uint32_t count = 0;
    int32_t ids[kMostIds] = {};
  };
  struct alignas(64) Set {
    Slot slots[2];
  };
  using Sets = std::vector<Set, base::HugePages<Set>>;
  static_assert(sizeof(Set) == 64 && std::endian::native == std::endian::little);
  static constexpr int kFirstBits = 15, kMostBits = 19;  // 2 and 32 MiB

  struct Masks {
    uint64_t low, high, length;
  };
  static constexpr std::array<Masks, kLongest + 2> kMasks = [] {
    std::array<Masks, kLongest + 2> masks{};
    for (size_t size = 0; size <= kLongest; ++size)
      masks[size] = {size >= 8 ? ~0ull : (1ull << 8 * size) - 1, size > 8 ? (1ull << 8 * (size - 8)) - 1 : 0,
                     static_cast<uint64_t>(size) << 56};
    masks[kLongest + 1] = {~0ull, ~0ull, 0xFFull << 56};
    return masks;
  }();

  template <class T>
  static T load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  void put(const Slot& slot, uint64_t hash) {
    Set& set = sets_[hash >> shift_];
    set.slots[1] = set.slots[0];
    set.slots[0] = slot;
  }
  // In place, from the last set on: the words of set i move to the sets 2 i and 2 i + 1, which are empty by
  // then.
  void grow() {
    size_t i = sets_.size();
    sets_.resize(2 * i);
    --shift_;
    inserted_ = 0;
    while (i-- > 0) {
      const Set set = std::exchange(sets_[i], Set{});
      for (const Slot* slot : {&set.slots[1], &set.slots[0]})  // the older one first
        if (slot->count > 0) put(*slot, hash(slot->key)), ++inserted_;
    }
  }

  Sets sets_ = [] {
    Sets sets;
    sets.reserve(size_t{1} << kMostBits);  // of addresses; memory is used as it is touched
    sets.resize(size_t{1} << kFirstBits);
    return sets;
  }();
  int shift_ = 64 - kFirstBits;
  size_t inserted_ = 0;
};

// Every other word of up to kLongest bytes: long ones, such as runs of white space and names in programs,
// and words of many ids. An index of hashes leads to the word and its ids, which are stored one after
// another; when either is full, the cache begins again empty.
class LongWordCache {
 public:
  static constexpr size_t kLongest = 1024;

  std::span<const int32_t> find(std::string_view word, uint64_t hash) const {
    for (size_t slot = hash >> (64 - kBits);; slot = (slot + 1) % index_.size()) {
      const Place& place = index_[slot];
      if (place.at == 0) return {};
      if (place.tag != static_cast<uint32_t>(hash)) continue;
      const int32_t* entry = entries_.data() + place.at;
      const auto size = static_cast<size_t>(entry[0]), count = static_cast<size_t>(entry[1]);
      const int32_t* ids = entry + 2;
      if (size == word.size() && std::memcmp(ids + count, word.data(), size) == 0) return {ids, count};
    }
  }
  void insert(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
    if (ids.empty() || word.size() > kLongest) return;
    const size_t entry = 2 + ids.size() + (word.size() + 3) / 4;
    if (2 * used_ >= index_.size() || entries_.size() + entry > kMostEntries) {
      std::ranges::fill(index_, Place{});
      entries_.assign(1, 0);  // the place 0 stands for none
      used_ = 0;
    }
    size_t slot = hash >> (64 - kBits);
    while (index_[slot].at != 0) slot = (slot + 1) % index_.size();
    index_[slot] = {static_cast<uint32_t>(hash), static_cast<uint32_t>(entries_.size())};
    ++used_;
    entries_.push_back(static_cast<int32_t>(word.size()));
    entries_.push_back(static_cast<int32_t>(ids.size()));
    entries_.insert(entries_.end(), ids.begin(), ids.end());
    const size_t bytes = entries_.size();
    entries_.resize(bytes + (word.size() + 3) / 4);
    std::memcpy(entries_.data() + bytes, word.data(), word.size());
  }

 private:
  struct Place {
    uint32_t tag = 0, at = 0;  // of the hash, and where the word begins; 0: none
  };
  static constexpr int kBits = 17;  // 1 MiB
  static constexpr size_t kMostEntries = (size_t{8} << 20) / sizeof(int32_t);
  std::vector<Place, base::HugePages<Place>> index_ =
      std::vector<Place, base::HugePages<Place>>(size_t{1} << kBits);
  std::vector<int32_t> entries_ = {0};
  size_t used_ = 0;
};

}  // namespace quintet::tokenizer
