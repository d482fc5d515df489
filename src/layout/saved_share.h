// Which elements of the state a rank saves: everything on exactly one of the ranks that hold it, evenly. The
// memory plan sums what the run then copies.
#pragma once

#include <string_view>
#include <vector>

#include "base/region.h"
#include "layout/groups.h"
#include "layout/state_table.h"

namespace quintet::layout {

struct ElementRange {
  int64_t first = 0, count = 0;
};

// The flat elements of a group whose states are the rank's own.
ElementRange own_range(const Group& group, const Layout& layout, RankId rank);

// The ranks that hold the same elements of a parameter's states, and this one's place among them.
struct Copies {
  int64_t place = 0, count = 1;
};
Copies copies_of(const Group& group, const Segment& segment, const Layout& layout, RankId rank);

// Sizes, or begins, of a part of a tensor in blocks of consecutive elements, as 8-bit moments have one scale
// each: the innermost dims that hold whole blocks together become one. Layouts cut no block, so a part of the
// tensor is a part of this one, too.
std::vector<int64_t> in_blocks(std::vector<int64_t> part, const std::vector<int64_t>& tensor, int64_t block);

// Of `count` elements that several ranks hold, those that one of them saves; count 0: none. Replicas divide
// what has at least kDividedBytes; the name decides which of them saves the rest.
inline constexpr int64_t kDividedBytes = int64_t{64} << 10;
ElementRange saved_by(std::string_view name, int64_t count, int64_t element_bytes, const Copies& copies);

// The elements of a region in the memory of its rank, from the first to the last.
ElementRange span_of(const base::Region& memory);

// The first byte of frozen tensors in a rank's copy: in a file of their own, they are written from there.
inline constexpr int64_t kFrozenAlign = 4096;

// Bytes of host memory that a rank's copy of what it saves takes.
class SavedShare {
 public:
  // A state that every rank has in full: graph::ValueKind::State.
  struct Whole {
    std::string_view name;
    int64_t bytes = 0;
  };
  struct Bytes {
    int64_t updated = 0, frozen = 0;
    int64_t total() const;
  };
  // Of the groups of one pipeline place. Refers to groups and layout.
  SavedShare(const std::vector<Group>& groups, const std::vector<graph::StateDecl>& states,
             std::vector<Whole> whole, const Layout& layout);
  Bytes bytes(RankId rank) const;

 private:
  int64_t bytes_of(const Segment& segment, const Group& group, const StateRow& row, const ElementRange& own,
                   RankId rank) const;

  const std::vector<Group>& groups_;
  const std::vector<StateRows> table_;
  const std::vector<Whole> whole_;
  const Layout& layout_;
};

}  // namespace quintet::layout
