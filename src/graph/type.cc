#include "graph/type.h"

#include <fmt/format.h>

namespace quintet::graph {

int64_t Type::count() const {
  int64_t n = 1;
  for (const DimSize& d : dims) n *= d.size;
  return n;
}

std::string to_string(const Type& type) {
  std::string text = fmt::format("{}[", base::to_string(type.dtype));
  for (size_t i = 0; i < type.dims.size(); ++i)
    text += fmt::format("{}{}={}", i ? ", " : "", to_string(type.dims[i].name), type.dims[i].size);
  return text + "]";
}

}  // namespace quintet::graph
