#include "plan/time.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include "graph/flops.h"
#include "sim/durations.h"
#include "sim/time_breakdown.h"

namespace quintet::plan {

using program::InstrKind;

sim::Machine machine_of(const Assumptions& a) {
  sim::Machine m{a.cluster, a.stack, a.matmul, a.imbalance, a.visible_keys};
  if (a.remark)
    m.plain_attention = [remark = a.remark](const program::Instr& i) { return !remark(i).empty(); };
  return m;
}

namespace {

// The share with this name, appended if it does not exist yet.
double& named(std::vector<TimeShare>& shares, const TimeShare& like) {
  for (TimeShare& s : shares)
    if (s.what == like.what) return s.seconds;
  return shares.emplace_back(TimeShare{like.kind, like.what, 0, like.axes}).seconds;
}

LinkBytes& named(std::vector<LinkBytes>& links, const std::string& axes, bool data, const std::string& link) {
  for (LinkBytes& l : links)
    if (l.axes == axes && l.link == link) return l;
  return links.emplace_back(LinkBytes{.axes = axes, .data = data, .link = link});
}

bool connects_data_ranks(const program::Communicator& comm) {
  return std::ranges::any_of(comm.axes(), [](layout::Axis axis) {
    return axis == layout::Axis::DpShard || axis == layout::Axis::DpReplicate;
  });
}

// Bytes that a rank sends over each kind of link, and the duration of its collectives.
std::vector<LinkBytes> links_of(const sim::Rank& rank, const std::vector<sim::Span>& spans,
                                const std::vector<double>& waits, const sim::Machine& machine) {
  const sim::Durations durations(*rank.program, machine);
  std::vector<LinkBytes> links;
  const auto link_of = [&](program::CommId comm) -> LinkBytes& {
    const hardware::Spread& spread = durations.spread(comm);
    const hardware::Link& link = spread.domains > 1 ? machine.cluster.outer : machine.cluster.inner;
    const program::Communicator& c = rank.program->comms[comm.index()];
    return named(links, program::axes_text(c), connects_data_ranks(c),
                 link.title.empty() ? link.name : link.title);
  };
  for (size_t k = 0; k < spans.size(); ++k) {
    const program::Instr& instr = instr_of(*rank.program, rank.expanded->issues[k]);
    if (instr.kind != InstrKind::Collective) continue;
    LinkBytes& link = link_of(instr.collective.comm);
    link.bytes += durations.sent_bytes(instr);
    ++link.count;
    link.seconds += spans[k].end - spans[k].start;
  }
  for (size_t c = 0; c < waits.size(); ++c)
    if (waits[c] > 0) link_of(program::CommId(static_cast<int32_t>(c))).exposed += waits[c];
  return links;
}

double hardware_flops(const sim::Rank& rank, const sim::Machine& machine) {
  const sim::Durations durations(*rank.program, machine);
  std::vector<std::vector<double>> of_instr;
  for (const program::Body& body : rank.program->bodies) {
    auto& list = of_instr.emplace_back();
    for (const program::Instr& i : body.instrs)
      list.push_back(i.kind == InstrKind::Compute && sim::class_of(*i.op) != sim::WorkClass::Other
                         ? durations.cost(i).flops
                         : 0);
  }
  double flops = 0;
  for (const program::Issue& issue : rank.expanded->issues)
    flops += of_instr[static_cast<size_t>(issue.body)][static_cast<size_t>(issue.instr)];
  return flops;
}

void set_rates(Time& t) {
  t.tokens_per_s = t.tokens / t.step;
  t.tokens_per_s_per_device = t.tokens_per_s / t.devices;
  t.mfu = t.model_flops / (t.step * t.devices * t.peak_flops);
  t.hfu = t.hardware_flops / (t.step * t.devices * t.peak_flops);
}

}  // namespace

double Time::stage_variation() const {
  if (stage_seconds.size() < 2) return 0;
  const auto n = static_cast<double>(stage_seconds.size());
  const double mean = std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0) / n;
  double squares = 0;
  for (const double s : stage_seconds) squares += (s - mean) * (s - mean);
  return std::sqrt(squares / n) / mean;
}

sim::Simulation simulate(const Assumptions& assumptions, const compiler::Ranks& ranks) {
  const sim::Machine machine = machine_of(assumptions);
  std::map<const program::Program*, sim::Durations> durations;
  for (const compiler::RankProgram& r : ranks.program) durations.try_emplace(&r.program, r.program, machine);
  return sim::simulate(
      world_of(ranks),
      [&](const program::Program& p, const program::Instr& i) { return durations.at(&p)(i); },
      {.hidden = assumptions.stack.hidden,
       .use = [&](const program::Program& p, const program::Instr& i) { return durations.at(&p).use(i); }});
}

Time time_of(const config::Recipe& recipe, const Assumptions& assumptions, const compiler::Ranks& ranks,
             const sim::Simulation& simulation) {
  const sim::World world = world_of(ranks);
  const sim::Machine machine = machine_of(assumptions);
  Time t;
  t.devices = static_cast<int>(recipe.parallel.world());
  t.step = simulation.end + assumptions.stack.step_seconds;
  t.tokens = static_cast<double>(recipe.batch.global * recipe.data.seq_len);
  t.model_flops = graph::flops_of(ranks.model).total() * static_cast<double>(recipe.batch.accumulation);
  t.peak_flops = assumptions.cluster.accelerator.dense(
      assumptions.matmul.value_or(sim::arithmetic_of(recipe.precision.compute)));

  std::vector<sim::TimeBreakdown> shares;
  for (size_t r = 0; r < world.ranks.size(); ++r) {
    shares.push_back(sim::time_breakdown(simulation, world, r));
    if (shares[r].busy() > shares[static_cast<size_t>(t.busiest)].busy()) t.busiest = static_cast<int>(r);
    t.hardware_flops += hardware_flops(world.ranks[r], machine);
    t.compute_rate += shares[r].busy() / t.step;
    t.stage_seconds.push_back(shares[r].busy());
  }
  const double per_place = static_cast<double>(t.devices) / static_cast<double>(world.ranks.size());
  t.hardware_flops *= per_place;
  t.compute_rate /= static_cast<double>(world.ranks.size());

  const size_t busiest = static_cast<size_t>(t.busiest);
  const sim::TimeBreakdown& own = shares[busiest];
  t.shares = {{TimeKind::Kernels, "matmul", own.matmul},
              {TimeKind::Kernels, "attention", own.attention},
              {TimeKind::Kernels, "other kernels", own.other},
              {TimeKind::Kernels, "optimizer", own.optimizer}};
  for (size_t c = 0; c < own.waits.size(); ++c)
    if (own.waits[c] > 0) {
      const std::string axes = axes_text(world.ranks[busiest].program->comms[c]);
      named(t.shares, {TimeKind::Communication, "wait " + axes, 0, axes}) += own.waits[c];
    }
  if (recipe.parallel.pp > 1) t.shares.push_back({TimeKind::Bubble, "bubble", own.bubble});
  t.shares.push_back({TimeKind::Host, "host", assumptions.stack.step_seconds});
  t.links = links_of(world.ranks[busiest], simulation.ranks[busiest], own.waits, machine);
  set_rates(t);
  return t;
}

Time combine(const std::vector<std::pair<double, Time>>& samples) {
  Time sum = samples.front().second;
  if (samples.size() == 1) return sum;
  const double first = samples.front().first;
  sum.step *= first;
  sum.tokens *= first;
  sum.model_flops *= first;
  sum.hardware_flops *= first;
  double computed = sum.step * sum.compute_rate;
  for (double& s : sum.stage_seconds) s *= first;
  for (TimeShare& s : sum.shares) s.seconds *= first;
  for (LinkBytes& l : sum.links) l.bytes *= first, l.count *= first, l.seconds *= first, l.exposed *= first;
  for (size_t i = 1; i < samples.size(); ++i) {
    const auto& [w, t] = samples[i];
    sum.step += w * t.step;
    sum.tokens += w * t.tokens;
    sum.model_flops += w * t.model_flops;
    sum.hardware_flops += w * t.hardware_flops;
    computed += w * t.step * t.compute_rate;
    for (size_t s = 0; s < t.stage_seconds.size(); ++s) sum.stage_seconds[s] += w * t.stage_seconds[s];
    for (const TimeShare& s : t.shares) named(sum.shares, s) += w * s.seconds;
    for (const LinkBytes& l : t.links) {
      LinkBytes& own = named(sum.links, l.axes, l.data, l.link);
      own.bytes += w * l.bytes;
      own.count += w * l.count;
      own.seconds += w * l.seconds;
      own.exposed += w * l.exposed;
    }
  }
  sum.compute_rate = computed / sum.step;
  set_rates(sum);
  return sum;
}

}  // namespace quintet::plan
