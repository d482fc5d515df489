// Reports with all optional parts: as JSON and on the page.
#include "report/findings.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/layout_changes.h"
#include "plan/memory_timeline.h"
#include "plan/small_models.h"
#include "plan/timeline.h"
#include "program/allocate.h"

namespace quintet::report {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_llama;

using nlohmann::json;

Findings everything(const plan::Report& r) {
  const config::Recipe& recipe = r.recipe;
  Findings b;
  b.verdict = advice::decide(recipe, r.assumptions, {.plans = 2, .threads = 2});
  b.search = search::search(recipe, r.assumptions, search::usual_space(recipe, r.assumptions.cluster),
                            {.keep = 2, .plans = 6});
  b.search->best.front().reasons = search::explain(b.search->best.front().report);
  b.advice = advice::advise(r);
  b.scaling = search::scale(recipe, r.assumptions, {8, 16}, {.plans = 8, .weak = true});
  b.economy = economy(r, 1e9);
  return b;
}

// On devices with three quarters of the memory that the layout needs.
plan::Report misfit() {
  const config::Recipe recipe = small_llama({"parallel.dp_replicate=8", "batch.micro=4", "loss.chunk=0"});
  plan::Assumptions a = small_cluster();
  a.timeline = true;
  a.cluster.accelerator.memory_bytes = plan::needs(plan::make_plan(recipe, a)) * 3 / 4;
  return plan::make_plan(recipe, a);
}

TEST(Findings, JsonHoldsAllOfIt) {
  const plan::Report r = misfit();
  const Findings b = everything(r);
  const json j = json::parse(to_json(&r, b));
  EXPECT_EQ(j["fits"], false);
  EXPECT_EQ(j["recipe"]["batch"]["micro"], 4);

  ASSERT_EQ(j["verdict"]["rungs"].size(), b.verdict->rungs.size());
  EXPECT_EQ(j["verdict"]["text"], b.verdict->text);
  EXPECT_EQ(j["verdict"]["answer"], b.verdict->rungs[static_cast<size_t>(b.verdict->answer)].name);
  for (size_t i = 0; i < b.verdict->rungs.size(); ++i) {
    EXPECT_EQ(j["verdict"]["rungs"][i]["name"], b.verdict->rungs[i].name);
    EXPECT_EQ(j["verdict"]["rungs"][i]["text"], b.verdict->rungs[i].text);
  }
  EXPECT_EQ(j["verdict"]["rungs"][6]["state"], "does not apply");
  EXPECT_EQ(j["verdict"]["rungs"][7]["state"], "plan-only");

  const json& s = j["search"];
  EXPECT_EQ(s["families"], b.search->families);
  EXPECT_EQ(s["too_large"], b.search->too_large);
  EXPECT_EQ(s["too_slow"], b.search->too_slow);
  EXPECT_EQ(s["planned"], b.search->planned);
  EXPECT_DOUBLE_EQ(s["bound_seconds"], b.search->bound_seconds);
  ASSERT_EQ(s["best"].size(), b.search->best.size());
  EXPECT_DOUBLE_EQ(s["best"][0]["step_seconds"], b.search->best[0].report.time.step);
  EXPECT_EQ(s["best"][0]["bytes"], plan::needs(b.search->best[0].report));
  EXPECT_EQ(s["best"][0]["reasons"], b.search->best[0].reasons);
  EXPECT_EQ(s["best"][0]["recipe"]["parallel"]["tp"], b.search->best[0].report.recipe.parallel.tp);

  ASSERT_GT(b.advice->size(), 3u);
  ASSERT_EQ(j["advice"].size(), b.advice->size());
  for (size_t i = 0; i < b.advice->size(); ++i) {
    const advice::Advice& a = (*b.advice)[i];
    EXPECT_EQ(j["advice"][i]["what"], a.what);
    EXPECT_EQ(j["advice"][i]["runs"], a.runs);
    EXPECT_EQ(j["advice"][i]["sets"], a.sets);
    EXPECT_EQ(j["advice"][i]["bytes"], a.bytes);
    EXPECT_DOUBLE_EQ(j["advice"][i]["lost_seconds"], a.lost);
  }

  ASSERT_EQ(j["scaling"]["strong"].size(), 2u);
  EXPECT_EQ(j["scaling"]["strong"][1]["devices"], 16);
  EXPECT_EQ(j["scaling"]["weak"].size(), 2u);
  EXPECT_EQ(j["scaling"]["worthwhile_devices"], b.scaling->worthwhile);

  EXPECT_DOUBLE_EQ(j["economy"]["tokens"], 1e9);
  EXPECT_DOUBLE_EQ(j["economy"]["with_losses"]["device_hours"], b.economy->with_losses.device_hours);
  EXPECT_TRUE(j["economy"]["ideal"]["usd"].is_null());  // the cluster has no price
  EXPECT_DOUBLE_EQ(j["economy"]["goodput"]["checkpoint_interval_seconds"],
                   b.economy->goodput.interval_seconds);

  const std::string page = to_html(r, page_parts(r, b));
  for (const char* part : {"By strategy", "Any one of these makes it fit", "--set memory.recompute=full",
                           "Memory over the step", "<h2>Scaling", "<h2>Cost", "<h2>Assumptions"})
    EXPECT_NE(page.find(part), std::string::npos) << part << to_text(*b.scaling);
}

TEST(Findings, JsonWithoutAReport) {
  const plan::Report r = misfit();
  Findings b;
  b.search.emplace();
  b.search->smallest = r;
  const json j = json::parse(to_json(nullptr, b));
  EXPECT_EQ(j["fits"], false);
  EXPECT_EQ(j["search"]["best"].size(), 0u);
  EXPECT_EQ(j["search"]["smallest"]["bytes"], plan::needs(r));
  EXPECT_FALSE(j.contains("verdict"));
  EXPECT_FALSE(j.contains("memory"));
}

}  // namespace
}  // namespace quintet::report
