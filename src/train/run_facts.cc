#include "train/run_facts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "checkpoint/manifest.h"
#include "config/names.h"
#include "program/allocate.h"
#include "train/memory_check.h"

namespace quintet::train {
namespace {

using Json = nlohmann::ordered_json;

Json data_json(const config::Recipe& recipe, const RunData& data) {
  const data::Mixture& train = data.train.mixture();
  std::vector<std::string> paths = recipe.data.path;
  for (const config::BlendSet& set : recipe.data.blend)
    paths.insert(paths.end(), set.path.begin(), set.path.end());
  int64_t held_out = 0;
  Json sets = Json::array(), evals = Json::array();
  for (int64_t i = 0; i < train.sets(); ++i) {
    const data::MixtureSet& set = train.set(i);
    sets.push_back({{"name", set.name},
                    {"streamed", set.is_streamed()},
                    {"tokens", set.tokens()},
                    {"documents", set.documents()},
                    {"sequences", set.samples()},
                    {"share", train.share(i)},
                    {"fingerprint", checkpoint::sum_text(set.fingerprint())}});
  }
  for (const EvalData& eval : data.evals) {
    const int64_t sequences = eval.batches.mixture().samples();
    evals.push_back({{"name", eval.name}, {"sequences", sequences}});
    held_out += sequences;
  }
  return {{"paths", paths},
          {"reading", data.reading},
          {"tokens", train.tokens()},
          {"documents", train.documents()},
          {"seq_len", recipe.data.seq_len},
          {"train_sequences", train.samples()},
          {"validation_sequences", held_out},
          {"sets", std::move(sets)},
          {"evaluation", std::move(evals)}};
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
    groups.push_back({{"name", c.name()}, {"ranks", std::move(members)}});
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
                     {"commit", provenance.commit},
                     {"build", provenance.build},
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

nlohmann::ordered_json environment_json(const HeaderFacts& facts, const std::string& device,
                                        const base::Provenance& provenance) {
  return {{"commit", provenance.commit},   {"build", provenance.build}, {"host", provenance.host},
          {"machine", provenance.machine}, {"device", device},          {"kernels", provenance.kernels},
          {"backend", facts.backend},      {"threads", facts.threads}};
}

int64_t metrics_bytes(const config::Recipe& recipe, const Rank& rank) {
  constexpr int64_t kPerStep = 512;   // about twice a typical record, with the list of fp8
  constexpr int64_t kPerBlock = 512;  // a block with experts, without its loads
  constexpr int64_t kPerLoad = 12;    // the load of one expert
  int64_t bytes = kPerStep;
  for (const Rank::Sum& sum : rank.step_sums())
    if (sum.kind == graph::SumKind::Load)
      bytes += kPerBlock + kPerLoad * static_cast<int64_t>(sum.values.size());
  return recipe.run.steps * bytes;
}

void gather_memory(const Rank& rank, comm::World& world, bool dry_run, Summary& summary) {
  const program::Peak peak = program::peak_of(rank.compiled().program);
  std::vector<int64_t> mine = {rank.planned_peak_bytes(), dry_run ? 0 : rank.measured_peak_bytes(),
                               int64_t{plan_is_bound(rank.compiled())}};
  const auto numbers = static_cast<ptrdiff_t>(mine.size());
  mine.insert(mine.end(), peak.by_class.begin(), peak.by_class.end());
  const size_t count = mine.size();
  std::vector<int64_t> all(count * static_cast<size_t>(world.size()));
  world.world().all_gather(mine.data(), all.data(), static_cast<int64_t>(count), base::DType::I64);
  summary.planned_is_bound = false;
  for (size_t r = 0; r < all.size(); r += count) {
    Summary::RankMemory& m = summary.ranks.emplace_back();
    m.planned_peak_bytes = all[r];
    m.measured_peak_bytes = all[r + 1];
    summary.planned_is_bound = summary.planned_is_bound || all[r + 2] != 0;
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(r) + numbers, m.planned_by_class.size(),
                m.planned_by_class.begin());
  }
}

}  // namespace quintet::train
