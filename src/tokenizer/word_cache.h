// The ids of words seen before, since few words make up most of a text. One per thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/huge_pages.h"

namespace quintet::tokenizer {

// Words of up to 15 bytes whose ids are at most three, which are nearly all: a slot holds the word itself
// and is half a cache line, so a word that is there costs one access. A set is two slots; the older word of a
// full set is evicted, so the cache neither grows nor needs deletion.
class WordCache {
 public:
  static constexpr size_t kLongest = 15, kMostIds = 3;

  struct Key {
    uint64_t low = 0, high = 0;  // the bytes, zero-padded; the length in the last byte
    bool operator==(const Key&) const = default;
  };
  // Of a word of 1 to kLongest bytes; reads nothing beside it.
  static Key key(std::string_view word) {
    const char* p = word.data();
    const size_t size = word.size();
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
    const size_t bits = 8 * size;
    const uint64_t low_mask = size >= 8 ? ~0ull : (1ull << bits) - 1,
                   high_mask = size > 8 ? (1ull << (bits - 64)) - 1 : 0;
    return {load<uint64_t>(p) & low_mask, (load<uint64_t>(p + 8) & high_mask) | static_cast<uint64_t>(size)
                                                                                    << 56};
  }

  // Asks for the slots of a word that is looked up soon.
  void prefetch(const Key& key) const { __builtin_prefetch(&sets_[index(key)]); }

  // The ids of the word; empty if it is not there.
  std::span<const int32_t> find(const Key& key) const {
    const Set& set = sets_[index(key)];
    for (const Slot& slot : set.slots)
      if (slot.key == key) return {slot.ids, slot.count};
    return {};
  }
  // The same, written to `out`, which has room for kMostIds. Returns their number; 0 if it is not there.
  size_t copy(const Key& key, int32_t* out) const {
    const Set& set = sets_[index(key)];
    const Slot& slot = set.slots[set.slots[0].key == key ? 0 : 1];
    if (slot.key != key) return 0;
    std::memcpy(out, slot.ids, sizeof slot.ids);
    return slot.count;
  }
  void insert(const Key& key, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kMostIds) return;
    Set& set = sets_[index(key)];
    set.slots[1] = set.slots[0];
    Slot& slot = set.slots[0];
    slot.key = key;
    slot.count = static_cast<uint32_t>(ids.size());
    std::memcpy(slot.ids, ids.data(), ids.size_bytes());
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
  static_assert(sizeof(Set) == 64 && std::endian::native == std::endian::little);
  // 8 MiB: a word that has left the second-level cache still costs less than to merge it again.
  static constexpr int kBits = 17;

  template <class T>
  static T load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  static size_t index(const Key& key) {
    const auto product =
        static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15ull) * (key.high ^ 0xD6E8FEB86659FD93ull);
    return static_cast<size_t>((static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) >>
                               (64 - kBits));
  }
  std::vector<Set, base::HugePages<Set>> sets_ = std::vector<Set, base::HugePages<Set>>(size_t{1} << kBits);
};

// Words of up to 7 bytes that are one token, which are most of a text, four to a cache line: the frequent
// ones stay in the second-level cache. A slot has the word that was asked for last.
class OneTokenCache {
 public:
  static constexpr size_t kLongest = 7;

  // Of a word of 1 to kLongest bytes where 8 are readable.
  static uint64_t key_of_8(const char* p, size_t size) {
    uint64_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    return (bytes & ((1ull << (8 * size)) - 1)) | static_cast<uint64_t>(size) << 56;
  }
  int32_t find(uint64_t key) const {  // -1: not there
    const Slot& slot = slots_[index(key)];
    return slot.key == key ? slot.id : -1;
  }
  void insert(uint64_t key, int32_t id) { slots_[index(key)] = {key, id}; }

 private:
  struct Slot {
    uint64_t key = 0;
    int32_t id = 0;
  };
  static constexpr int kBits = 14;  // 256 KiB
  static size_t index(uint64_t key) {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>((key ^ key >> 29) * 0xD6E8FEB86659FD93ull >> (64 - kBits));
  }
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
};

// Longer words, such as runs of white space and names in programs, or words of more ids, up to 14; one slot
// is two cache lines.
class LongWordCache {
 public:
  static constexpr size_t kShortest = 8, kLongest = 63, kMostIds = 14;

  std::span<const int32_t> find(std::string_view word) const {
    const Slot& slot = slots_[index(word)];
    if (slot.size != word.size() || std::memcmp(slot.bytes, word.data(), word.size()) != 0) return {};
    return {slot.ids, slot.count};
  }
  void insert(std::string_view word, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kMostIds) return;
    Slot& slot = slots_[index(word)];
    slot.size = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint32_t>(ids.size());
    std::memcpy(slot.bytes, word.data(), word.size());
    std::memcpy(slot.ids, ids.data(), ids.size_bytes());
  }

 private:
  struct alignas(64) Slot {
    uint8_t size = 0;
    char bytes[kLongest] = {};
    uint32_t count = 0;
    int32_t ids[kMostIds] = {};
  };
  static_assert(sizeof(Slot) == 128);
  static constexpr int kBits = 15;  // 4 MiB

  static size_t index(std::string_view word) {
    uint64_t hash = word.size();
    const auto add = [&](const char* from) {
      uint64_t value;
      std::memcpy(&value, from, sizeof value);
      hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
      hash ^= hash >> 32;
    };
    for (size_t at = 0; at + 8 <= word.size(); at += 8) add(word.data() + at);
    add(word.data() + word.size() - 8);
    return static_cast<size_t>(hash * 0xD6E8FEB86659FD93ull >> (64 - kBits));
  }
  std::vector<Slot, base::HugePages<Slot>> slots_ =
      std::vector<Slot, base::HugePages<Slot>>(size_t{1} << kBits);
};

}  // namespace quintet::tokenizer
