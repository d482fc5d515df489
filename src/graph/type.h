// Types of logical values: an element type and named dims (base/dim.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dim.h"
#include "base/dtype.h"

namespace quintet::graph {

using base::DType;

using base::Dim;
using base::is_ragged;
using base::parse_dim;
using base::to_string;

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
