// Passes that a program is correct without: they save time or memory only. Leaving them out one by one finds
// the pass behind a wrong number (docs/testing.md).
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace quintet::compiler {

enum class OptionalPass : uint8_t {
  Recompute,    // some results are computed again instead of kept (memory.recompute)
  Fold,         // ops that visit the same rows become one (passes/fold.h)
  Pack,         // projections of one input become one matmul (passes/pack.h)
  Overlap,      // messages are in flight beside compute that does not need them (passes/overlap.h)
  FuseAdds,     // a residual is added by the op that produces the other term (graph/fuse_adds.h)
  ShareMemory,  // buffers that are never live together have the same bytes (program/allocate.h)
};
using DisabledPasses = std::set<OptionalPass>;

std::span<const OptionalPass> optional_passes();
std::string_view to_string(OptionalPass pass);
// "fold, pack"
std::string to_string(const DisabledPasses& passes);
// A UserError for any other name, which lists the legal ones.
OptionalPass parse_optional_pass(std::string_view name);

}  // namespace quintet::compiler
