// run.json: what is being run, where, on what data and on which mesh. Written at the start, for readers of
// the run folder; see docs/formats/run_folder.md.
#pragma once

#include <string>

#include "base/provenance.h"
#include "config/recipe.h"
#include "train/rank.h"
#include "train/run_data.h"
#include "train/run_header.h"

namespace quintet::train {

std::string run_json(const config::Recipe& recipe, const RunData& data, const Rank& rank,
                     const HeaderFacts& facts, const base::Provenance& provenance);

}  // namespace quintet::train
