#include "advice/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "advice/not_run_yet.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "search/bounds.h"

namespace quintet::advice {
namespace {

using program::MemoryClass;

int64_t of_class(const plan::Report& r, MemoryClass c) {
  return r.memory.ranks[r.memory.most_loaded].by_class[static_cast<size_t>(c)];
}

// Changes the engine does not support yet: the plan's bytes minus what would be saved.
std::vector<Advice> plan_only(const plan::Report& r) {
  std::vector<Advice> list;
  const hardware::Cluster& cluster = r.assumptions.cluster;
  const int64_t optimizer = of_class(r, MemoryClass::Optimizer), all = r.state.optimizer_bytes();
  if (optimizer <= 0 || all <= 0) return list;
  const double share = static_cast<double>(optimizer) / static_cast<double>(all);  // of this device
  const auto add = [&](std::string what, int64_t saved, double lost) {
    list.push_back({.what = std::move(what),
                    .sets = {},
                    .runs = false,
                    .bytes = plan::needs(r) - saved,
                    .saved = saved,
                    .step = r.time.step + lost,
                    .lost = lost});
  };
  if (const int64_t saved = saved_by_8bit_moments(r.state); saved > 0)
    add("8-bit moments", static_cast<int64_t>(share * static_cast<double>(saved)), 0);
  const OffloadCost host = optimizer_offload(r.state, share, cluster, kHostBytesPerS);
  const double on_host = static_cast<double>(optimizer) * cluster.per_node;
  const double link = host.down_bytes + host.up_bytes, touched = host.touched_bytes;
  const auto rate = [&](double bytes) { return fmt::format("{:.1f} GB/s", bytes / r.time.step * 1e-9); };
  if (cluster.host_bytes <= 0 || on_host <= static_cast<double>(cluster.host_bytes))
    add(fmt::format(
            "optimizer state in host memory: {} per node; {} over the host link and {} in host memory per "
            "device and step; hiding them within the step takes {} and {}",
            plan::gib(static_cast<int64_t>(on_host)), plan::gib(static_cast<int64_t>(link)),
            plan::gib(static_cast<int64_t>(touched)), rate(link), rate(touched)),
        optimizer, host.seconds);
  if (cluster.disk.bytes_per_s >= kMinDiskBytesPerS) {
    const OffloadCost disk = disk_offload(r.state, share, cluster);
    const double moved = disk.disk_bytes * cluster.per_node;
    add(fmt::format(
            "optimizer state on disk: {} per node; {} to and from disk per step; hiding it within the "
            "step takes {} ({} has {:.1f} GB/s)",
            plan::gib(static_cast<int64_t>(on_host)), plan::gib(static_cast<int64_t>(moved)), rate(moved),
            cluster.disk.title, cluster.disk.bytes_per_s * 1e-9),
        optimizer, host.seconds + disk.seconds);
  }
  if (r.recipe.model.family == config::Family::Custom) return list;  // its matrices are not known here
  // Frozen weights keep neither gradients nor optimizer state; adapters of rank 16 do.
  const config::Parallel& l = r.recipe.parallel;
  const auto adapters =
      static_cast<int64_t>(lora_parameters(r.recipe.model, 16) / static_cast<double>(l.tp * l.pp) *
                           r.state.bytes_per_trained_parameter());
  add("rank-16 LoRA instead of full training", optimizer + of_class(r, MemoryClass::Gradients) - adapters, 0);
  return list;
}

// Leaves out changes that keep more state and activations on a device than it has memory, by bounds that
// take a fraction of a plan's time: with thousands of blocks a plan takes seconds, and there are dozens of
// changes.
std::vector<plan::LayoutChange> without_hopeless(const plan::Report& r,
                                                 std::vector<plan::LayoutChange> changes, int threads) {
  if (r.recipe.model.family == config::Family::Custom) return changes;
  std::vector<char> hopeless(changes.size(), 0);
  base::parallel_for(threads, changes.size(), [&](size_t i) {
    config::Recipe least = changes[i].recipe;
    // Nothing keeps less than full recompute; "fit" chooses by its budget.
    if (least.memory.recompute == config::RecomputeKind::Fit)
      least.memory = {.recompute = config::RecomputeKind::Full};
    try {
      hopeless[i] = search::Bounds(r.assumptions).quick(least).bytes > r.memory.limit;
    } catch (const base::UserError&) {
      // Refused by the compiler for reasons that no recipe rule covers: as in plan_all().
    }
  });
  std::vector<plan::LayoutChange> rest;
  for (size_t i = 0; i < changes.size(); ++i)
    if (hopeless[i] == 0) rest.push_back(std::move(changes[i]));
  return rest;
}

}  // namespace

std::string change_of_time(const Advice& a, const plan::Report& r) {
  const double share = 100 * a.lost / r.time.step;
  if (!a.runs && a.lost == 0) return "time not simulated";
  if (std::abs(share) < 0.05) return "same speed";
  return fmt::format("{} {} per step ({:+.1f} %)", plan::seconds_text(std::abs(a.lost)),
                     a.lost > 0 ? "more" : "less", share);
}

std::vector<Term> largest_terms(const plan::Report& r) {
  const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
  std::vector<Term> terms;
  for (int i = 0; i < program::kNumMemoryClasses; ++i)
    if (const int64_t bytes = rank.by_class[static_cast<size_t>(i)]; bytes > 0)
      terms.push_back({std::string(program::to_string(static_cast<MemoryClass>(i))), bytes});
  if (rank.gaps() > 0) terms.push_back({"gaps between buffers", rank.gaps()});
  if (rank.runtime_bytes > 0) terms.push_back({"context and libraries", rank.runtime_bytes});
  if (rank.device_copies > 0) terms.push_back({"copies for checkpoints", rank.device_copies});
  std::stable_sort(terms.begin(), terms.end(),
                   [](const Term& a, const Term& b) { return a.bytes > b.bytes; });
  return terms;
}

std::string expert_reserve_text(const plan::Report& r) {
  const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
  const int64_t spare = rank.routed_bytes - rank.expected_routed_bytes;
  if (r.memory.fits_device() || rank.total() - spare > r.memory.limit) return {};
  const config::Parallel& p = r.recipe.parallel;
  return fmt::format(
      "it does not fit because no token may be dropped: {} are reserved for rows, as if every token of {} "
      "ranks chose this rank's experts; {} are used if rows arrive evenly. An expert capacity bounds the "
      "reserve and drops tokens past it\n",
      plan::gib(rank.routed_bytes), p.ep * p.etp, plan::gib(rank.expected_routed_bytes));
}

std::vector<Advice> advise(const plan::Report& r, int threads) {
  const int64_t near = std::max(r.assumptions.cluster.domain, 1);
  const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
  std::vector<plan::LayoutChange> changes =
      plan::savings(r.recipe, near, r.memory.limit - (plan::needs(r) - rank.arena_bytes));
  changes = without_hopeless(r, std::move(changes), threads);
  std::vector<config::Recipe> recipes;
  for (const plan::LayoutChange& c : changes) recipes.push_back(c.recipe);
  const std::vector<std::optional<plan::Report>> plans = plan::plan_all(recipes, r.assumptions, threads);
  std::vector<Advice> list;
  std::set<std::string> kinds;
  for (size_t i = 0; i < changes.size(); ++i) {
    if (!plans[i] || !plans[i]->memory.fits()) continue;
    if (!changes[i].kind.empty() && !kinds.insert(changes[i].kind).second) continue;
    list.push_back({.what = changes[i].what,
                    .sets = changes[i].sets,
                    .runs = true,
                    .bytes = plan::needs(*plans[i]),
                    .saved = plan::needs(r) - plan::needs(*plans[i]),
                    .step = plans[i]->time.step,
                    .lost = plans[i]->time.step - r.time.step});
  }
  for (Advice& a : r.memory.fits_device() ? std::vector<Advice>() : plan_only(r))
    if (a.bytes <= r.memory.limit) list.push_back(std::move(a));
  std::stable_sort(list.begin(), list.end(), [](const Advice& a, const Advice& b) {
    return std::pair(!a.runs, a.lost) < std::pair(!b.runs, b.lost);
  });
  return list;
}

std::string advice_text(const plan::Report& r, const std::vector<Advice>& advice) {
  if (r.memory.fits()) return {};
  const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
  std::string out =
      r.memory.fits_device()
          ? fmt::format("does not fit: {}\n", plan::misfit_text(r))
          : fmt::format("does not fit: {} needs {}, has {} ({} too much)\n",
                        r.memory.ranks.size() > 1 ? fmt::format("a device of pipeline stage {}", rank.stage)
                                                  : std::string("a device"),
                        plan::gib(rank.total()), plan::gib(r.memory.limit),
                        plan::gib(rank.total() - r.memory.limit));
  for (const Term& t : r.memory.fits_device() ? std::vector<Term>() : largest_terms(r))
    out += fmt::format("  {:<24} {:>12}\n", t.what, plan::gib(t.bytes));
  out += expert_reserve_text(r);
  if (advice.empty())
    return out + "no single change makes it fit; quintet plan --search looks for a layout that does\n";
  out += "any one of these makes it fit, cheapest in time first\n";
  for (const Advice& a : advice) {
    out += fmt::format("  {:<44} needs {:>10}, {}{}\n", a.what, plan::gib(a.bytes), change_of_time(a, r),
                       a.runs ? "" : "; plan-only: the engine does not run it yet");
    if (!a.sets.empty()) out += fmt::format("      --set {}\n", fmt::join(a.sets, " --set "));
  }
  return out;
}

}  // namespace quintet::advice
