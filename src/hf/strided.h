// Copies between our parameters and the tensors of files, whose elements are in another order.
#pragma once

#include <functional>

#include "hf/name_map.h"
#include "hf/tensor_source.h"

namespace quintet::hf {

// A dim of an array: how many, and how far apart they are in both of two orders.
struct Loop {
  int64_t count = 1, from = 0, to = 0;  // strides in elements
};

// to[...] := from[...] for elements of `size` bytes.
void copy_strided(const std::byte* from, std::byte* to, const std::vector<Loop>& loops, int64_t size);

// A range of a box in row-major order as boxes; `at` is where each begins in the range.
struct Box {
  std::vector<int64_t> begin, size;
  int64_t at = 0;
};
std::vector<Box> boxes_of(const std::vector<int64_t>& size, int64_t first, int64_t count);

// What of their tensor a box of one link's parameter is: element ranges, and loops from one to the other.
// With interleaved halves there are two. `to` of the loops is in the box's own row-major order.
struct Transfer {
  int64_t from = 0, to = 0;  // first element of each
  std::vector<Loop> loops;
};
std::vector<Transfer> transfers_of(const Link& link, const std::vector<int64_t>& shape, const Box& box);

// The link where the tensor's last two dims [..., rows, columns] are stored as [..., columns, rows].
Link transposed(Link link, int64_t rows, int64_t columns);

// Reads our parameters from the files of a family: any region, converted to the wanted type. Elements that
// are stored as wanted go straight to their place; others pass through a buffer of kBufferBytes. What is
// stored between wanted elements is read along where it has at most kGapBytes, as between the elements of
// interleaved matrices; longer gaps are left out.
class WeightReader {
 public:
  static constexpr int64_t kBufferBytes = int64_t{8} << 20, kGapBytes = 256;
  WeightReader(TensorSource& source, const NameMap& map) : source_(source), map_(map) {}
  void read(const std::string& ours, const Region& region, base::DType dtype, std::span<std::byte> out);

 private:
  void run(const TensorInfo& tensor, const Transfer& transfer, base::DType dtype, std::byte* out);
  TensorSource& source_;
  const NameMap& map_;
  std::vector<std::byte> buffer_, converted_;
};

// What reading a region takes, without reading: bytes, short gaps included, and reads, of files that have
// `stored`, as `wanted`.
struct ReadCost {
  int64_t bytes = 0, parts = 0;
};
ReadCost cost_of_reading(const NameMap& map, const std::string& ours, const Region& region,
                         base::DType stored, base::DType wanted);

// Elements of one of their tensors, made of ours: blocks in file order, each of about kBlockBytes, or of one
// index of the tensor's first dim where that is more.
inline constexpr int64_t kBlockBytes = int64_t{32} << 20;
void stream_their_tensor(const TheirTensor& tensor, const NameMap& map, TensorSource& ours, base::DType dtype,
                         const TensorSource::Block& block, int64_t block_bytes = kBlockBytes);

}  // namespace quintet::hf
