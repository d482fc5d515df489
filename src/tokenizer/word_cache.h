// The ids of words seen before, since few words make up most of a text. One per thread.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace quintet::tokenizer {

// Words of up to 15 bytes whose ids are at most three, which are nearly all: a slot holds the word itself
// and is half a cache line, so a word that is there costs one access. Others are not kept. Two words that
// share a slot evict each other: the cache neither grows nor needs deletion.
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

  // The ids of the word; empty if it is not there.
  std::span<const int32_t> find(const Key& key) const {
    const Slot& slot = slots_[index(key)];
    return slot.key == key ? std::span<const int32_t>(slot.ids, slot.count) : std::span<const int32_t>();
  }
  void insert(const Key& key, std::span<const int32_t> ids) {
    if (ids.empty() || ids.size() > kMostIds) return;
    Slot& slot = slots_[index(key)];
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
  static_assert(sizeof(Slot) == 32 && std::endian::native == std::endian::little);
  static constexpr int kBits = 15;  // 1 MiB: stays in a core's second-level cache

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
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
};

}  // namespace quintet::tokenizer
