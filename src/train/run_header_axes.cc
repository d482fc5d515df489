#include "train/run_header_axes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "base/text.h"
#include "config/context_parallel.h"
#include "config/names.h"
#include "program/ledger.h"
#include "train/expert_plan.h"

namespace quintet::train {

using base::human_bytes;
using base::thousands;
using program::BodyKind;
using program::CollectiveKind;
using program::Instr;

namespace {

bool moves_state(const program::Program& program, const Instr& instr) {
  for (const auto* list : {&instr.in, &instr.out})
    for (const program::Operand& o : *list) {
      const program::MemoryClass c = program.buffer(o.buffer).memory_class;
      if (c == program::MemoryClass::Parameters || c == program::MemoryClass::Gradients) return true;
    }
  return false;
}

enum class Blocks : uint8_t { All, WithWindow, WithoutWindow };

// A block of this rank that issues `op`; 0 when there is none. Avoids the model's first block, which also
// reduces the embedding's partial sum, if there is another.
int block_with(const program::Program& program, const graph::OpDef& op, const graph::OpDef& or_op,
               Blocks blocks = Blocks::All) {
  const auto is_one = [&](const Instr& i) {
    if (i.op != &op && i.op != &or_op) return false;
    return blocks == Blocks::All || (i.attrs.integer("window") > 0) == (blocks == Blocks::WithWindow);
  };
  int block = 0;
  for (const program::Body& body : program.bodies)
    for (const Instr& i : body.instrs)
      if (body.kind == BodyKind::Forward && is_one(i) && (block == 0 || block == 1)) block = i.block;
  return block;
}

std::string sent(const BlockTraffic& t, std::string_view up_to) {
  return fmt::format("{}{} sent per block and micro-batch ({} forward, {} backward)", up_to,
                     human_bytes(static_cast<int64_t>(t.forward_bytes + t.backward_bytes)),
                     human_bytes(static_cast<int64_t>(t.forward_bytes)),
                     human_bytes(static_cast<int64_t>(t.backward_bytes)));
}

std::string context_method(const config::Parallel& p, config::ContextMethod method) {
  const int64_t u = config::ulysses_ranks(p, method), groups = p.cp / u;
  switch (method) {
    case config::ContextMethod::Gather:
      return fmt::format("gather: K and V gathered from {} ranks", p.cp);
    case config::ContextMethod::Ring:
      return fmt::format("ring: K and V circulate among {} ranks", p.cp);
    case config::ContextMethod::Ulysses:
      return fmt::format("ulysses: sequence exchanged for heads among {} ranks", p.cp);
    case config::ContextMethod::UlyssesRing:
      return fmt::format(
          "ulysses+ring: sequence exchanged for heads among {} ranks, K and V circulate among {} such groups",
          u, groups);
    case config::ContextMethod::Auto:
      break;
  }
  return "";
}

std::string router(const config::Moe& m) {
  std::vector<std::string> parts;
  if (m.jitter > 0) parts.push_back(fmt::format("inputs jittered by up to {:g} %", 100 * m.jitter));
  std::string scores =
      m.order == config::RouterOrder::TopKFirst
          ? "softmax over the selected experts"
          : fmt::format("{} over all experts, {}", config::name_of(m.score),
                        m.normalise ? "weights normalised to sum to 1" : "weights not normalised");
  if (m.scale != 1) scores += fmt::format(", times {:g}", m.scale);
  parts.push_back(scores);
  if (m.groups > 1)
    parts.push_back(fmt::format("from the best {} of {} groups of {} experts", m.groups_kept, m.groups,
                                m.experts / m.groups));
  if (m.bias_rate > 0)
    parts.push_back(fmt::format("selection bias adjusted by {:g} per step against the load", m.bias_rate));
  static constexpr std::pair<config::BalanceScope, const char*> kScopes[] = {
      {config::BalanceScope::MicroBatch, "each micro-batch"},
      {config::BalanceScope::Sequence, "each sequence"},
      {config::BalanceScope::Global, "the step so far"}};
  for (const auto& [scope, over] : kScopes)
    if (m.balance_over(scope) > 0)
      parts.push_back(fmt::format("balance loss {:g} over {}", m.balance_over(scope), over));
  if (m.z_loss > 0) parts.push_back(fmt::format("z-loss {:g}", m.z_loss));
  if (m.force_balance) parts.push_back("routing overridden: experts assigned by position, for benchmarks");
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string capacity(const ExpertPlan& plan, const config::Moe& m) {
  if (plan.capacity == 0) return "unlimited, nothing is dropped";
  std::string text =
      fmt::format("{} per expert and {} (factor {:g}); {} are dropped", counted(plan.capacity, "row"),
                  plan.group_sequences == 1 ? std::string("sequence")
                                            : fmt::format("group of {} sequences", plan.group_sequences),
                  m.capacity_factor,
                  m.drop == config::DropPolicy::Position ? "later rows"
                  : m.drop == config::DropPolicy::Random ? "random rows past it"
                                                         : "the least probable rows past it");
  if (plan.padded > 0)
    text +=
        fmt::format("; padded to {} per expert from each rank for fixed sizes", counted(plan.padded, "row"));
  return text;
}

}  // namespace

bool is_inside(const layout::AtomList& atoms, const layout::AtomList& outer) {
  return !atoms.empty() && layout::without(atoms, outer).empty();
}

BlockTraffic block_traffic(const program::Program& program, int block,
                           const std::function<bool(const Instr&, const layout::AtomList&)>& take) {
  BlockTraffic t;
  // Pipeline bodies that differ only in their slot count once.
  std::set<std::pair<BodyKind, int>> seen;
  for (const program::Body& body : program.bodies) {
    const bool forward = body.kind == BodyKind::Forward;
    if (!forward && body.kind != BodyKind::Backward && body.kind != BodyKind::Weight) continue;
    if (!seen.emplace(body.kind, body.chunk).second) continue;
    for (const Instr& i : body.instrs) {
      if (i.kind != program::InstrKind::Collective || i.repeated || i.block != block ||
          i.when != program::When::Always || moves_state(program, i))
        continue;
      const program::Communicator& comm = program.comms[i.collective.comm.index()];
      if (!take(i, comm.atoms)) continue;
      if (i.collective.kind != CollectiveKind::Recv) ++(forward ? t.forward : t.backward);
      (forward ? t.forward_bytes : t.backward_bytes) +=
          program::sent_bytes(i.collective, static_cast<int>(comm.members.size()));
    }
  }
  return t;
}

std::vector<HeaderLine> context_lines(const config::Recipe& r, const compiler::Compiled& compiled) {
  const config::Parallel& p = r.parallel;
  if (p.cp == 1) return {};
  // An all-reduce over the context ranks belongs to the router, not to attention.
  const auto traffic = [&](const Blocks& of) {
    const int block = block_with(compiled.program, graph::kAttention, graph::kAttentionHop, of);
    if (block == 0) return std::string("no attention on this rank");
    return sent(block_traffic(compiled.program, block,
                              [&](const Instr& i, const layout::AtomList& atoms) {
                                return is_inside(atoms, compiled.layout.context.atoms) &&
                                       i.collective.kind != CollectiveKind::AllToAllV &&
                                       i.collective.kind != CollectiveKind::AllReduce;
                              }),
                "");
  };
  const config::ContextMethod windowed = config::windowed_method(p);
  std::string text = fmt::format("cp {}, {}; ", p.cp, context_method(p, p.cp_method));
  if (windowed == p.cp_method)
    text += traffic(Blocks::All);
  else
    text += fmt::format("{}; with a sliding window {}; {}", traffic(Blocks::WithoutWindow),
                        context_method(p, windowed), traffic(Blocks::WithWindow));
  const config::ContextMethod chosen = config::choose_context_method(p, r.model, r.data);
  text += fmt::format("; auto {} {}: {}", chosen == p.cp_method ? "chooses" : "would choose",
                      chosen == p.cp_method ? "this" : config::name_of(chosen),
                      config::why_context_method(p, r.model, r.data));
  return {{"cp", text}};
}

std::vector<HeaderLine> expert_lines(const config::Recipe& r, const compiler::Compiled& compiled) {
  const std::optional<ExpertPlan> plan = expert_plan(compiled);
  if (!plan) return {};
  const config::Moe& m = r.model.moe;
  const config::Parallel& p = r.parallel;
  const layout::Layout& layout = compiled.layout;
  std::vector<HeaderLine> lines;
  std::string text = fmt::format("{} in each of {}, {} per token", plan->experts,
                                 counted(plan->blocks, "block"), plan->choices);
  if (m.latent > 0)
    text += fmt::format("; latent: rows projected from {} to {} features before they are sent", r.model.embed,
                        m.latent);
  if (m.shared_ffn > 0)
    text += fmt::format("; shared experts of width {} applied to every token{}", m.shared_ffn,
                        m.shared_gate ? ", scaled by a gate" : "");
  lines.push_back({"experts", text});
  if (m.experts > 0) {
    lines.push_back({"router", router(m)});
    lines.push_back({"capacity", capacity(*plan, m)});
  }
  if (plan->senders == 1) return lines;

  const int copies = layout.mesh.size(layout.experts.edp);
  text = fmt::format("ep {}: {} of {} per rank", p.ep, counted(plan->per_rank, "expert"), plan->experts);
  if (copies > 1) text += fmt::format(", {} copies", copies);
  const int block = block_with(compiled.program, graph::kGroupedLinear, graph::kGroupedLinear);
  const BlockTraffic t = block_traffic(compiled.program, block, [](const Instr& i, const layout::AtomList&) {
    return i.collective.kind == CollectiveKind::AllToAllV;
  });
  if (block > 0)
    text += fmt::format("; {} over {} ({} forward, {} backward), {}",
                        counted(t.forward + t.backward, "exchange"), layout.mesh.name(layout.experts.group()),
                        t.forward, t.backward, sent(t, plan->is_bound() ? "up to " : ""));
  text += fmt::format("; {} {} per rank, {:.3g}x the mean", plan->is_bound() ? "room for" : "always",
                      counted(plan->room, "row"),
                      static_cast<double>(plan->room) / static_cast<double>(plan->mean));
  if (plan->passes) text += "; more take further passes";
  lines.push_back({"ep", text});
  if (p.etp > 1)
    lines.push_back(
        {"etp",
         fmt::format("etp {}: {} of an expert's inner width {} per rank; a row is sent to all {} and its "
                     "sender sums the results",
                     p.etp, m.ffn / p.etp, m.ffn, p.etp)});
  return lines;
}

}  // namespace quintet::train
