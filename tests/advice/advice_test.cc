// Advice and verdict: their text, and that it is true.
#include "advice/advice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "advice/not_run_yet.h"
#include "advice/verdict.h"
#include "base/error.h"
#include "plan/layout_changes.h"
#include "plan/small_models.h"

namespace quintet::advice {
namespace {

using plan::testing::small_cluster;
using plan::testing::small_llama;

plan::Assumptions with_memory(int64_t mib) {
  plan::Assumptions a = small_cluster();
  a.cluster.accelerator.memory_bytes = mib << 20;
  return a;
}

// Every change that can be run fits when applied as printed, and takes the stated time.
TEST(Advice, EveryChangeFits) {
  const std::vector<std::string> layout = {"parallel.dp_replicate=8", "batch.micro=4", "loss.chunk=0"};
  const plan::Report whole = plan::make_plan(small_llama(layout), small_cluster());
  const plan::Assumptions a = with_memory(plan::needs(whole) * 3 / 4 >> 20);
  const plan::Report r = plan::make_plan(small_llama(layout), a);
  ASSERT_FALSE(r.memory.fits());
  const std::vector<Advice> advice = advise(r);
  int run = 0;
  double before = -1e9;
  for (const Advice& x : advice) {
    EXPECT_LE(x.bytes, a.cluster.accelerator.memory_bytes) << x.what;
    if (!x.runs) continue;
    ++run;
    EXPECT_GE(x.lost, before) << x.what;  // the cheapest first
    before = x.lost;
    std::vector<std::string> sets = layout;
    sets.insert(sets.end(), x.sets.begin(), x.sets.end());
    const plan::Report changed = plan::make_plan(small_llama(sets), a);
    EXPECT_TRUE(changed.memory.fits()) << x.what;
    EXPECT_EQ(plan::needs(changed), x.bytes) << x.what;
    EXPECT_DOUBLE_EQ(changed.time.step, x.step) << x.what;
  }
  EXPECT_GE(run, 5);
  const std::string text = advice_text(r, advice);
  EXPECT_TRUE(text.starts_with("does not fit: a device needs ")) << text;
  EXPECT_NE(text.find("any one of these makes it fit"), std::string::npos);
  EXPECT_NE(text.find("plan-only: the engine does not run it yet"), std::string::npos);
  EXPECT_TRUE(advice_text(whole, {}).empty());
}

// Changes are left out by bounds before they are planned. None of those that fit may be: with a limit that
// one of them meets to the byte, the advice has exactly the changes whose plans fit.
TEST(Advice, NoChangeThatFitsIsLeftOut) {
  const auto planned = [](const plan::Report& r, const std::vector<plan::LayoutChange>& changes) {
    std::vector<config::Recipe> recipes;
    for (const plan::LayoutChange& c : changes) recipes.push_back(c.recipe);
    return plan::plan_all(recipes, r.assumptions, 2);
  };
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{"parallel.dp_replicate=8", "batch.micro=4", "loss.chunk=0"},
        std::vector<std::string>{"parallel.pp=2", "parallel.dp_shard=4", "parallel.zero=1"}}) {
    const plan::Report whole = plan::make_plan(small_llama(layout), small_cluster());
    std::vector<int64_t> needs;
    for (const auto& p : planned(whole, plan::savings(whole.recipe, 4, 0)))
      if (p) needs.push_back(plan::needs(*p));
    std::sort(needs.begin(), needs.end());
    for (const size_t place : {size_t{0}, needs.size() / 2}) {
      plan::Assumptions a = small_cluster();
      a.cluster.accelerator.memory_bytes = needs[place];
      const plan::Report r = plan::make_plan(small_llama(layout), a);
      const std::vector<plan::LayoutChange> changes =
          plan::savings(r.recipe, 4, r.memory.limit - a.cluster.accelerator.runtime_bytes);
      const auto plans = planned(r, changes);
      std::set<std::string> expected, found, kinds;
      for (size_t i = 0; i < changes.size(); ++i)
        if (plans[i] && plans[i]->memory.fits() &&
            (changes[i].kind.empty() || kinds.insert(changes[i].kind).second))
          expected.insert(changes[i].what);
      for (const Advice& x : advise(r))
        if (x.runs) found.insert(x.what);
      EXPECT_EQ(found, expected) << layout.front() << ", place " << place;
      EXPECT_FALSE(expected.empty());
    }
  }
}

// Narrower state: masters that share their upper half with the weight keep the numbers, gradients in bf16 do
// not, and the text says so; applied as printed, each fits. (EveryChangeFits does the same for all changes
// listed there.)
TEST(Advice, NarrowerState) {
  const std::vector<std::string> layout = {"parallel.dp_replicate=8"};
  const plan::Report whole = plan::make_plan(small_llama(layout), small_cluster());
  plan::Assumptions a = small_cluster();
  a.cluster.accelerator.memory_bytes = plan::needs(whole) - (1 << 20);
  const plan::Report r = plan::make_plan(small_llama(layout), a);
  ASSERT_FALSE(r.memory.fits());
  int seen = 0;
  for (const Advice& x : advise(r)) {
    const bool masters = x.what.starts_with("split masters"),
               gradients = x.what.starts_with("gradients accumulated");
    if (!masters && !gradients) continue;
    ++seen;
    EXPECT_EQ(x.what.find("changes the numerics") != std::string::npos, gradients);
    std::vector<std::string> sets = layout;
    sets.insert(sets.end(), x.sets.begin(), x.sets.end());
    const plan::Report changed = plan::make_plan(small_llama(sets), a);
    EXPECT_TRUE(changed.memory.fits()) << x.what;
    EXPECT_EQ(plan::needs(changed), x.bytes) << x.what;
  }
  EXPECT_EQ(seen, 2);
}

TEST(Advice, TermsAddUp) {
  const plan::Report r = plan::make_plan(small_llama({"parallel.dp_replicate=8"}), small_cluster());
  int64_t sum = 0;
  for (const Term& t : largest_terms(r)) sum += t.bytes;
  EXPECT_EQ(sum, plan::needs(r));
}

VerdictOptions few() { return {.plans = 3, .threads = 2}; }

const Rung& rung(const Verdict& v, const std::string& name) {
  for (const Rung& r : v.rungs)
    if (r.name == name) return r;
  throw std::runtime_error("no rung " + name);
}

// A model that fits one device gets DDP, and the rungs are in the order of the rules.
TEST(Verdict, DdpWhereItFits) {
  const Verdict v = decide(small_llama(), small_cluster(), few());
  std::vector<std::string> names;
  for (const Rung& r : v.rungs) names.push_back(r.name);
  EXPECT_EQ(names, (std::vector<std::string>{"DDP", "full shard", "hybrid shard", "tensor", "pipeline",
                                             "context", "expert", "offload", "LoRA"}));
  ASSERT_GE(v.answer, 0);
  EXPECT_EQ(rung(v, "DDP").state, Rung::State::Fits);
  EXPECT_EQ(rung(v, "expert").text, "the model has no experts");
  EXPECT_EQ(rung(v, "offload").text, "not needed");
}

// The result of a search over all axes is one more rung if no single one comes close to it, and only then.
TEST(Verdict, AMixtureOfAxesIfNoRungComesClose) {
  const Verdict alone = decide(small_llama(), small_cluster(), few());
  plan::Report best = *alone.rungs[static_cast<size_t>(alone.answer)].report;
  VerdictOptions options = few();
  options.best = &best;
  EXPECT_EQ(decide(small_llama(), small_cluster(), options).rungs.size(), alone.rungs.size());
  best.time.step /= 2;
  const Verdict v = decide(small_llama(), small_cluster(), options);
  EXPECT_EQ(v.rungs.size(), alone.rungs.size() + 1);
  EXPECT_EQ(v.rungs[static_cast<size_t>(v.answer)].name, "several axes");
  EXPECT_TRUE(v.text.starts_with("several axes: ")) << v.text;
}

// A billion parameters: 4 bytes down and 2 up for each, and the CPU's update at its memory bandwidth; on disk
// master and moments are transferred in both directions and the new weight down, 26 bytes.
TEST(Advice, OffloadFromBytes) {
  using graph::Role;
  constexpr int64_t kParameters = 1'000'000'000;
  plan::ModelState s;
  const auto set = [&](Role role, int64_t each, int64_t count = 1) {
    s.of_role[static_cast<size_t>(role)] = {each * count * kParameters, count * kParameters};
  };
  set(Role::Weight, 2), set(Role::Gradient, 4), set(Role::Master, 4), set(Role::Moment, 4, 2);
  const hardware::Cluster c = hardware::parse_cluster("1x8 h100");
  const OffloadCost host = optimizer_offload(s, 0.5, c, 300e9);
  EXPECT_EQ(host.down_bytes, 2e9);
  EXPECT_EQ(host.up_bytes, 1e9);
  EXPECT_NEAR(host.seconds, 3e9 / c.host.effective_bytes_per_s() + 15e9 * 8 / 300e9, 1e-6);
  const OffloadCost disk = disk_offload(s, 0.5, c);
  EXPECT_EQ(disk.disk_bytes, 13e9);
  EXPECT_NEAR(disk.seconds, 13e9 * 8 / (c.disk.bytes_per_s * c.disk.efficiency), 1e-6);
  EXPECT_EQ(saved_by_8bit_moments(s), 6 * kParameters);
}

plan::Assumptions on(const char* cluster) {
  plan::Assumptions a;
  a.cluster = hardware::parse_cluster(cluster);
  return a;
}

config::Recipe full_size(const char* preset, int64_t global, int64_t seq = 4096) {
  return config::parse(
      "name = \"x\"\n[model]\npreset = \"" + std::string(preset) +
      "\"\n[precision]\ncompute = \"bf16\"\n[optimizer]\nlr = 1e-4\n[run]\nsteps = 1\n[batch]\nmicro = "
      "1\nglobal = " +
      std::to_string(global) + "\n[data]\nseq_len = " + std::to_string(seq) + "\n");
}

// 8B on eight GPUs of 32 GB: DDP violates an inequality, full shard does not.
TEST(Verdict, EightBillionOnEightGpus) {
  const Verdict v = decide(full_size("llama3-8b", 128), on("1x8 rtx-5090"), few());
  const Rung& ddp = rung(v, "DDP");
  EXPECT_EQ(ddp.state, Rung::State::DoesNotFit);
  EXPECT_TRUE(ddp.text.starts_with("needs 1")) << ddp.text;
  EXPECT_NE(
      ddp.text.find("GiB per device, has 31.8 GiB: 8.03B parameters x 18 bytes of state, before activations"),
      std::string::npos)
      << ddp.text;
  EXPECT_EQ(rung(v, "full shard").state, Rung::State::Fits) << rung(v, "full shard").text;
  EXPECT_EQ(rung(v, "hybrid shard").text, "one node: the same as full shard");
}

// 70B on 2 x 8 x 96 GB: the state does not fit a node, so hybrid shard is rejected.
TEST(Verdict, SeventyBillionOnTwoNodes) {
  const Verdict v = decide(full_size("llama3-70b", 512), on("2x8 rtx-pro-6000, ib-hdr"), few());
  EXPECT_EQ(rung(v, "DDP").state, Rung::State::DoesNotFit);
  EXPECT_EQ(rung(v, "hybrid shard").state, Rung::State::DoesNotFit);
  EXPECT_NE(rung(v, "hybrid shard").text.find("zero 3 over 8"), std::string::npos)
      << rung(v, "hybrid shard").text;
  EXPECT_EQ(rung(v, "full shard").state, Rung::State::Fits) << rung(v, "full shard").text;
}

// 405B on four nodes of H100: nothing that runs fits; offload and LoRA are estimated from bytes alone.
TEST(Verdict, NothingFits) {
  const Verdict v = decide(full_size("llama3-405b", 64), on("4x8 h100"), few());
  EXPECT_EQ(v.answer, -1);
  EXPECT_EQ(v.text, "no layout that the engine can run fits this cluster");
  EXPECT_TRUE(rung(v, "offload").text.starts_with("plan-only: ")) << rung(v, "offload").text;
  EXPECT_NE(rung(v, "offload").text.find("4 + 2 bytes per parameter"), std::string::npos);
  EXPECT_TRUE(rung(v, "LoRA").text.starts_with("plan-only, if the task allows it: 2"))
      << rung(v, "LoRA").text;
}

// Warnings about a layout.
TEST(Verdict, Warnings) {
  plan::Assumptions a = small_cluster();
  a.cluster.domain = 1;
  const plan::Report r =
      plan::make_plan(small_llama({"parallel.tp=2", "parallel.pp=4", "batch.global=4"}), a);
  const std::vector<std::string> w = warnings_of(r);
  ASSERT_GE(w.size(), 3u);
  EXPECT_EQ(
      w[0],
      "parallel.tp = 2 crosses the slow link (outer): the fast one joins 1 device; parallel.tp = 1 with "
      "parallel.pp = 8 would stay inside");
  EXPECT_TRUE(w[1].starts_with("tensor parallelism without sequence parallelism"));
  EXPECT_TRUE(w[2].starts_with("4 micro-batches for 4 stages"));
  a = small_cluster();
  const plan::Report full =
      plan::make_plan(small_llama({"parallel.dp_replicate=8", "memory.recompute=full"}), a);
  ASSERT_FALSE(warnings_of(full).empty());
  EXPECT_TRUE(warnings_of(full)[0].starts_with("memory.recompute = \"full\""));
  // A step that mostly waits for a fabric.
  a.cluster.outer.bytes_per_s = 1e7;
  const std::vector<std::string> slow =
      warnings_of(plan::make_plan(small_llama({"parallel.dp_replicate=8"}), a));
  ASSERT_FALSE(slow.empty());
  EXPECT_NE(slow.back().find("the fabric is too slow for this layout"), std::string::npos) << slow.back();
}

}  // namespace
}  // namespace quintet::advice
