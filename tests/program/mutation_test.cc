// Injected faults. One rank's program is changed at a random place; the verifier must complain if and only if
// the change is a fault. What is a fault:
//  - kinds marked Always: any such change breaks a rule that other ranks, the op or the allocator rely on;
//  - kinds marked Oracle: decided by oracle.h, which is brute force and shares no code with the verifier. A
//    change that it accepts (two independent instructions swapped, an update of persistent state left out,
//    ...) may change results, but breaks no rule of memory, order or communication, and must pass.
// Changes to instructions are followed by a fresh expand(), so that the waits match the changed program and
// the fault has to be found in the program itself.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "program/oracle.h"
#include "program/support.h"
#include "program/text.h"
#include "program/verify.h"

namespace quintet::program {
namespace {

using namespace testing;
using Rng = std::mt19937_64;

size_t below(Rng& rng, size_t n) { return static_cast<size_t>(rng() % n); }

struct Subject {
  Program program;
  Expanded expanded;
  std::string changed;  // the instruction, for messages
};

enum class Fault { Always, Oracle };

struct Kind {
  const char* name;
  Fault fault;
  bool expand;                                // again, after the change
  std::function<bool(Subject&, Rng&)> apply;  // false: it does not apply
};

struct Place {
  size_t body, instr;
};

std::vector<Place> places(const Program& p, const std::function<bool(const Instr&)>& wanted) {
  std::vector<Place> list;
  // Those that are issued: the first or last call of a body that is repeated for slots belongs to one slot.
  const auto issued = [&](size_t b, const Instr& instr) {
    return std::any_of(p.calls.begin(), p.calls.end(), [&](const Call& c) {
      return static_cast<size_t>(c.body) == b && takes_part(instr, c);
    });
  };
  for (size_t b = 0; b < p.bodies.size(); ++b)
    for (size_t i = 0; i < p.bodies[b].instrs.size(); ++i)
      if (wanted(p.bodies[b].instrs[i]) && issued(b, p.bodies[b].instrs[i])) list.push_back({b, i});
  return list;
}

// A random instruction that is `wanted`, or null.
Instr* pick(Program& p, Rng& rng, const std::function<bool(const Instr&)>& wanted, Place* at = nullptr) {
  const std::vector<Place> list = places(p, wanted);
  if (list.empty()) return nullptr;
  const Place place = list[below(rng, list.size())];
  if (at) *at = place;
  return &p.bodies[place.body].instrs[place.instr];
}

bool is_collective(const Instr& i) { return i.kind == InstrKind::Collective; }
bool is_send(const Instr& i) { return is_collective(i) && i.collective.kind == CollectiveKind::Send; }
bool is_receive(const Instr& i) { return is_collective(i) && i.collective.kind == CollectiveKind::Recv; }
bool is_message(const Instr& i) { return is_send(i) || is_receive(i); }
bool is_all_to_all(const Instr& i) {
  return is_collective(i) && i.collective.kind == CollectiveKind::AllToAll;
}
bool is_exchange(const Instr& i) {
  return is_collective(i) && i.collective.kind == CollectiveKind::AllToAllV;
}
bool moves_rows(const Instr& i) { return is_exchange(i) && i.in.size() == 3; }
bool moves_counts(const Instr& i) { return is_exchange(i) && i.in.size() == 1; }
bool is_regroup(const Instr& i) { return i.op == &graph::kRegroup; }
bool is_free(const Instr& i) { return i.kind == InstrKind::Free; }
bool is_compute(const Instr& i) { return i.kind == InstrKind::Compute; }

bool drop(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& wanted) {
  Place at{};
  if (!pick(s.program, rng, wanted, &at)) return false;
  auto& instrs = s.program.bodies[at.body].instrs;
  instrs.erase(instrs.begin() + static_cast<ptrdiff_t>(at.instr));
  return true;
}

bool swap_near(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& wanted) {
  Place at{};
  if (!pick(s.program, rng, wanted, &at)) return false;
  auto& instrs = s.program.bodies[at.body].instrs;
  std::vector<size_t> others;
  for (size_t j = at.instr + 1; j < instrs.size() && others.size() < 6; ++j)
    if (wanted(instrs[j])) others.push_back(j);
  if (others.empty()) return false;
  std::swap(instrs[at.instr], instrs[others[below(rng, others.size())]]);
  return true;
}

bool move_free_earlier(Subject& s, Rng& rng) {
  Place at{};
  if (!pick(s.program, rng, is_free, &at) || at.instr == 0) return false;
  auto& instrs = s.program.bodies[at.body].instrs;
  const size_t to = at.instr - 1 - below(rng, std::min<size_t>(at.instr, 8));
  std::rotate(instrs.begin() + static_cast<ptrdiff_t>(to), instrs.begin() + static_cast<ptrdiff_t>(at.instr),
              instrs.begin() + static_cast<ptrdiff_t>(at.instr) + 1);
  return true;
}

// Makes the dims of an operand slightly larger or smaller.
bool resize_operand(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& wanted) {
  Instr* instr = pick(s.program, rng, wanted);
  if (!instr) return false;
  std::vector<Operand*> list;
  for (auto* operands : {&instr->in, &instr->out})
    for (Operand& o : *operands)
      if (!o.type.dims.empty() && o.buffer != s.program.scalars) list.push_back(&o);
  // This op reads only the rows of `chosen`: the number of choices does not matter to it.
  if (instr->op == &graph::kBalanceDx) std::erase(list, &instr->in[1]);
  if (list.empty()) return false;
  graph::DimSize& dim = list[below(rng, list.size())]->type.dims.back();
  dim.size += rng() % 2 ? 1 : -1;
  s.changed = to_text(s.program, *instr);
  return true;
}

graph::DType other_dtype(graph::DType t) {
  return t == graph::DType::F32   ? graph::DType::BF16
         : t == graph::DType::I32 ? graph::DType::U8
                                  : graph::DType::F32;
}

bool change_operand_dtype(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& wanted) {
  Instr* instr = pick(s.program, rng, wanted);
  if (!instr) return false;
  auto& list = instr->out.empty() || (rng() % 2 && !instr->in.empty()) ? instr->in : instr->out;
  Operand& o = list[below(rng, list.size())];
  if (o.type.dims.empty() || o.buffer == s.program.scalars) return false;
  o.type.dtype = other_dtype(o.type.dtype);
  s.changed = to_text(s.program, *instr);
  return true;
}

bool drop_wait(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& awaited) {
  Expanded& e = s.expanded;
  std::map<std::pair<StreamId, int>, const Instr*> at;
  for (const Issue& issue : e.issues) {
    const Instr& instr = instr_of(s.program, issue);
    at[{instr.stream, issue.position}] = &instr;
  }
  std::vector<int> list;
  for (size_t w = 0; w < e.waits.size(); ++w)
    if (awaited(*at.at({e.waits[w].stream, e.waits[w].position}))) list.push_back(static_cast<int>(w));
  if (list.empty()) return false;
  const int gone = list[below(rng, list.size())];
  e.waits.erase(e.waits.begin() + gone);
  for (Issue& issue : e.issues) {
    if (issue.first_wait > gone)
      --issue.first_wait;
    else if (issue.first_wait + issue.num_waits > gone)
      --issue.num_waits;
  }
  return true;
}

// Makes one side of a message slightly longer or shorter, consistent in itself.
bool resize_message(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_message);
  if (!instr) return false;
  Operand& o = is_send(*instr) ? instr->in[0] : instr->out[0];
  o.type.dims.back().size += rng() % 2 ? 1 : -1;
  instr->collective.count = o.type.count();
  s.changed = to_text(s.program, *instr);
  return true;
}

bool change_peer(Subject& s, Rng& rng) {
  Program& p = s.program;
  Instr* instr = pick(p, rng, is_message);
  if (!instr || p.world < 3) return false;
  Communicator& comm = p.comms[instr->collective.comm.index()];
  RankId& peer = comm.members[static_cast<size_t>(1 - comm.position)];
  const RankId other((peer.value + 1 + static_cast<int>(below(rng, static_cast<size_t>(p.world) - 1))) %
                     p.world);
  if (other == p.rank) return false;
  peer = other;
  return true;
}

// Replaces a receive by a send, or the reverse.
bool turn_message(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_message);
  if (!instr) return false;
  std::swap(instr->in, instr->out);
  instr->collective.kind = is_send(*instr) ? CollectiveKind::Recv : CollectiveKind::Send;
  return true;
}

// Messages, of one kind of collective at a time.
bool is_ring_message(const Program& p, const Instr& i) {
  return is_message(i) && !p.comms[i.collective.comm.index()].atoms.empty();
}
bool drop_ring_message(Subject& s, Rng& rng) {
  return drop(s, rng, [&](const Instr& i) { return is_ring_message(s.program, i); });
}

// Moves a view of a message or of rows by an element.
bool shift_operand(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng,
                      [](const Instr& i) { return is_message(i) || is_all_to_all(i) || is_exchange(i); });
  if (!instr) return false;
  auto& list = instr->out.empty() || (rng() % 2 && !instr->in.empty()) ? instr->in : instr->out;
  Operand& o = list[below(rng, list.size())];
  o.offset_bytes += (rng() % 2 ? 1 : -1) * base::size_of(o.type.dtype);
  s.changed = to_text(s.program, *instr);
  return true;
}

// One member exchanges more or fewer rows than the others, consistent in itself.
bool resize_exchange(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, [](const Instr& i) { return is_all_to_all(i) || is_exchange(i); });
  if (!instr) return false;
  const int64_t members =
      static_cast<int64_t>(s.program.comms[instr->collective.comm.index()].members.size());
  const int64_t change = rng() % 2 ? 1 : -1;
  const bool pieces = is_all_to_all(*instr);
  for (auto* list : {&instr->in, &instr->out})
    (*list)[0].type.dims[0].size += change * (pieces ? members : 1);
  instr->collective.count = instr->out[0].type.count() / (pieces ? members : 1);
  s.changed = to_text(s.program, *instr);
  return true;
}

// Rows without their counts, with one list of them, or with the lists swapped.
bool take_counts(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, moves_rows);
  if (!instr) return false;
  const size_t how = below(rng, 4);
  if (how == 0)
    instr->in.resize(1);
  else if (how == 3 && instr->attrs.integer("pad") > 0)
    return false;  // both are equal
  else if (how == 3)
    std::swap(instr->in[1], instr->in[2]);
  else
    instr->in.erase(instr->in.begin() + static_cast<ptrdiff_t>(how));
  s.changed = to_text(s.program, *instr);
  return true;
}

// The counts of another block's exchange, or the sent ones in place of the received ones.
bool change_counts(Subject& s, Rng& rng, const std::function<bool(const Instr&)>& wanted) {
  Instr* instr = pick(s.program, rng, wanted);
  Instr* other = pick(s.program, rng, moves_counts);
  if (!instr || !other) return false;
  Operand& counts = instr->in.back();
  const Operand& to = rng() % 2 ? other->out[0] : other->in[0];
  if (to.buffer == counts.buffer || to.type.count() != counts.type.count()) return false;
  counts.buffer = to.buffer;
  s.changed = to_text(s.program, *instr);
  return true;
}

// Rows are used in the order in which they arrived.
bool bypass_regroup(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_regroup);
  if (!instr) return false;
  instr->op = &graph::kCopy;
  instr->attrs = {};
  instr->in.resize(1);
  s.changed = to_text(s.program, *instr);
  return true;
}

bool turn_regroup(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_regroup);
  return instr && (instr->attrs.set("inverse", 1 - instr->attrs.integer("inverse")), true);
}

bool change_exchange_attribute(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_exchange);
  if (!instr || (moves_counts(*instr) && rng() % 3 == 0)) return false;
  const char* name = std::array{"experts", "copies", "back", "pad"}[below(rng, 4)];
  const int64_t value = instr->attrs.integer(name);
  instr->attrs.set(name, std::string(name) == "back" ? 1 - value : value + 1);
  s.changed = to_text(s.program, *instr);
  return true;
}

// Received data is freed as soon as it arrives, before it is read.
bool free_received(Subject& s, Rng& rng) {
  Place at{};
  Instr* instr = pick(
      s.program, rng, [](const Instr& i) { return is_receive(i) || is_all_to_all(i) || is_exchange(i); },
      &at);
  if (!instr) return false;
  auto& instrs = s.program.bodies[at.body].instrs;
  const BufferId id = instr->out[0].buffer;
  for (size_t i = at.instr + 1; i < instrs.size(); ++i)
    if (is_free(instrs[i]) && instrs[i].frees == id) {
      std::rotate(instrs.begin() + static_cast<ptrdiff_t>(at.instr) + 1,
                  instrs.begin() + static_cast<ptrdiff_t>(i), instrs.begin() + static_cast<ptrdiff_t>(i) + 1);
      return i > at.instr + 1;
    }
  return false;
}

// The next rows arrive in the bytes of those being forwarded to the next rank.
bool receive_on_what_is_sent(Subject& s, Rng& rng) {
  Place at{};
  const Instr* receive = pick(
      s.program, rng, [&](const Instr& i) { return is_receive(i) && is_ring_message(s.program, i); }, &at);
  if (!receive) return false;
  const auto& instrs = s.program.bodies[at.body].instrs;
  for (size_t i = at.instr + 1; i < instrs.size(); ++i)
    if (is_send(instrs[i])) {
      s.changed = to_text(s.program, *receive);
      s.program.buffer(receive->out[0].buffer).offset = s.program.buffer(instrs[i].in[0].buffer).offset;
      return true;
    }
  return false;
}

bool overlap_buffers(Subject& s, Rng& rng) {
  std::vector<Buffer*> movable;
  for (Buffer& b : s.program.buffers)
    if (b.offset >= 0 && b.bytes > 0) movable.push_back(&b);
  Buffer& a = *movable[below(rng, movable.size())];
  Buffer& b = *movable[below(rng, movable.size())];
  if (a.scope == Scope::Persistent || a.offset == b.offset || b.offset + a.bytes > s.program.arena_bytes)
    return false;
  a.offset = b.offset;
  return true;
}

// Moves collectives of a communicator that has others too to another stream.
bool change_collective_stream(Subject& s, Rng& rng) {
  Program& p = s.program;
  Instr* instr = pick(p, rng, is_collective);
  if (!instr) return false;
  const CommId comm = instr->collective.comm;
  const auto same = places(p, [&](const Instr& i) { return is_collective(i) && i.collective.comm == comm; });
  const StreamId to(static_cast<int32_t>(below(rng, p.streams.size())));
  if (to == instr->stream || (same.size() < 2 && to != kComputeStream)) return false;
  instr->stream = to;
  return true;
}

bool change_compute_stream(Subject& s, Rng& rng) {
  Instr* instr = pick(s.program, rng, is_compute);
  const StreamId to(static_cast<int32_t>(below(rng, s.program.streams.size())));
  if (!instr || instr->stream == to) return false;
  instr->stream = to;
  return true;
}

const std::vector<Kind>& kinds() {
  const auto any = [](const Instr&) { return true; };
  const auto reduces = [](const Instr& i) {
    return is_collective(i) && (i.collective.kind == CollectiveKind::AllReduce ||
                                i.collective.kind == CollectiveKind::ReduceScatter);
  };
  const auto model_op = [](const Instr& i) { return is_compute(i) && i.op->dims; };
  const auto flat_op = [](const Instr& i) {
    return is_compute(i) && !i.op->dims && i.in.size() + i.out.size() > 1 && i.op != &graph::kSumSquares;
  };
  static const std::vector<Kind> list = {
      {"drop a collective", Fault::Always, true,
       [](Subject& s, Rng& r) { return drop(s, r, is_collective); }},
      {"drop a free", Fault::Always, true, [](Subject& s, Rng& r) { return drop(s, r, is_free); }},
      {"drop a compute", Fault::Oracle, true, [](Subject& s, Rng& r) { return drop(s, r, is_compute); }},
      {"drop the batch", Fault::Always, true,
       [](Subject& s, Rng& r) {
         return drop(s, r, [](const Instr& i) { return i.kind == InstrKind::LoadBatch; });
       }},
      {"swap two near", Fault::Oracle, true, [any](Subject& s, Rng& r) { return swap_near(s, r, any); }},
      {"swap two collectives", Fault::Oracle, true,
       [](Subject& s, Rng& r) { return swap_near(s, r, is_collective); }},
      {"move a free earlier", Fault::Oracle, true, move_free_earlier},
      {"overlap two buffers", Fault::Oracle, true, overlap_buffers},
      {"drop a wait", Fault::Always, false, [any](Subject& s, Rng& r) { return drop_wait(s, r, any); }},
      {"drop a wait for a receive", Fault::Always, false,
       [](Subject& s, Rng& r) { return drop_wait(s, r, is_receive); }},
      {"drop a wait for a send", Fault::Always, false,
       [](Subject& s, Rng& r) { return drop_wait(s, r, is_send); }},
      {"drop a send", Fault::Always, true, [](Subject& s, Rng& r) { return drop(s, r, is_send); }},
      {"drop a receive", Fault::Always, true, [](Subject& s, Rng& r) { return drop(s, r, is_receive); }},
      {"swap two messages", Fault::Oracle, true,
       [](Subject& s, Rng& r) { return swap_near(s, r, is_message); }},
      {"drop a ring message", Fault::Always, true, drop_ring_message},
      {"drop an all-to-all", Fault::Always, true,
       [](Subject& s, Rng& r) { return drop(s, r, is_all_to_all); }},
      {"drop an exchange of rows", Fault::Always, true,
       [](Subject& s, Rng& r) { return drop(s, r, moves_rows); }},
      {"drop an exchange of counts", Fault::Always, true,
       [](Subject& s, Rng& r) { return drop(s, r, moves_counts); }},
      {"swap two exchanges", Fault::Always, true,
       [](Subject& s, Rng& r) {
         return swap_near(s, r, [](const Instr& i) { return is_exchange(i) || is_all_to_all(i); });
       }},
      {"drop a wait for an all-to-all", Fault::Always, false,
       [](Subject& s, Rng& r) { return drop_wait(s, r, is_all_to_all); }},
      {"drop a wait for an exchange", Fault::Always, false,
       [](Subject& s, Rng& r) { return drop_wait(s, r, is_exchange); }},
      {"shift a message by an element", Fault::Always, true, shift_operand},
      {"resize one member's exchange", Fault::Always, true, resize_exchange},
      {"take an exchange's counts", Fault::Always, true, take_counts},
      {"exchange by other counts", Fault::Always, true,
       [](Subject& s, Rng& r) { return change_counts(s, r, moves_rows); }},
      {"regroup by other counts", Fault::Always, true,
       [](Subject& s, Rng& r) { return change_counts(s, r, is_regroup); }},
      {"drop a regroup", Fault::Always, true, [](Subject& s, Rng& r) { return drop(s, r, is_regroup); }},
      {"copy instead of regroup", Fault::Always, true, bypass_regroup},
      {"regroup the other way", Fault::Always, true, turn_regroup},
      {"change an exchange's attribute", Fault::Always, true, change_exchange_attribute},
      {"free what came before its use", Fault::Always, true, free_received},
      {"receive on what is sent", Fault::Always, true, receive_on_what_is_sent},
      {"resize one side of a message", Fault::Always, true, resize_message},
      {"change the peer of messages", Fault::Always, true, change_peer},
      {"turn a message round", Fault::Always, true, turn_message},
      {"resize a collective's operand", Fault::Always, true,
       [](Subject& s, Rng& r) { return resize_operand(s, r, is_collective); }},
      {"resize a model op's operand", Fault::Always, true,
       [model_op](Subject& s, Rng& r) {
         // The single operand of a z-loss constrains nothing.
         return resize_operand(s, r, [&](const Instr& i) { return model_op(i) && i.op != &graph::kZLoss; });
       }},
      {"resize a flat op's operand", Fault::Always, true,
       [flat_op](Subject& s, Rng& r) {
         return resize_operand(
             s, r, [&](const Instr& i) { return flat_op(i) && i.op->name != "zero_unless_first"; });
       }},
      {"change a count", Fault::Always, true,
       [](Subject& s, Rng& r) {
         Instr* i = pick(s.program, r, is_collective);
         return i && (i->collective.count += r() % 2 ? 1 : -1, true);
       }},
      {"change a message's dtype", Fault::Always, true,
       [](Subject& s, Rng& r) {
         Instr* i = pick(s.program, r, is_collective);
         return i && (i->collective.dtype = other_dtype(i->collective.dtype), true);
       }},
      {"change a collective operand's dtype", Fault::Always, true,
       [](Subject& s, Rng& r) { return change_operand_dtype(s, r, is_collective); }},
      {"change a model op operand's dtype", Fault::Always, true,
       [model_op](Subject& s, Rng& r) { return change_operand_dtype(s, r, model_op); }},
      {"change a reduction", Fault::Always, true,
       [reduces](Subject& s, Rng& r) {
         Instr* i = pick(s.program, r, reduces);
         if (!i) return false;
         auto& reduction = i->collective.reduction;
         reduction = reduction == graph::Reduction::Sum ? graph::Reduction::Max : graph::Reduction::Sum;
         return true;
       }},
      {"change a communicator", Fault::Always, true,
       [](Subject& s, Rng& r) {
         Instr* i = pick(s.program, r, is_collective);
         const CommId to(static_cast<int32_t>(below(r, s.program.comms.size() + 1)));
         return i && i->collective.comm != to && (i->collective.comm = to, true);
       }},
      {"change a collective's stream", Fault::Always, true, change_collective_stream},
      {"change a compute's stream", Fault::Oracle, true, change_compute_stream},
  };
  return list;
}

struct Prepared {
  std::string name;
  World world;
  std::vector<Padding> padding;
};

std::vector<Prepared> prepare() {
  std::vector<Prepared> out;
  for (const testing::Layout& layout : all_layouts()) {
    const config::Recipe recipe = small_recipe(layout.overrides);
    Prepared p{layout.name, {}, {}};
    for (int r = 0; r < recipe.parallel.world(); ++r) {
      compiler::Compiled c = compiler::compile(recipe, {.rank = base::RankId(r)});
      p.padding.push_back(padding_of(c));
      p.world.programs.push_back(std::move(c.program));
      p.world.expanded.push_back(std::move(c.step));
    }
    out.push_back(std::move(p));
  }
  return out;
}

std::string complaint(const std::function<void()>& check) {
  try {
    check();
  } catch (const base::InternalError& e) {
    return e.what();
  }
  return "";
}

TEST(Oracle, AcceptsCompiledPrograms) {
  for (const Prepared& p : prepare()) {
    SCOPED_TRACE(p.name);
    for (size_t r = 0; r < p.world.programs.size(); ++r) {
      EXPECT_EQ(memory_fault(p.world.programs[r], p.world.expanded[r], p.padding[r]), "");
      EXPECT_EQ(race_fault(p.world.programs[r], p.world.expanded[r]), "");
    }
    EXPECT_EQ(world_fault(p.world.program_list(), p.world.expanded_list()), "");
  }
}

TEST(Mutation, EveryFaultIsCaughtAndNothingElse) {
  constexpr int kTriesPerLayout = 24;
  const std::vector<Prepared> subjects = prepare();
  for (const Kind& kind : kinds()) {
    Rng rng(20240607);
    int tried = 0, faults = 0, caught = 0;
    for (const Prepared& p : subjects)
      for (int t = 0; t < kTriesPerLayout; ++t) {
        const size_t r = below(rng, p.world.programs.size());
        Subject s{p.world.programs[r], p.world.expanded[r], {}};
        if (!kind.apply(s, rng)) continue;
        ++tried;
        auto programs = p.world.program_list();
        auto expanded = p.world.expanded_list();
        programs[r] = &s.program;
        expanded[r] = &s.expanded;
        // Views outside the arena cannot be expanded; the first checks of verify() need no expansion.
        std::string found;
        if (kind.expand) found = complaint([&] { s.expanded = expand(s.program, s.program.calls); });
        if (found.empty()) found = complaint([&] { verify(s.program, s.expanded); });
        if (found.empty()) found = complaint([&] { verify_together(programs, expanded); });
        std::string fault =
            kind.fault == Fault::Always ? "always" : memory_fault(s.program, s.expanded, p.padding[r]);
        if (fault.empty()) fault = race_fault(s.program, s.expanded);
        if (fault.empty()) fault = world_fault(programs, expanded);
        if (!found.empty()) {
          EXPECT_TRUE(found.find("instruction") != std::string::npos)
              << kind.name << " in " << p.name << " names no instruction: " << found;
        }
        faults += !fault.empty();
        caught += !found.empty();
        EXPECT_EQ(found.empty(), fault.empty())
            << kind.name << " in " << p.name << " rank " << r << " try " << t << " " << s.changed
            << "\n  verifier: " << found << "\n  oracle: " << fault;
      }
    printf("%-36s %4d tried %4d faults %4d caught\n", kind.name, tried, faults, caught);
    EXPECT_GT(tried, 0) << kind.name;
    if (std::string(kind.name) != "change a compute's stream") {
      EXPECT_GT(caught, 0) << kind.name;
    }
  }
}

}  // namespace
}  // namespace quintet::program
