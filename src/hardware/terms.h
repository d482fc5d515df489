// Terms that replace the catalogue's while fitting.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hardware/cluster.h"

namespace quintet::hardware {

struct Terms {
  std::string name;
  std::vector<std::string> only;  // what the set applies to, in the caller's names; empty: everything
  std::vector<Stack> stacks;      // catalogue entries with replaced terms
  std::vector<Accelerator> accelerators;

  bool concerns(std::string_view name) const;
  // The entry with the same name, or the argument itself.
  const Stack& of(const Stack& stack) const;
  const Accelerator& of(const Accelerator& accelerator) const;
};

// A list of sets, each with keys of stacks.toml under `stack.NAME` and keys of an accelerator's `efficiency`
// under `accelerator.NAME`; what a set omits keeps its catalogue value:
//   [[set]]
//   name = "without AO"
//   only = ["AO-001", "AO-005"]
//   stack.torchtitan-compile = { matmul = 0.9, memory = 1.4 }
//   accelerator.b300 = { matmul = 0.7 }
std::vector<Terms> read_terms(std::string_view toml, const std::string& source_name);

}  // namespace quintet::hardware
