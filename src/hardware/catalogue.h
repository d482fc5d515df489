// Readers of the catalogue's tables, shared with cluster files.
#pragma once

#include <string>
#include <vector>

#include "hardware/cluster.h"

namespace quintet::hardware {

// Vendors' quoted figures, kept next to the figures in use so that a test can compare them.
struct Quoted {
  std::string name;
  std::array<double, kNumArithmetics> sparse_flops{};  // 0: not quoted
  double link_bytes_per_s = 0;
  bool both_directions = false;
};

struct Site {
  double pue = 1.2, carbon_kg_per_kwh = 0.4;
  std::string pue_source, carbon_source, date;
};

struct Names {
  std::vector<std::string> aliases;  // by entry, in catalogue order
  std::vector<size_t> entry;
};

struct Catalogue {
  std::vector<Accelerator> accelerators;
  std::vector<Link> links;
  std::vector<Stack> stacks;
  std::vector<std::string> fitted_stacks;  // names of those whose terms are fitted to published runs
  std::vector<Quoted> quoted_accelerators, quoted_links;
  std::vector<std::pair<std::string, Price>> prices;
  Names accelerator_names, link_names, stack_names;  // names and aliases
  Site site;
};
const Catalogue& catalogue();

}  // namespace quintet::hardware
