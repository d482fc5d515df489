// Reports with all that may be asked beyond a layout: as JSON and on the page.
#include "plan/beyond.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/changes.h"
#include "plan/memory_timeline.h"
#include "plan/search_support.h"
#include "plan/timeline.h"
#include "program/allocate.h"

namespace quintet::plan {
namespace {

using nlohmann::json;

Beyond everything(const Report& r) {
  const config::Recipe& recipe = r.recipe;
  Beyond b;
  b.verdict = decide(recipe, r.assumptions, {.plans = 2, .threads = 2});
  b.search =
      search(recipe, r.assumptions, usual_space(recipe, r.assumptions.cluster), {.keep = 2, .plans = 6});
  b.search->best.front().reasons = explain(b.search->best.front().report);
  b.advice = advise(r);
  b.scaling = scale(recipe, r.assumptions, {8, 16}, {.plans = 8, .weak = true});
  b.economy = economy(r, 1e9);
  return b;
}

// On devices that hold three quarters of what the layout needs.
Report misfit() {
  const config::Recipe recipe = small_llama({"parallel.dp_replicate=8", "batch.micro=4", "loss.chunk=0"});
  Assumptions a = small_cluster();
  a.timeline = true;
  a.cluster.accelerator.memory_bytes = needs(make_plan(recipe, a)) * 3 / 4;
  return make_plan(recipe, a);
}

TEST(Beyond, JsonHoldsAllOfIt) {
  const Report r = misfit();
  const Beyond b = everything(r);
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
  EXPECT_EQ(s["best"][0]["bytes"], needs(b.search->best[0].report));
  EXPECT_EQ(s["best"][0]["reasons"], b.search->best[0].reasons);
  EXPECT_EQ(s["best"][0]["recipe"]["parallel"]["tp"], b.search->best[0].report.recipe.parallel.tp);

  ASSERT_GT(b.advice->size(), 3u);
  ASSERT_EQ(j["advice"].size(), b.advice->size());
  for (size_t i = 0; i < b.advice->size(); ++i) {
    const Advice& a = (*b.advice)[i];
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
  for (const char* part : {"Verdict", "Any one of these makes it fit", "--set memory.recompute=full",
                           "Memory of the most loaded device over the step", "Speed over", "<h2>Cost"})
    EXPECT_NE(page.find(part), std::string::npos) << part << to_text(*b.scaling);
}

TEST(Beyond, JsonWithoutAReport) {
  const Report r = misfit();
  Beyond b;
  b.search.emplace();
  b.search->smallest = r;
  const json j = json::parse(to_json(nullptr, b));
  EXPECT_EQ(j["fits"], false);
  EXPECT_EQ(j["search"]["best"].size(), 0u);
  EXPECT_EQ(j["search"]["smallest"]["bytes"], needs(r));
  EXPECT_FALSE(j.contains("verdict"));
  EXPECT_FALSE(j.contains("memory"));
}

// The timeline's fullest moment is the plan's peak, class by class; it begins with what is always there, and
// time goes forward.
TEST(MemoryTimeline, FullestMomentIsThePeak) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp_shard=8", "parallel.zero=3"},
        {"parallel.pp=4", "parallel.tp=2", "parallel.schedule=1f1b"},
        {"parallel.dp_replicate=8", "memory.recompute=full", "batch.micro=2"}}) {
    Assumptions a = small_cluster();
    a.timeline = true;
    const Report r = make_plan(small_llama(layout), a);
    const RankMemory& most = r.memory.ranks[r.memory.most_loaded];
    ASSERT_GT(r.memory.timeline.size(), 20u);
    EXPECT_LE(r.memory.timeline.size(), 240u);
    const MemoryPoint* fullest = &r.memory.timeline.front();
    double before = 0;
    for (const MemoryPoint& p : r.memory.timeline) {
      if (p.bytes() > fullest->bytes()) fullest = &p;
      EXPECT_GE(p.seconds, before);
      EXPECT_LE(p.seconds, r.time.step);
      EXPECT_EQ(p.by_class[static_cast<size_t>(program::MemoryClass::Optimizer)],
                most.by_class[static_cast<size_t>(program::MemoryClass::Optimizer)]);
      before = p.seconds;
    }
    EXPECT_EQ(fullest->by_class, most.by_class);
    EXPECT_LT(r.memory.timeline.front().bytes(), fullest->bytes());

    const program::Program& program = r.timeline->ranks.program[r.memory.most_loaded].program;
    const program::Peak peak = program::peak_of(program);
    EXPECT_EQ(most.peak_at, instruction_words(program, peak.body, peak.instr));
    const json j = json::parse(to_json(&r, {}));
    EXPECT_EQ(j["memory"]["timeline"]["points"].size(), r.memory.timeline.size());
    EXPECT_EQ(j["memory"]["timeline"]["columns"].size(), 1u + program::kNumMemoryClasses);
    EXPECT_EQ(j["memory"]["ranks"][0]["host_bytes"], 0);
  }
  EXPECT_TRUE(make_plan(small_llama({"parallel.dp_replicate=8"}), small_cluster()).memory.timeline.empty());
}

}  // namespace
}  // namespace quintet::plan
