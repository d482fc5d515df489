// Terms in place of the catalogue's, for fitting them: what stacks and accelerators would be with others.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hardware/cluster.h"

namespace quintet::hardware {

struct Terms {
  std::string name;
  std::vector<std::string> only;  // what the set is for, by any name that its user knows; empty: all
  std::vector<Stack> stacks;      // the catalogue's, with other terms
  std::vector<Accelerator> accelerators;

  bool concerns(std::string_view name) const;
  // The one of the same name, or what was given.
  const Stack& of(const Stack& stack) const;
  const Accelerator& of(const Accelerator& accelerator) const;
};

// A list of sets, each with the keys of stacks.toml under `stack.NAME` and those of an accelerator's
// `efficiency` under `accelerator.NAME`; what a set leaves out is as the catalogue has it:
//   [[set]]
//   name = "without AO"
//   only = ["AO-001", "AO-005"]
//   stack.torchtitan-compile = { matmul = 0.9, memory = 1.4 }
//   accelerator.b300 = { matmul = 0.7 }
std::vector<Terms> read_terms(std::string_view toml, const std::string& source_name);

}  // namespace quintet::hardware
