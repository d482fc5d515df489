// The pieces of a saved tensor, of which a manifest of a large job has hundreds of thousands: a list stores
// them in 40 bytes each, and the numbers of their boxes and their checksums one after the other.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include "checkpoint/region.h"

namespace quintet::checkpoint {

// A part of a tensor, stored contiguously in a shard.
struct Piece {
  int file = 0;          // of Manifest::files
  int64_t position = 0;  // of its first byte in the file
  Region region;
  std::span<const uint64_t> sums;  // XXH3-64 of every chunk, in the list; of a piece to add, anywhere
};

class PieceList {
 public:
  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  void add(const Piece& piece);
  void shrink();  // after the last one
  Piece operator[](size_t i) const;

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Piece;
    using difference_type = ptrdiff_t;
    using pointer = void;
    using reference = Piece;
    Iterator(const PieceList& list, size_t i) : list_(&list), i_(i) {}
    Piece operator*() const { return (*list_)[i_]; }
    Iterator& operator++() { return ++i_, *this; }
    bool operator==(const Iterator&) const = default;

   private:
    const PieceList* list_;
    size_t i_;
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size()}; }

 private:
  enum class Box : uint8_t {
    Whole,
    Part,
    Reshaped
  };  // with no numbers, begin and size, and shape before them
  struct Entry {
    int32_t file;
    Box box;
    uint8_t dims;  // of the region
    int64_t position, first, count;
    uint32_t numbers, sums;  // where its own begin
  };
  std::vector<int64_t> shape_;  // of the first region
  std::vector<Entry> entries_;
  std::vector<int64_t> numbers_;
  std::vector<uint64_t> sums_;
};

}  // namespace quintet::checkpoint
