// Output of `quintet schedule`.
#pragma once

#include <string>

#include "schedule/simulate.h"
#include "schedule/synthesize.h"

namespace quintet::tools {

// Costs of a whole stage; a chunk costs its share. `comm` is the cost of one transfer.
struct StageCosts {
  double f = 1, b = 1, w = 1, comm = 0;
};

// Parses "F,B,W" or "F,B,W,comm"; empty: all 1 and no transfers. Throws UserError.
StageCosts parse_costs(const std::string& text);

// The costs per chunk.
schedule::Costs costs_of(const schedule::Schedule& schedule, const StageCosts& costs);

// The origin and quality of a schedule, as comments for its text.
std::string explain(const schedule::Synthesis& synthesis);

std::string summary(const schedule::Schedule& schedule, const schedule::Timeline& line);
std::string to_json(const schedule::Schedule& schedule, const StageCosts& costs,
                    const schedule::Timeline& line);

}  // namespace quintet::tools
