// Index algebra of parts of tensors, for checkpoints. A region is a range of the elements of a box, in
// row-major order. A rank's part of a parameter is a box (tensor, expert parallelism), of which ZeRO stores a
// flat range; what replicas write is cut further. Regions from different layouts are compared by their runs:
// maximal ranges that are contiguous in both the tensor and the region.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace quintet::base {

struct Region {
  // The tensor's shape, or another one with as many elements: states with one number per block of a
  // parameter are boxes only in a shape of their own.
  std::vector<int64_t> shape;
  std::vector<int64_t> begin, size;  // the box, by dim
  int64_t first = 0, count = 0;      // of the box's elements
  friend bool operator==(const Region&, const Region&) = default;

  static Region whole(std::vector<int64_t> shape);
  int64_t box_count() const;
  bool is_whole_box() const { return first == 0 && count == box_count(); }
};

// The product, or -1 when a factor is negative or the product exceeds 2^62.
int64_t checked_product(const std::vector<int64_t>& sizes);
// Whether a region is one of a tensor with `elements` elements, and not empty. Safe for any numbers.
bool is_valid(const Region& region, int64_t elements);

struct Run {
  int64_t tensor = 0;  // first element, in the tensor
  int64_t at = 0;      // and in the region
  int64_t length = 0;
};

// The runs of a valid region. Both indices grow from run to run.
class Runs {
 public:
  explicit Runs(const Region& region);
  int64_t size() const { return rows_; }
  Run operator[](int64_t i) const;
  // The first run that ends after an element of the tensor; size() when there is none.
  int64_t first_after(int64_t element) const;

 private:
  std::vector<int64_t> outer_begin_, outer_size_, strides_;
  int64_t base_ = 0;    // of the first element of a row, within the dims of a row
  int64_t length_ = 1;  // of a row of the box
  int64_t first_, count_, first_row_, rows_;
};

// Calls fn(position in a, position in b, length) for every run that both regions have, in order. The regions
// may have different shapes of the same number of elements.
void for_each_common_run(const Region& a, const Region& b,
                         const std::function<void(int64_t at_a, int64_t at_b, int64_t length)>& fn);

// The part of a box that is within a tensor: a rank's part may end with padding. `local` is the box of sizes
// `sizes`, which begins at `begin` in a tensor of `shape`; [first, first + count) is a range of it.
struct Clipped {
  Region region;  // of the tensor
  Region memory;  // the same elements in the box of `sizes`; its runs are where they are stored
  bool is_contiguous() const { return memory.size == memory.shape; }
};
// count 0: the range has only padding.
Clipped clip(const std::vector<int64_t>& shape, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& sizes, int64_t first, int64_t count);

}  // namespace quintet::base
