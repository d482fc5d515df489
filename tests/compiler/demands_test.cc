// The closed-form layout requirements of presets, compared with those of their graphs.
#include "config/demands.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "config/parse.h"
#include "config/presets.h"
#include "layout/layout.h"
#include "models/build.h"

namespace quintet {
namespace {

std::string to_text(const base::DimDemands& demands) {
  std::string text;
  for (const base::DimDemand& d : demands)
    text += fmt::format("{} {} {}\n", base::to_string(d.dim), d.size, static_cast<int>(d.need));
  return text;
}

// Few blocks: the dims are those of the first of each kind.
TEST(Demands, OfEveryPresetAreThoseOfItsGraph) {
  for (const config::Model& preset : config::presets()) {
    SCOPED_TRACE(preset.preset);
    const int64_t layers = std::max<int64_t>(2, preset.moe.first_dense + preset.moe.every);
    const config::Model m =
        config::parse("[data]\nseq_len = 16\n[optimizer]\nlr = 1e-3\n[run]\nsteps = 1\n",
                      {"model.preset='" + preset.preset + "'", fmt::format("model.layers={}", layers)})
            .model;
    for (const graph::Mode mode : {graph::Mode::Train, graph::Mode::Evaluate, graph::Mode::Infer}) {
      const graph::Graph g = models::build(m, {.mode = mode, .tokens = 16, .seq_len = 16});
      EXPECT_EQ(to_text(layout::demands_of(g)), to_text(config::demands(m)));
    }
  }
}

TEST(Demands, SayWhichRanksDivideADim) {
  const config::Parallel p{.tp = 4, .ep = 3, .etp = 2, .dims = {{"demand_rows", config::DimAxis::Tp}}};
  EXPECT_EQ(config::ranks_of(p, base::Dim::KvHeads), 4);
  EXPECT_EQ(config::ranks_of(p, base::Dim::Experts), 3);
  EXPECT_EQ(config::ranks_of(p, base::Dim::ExpertFfn), 2);
  EXPECT_EQ(config::ranks_of(p, base::Dim::Embed), 1);
  EXPECT_EQ(config::ranks_of(p, base::intern_dim("demand_rows")), 4);
  EXPECT_EQ(config::ranks_of(p, base::intern_dim("demand_columns")), 1);
}

}  // namespace
}  // namespace quintet
