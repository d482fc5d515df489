#include "plan/layout_changes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/parallel_for.h"
#include "base/text.h"
#include "config/names.h"
#include "config/validate.h"

namespace quintet::plan {
namespace {

using config::Parallel;
using config::RecomputeKind;

// Collects the changes that are legal.
class Changes {
 public:
  explicit Changes(const config::Recipe& recipe) : recipe_(recipe) {}

  // `edit` modifies a copy of the recipe; derived values that it clears are resolved again.
  template <class Edit>
  void add(std::string subject, std::string what, std::vector<std::string> sets, const Edit& edit,
           std::string kind = {}) {
    config::Recipe r = recipe_;
    edit(r);
    const int64_t per_pass = r.batch.micro * r.parallel.dp();
    if (per_pass < 1 || r.batch.global % per_pass != 0) return;
    if (const int64_t n = r.batch.global / per_pass; n != r.batch.accumulation) {
      r.batch.accumulation = n;
      sets.push_back(fmt::format("batch.accumulation={}", n));
    }
    if (!config::problems_of(r).empty()) return;
    list_.push_back(
        {std::move(subject), std::move(what), std::move(sets), config::resolve(r), std::move(kind)});
  }
  std::vector<LayoutChange> take() { return std::move(list_); }

 private:
  const config::Recipe& recipe_;
  std::vector<LayoutChange> list_;
};

std::string set(const char* key, int64_t value) { return fmt::format("parallel.{}={}", key, value); }

// Multiplies dp by more / less, in dp_shard where possible and in dp_replicate for the rest.
bool resize_dp(Parallel& p, int64_t more, int64_t less) {
  if (p.dp_shard * more % less == 0)
    p.dp_shard = p.dp_shard * more / less;
  else if (p.dp_replicate * more % less == 0)
    p.dp_replicate = p.dp_replicate * more / less;
  else
    return false;
  // With a single shard there is nothing left to shard.
  if (p.zero > 0 && p.dp_shard * p.cp == 1) p.zero = 0;
  return true;
}

std::vector<std::string> dp_sets(const Parallel& from, const Parallel& to) {
  std::vector<std::string> sets;
  if (from.dp_shard != to.dp_shard) sets.push_back(set("dp_shard", to.dp_shard));
  if (from.dp_replicate != to.dp_replicate) sets.push_back(set("dp_replicate", to.dp_replicate));
  if (from.zero != to.zero) sets.push_back(set("zero", to.zero));
  return sets;
}

struct Axis {
  const char* name;
  int64_t Parallel::*value;
};
constexpr Axis kTp = {"tp", &Parallel::tp}, kPp = {"pp", &Parallel::pp}, kCp = {"cp", &Parallel::cp};

constexpr int64_t kMaxFactor = 8;  // a larger factor is a different layout, not a change to this one

void reset_followers(Parallel& p) {
  if (p.tp == 1) p.sequence_parallel = false;
  if (p.cp == 1) p.cp_method = p.cp_method_windowed = config::ContextMethod::Auto, p.ulysses = 0;
  if (p.pp == 1) p.schedule.clear(), p.chunks = 1;
  p.stages.clear();
}

void resize(Changes& changes, const config::Recipe& r, const Axis& axis, int64_t to) {
  Parallel p = r.parallel;
  const int64_t from = p.*axis.value;
  p.*axis.value = to;
  if (!resize_dp(p, from, to)) return;
  if (axis.value == &Parallel::tp && to > 1) p.sequence_parallel = true;
  if (axis.value == &Parallel::cp)
    p.cp_method = p.cp_method_windowed = config::ContextMethod::Auto, p.ulysses = 0;
  if (axis.value == &Parallel::pp && to > 1 && p.schedule.empty()) p.schedule = "1f1b";
  reset_followers(p);
  std::vector<std::string> sets = {set(axis.name, to)};
  for (std::string& s : dp_sets(r.parallel, p)) sets.push_back(std::move(s));
  if (p.sequence_parallel != r.parallel.sequence_parallel)
    sets.push_back(fmt::format("parallel.sequence_parallel={}", p.sequence_parallel));
  if (p.schedule != r.parallel.schedule && !p.schedule.empty())
    sets.push_back("parallel.schedule=" + p.schedule);
  changes.add(fmt::format("{} {}", axis.name, from), fmt::format("{} {}", axis.name, to), std::move(sets),
              [&](config::Recipe& changed) { changed.parallel = p; });
}

// --set arguments for another kind, which refuses the keys of the present one.
std::vector<std::string> recompute_sets(const config::Memory& m, RecomputeKind kind) {
  std::vector<std::string> sets = {fmt::format("memory.recompute={}", config::name_of(kind))};
  if (!m.recompute_ops.empty()) sets.emplace_back("memory.recompute_ops=[]");
  if (!m.recompute_layers.empty()) sets.emplace_back("memory.recompute_layers=[]");
  if (m.recompute_every > 1) sets.emplace_back("memory.recompute_every=1");
  if (m.recompute_chunk > 1) sets.emplace_back("memory.recompute_chunk=1");
  if (m.recompute_first > 0) sets.emplace_back("memory.recompute_first=0");
  return sets;
}

void recompute(Changes& changes, const config::Recipe& r, RecomputeKind kind) {
  changes.add(fmt::format("recompute {}", config::name_of(r.memory.recompute)),
              fmt::format("recompute {}", config::name_of(kind)), recompute_sets(r.memory, kind),
              [&](config::Recipe& changed) { changed.memory = {.recompute = kind}; });
}

void schedule(Changes& changes, const config::Recipe& r, const std::string& name) {
  const int64_t chunks = config::traits_of(name).two_chunks() ? 2 : 1;
  changes.add(fmt::format("schedule {}", r.parallel.schedule), fmt::format("schedule {}", name),
              {"parallel.schedule=" + name, set("chunks", chunks)}, [&](config::Recipe& changed) {
                changed.parallel.schedule = name;
                changed.parallel.chunks = chunks;
                changed.parallel.stages.clear();
              });
}

// More expert ranks hold less state each; fewer need smaller worst-case buffers for incoming rows.
void experts(Changes& changes, const config::Recipe& r) {
  const config::Moe& moe = r.model.moe;
  if (moe.experts == 0) return;
  const int64_t ep = r.parallel.ep;
  for (int64_t to = 1; to <= std::min(moe.experts, kMaxFactor * ep); to *= 2)
    if (to != ep && to * kMaxFactor >= ep)
      changes.add(fmt::format("ep {}", ep), fmt::format("ep {}", to), {set("ep", to)},
                  [&](config::Recipe& changed) { changed.parallel.ep = to; });
  if (moe.pad) return;
  for (const double factor : {2.0, 1.5, 1.25, 1.0}) {
    if (moe.capacity_factor > 0 && factor > moe.capacity_factor) continue;
    changes.add(
        "buffers for the worst case of rows per expert",
        fmt::format("expert capacity factor {} (tokens past it are dropped)", factor),
        {fmt::format("model.moe.capacity_factor={}", factor), "model.moe.pad=true"},
        [&](config::Recipe& changed) {
          changed.model.moe.capacity_factor = factor;
          changed.model.moe.pad = true;
        },
        "capacity");
  }
}

}  // namespace

std::string gib(int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string misfit_text(const Report& report) {
  const Memory& m = report.memory;
  return m.fits_device() ? fmt::format("a node's host memory needs {} for copies of the state, has {}",
                                       gib(m.host_copies), gib(m.host_limit))
                         : fmt::format("a device needs {}, has {}", gib(needs(report)), gib(m.limit));
}

std::vector<LayoutChange> simpler(const config::Recipe& r) {
  const Parallel& p = r.parallel;
  Changes changes(r);
  for (const Axis& axis : {kTp, kCp, kPp})
    if (p.*axis.value > 1 && p.*axis.value % 2 == 0) resize(changes, r, axis, p.*axis.value / 2);
  if (p.sequence_parallel)
    changes.add("sequence parallelism", "no sequence parallelism", {"parallel.sequence_parallel=false"},
                [](config::Recipe& changed) { changed.parallel.sequence_parallel = false; });
  const config::PipelineSchedule kind = config::traits_of(p.schedule).kind;
  if (p.pp > 1 && kind != config::PipelineSchedule::OneFOneB && kind != config::PipelineSchedule::GPipe)
    schedule(changes, r, "1f1b");
  if (p.zero > 0)
    changes.add(fmt::format("zero {}", p.zero), fmt::format("zero {}", p.zero - 1), {set("zero", p.zero - 1)},
                [](config::Recipe& changed) { --changed.parallel.zero; });
  if (r.memory.recompute == RecomputeKind::Full) recompute(changes, r, RecomputeKind::Selective);
  if (r.memory.recompute == RecomputeKind::Selective) recompute(changes, r, RecomputeKind::None);
  return changes.take();
}

std::vector<LayoutChange> savings(const config::Recipe& r, int64_t near, int64_t budget) {
  const Parallel& p = r.parallel;
  Changes changes(r);
  for (int64_t zero = p.zero + 1; zero <= 3; ++zero) {
    if (p.dp_shard * p.cp > 1)
      changes.add(fmt::format("zero {}", p.zero), fmt::format("zero {}", zero), {set("zero", zero)},
                  [&](config::Recipe& changed) { changed.parallel.zero = zero; });
    if (p.dp_replicate > 1)
      changes.add(fmt::format("dp_replicate {}", p.dp_replicate),
                  fmt::format("zero {} over all {} data ranks", zero, p.dp()),
                  {set("dp_replicate", 1), set("dp_shard", p.dp()), set("zero", zero)},
                  [&](config::Recipe& changed) {
                    changed.parallel.dp_shard = p.dp();
                    changed.parallel.dp_replicate = 1;
                    changed.parallel.zero = zero;
                  });
  }
  if (p.zero > 0 && p.dp_replicate > 1)
    changes.add(fmt::format("dp_replicate {}", p.dp_replicate),
                fmt::format("state sharded over all {} data ranks", p.dp()),
                {set("dp_replicate", 1), set("dp_shard", p.dp())}, [&](config::Recipe& changed) {
                  changed.parallel.dp_shard = p.dp();
                  changed.parallel.dp_replicate = 1;
                });
  if (r.memory.recompute == RecomputeKind::None) recompute(changes, r, RecomputeKind::Selective);
  if (r.memory.recompute != RecomputeKind::Full) recompute(changes, r, RecomputeKind::Full);
  if (r.memory.recompute != RecomputeKind::Fit && budget > 0) {
    std::vector<std::string> sets = recompute_sets(r.memory, RecomputeKind::Fit);
    sets.push_back(fmt::format("memory.budget={}", budget));
    changes.add(fmt::format("recompute {}", config::name_of(r.memory.recompute)),
                "recompute only as much as needed (fit)", std::move(sets), [&](config::Recipe& changed) {
                  changed.memory = {.recompute = RecomputeKind::Fit, .budget = base::Bytes{budget}};
                });
  }
  for (int64_t micro = r.batch.micro / 2; micro >= 1; micro /= 2)
    changes.add(fmt::format("micro {}", r.batch.micro), fmt::format("micro-batch {}", micro),
                {fmt::format("batch.micro={}", micro)},
                [&](config::Recipe& changed) { changed.batch.micro = micro; });
  if (p.tp > 1 && !p.sequence_parallel)
    changes.add("no sequence parallelism", "sequence parallelism", {"parallel.sequence_parallel=true"},
                [](config::Recipe& changed) { changed.parallel.sequence_parallel = true; });
  for (const Axis& axis : {kTp, kPp, kCp})
    for (int64_t to = 2 * p.*axis.value; to <= std::min(p.world(), kMaxFactor * p.*axis.value); to *= 2)
      if (axis.value != &Parallel::tp || to <= near) resize(changes, r, axis, to);
  if (p.pp > 1)
    for (const char* name : {"1f1b", "zb-v", "v-half", "v-min"})
      if (p.schedule != name) schedule(changes, r, name);
  for (const int64_t chunk : {int64_t{1024}, int64_t{256}})
    if (r.loss.chunk == 0 || r.loss.chunk > chunk)
      changes.add(fmt::format("loss chunk {}", r.loss.chunk),
                  fmt::format("logits in chunks of {} rows", chunk), {fmt::format("loss.chunk={}", chunk)},
                  [&](config::Recipe& changed) { changed.loss.chunk = chunk; });
  experts(changes, r);
  if (r.precision.compute == base::DType::BF16 && r.precision.master == config::Master::F32)
    changes.add("whole masters", "split masters: the weight is their upper half (same numerics)",
                {"precision.master=split"},
                [](config::Recipe& changed) { changed.precision.master = config::Master::Split; });
  if (r.precision.compute == base::DType::BF16 && r.precision.gradients == base::DType::F32)
    changes.add(
        "gradients in f32", "gradients accumulated in bf16 (changes the numerics)",
        {"precision.gradients=bf16", fmt::format("precision.reduce={}", config::name_of(r.precision.reduce))},
        [](config::Recipe& changed) { changed.precision.gradients = base::DType::BF16; });
  if (r.precision.moments == base::DType::F32 && r.precision.compute == base::DType::BF16)
    changes.add("moments in f32", "moments in bf16 (changes the numerics)", {"precision.moments=bf16"},
                [](config::Recipe& changed) { changed.precision.moments = base::DType::BF16; });
  if (r.checkpoint.peer_every > 0)
    changes.add("checkpoint.peer_every", "no copies in other ranks' memory", {"checkpoint.peer_every=0"},
                [](config::Recipe& changed) { changed.checkpoint.peer_every = 0; });
  if (r.checkpoint.every.is_on())
    changes.add("checkpoint.every", "a checkpoint only at the end, written without a copy",
                {"checkpoint.every=0", "checkpoint.peer_every=0"}, [](config::Recipe& changed) {
                  changed.checkpoint.every = {};
                  changed.checkpoint.peer_every = 0;
                });
  return changes.take();
}

std::vector<std::optional<Report>> plan_all(const std::vector<config::Recipe>& recipes,
                                            const Assumptions& assumptions, int threads) {
  std::vector<std::optional<Report>> reports(recipes.size());
  Assumptions one = assumptions;
  one.timeline = false;
  one.threads = 1;
  one.verify = false;
  base::parallel_for(threads, recipes.size(), [&](size_t i) {
    try {
      reports[i] = make_plan(recipes[i], one);
    } catch (const base::UserError&) {
      // Refused by the compiler for reasons that no recipe rule covers.
    }
  });
  return reports;
}

}  // namespace quintet::plan
