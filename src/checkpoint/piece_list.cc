#include "checkpoint/piece_list.h"

#include <limits>

#include "base/error.h"

namespace quintet::checkpoint {

void PieceList::add(const Piece& piece) {
  const Region& r = piece.region;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  if (r.shape.size() > std::numeric_limits<uint8_t>::max() || sums_.size() > kMost || numbers_.size() > kMost)
    base::fail_user("a tensor of {} dims in {} pieces with {} checksums is not supported", r.shape.size(),
                    entries_.size(), sums_.size());
  if (entries_.empty()) shape_ = r.shape;
  const bool is_whole = r.size == r.shape && r.begin == std::vector<int64_t>(r.shape.size(), 0);
  const Box box = r.shape != shape_ ? Box::Reshaped : is_whole ? Box::Whole : Box::Part;
  entries_.push_back({.file = piece.file,
                      .box = box,
                      .dims = static_cast<uint8_t>(r.shape.size()),
                      .position = piece.position,
                      .first = r.first,
                      .count = r.count,
                      .numbers = static_cast<uint32_t>(numbers_.size()),
                      .sums = static_cast<uint32_t>(sums_.size())});
  const auto append = [&](const std::vector<int64_t>& list) {
    numbers_.insert(numbers_.end(), list.begin(), list.end());
  };
  if (box == Box::Reshaped) append(r.shape);
  if (box != Box::Whole) append(r.begin), append(r.size);
  sums_.insert(sums_.end(), piece.sums.begin(), piece.sums.end());
}

void PieceList::shrink() {
  entries_.shrink_to_fit();
  numbers_.shrink_to_fit();
  sums_.shrink_to_fit();
}

Piece PieceList::operator[](size_t i) const {
  const Entry& e = entries_[i];
  const size_t sums_end = i + 1 < entries_.size() ? entries_[i + 1].sums : sums_.size();
  Piece piece{.file = e.file,
              .position = e.position,
              .region = {.shape = shape_, .begin = {}, .size = {}, .first = e.first, .count = e.count},
              .sums = std::span(sums_).subspan(e.sums, sums_end - e.sums)};
  const int64_t* next = numbers_.data() + e.numbers;
  const auto take = [&](std::vector<int64_t>& list) {
    list.assign(next, next + e.dims);
    next += e.dims;
  };
  Region& r = piece.region;
  if (e.box == Box::Reshaped) take(r.shape);
  if (e.box == Box::Whole) {
    r.begin.assign(r.shape.size(), 0);
    r.size = r.shape;
  } else {
    take(r.begin), take(r.size);
  }
  return piece;
}

}  // namespace quintet::checkpoint
