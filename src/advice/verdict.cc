#include "advice/verdict.h"

#include <fmt/format.h>

#include <algorithm>

#include "advice/not_run_yet.h"
#include "base/text.h"
#include "config/validate.h"
#include "plan/layout_changes.h"
#include "plan/text.h"
#include "search/search.h"

namespace quintet::advice {
namespace {

constexpr const char* kNothingPlanned = "plan-only: no layout could be planned, so its bytes are unknown";

using State = Rung::State;
using program::MemoryClass;

std::vector<int64_t> above_one(const std::vector<int64_t>& list) {
  std::vector<int64_t> out;
  std::copy_if(list.begin(), list.end(), std::back_inserter(out), [](int64_t n) { return n > 1; });
  return out;
}

class Ladder {
 public:
  Ladder(const config::Recipe& recipe, const plan::Assumptions& assumptions, const VerdictOptions& options)
      : recipe_(recipe),
        assumptions_(assumptions),
        options_(options),
        own_bounds_(assumptions),
        all_(search::usual_space(recipe, assumptions.cluster)) {
    plain_ = all_;
    plain_.tp = plain_.cp = plain_.pp = plain_.ep = plain_.etp = {1};
  }

  Verdict climb() {
    const hardware::Cluster& c = assumptions_.cluster;
    const bool several = c.world() > 1;
    search::LayoutSpace ddp = plain_;
    ddp.zero = {0};
    rung("DDP", ddp, true, "");
    search::LayoutSpace full = plain_;
    full.zero = {3};
    full.dp_replicate = {1};
    rung("full shard", full, several, "one device: nothing to shard over");
    search::LayoutSpace hybrid = full;
    hybrid.dp_replicate = {c.nodes};
    rung("hybrid shard", hybrid, c.nodes > 1 && c.per_node > 1, "one node: the same as full shard");
    search::LayoutSpace tensor = all_;
    tensor.pp = tensor.cp = tensor.ep = tensor.etp = {1};
    tensor.tp = above_one(all_.tp);
    rung("tensor", tensor, !tensor.tp.empty(), "no devices share an inner link");
    search::LayoutSpace pipeline = all_;
    pipeline.cp = pipeline.ep = pipeline.etp = {1};
    pipeline.pp = above_one(all_.pp);
    rung("pipeline", pipeline, !pipeline.pp.empty(), "one device, or one block");
    search::LayoutSpace context = all_;
    context.ep = context.etp = {1};
    context.pp = {1};
    context.cp = above_one(all_.cp);
    rung("context", context, !context.cp.empty(),
         fmt::format("sequences of {} tokens are too short to split", base::thousands(recipe_.data.seq_len)));
    search::LayoutSpace expert = all_;
    expert.cp = {1};
    expert.ep = above_one(all_.ep);
    rung("expert", expert, !expert.ep.empty(), "the model has no experts");
    mixture();
    choose();
    offload();
    lora();
    return std::move(verdict_);
  }

 private:
  int64_t limit() const { return assumptions_.cluster.accelerator.memory_bytes; }

  void rung(const char* name, const search::LayoutSpace& space, bool applies, const std::string& why_not) {
    Rung r{.name = name, .text = why_not};
    if (applies) {
      if (options_.progress) options_.progress(name);
      search::SearchResult found =
          search::search(recipe_, assumptions_, space,
                         {.keep = 1,
                          .plans = options_.plans,
                          .groups = options_.groups,
                          .layouts = options_.layouts,
                          .work = options_.work,
                          .longest = options_.longest,
                          .threads = options_.threads,
                          .bounds = options_.bounds != nullptr ? options_.bounds : &own_bounds_});
      if (!found.best.empty())
        fits(r, std::move(found.best.front().report));
      else
        least(r, space, std::move(found));
    }
    verdict_.rungs.push_back(std::move(r));
  }

  void mixture() {
    if (options_.best == nullptr) return;
    for (const Rung& r : verdict_.rungs)
      if (r.state == State::Fits && r.report->time.step <= kNearBest * options_.best->time.step) return;
    Rung r{.name = "several axes"};
    fits(r, *options_.best);
    verdict_.rungs.push_back(std::move(r));
  }

  void fits(Rung& r, plan::Report report) const {
    r.state = State::Fits;
    r.text = fmt::format("{} per step, {:.1f} % MFU, {} of {}: {}", plan::seconds_text(report.time.step),
                         100 * report.time.mfu, plan::gib(plan::needs(report)), plan::gib(limit()),
                         search::layout_words(report.recipe));
    r.report = std::move(report);
  }

  // The least memory a rung needs: the smallest layout that the search planned or discarded. If state alone
  // is too large, the search examined nothing; then the layout of the rung that saves memory wherever it can.
  void least(Rung& r, const search::LayoutSpace& space, search::SearchResult found) {
    std::optional<plan::Report> report = std::move(found.smallest);
    std::optional<config::Recipe> recipe = std::move(found.smallest_bound);
    if (!report && !recipe) recipe = widest(space);
    if (recipe) {
      std::vector<std::optional<plan::Report>> plans = plan::plan_all({*recipe}, assumptions_, 1);
      if (plans.front() && (!report || plan::needs(*plans.front()) < plan::needs(*report)))
        report = std::move(plans.front());
    }
    if (!report) {
      r.text = why_illegal(space);
      return;
    }
    if (report->memory.fits()) return fits(r, std::move(*report));
    r.state = State::DoesNotFit;
    r.text = report->memory.fits_device()
                 ? plan::misfit_text(*report)
                 : fmt::format("needs {} per device, has {}: {}", plan::gib(plan::needs(*report)),
                               plan::gib(limit()), misfit_words(*report));
    r.report = std::move(report);
  }

  // The smallest micro-batch, full recompute, the highest ZeRO stage, and every axis as large as allowed.
  std::optional<config::Recipe> widest(const search::LayoutSpace& space) const {
    std::vector<search::Family> list;
    for (search::Family way : search::ways(space, assumptions_.cluster.world())) {
      if (way.tp > 1 && !way.sequence_parallel) continue;
      way.micro = space.micro.front();
      way.recompute = config::RecomputeKind::Full;
      const std::vector<search::Family> some =
          search::families_of(way, recipe_, space, assumptions_.cluster.world());
      list.insert(list.end(), some.begin(), some.end());
    }
    std::stable_sort(list.begin(), list.end(), [](const search::Family& a, const search::Family& b) {
      const auto key = [](const search::Family& x) {
        return std::tuple(x.zero, x.tp * x.pp * x.cp * x.ep, x.dp_shard);
      };
      return key(a) > key(b);
    });
    for (const search::Family& f : list) {
      const config::Recipe r = search::with_layout(recipe_, f, {f.pp > 1 ? "1f1b" : "", 1});
      if (config::problems_of(r).empty()) return config::resolve(r);
    }
    return std::nullopt;
  }

  // A rung without a legal layout: the first rule violated, or that the batch is too small.
  std::string why_illegal(const search::LayoutSpace& space) const {
    const int64_t world = assumptions_.cluster.world(), global = recipe_.batch.global;
    int64_t least_dp = 0;
    for (search::Family way : search::ways(space, world)) {
      way.micro = space.micro.front();
      for (const int64_t pp : space.pp) {
        if (world % (way.tp * way.cp * pp) != 0) continue;
        const int64_t dp = world / (way.tp * way.cp * pp);
        if (least_dp == 0 || dp < least_dp) least_dp = dp;
      }
      for (const search::Family& f : search::families_of(way, recipe_, space, world)) {
        const std::vector<config::Problem> problems =
            config::problems_of(search::with_layout(recipe_, f, {f.pp > 1 ? "1f1b" : "", 1}));
        if (!problems.empty())
          return "no layout of this kind is legal: " + config::to_string(problems.front());
      }
    }
    return fmt::format(
        "no layout of this kind is legal: {} sequences per step do not divide over {} or more data ranks; a "
        "batch of {} would",
        base::thousands(global), base::thousands(least_dp),
        base::thousands((global + least_dp - 1) / std::max<int64_t>(least_dp, 1) * least_dp));
  }

  // Where the bytes come from: state, by its cost per parameter, if that is the larger part; otherwise what
  // is held in addition to it.
  std::string misfit_words(const plan::Report& r) const {
    const plan::RankMemory& rank = r.memory.ranks[r.memory.most_loaded];
    const auto of = [&](MemoryClass c) { return rank.by_class[static_cast<size_t>(c)]; };
    const int64_t state =
        of(MemoryClass::Parameters) + of(MemoryClass::Gradients) + of(MemoryClass::Optimizer);
    // State by cost per parameter where that dominates; blocks gathered for use come on top.
    const config::Parallel& p = r.recipe.parallel;
    const double stored = r.state.on_rank(static_cast<int>(p.zero),
                                          static_cast<double>(std::max<int64_t>(1, p.dp_shard * p.cp))) /
                          static_cast<double>(p.tp * p.pp);
    if (p.ep * p.etp == 1 && 2 * stored < static_cast<double>(state) && 2 * state >= rank.total())
      return fmt::format(
          "{} of parameters including gathered blocks, {} of gradients, {} of optimizer state ({})",
          plan::gib(of(MemoryClass::Parameters)), plan::gib(of(MemoryClass::Gradients)),
          plan::gib(of(MemoryClass::Optimizer)), search::layout_words(r.recipe));
    if (2 * state >= rank.total() - rank.runtime_bytes) return state_words(r, state);
    std::string out = fmt::format("{} of activations, {} of state", plan::gib(of(MemoryClass::Activations)),
                                  plan::gib(state));
    if (rank.routed_bytes > rank.expected_routed_bytes)
      out += fmt::format("; {} reserved for the worst case of expert rows, {} used if rows arrive evenly",
                         plan::gib(rank.routed_bytes), plan::gib(rank.expected_routed_bytes));
    return out + " (" + search::layout_words(r.recipe) + ")";
  }

  std::string state_words(const plan::Report& r, int64_t state) const {
    const config::Parallel& p = r.recipe.parallel;
    const double ranks = static_cast<double>(std::max<int64_t>(1, p.dp_shard * p.cp));
    const std::string where =
        p.zero == 0 ? std::string(" of state") : fmt::format(" of state (zero {} over {})", p.zero, ranks);
    // Experts are placed on ranks of their own.
    if (p.ep * p.etp > 1)
      return fmt::format("{}{}, before activations ({})", plan::gib(state), where,
                         search::layout_words(r.recipe));
    const auto parameters = static_cast<double>(r.parameters) / static_cast<double>(p.tp * p.pp);
    return fmt::format("{} parameters x {:.4g} bytes{}, before activations", base::human_count(parameters),
                       r.state.on_rank(static_cast<int>(p.zero), ranks) / static_cast<double>(r.parameters),
                       where);
  }

  void choose() {
    double best = 0;
    for (const Rung& r : verdict_.rungs)
      if (r.state == State::Fits && (best == 0 || r.report->time.step < best)) best = r.report->time.step;
    for (size_t i = 0; i < verdict_.rungs.size() && verdict_.answer < 0; ++i)
      if (const Rung& r = verdict_.rungs[i];
          r.state == State::Fits && r.report->time.step <= kNearBest * best)
        verdict_.answer = static_cast<int>(i);
    if (verdict_.answer < 0) {
      verdict_.text = "no layout that the engine can run fits this cluster";
      return;
    }
    const Rung& r = verdict_.rungs[static_cast<size_t>(verdict_.answer)];
    verdict_.text = fmt::format("{}: {}", r.name, r.text);
    verdict_.warnings = warnings_of(*r.report);
  }

  // The report that needs the least memory.
  const plan::Report* smallest() const {
    const plan::Report* least = nullptr;
    for (const Rung& r : verdict_.rungs)
      if (r.report && (least == nullptr || plan::needs(*r.report) < plan::needs(*least))) least = &*r.report;
    return least;
  }

  // If activations are what does not fit: move block inputs, which full recompute keeps, to host memory.
  // Empty if state is the larger part.
  std::string offload_activations() const {
    const plan::Report* r = smallest();
    if (r == nullptr) return {};
    const plan::RankMemory& rank = r->memory.ranks[r->memory.most_loaded];
    const int64_t activations = rank.by_class[static_cast<size_t>(MemoryClass::Activations)];
    if (2 * activations < rank.total() || r->recipe.memory.recompute != config::RecomputeKind::Full)
      return {};
    const config::Recipe& q = r->recipe;
    const hardware::Cluster& c = assumptions_.cluster;
    const int64_t rows =
        q.batch.micro * q.data.seq_len / (q.parallel.cp * (q.parallel.sequence_parallel ? q.parallel.tp : 1));
    const int64_t size = base::size_of(q.precision.compute);
    const int64_t kept = q.model.layers * rows * q.model.embed * size, left = rank.total() - kept;
    const double link = c.host.effective_bytes_per_s();
    std::string out = fmt::format(
        "plan-only: the engine keeps block inputs on the device; moving {} blocks x {} rows x {} x {} bytes "
        "= {} per device to host memory would leave {} of {}",
        q.model.layers, base::thousands(rows), base::thousands(q.model.embed), size, plan::gib(kept),
        plan::gib(left), plan::gib(limit()));
    out += left <= limit() ? ", which fits" : ", which still does not fit";
    const int64_t node = kept * c.per_node;
    out += fmt::format("; {} per node", plan::gib(node));
    if (c.host_bytes > 0)
      out += fmt::format(" of {}{}", plan::gib(c.host_bytes),
                         node > c.host_bytes ? ", which is too little" : "");
    if (link > 0)
      out += fmt::format("; {} per step over the host link",
                         plan::seconds_text(2 * static_cast<double>(kept * q.batch.accumulation) / link));
    return out;
  }

  std::string offload_optimizer(const plan::Report& report) const {
    const hardware::Cluster& c = assumptions_.cluster;
    const double share = 1.0 / c.world(), own = share * static_cast<double>(report.parameters);
    const OffloadCost host = optimizer_offload(report.state, share, c, kHostBytesPerS),
                      disk = disk_offload(report.state, share, c);
    const double node = share * static_cast<double>(report.state.optimizer_bytes()) * c.per_node;
    std::string text = fmt::format(
        "plan-only: {} of optimizer state per node with {} of memory; {:.3g} + {:.3g} bytes per parameter "
        "over the host link and {:.3g} in host memory, {} per step",
        plan::gib(static_cast<int64_t>(node)), c.host_bytes > 0 ? plan::gib(c.host_bytes) : "unknown size",
        host.down_bytes / own, host.up_bytes / own, host.touched_bytes / own,
        plan::seconds_text(host.seconds));
    if (c.host_bytes > 0 && node > static_cast<double>(c.host_bytes))
      text += c.disk.bytes_per_s >= kMinDiskBytesPerS
                  ? fmt::format("; on disk {:.3g} bytes per parameter, {} per step", disk.disk_bytes / own,
                                plan::seconds_text(disk.seconds))
                  : fmt::format(
                        "; host memory is too small, and a disk below {:.0f} GB/s would leave devices idle",
                        kMinDiskBytesPerS * 1e-9);
    return text;
  }

  // Offload and LoRA are suggested only when nothing else fits.
  void offload() {
    Rung r{.name = "offload", .state = State::PlanOnly};
    if (verdict_.answer >= 0) {
      r.text = "not needed";
    } else if (std::string text = offload_activations(); !text.empty()) {
      r.text = std::move(text);
    } else if (const plan::Report* report = smallest()) {
      r.text = offload_optimizer(*report);
    } else {
      r.text = kNothingPlanned;
    }
    verdict_.rungs.push_back(std::move(r));
  }

  void lora() {
    Rung r{.name = "LoRA", .state = State::PlanOnly};
    if (verdict_.answer >= 0) {
      r.text = "not needed";
    } else if (const plan::Report* report = smallest(); report == nullptr) {
      r.text = kNothingPlanned;
    } else {
      const int world = assumptions_.cluster.world();
      const auto bytes = [&](double weight) {
        return static_cast<int64_t>(lora_bytes(recipe_.model, report->state, 16, weight) / world);
      };
      r.text = fmt::format(
          "plan-only, if the task allows it: {} per device with frozen bf16 weights and adapters of rank 16, "
          "{} with 4-bit weights",
          plan::gib(bytes(2)), plan::gib(bytes(0.5)));
    }
    verdict_.rungs.push_back(std::move(r));
  }

  const config::Recipe& recipe_;
  const plan::Assumptions& assumptions_;
  const VerdictOptions options_;
  const search::Bounds own_bounds_;
  const search::LayoutSpace all_;
  search::LayoutSpace plain_;
  Verdict verdict_;
};

}  // namespace

Verdict decide(const config::Recipe& recipe, const plan::Assumptions& assumptions,
               const VerdictOptions& options) {
  return Ladder(recipe, assumptions, options).climb();
}

namespace {

bool selective_fits(const plan::Report& r) {
  config::Recipe selective = r.recipe;
  selective.memory = {.recompute = config::RecomputeKind::Selective};
  plan::Assumptions trial = r.assumptions;
  trial.verify = false;
  return config::problems_of(selective).empty() &&
         plan::make_plan(config::resolve(selective), trial).memory.fits();
}

}  // namespace

std::vector<std::string> warnings_of(const plan::Report& r) {
  std::vector<std::string> list = r.warnings;
  const config::Parallel& p = r.recipe.parallel;
  if (p.tp > 1 && !p.sequence_parallel)
    list.push_back("tensor parallelism without sequence parallelism keeps replicated activations");
  if (p.pp > 1 && r.recipe.batch.accumulation < 4 * p.pp && !config::traits_of(p.schedule).fills_bubbles)
    list.push_back(
        fmt::format("{} micro-batches for {} stages: fewer than 4 per stage leave a large bubble; a "
                    "zero-bubble schedule needs fewer",
                    r.recipe.batch.accumulation, p.pp));
  if (r.recipe.memory.recompute == config::RecomputeKind::Full && p.pp == 1 && p.cp == 1 && selective_fits(r))
    list.push_back("memory.recompute = \"full\": selective recompute fits too and costs less");
  for (const plan::LinkBytes& l : r.time.links)
    if (l.exposed > 0.3 * r.time.step)
      list.push_back(
          fmt::format("compute waits for {} over {} during {:.0f} % of the step: the fabric is too slow for "
                      "this layout, and no setting changes that",
                      l.axes, l.link, 100 * l.exposed / r.time.step));
  return list;
}

std::string to_text(const Verdict& v) {
  std::string out = v.answer < 0 ? v.text + "\n"
                                 : fmt::format(
                                       "strategies, from the simplest up; -> is the first within {:.0f} % of "
                                       "the fastest\n",
                                       100 * (kNearBest - 1));
  for (size_t i = 0; i < v.rungs.size(); ++i)
    out += fmt::format("{} {:<13} {}\n", static_cast<int>(i) == v.answer ? "->" : "  ", v.rungs[i].name,
                       v.rungs[i].text);
  for (const std::string& w : v.warnings) out += fmt::format("warning: {}\n", w);
  return out;
}

}  // namespace quintet::advice
