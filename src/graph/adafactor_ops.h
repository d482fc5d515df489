// Ops of Adafactor (optim/adafactor.cc, ops/adafactor.cc) and the table that they share.
#pragma once

#include <string_view>

#include "graph/op.h"

namespace quintet::graph {

// The state with the averages of all parameters.
inline constexpr std::string_view kFactorState = "optimizer/adafactor.averages";

extern const OpDef kFactorSums, kUpdateFactors, kFactorNorms, kFactorSizes, kAdafactor;

// A parameter as Adafactor sees it, a row of the attribute "factors": `each` matrices of rows x columns. Row
// averages, then column averages are stored contiguously from `first` on in the vector of all averages. A
// vector has no rows, and one average per element.
struct FactoredParam {
  int64_t first = 0;
  int64_t each = 1, rows = 0, columns = 0;
  int64_t matrix = 0;  // index of its first matrix among those of all parameters

  int64_t averages() const { return each * (rows + columns); }
  int64_t matrix_count() const { return (rows > 0 ? rows : 1) * columns; }  // elements of a matrix
};
std::vector<FactoredParam> factored_params(const Attrs& attrs);
std::vector<int64_t> to_attribute(const std::vector<FactoredParam>& params);

}  // namespace quintet::graph
