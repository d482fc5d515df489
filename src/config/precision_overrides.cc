#include "config/precision_overrides.h"

#include <fmt/format.h>

#include "config/names.h"
#include "config/recipe.h"

namespace quintet::config {

std::vector<std::string> precision_overrides(base::DType compute) {
  std::vector<std::string> all;
  const auto p = Precision::of(compute);
  const std::pair<const char*, std::string_view> keys[] = {{"compute", name_of(p.compute)},
                                                           {"master", name_of(p.master)},
                                                           {"moments", name_of(p.moments)},
                                                           {"gradients", name_of(p.gradients)},
                                                           {"reduce", name_of(p.reduce)}};
  for (const auto& [key, value] : keys) all.push_back(fmt::format("precision.{}={}", key, value));
  if (p.compute != base::DType::F32) all.push_back("precision.tf32=false");  // tf32 requires f32
  return all;
}

}  // namespace quintet::config
