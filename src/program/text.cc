#include "program/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "program/allocate.h"
#include "program/text_internal.h"

namespace quintet::program {
namespace {

using text::word;

constexpr size_t kShownItems = 4;      // of a long attribute or member list, in the readable form
constexpr size_t kShownOperands = 16;  // updates of all groups have hundreds

std::string id_text(BufferId id) { return id.valid() ? fmt::format("@{}", id) : "none"; }

template <class T>
void shorten(graph::AttrValue& value) {
  auto* list = std::get_if<std::vector<T>>(&value);
  if (list == nullptr || list->size() <= kShownItems) return;
  std::vector<T> head(list->begin(), list->begin() + kShownItems);
  value = fmt::format("{} ... {} in all", fmt::join(head, " "), list->size());
}

std::string attrs_text(const graph::Attrs& attrs, bool full) {
  if (full) return graph::to_string(attrs);
  graph::Attrs brief;
  for (auto [name, value] : attrs.items()) {
    shorten<int64_t>(value);
    shorten<double>(value);
    brief.set(name, std::move(value));
  }
  return graph::to_string(brief);
}

std::string operand_text(const Program& p, const Operand& o, bool full) {
  if (!o.buffer.valid() || o.buffer.index() >= p.buffers.size()) return fmt::format("@{}?", o.buffer);
  if (full) return fmt::format("@{}+{}:{}", o.buffer, o.offset_bytes, graph::to_string(o.type));
  const std::string at = o.offset_bytes == 0 ? "" : fmt::format("+{}", o.offset_bytes);
  return fmt::format("{}{}:{}", p.buffer(o.buffer).name, at, graph::to_string(o.type));
}

std::string operands_text(const Program& p, const std::vector<Operand>& list, bool full) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < list.size() && (full || i < kShownOperands); ++i)
    parts.push_back(operand_text(p, list[i], full));
  if (parts.size() < list.size()) parts.push_back(fmt::format("... {} in all", list.size()));
  return fmt::format("({})", fmt::join(parts, ", "));
}

std::string stream_name(const Program& p, StreamId id) {
  return id.valid() && id.index() < p.streams.size() ? p.streams[id.index()].name : fmt::format("{}?", id);
}

std::string verb_text(const Program& p, const Instr& i, bool full) {
  switch (i.kind) {
    case InstrKind::Compute:
      return fmt::format("{}{}", full ? "compute " : "", i.op ? i.op->name : "?");
    case InstrKind::LoadBatch:
      return "load_batch";
    case InstrKind::Free:
      if (!full && i.frees.valid() && i.frees.index() < p.buffers.size())
        return "free " + p.buffer(i.frees).name;
      return "free " + id_text(i.frees);
    case InstrKind::Repeat:
      return "repeat";
    case InstrKind::End:
      return "end";
    case InstrKind::Collective: {
      const Collective& c = i.collective;
      const bool known = c.comm.valid() && c.comm.index() < p.comms.size();
      const std::string comm = full || !known ? fmt::format("{}", c.comm) : p.comms[c.comm.index()].name();
      std::string text = fmt::format("{} comm={} count={} dtype={}", to_string(c.kind), comm, c.count,
                                     base::to_string(c.dtype));
      if (full || c.kind == CollectiveKind::AllReduce || c.kind == CollectiveKind::ReduceScatter)
        text += fmt::format(" reduction={}", word(text::kReductions, c.reduction));
      return text;
    }
  }
  return "?";
}

std::string header_text(const Program& p, bool full) {
  std::string t = fmt::format(
      "program rank={} world={} arena={} persistent={} scalars={} workspace={} result={}\n", p.rank, p.world,
      p.arena_bytes, p.persistent_bytes, id_text(p.scalars), id_text(p.workspace), id_text(p.result));
  if (!p.frame_bytes.empty()) t += fmt::format("frames [{}]\n", fmt::join(p.frame_bytes, " "));
  for (size_t i = 0; i < p.streams.size(); ++i)
    t += fmt::format("stream {} {}\n", i, graph::quote(p.streams[i].name));
  for (size_t i = 0; i < p.comms.size(); ++i) {
    const Communicator& c = p.comms[i];
    std::vector<int> members;
    for (const RankId r : c.members) members.push_back(r.value);
    const size_t shown = full ? members.size() : std::min<size_t>(members.size(), 16);
    t += fmt::format("comm {} {} atoms=[{}] position={} members=[{}{}]\n", i, graph::quote(c.name()),
                     fmt::join(c.atoms, " "), c.position,
                     fmt::join(members.begin(), members.begin() + static_cast<ptrdiff_t>(shown), " "),
                     shown < members.size() ? fmt::format(" ... {} in all", members.size()) : "");
  }
  return t;
}

std::string memory_text(const Program& p) {
  const Peak peak = peak_of(p);
  std::string t = fmt::format(
      "# memory: arena {} ({}), live at the peak {} ({}), reached in {} instruction {}\n", p.arena_bytes,
      base::human_bytes(p.arena_bytes), peak.live_bytes, base::human_bytes(peak.live_bytes),
      p.bodies.empty() ? "nothing" : to_string(p.bodies[static_cast<size_t>(peak.body)].kind), peak.instr);
  for (int c = 0; c < kNumMemoryClasses; ++c)
    t += fmt::format("#   {:<14} {:>16} {:>10}\n", to_string(static_cast<MemoryClass>(c)),
                     peak.by_class[static_cast<size_t>(c)],
                     base::human_bytes(peak.by_class[static_cast<size_t>(c)]));
  return t;
}

std::string tables_text(const Program& p, bool full) {
  std::string t;
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const Buffer& b = p.buffers[i];
    t += fmt::format("buffer @{} {} {} {} offset={} bytes={}\n", i, graph::quote(b.name),
                     to_string(b.memory_class), word(text::kScopes, b.scope), b.offset, b.bytes);
  }
  for (const ScalarDecl& s : p.scalar_table)
    if (full)
      t += fmt::format("scalar {} {} dtype={} initial={}\n", graph::quote(s.name),
                       word(text::kScalarKinds, s.kind), base::to_string(s.dtype), s.initial);
  for (const InputPlace& input : p.inputs)
    t += fmt::format("input {} {}\n", graph::quote(graph::to_string(input.spec)), id_text(input.buffer));
  for (const SumPlace& sum : p.step_sums)
    t += fmt::format("sum {} block={} first={} count={}{}\n", graph::quote(to_string(sum.kind)), sum.block,
                     sum.first, sum.count, sum.scale < 0 ? "" : fmt::format(" scale={}", sum.scale));
  if (!full) return t;
  if (p.sums.valid()) t += fmt::format("sums {}\n", id_text(p.sums));
  for (const StatePlace& state : p.states)
    t += fmt::format("state {} {}\n", graph::quote(state.name), operands_text(p, {state.place}, true));
  for (const GroupSlot& s : p.slots)
    t += fmt::format("slot {} {} {} {} dtype={} first={} count={}{} buffer={} offset={} lower={}\n", s.group,
                     graph::quote(s.slot), word(text::kRoles, s.role), word(text::kKeeps, s.keep),
                     base::to_string(s.dtype), s.first, s.count,
                     s.block == 1 ? "" : fmt::format(" block={}", s.block), id_text(s.buffer), s.offset_bytes,
                     id_text(s.lower));
  return t;
}

std::string call_text(const Call& c) {
  return fmt::format("body={} micro={}{}{}", c.body, c.micro, c.first ? " first" : "", c.last ? " last" : "");
}

// Calls by the names of their bodies; a repeated sequence of up to four is written once.
std::string folded_calls(const Program& p, const std::vector<Call>& calls) {
  const auto name = [&](size_t i) { return to_string(p.bodies[static_cast<size_t>(calls[i].body)].kind); };
  std::string t;
  for (size_t i = 0; i < calls.size();) {
    size_t best_length = 1, best_times = 1;
    for (size_t length = 1; length <= 4; ++length) {
      size_t times = 1;
      while (i + (times + 1) * length <= calls.size() &&
             std::equal(calls.begin() + static_cast<ptrdiff_t>(i),
                        calls.begin() + static_cast<ptrdiff_t>(i + length),
                        calls.begin() + static_cast<ptrdiff_t>(i + times * length),
                        [](const Call& a, const Call& b) { return a.body == b.body; }))
        ++times;
      if (times > 1 && times * length > best_times * best_length) best_length = length, best_times = times;
    }
    if (!t.empty()) t += " ";
    if (best_times > 1) t += fmt::format("repeat {} {{ ", best_times);
    for (size_t k = 0; k < best_length; ++k) t += fmt::format("{}{}", k ? " " : "", name(i + k));
    if (best_times > 1) t += " }";
    i += best_times * best_length;
  }
  return t;
}

std::string bodies_text(const Program& p, bool full) {
  std::string t;
  for (size_t b = 0; b < p.bodies.size(); ++b) {
    t += fmt::format("body {} {}{}\n", b, to_string(p.bodies[b].kind),
                     p.bodies[b].chunk > 0 ? fmt::format(" chunk={}", p.bodies[b].chunk) : "");
    for (size_t i = 0; i < p.bodies[b].instrs.size(); ++i) {
      if (!full) t += fmt::format("  {:>5}", i);
      t += "  " + to_text(p, p.bodies[b].instrs[i], full) + "\n";
    }
  }
  return t;
}

std::string issues_text(const Program& p, const Expanded& e) {
  std::string t;
  int call = -1;
  for (const Issue& issue : e.issues) {
    if (issue.call != call) {
      call = issue.call;
      const Call& c = e.calls[static_cast<size_t>(call)];
      t += fmt::format("call {} {} {}\n", call, to_string(p.bodies[static_cast<size_t>(issue.body)].kind),
                       call_text(c));
    }
    std::vector<std::string> waits;
    for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
      const Wait& wait = e.waits[static_cast<size_t>(w)];
      waits.push_back(fmt::format("{}.{}", stream_name(p, wait.stream), wait.position));
    }
    const Instr& instr = instr_of(p, issue);
    t += fmt::format("  {}.{:<6} {}{}\n", stream_name(p, instr.stream), issue.position,
                     waits.empty() ? "" : fmt::format("after {}: ", fmt::join(waits, ", ")),
                     to_text(p, instr, false));
  }
  return t;
}

}  // namespace

std::string to_text(const Program& p, const Instr& i, bool full) {
  std::string t = full ? "" : fmt::format("{:<8}", stream_name(p, i.stream));
  t += verb_text(p, i, full);
  if (full) t += fmt::format(" stream={}", i.stream);
  if (full || !i.in.empty()) t += fmt::format("{}{}", full ? " in=" : " ", operands_text(p, i.in, full));
  if (full || !i.out.empty())
    t += fmt::format("{}{}", full ? " out=" : " -> ", operands_text(p, i.out, full));
  if (!i.attrs.items().empty()) t += fmt::format("{}{}", full ? " attrs=" : " ", attrs_text(i.attrs, full));
  if (full && !i.parts.empty()) {
    std::vector<std::string> parts;
    for (const Part& part : i.parts)
      parts.push_back(fmt::format("{}:{}:{}:{}:{}", graph::to_string(part.dim), part.begin, part.size,
                                  part.valid, part.global));
    t += fmt::format(" parts=[{}]", fmt::join(parts, " "));
  }
  if (i.when != When::Always) t += fmt::format(" when={}", word(text::kWhen, i.when));
  if (i.accumulate != Accumulate::Never)
    t += fmt::format(" accumulate={}", word(text::kAccumulate, i.accumulate));
  if (i.repeated) t += " repeated";
  if (i.workspace_bytes != 0) t += fmt::format(" workspace={}", i.workspace_bytes);
  if (full) t += fmt::format(" phase={}", graph::to_string(i.phase));
  if (i.block >= 0) t += fmt::format(" block={}", i.block);
  if (!i.note.empty()) t += fmt::format(" note={}", graph::quote(i.note));
  return t;
}

std::string to_text(const Program& p, const Expanded& e, const TextOptions& options) {
  std::string t = header_text(p, options.full);
  if (!options.full) t += memory_text(p);
  t += tables_text(p, options.full);
  if (options.full) {
    t += bodies_text(p, true);
    for (const Call& c : p.calls) t += "call " + call_text(c) + "\n";
    for (const Call& c : p.eval_calls) t += "eval_call " + call_text(c) + "\n";
    for (const StepVariant& v : p.variants) {
      t += fmt::format("variant micro_batches={} measures={}\n", v.micro_batches, int{v.measures});
      for (const Call& c : v.calls) t += "variant_call " + call_text(c) + "\n";
    }
    return t;
  }
  if (options.form == TextOptions::Form::Expanded) return t + issues_text(p, e);
  t += bodies_text(p, false);
  t += fmt::format("step: {}\n", folded_calls(p, p.calls));
  if (!p.eval_calls.empty()) t += fmt::format("evaluate: {}\n", folded_calls(p, p.eval_calls));
  for (const StepVariant& v : p.variants)
    t += fmt::format("{} of {} micro-batches: {}\n", v.measures ? "measure" : "step", v.micro_batches,
                     folded_calls(p, v.calls));
  return t + fmt::format("# {} instructions issued, {} waits\n", e.issues.size(), e.waits.size());
}

}  // namespace quintet::program
