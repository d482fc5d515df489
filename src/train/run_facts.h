// run.json: what is being run, where, on what data and on which mesh. Written at the start, for readers of
// the run folder; see docs/formats/run_folder.md.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/provenance.h"
#include "config/recipe.h"
#include "train/rank.h"
#include "train/run_data.h"
#include "train/run_folder.h"
#include "train/run_header.h"

namespace quintet::train {

std::string run_json(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                     const HeaderFacts& facts, const base::Provenance& provenance);

// What has computed a state: the commit, the build, the machine of rank 0, its device and kernels.
nlohmann::ordered_json environment_json(const HeaderFacts& facts, const std::string& device,
                                        const base::Provenance& provenance);

// An upper estimate of the size of metrics.jsonl.
int64_t metrics_bytes(const config::Recipe& recipe, const Rank& rank);

// Adds the planned and, unless `dry_run`, the measured peaks of all ranks to the summary, and whether the
// planned ones are bounds. Collective.
void gather_memory(const Rank& rank, comm::World& world, bool dry_run, Summary& summary);

}  // namespace quintet::train
