#include "graph/type.h"

#include <fmt/format.h>

#include <array>

namespace quintet::graph {
namespace {
constexpr std::array<std::string_view, kNumDims> kDimNames = {
    "tokens",  "embed",  "heads",  "kv_heads", "head_dim", "ffn",        "vocab", "positions", "flat",
    "context", "latent", "routes", "choices",  "experts",  "expert_ffn", "slots", "routed",    "counts"};
}  // namespace

std::string_view to_string(Dim d) { return kDimNames[static_cast<size_t>(d)]; }

std::optional<Dim> parse_dim(std::string_view text) {
  for (size_t i = 0; i < kDimNames.size(); ++i)
    if (kDimNames[i] == text) return static_cast<Dim>(i);
  return std::nullopt;
}

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
