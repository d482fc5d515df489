// Types of logical values: an element type and named dims. A dim is named for what it is, never for how it is
// split; that is all the layout needs to know about a model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace quintet::graph {

using base::DType;

enum class Dim : uint8_t {
  Tokens,     // rows of a micro-batch: whole sequences one after another
  Embed,      // the residual stream's width
  Heads,      // query heads
  KvHeads,    // key and value heads
  HeadDim,    // width of one head
  Ffn,        // inner width of the feed-forward block
  Vocab,      // token types
  Positions,  // learned position table
  Flat,       // elements of a group buffer (see layout/groups.h)
};
inline constexpr int kNumDims = 9;

std::string_view to_string(Dim d);
std::optional<Dim> parse_dim(std::string_view text);

struct DimSize {
  Dim name;
  int64_t size;
  friend bool operator==(const DimSize&, const DimSize&) = default;
};

struct Type {
  DType dtype = DType::F32;
  std::vector<DimSize> dims;  // empty: a scalar

  int64_t count() const;
  int64_t bytes() const { return count() * base::size_of(dtype); }
  int num_dims() const { return static_cast<int>(dims.size()); }
  int64_t size(int dim) const { return dims[static_cast<size_t>(dim)].size; }
  friend bool operator==(const Type&, const Type&) = default;
};

std::string to_string(const Type& type);  // f32[tokens=512, embed=128]

}  // namespace quintet::graph
