// Layouts in which linear layers on codes must round as one rank does.
#pragma once

#include <vector>

#include "config/recipe.h"

namespace quintet::tests {

struct Place {
  const char* name;
  void (*set)(config::Recipe& r);
};

inline std::vector<Place> code_places(std::vector<Place> more) {
  using config::ContextMethod, config::Recipe;
  more.insert(
      more.end(),
      {{"ddp", [](Recipe& r) { r.parallel.dp_replicate = 2; }},
       {"zero 2", [](Recipe& r) { r.parallel.dp_shard = 2, r.parallel.zero = 2; }},
       {"zero 3", [](Recipe& r) { r.parallel.dp_shard = 3, r.parallel.zero = 3; }},
       {"hsdp", [](Recipe& r) { r.parallel.dp_replicate = 2, r.parallel.dp_shard = 2, r.parallel.zero = 3; }},
       {"tp", [](Recipe& r) { r.parallel.tp = 2; }},
       {"sp", [](Recipe& r) { r.parallel.tp = 2, r.parallel.sequence_parallel = true; }},
       {"ring", [](Recipe& r) { r.parallel.cp = 2, r.parallel.cp_method = ContextMethod::Ring; }},
       {"ulysses", [](Recipe& r) { r.parallel.cp = 2, r.parallel.cp_method = ContextMethod::Ulysses; }},
       {"pp", [](Recipe& r) { r.parallel.pp = 2, r.parallel.schedule = "1f1b"; }},
       {"pp with a split backward pass",
        [](Recipe& r) { r.parallel.pp = 2, r.parallel.schedule = "zb-h1", r.model.tied = true; }}});
  return more;
}

}  // namespace quintet::tests
