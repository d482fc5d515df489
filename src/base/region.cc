#include "base/region.h"

#include <algorithm>

#include "base/error.h"

namespace quintet::base {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 62;

// How many elements of a box of `inner`, at the origin of a box of `outer`, come before element `at` of it.
int64_t inner_before(const std::vector<int64_t>& outer, const std::vector<int64_t>& inner, int64_t at) {
  std::vector<int64_t> index(outer.size());
  int64_t whole = 1;
  for (size_t d = outer.size(); d-- > 0;) {
    index[d] = at % outer[d];
    at /= outer[d];
    whole *= inner[d];
  }
  if (at > 0) return whole;  // the end of the box
  int64_t before = 0;
  for (size_t d = 0; d < outer.size(); ++d) {
    int64_t below = 1;
    for (size_t e = d + 1; e < outer.size(); ++e) below *= inner[e];
    before += std::min(index[d], inner[d]) * below;
    if (index[d] >= inner[d]) break;
  }
  return before;
}

}  // namespace

int64_t checked_product(const std::vector<int64_t>& sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes)
    if (size < 0 || __builtin_mul_overflow(product, size, &product) || product > kMaxElements) return -1;
  return product;
}

Region Region::whole(std::vector<int64_t> shape) {
  Region region{.shape = shape, .begin = std::vector<int64_t>(shape.size(), 0), .size = std::move(shape)};
  region.count = region.box_count();
  return region;
}

int64_t Region::box_count() const {
  int64_t count = 1;
  for (const int64_t s : size) count *= s;
  return count;
}

bool is_valid(const Region& r, int64_t elements) {
  if (checked_product(r.shape) != elements || r.begin.size() != r.shape.size() ||
      r.size.size() != r.shape.size())
    return false;
  for (size_t d = 0; d < r.shape.size(); ++d)
    if (r.begin[d] < 0 || r.size[d] < 1 || r.begin[d] > r.shape[d] || r.size[d] > r.shape[d] - r.begin[d])
      return false;
  const int64_t box = checked_product(r.size);
  return r.count >= 1 && r.first >= 0 && r.first <= box && r.count <= box - r.first;
}

Runs::Runs(const Region& r) : first_(r.first), count_(r.count) {
  // Trailing dims that the box has in full, and the first one that it does not, form a row.
  size_t row = r.shape.size();
  int64_t stride = 1;
  while (row > 0) {
    --row;
    length_ *= r.size[row];
    base_ += r.begin[row] * stride;
    stride *= r.shape[row];
    if (r.size[row] != r.shape[row]) break;
  }
  strides_.resize(row);
  for (size_t d = row; d-- > 0;) {
    strides_[d] = stride;
    stride *= r.shape[d];
  }
  outer_begin_.assign(r.begin.begin(), r.begin.begin() + static_cast<ptrdiff_t>(row));
  outer_size_.assign(r.size.begin(), r.size.begin() + static_cast<ptrdiff_t>(row));
  first_row_ = first_ / length_;
  rows_ = (first_ + count_ - 1) / length_ - first_row_ + 1;
}

Run Runs::operator[](int64_t i) const {
  const int64_t row = first_row_ + i;
  int64_t tensor = base_, rest = row;
  for (size_t d = outer_size_.size(); d-- > 0;) {
    tensor += (outer_begin_[d] + rest % outer_size_[d]) * strides_[d];
    rest /= outer_size_[d];
  }
  const int64_t begin = std::max(row * length_, first_), end = std::min((row + 1) * length_, first_ + count_);
  return {.tensor = tensor + begin - row * length_, .at = begin - first_, .length = end - begin};
}

int64_t Runs::first_after(int64_t element) const {
  int64_t low = 0, high = rows_;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const Run run = (*this)[middle];
    if (run.tensor + run.length > element)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

void for_each_common_run(const Region& a, const Region& b,
                         const std::function<void(int64_t, int64_t, int64_t)>& fn) {
  const Runs of_a(a), of_b(b);
  int64_t i = of_a.first_after(of_b[0].tensor), j = 0;
  if (i < of_a.size()) j = of_b.first_after(of_a[i].tensor);
  while (i < of_a.size() && j < of_b.size()) {
    const Run x = of_a[i], y = of_b[j];
    const int64_t begin = std::max(x.tensor, y.tensor),
                  end = std::min(x.tensor + x.length, y.tensor + y.length);
    if (begin < end) fn(x.at + begin - x.tensor, y.at + begin - y.tensor, end - begin);
    // Far apart, one jump passes many runs.
    if (x.tensor + x.length <= y.tensor + y.length)
      i = x.tensor + x.length <= y.tensor ? of_a.first_after(y.tensor) : i + 1;
    else
      j = y.tensor + y.length <= x.tensor ? of_b.first_after(x.tensor) : j + 1;
  }
}

Clipped clip(const std::vector<int64_t>& shape, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& sizes, int64_t first, int64_t count) {
  QUINTET_CHECK(shape.size() == begin.size() && shape.size() == sizes.size(),
                "a box of {} dims in a tensor of {}", sizes.size(), shape.size());
  std::vector<int64_t> within(sizes.size());
  Clipped out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    within[d] = std::min(sizes[d], shape[d] - begin[d]);
    if (within[d] <= 0) return out;
  }
  out.memory = {.shape = sizes,
                .begin = std::vector<int64_t>(sizes.size(), 0),
                .size = within,
                .first = inner_before(sizes, within, first)};
  out.memory.count = inner_before(sizes, within, first + count) - out.memory.first;
  out.region = {
      .shape = shape, .begin = begin, .size = within, .first = out.memory.first, .count = out.memory.count};
  return out;
}

}  // namespace quintet::base
