// Folders of Hugging Face models that tests make themselves, of any size.
#pragma once

#include <string>
#include <vector>

#include "comm/local.h"
#include "hf/name_map.h"
#include "support/hf_goldens.h"
#include "train/load_hf.h"

namespace quintet::test {

// Writes the config and returns the tensors that its files need.
inline std::vector<checkpoint::TensorInfo> begin_folder(const base::Path& folder, const std::string& config) {
  base::make_directories(folder);
  base::write_file_atomically(folder / config::kHfConfigFile, config);
  const config::Recipe recipe = golden_recipe(folder);
  std::vector<checkpoint::TensorInfo> theirs;
  comm::run_local_world(1, [&](comm::World& world) {
    const train::Rank rank(recipe, world, {.draw = false});
    const hf::NameMap map(*config::read_hf_config(config).family, recipe.model, train::model_tensors(rank),
                          {});
    for (const hf::TheirTensor& t : map.theirs())
      theirs.push_back({.name = t.name, .dtype = base::DType::BF16, .shape = t.shape});
  });
  return theirs;
}

}  // namespace quintet::test
