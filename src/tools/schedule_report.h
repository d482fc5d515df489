// What `quintet schedule` says about a pipeline's schedule.
#pragma once

#include <string>

#include "schedule/simulate.h"
#include "schedule/synthesize.h"

namespace quintet::tools {

// Of a whole stage: a chunk costs its share. `comm` is of one transfer.
struct StageCosts {
  double f = 1, b = 1, w = 1, comm = 0;
};

// "F,B,W" or "F,B,W,comm"; empty: all 1 and no transfers. A UserError says what was expected.
StageCosts parse_costs(const std::string& text);

// A chunk takes its share of a stage.
schedule::Costs costs_of(const schedule::Schedule& schedule, const StageCosts& costs);

// How it came about and how good it is, as comments of a schedule's text.
std::string explain(const schedule::Synthesis& synthesis);

std::string summary(const schedule::Schedule& schedule, const schedule::Timeline& line);
std::string to_json(const schedule::Schedule& schedule, const StageCosts& costs,
                    const schedule::Timeline& line);

}  // namespace quintet::tools
