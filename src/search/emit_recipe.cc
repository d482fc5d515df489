#include "search/emit_recipe.h"

#include <fmt/format.h>

#include "config/print.h"
#include "search/layout_space.h"

namespace quintet::search {

EmittedRecipe emit_recipe(const config::Recipe& recipe, const hardware::Cluster& cluster, bool from_model) {
  EmittedRecipe e{recipe, {}, {}};
  const hardware::Accelerator& a = cluster.accelerator;
  if (a.is_nvidia() || a.is_cpu())
    e.recipe.run.device = a.is_nvidia() ? config::DeviceKind::Cuda : config::DeviceKind::Cpu;
  else if (a.vendor != hardware::Vendor::Unknown)
    e.to_do.push_back(fmt::format("run.device: the engine does not run on {}", a.title));
  if (recipe.data.path.empty())
    e.to_do.push_back(
        "data.path: text files, folders of them, or one token file (docs/formats/token_file.md), with its "
        "data.tokenizer");
  if (from_model)
    e.to_do.push_back(fmt::format(
        "run.steps = {} and optimizer.lr = {} were used only for the plan: choose them for training",
        recipe.run.steps, recipe.optimizer.lr));
  const int64_t world = recipe.parallel.world();
  e.text = fmt::format("# Found by quintet plan --search for {}: {}.\n", hardware::describe(cluster),
                       layout_words(recipe));
  for (const std::string& line : e.to_do) e.text += "# To do: " + line + ".\n";
  e.text +=
      cluster.nodes == 1
          ? std::string("# Run it: quintet train THIS_FILE\n\n")
          : fmt::format("# Run it on {} ranks: mpirun -np {} quintet train THIS_FILE (docs/launching.md)\n\n",
                        world, world);
  e.text += config::to_toml(e.recipe);
  return e;
}

}  // namespace quintet::search
