#include "compiler/optional_passes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "base/error.h"

namespace quintet::compiler {
namespace {

constexpr std::array kPasses = {OptionalPass::Recompute, OptionalPass::Fold,     OptionalPass::Pack,
                                OptionalPass::Overlap,   OptionalPass::FuseAdds, OptionalPass::ShareMemory};

}  // namespace

std::span<const OptionalPass> optional_passes() { return kPasses; }

std::string_view to_string(OptionalPass pass) {
  switch (pass) {
    case OptionalPass::Recompute:
      return "recompute";
    case OptionalPass::Fold:
      return "fold";
    case OptionalPass::Pack:
      return "pack";
    case OptionalPass::Overlap:
      return "overlap";
    case OptionalPass::FuseAdds:
      return "fuse_adds";
    case OptionalPass::ShareMemory:
      return "share_memory";
  }
  base::fail_internal("no such pass");
}

std::string to_string(const DisabledPasses& passes) {
  std::vector<std::string_view> names;
  for (const OptionalPass pass : passes) names.push_back(to_string(pass));
  return fmt::format("{}", fmt::join(names, ", "));
}

OptionalPass parse_optional_pass(std::string_view name) {
  for (const OptionalPass pass : kPasses)
    if (to_string(pass) == name) return pass;
  base::fail_user("'{}' is not an optional pass; these can be disabled: {}", name,
                  to_string(DisabledPasses(kPasses.begin(), kPasses.end())));
}

}  // namespace quintet::compiler
