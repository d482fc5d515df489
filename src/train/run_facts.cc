#include "train/run_facts.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "config/names.h"

namespace quintet::train {
namespace {

using Json = nlohmann::ordered_json;

Json data_json(const config::Recipe& recipe, const RunData& data) {
  const data::Dataset& train = data.train.dataset();
  return {{"paths", recipe.data.path},
          {"reading", data.reading},
          {"tokens", train.corpus().tokens()},
          {"documents", train.corpus().documents()},
          {"seq_len", recipe.data.seq_len},
          {"train_sequences", train.size()},
          {"validation_sequences", data.validation ? data.validation->dataset().size() : 0}};
}

// Outermost axis first; rank numbers count with the last axis fastest.
Json mesh_json(const layout::Mesh& mesh) {
  Json axes = Json::array();
  for (int a = 0; a < mesh.num_atoms(); ++a) {
    const layout::Atom& atom = mesh.atom(a);
    if (atom.size == 1) continue;
    if (!axes.empty() && axes.back().at("axis") == to_string(atom.axis))
      axes.back()["size"] = axes.back()["size"].get<int>() * atom.size;
    else
      axes.push_back({{"axis", to_string(atom.axis)}, {"size", atom.size}});
  }
  return axes;
}

Json groups_json(const program::Program& program) {
  Json groups = Json::array();
  for (const program::Communicator& c : program.comms) {
    Json members = Json::array();
    for (const base::RankId rank : c.members) members.push_back(rank.value);
    groups.push_back({{"name", c.name}, {"ranks", std::move(members)}});
  }
  return groups;
}

}  // namespace

std::string run_json(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                     const HeaderFacts& facts, const base::Provenance& provenance) {
  const compiler::Compiled& compiled = rank.compiled();
  int64_t parameters = 0;
  for (const graph::Param& p : compiled.logical.params())
    parameters += compiled.logical.type(p.value).count();
  const Json json = {{"name", recipe.name},
                     {"version", provenance.version},
                     {"command", provenance.command},
                     {"folder", provenance.folder},
                     {"host", provenance.host},
                     {"machine", provenance.machine},
                     {"device", facts.device.empty() ? "CPU" : facts.device},
                     {"backend", facts.backend},
                     {"threads", facts.threads},
                     {"started", base::utc_text()},
                     {"model", recipe.model.preset.empty() ? std::string(config::name_of(recipe.model.family))
                                                           : recipe.model.preset},
                     {"parameters", parameters},
                     {"steps", recipe.run.steps},
                     {"tokens_per_step", recipe.batch.global * recipe.data.seq_len},
                     {"data", data_json(recipe, data)},
                     {"ranks", recipe.parallel.world()},
                     {"mesh", mesh_json(compiled.layout.mesh)},
                     {"groups_of_rank_0", groups_json(compiled.program)}};
  return base::json_text(json, 2) + "\n";
}

}  // namespace quintet::train
