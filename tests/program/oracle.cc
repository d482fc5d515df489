#include "program/oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace quintet::program::testing {

Padding padding_of(const compiler::Compiled& c) {
  Padding out;
  for (const layout::Group& g : c.groups) {
    if (!g.trainable) continue;
    for (size_t i = 0; i < c.program.buffers.size(); ++i) {
      const Buffer& b = c.program.buffers[i];
      if (b.name != g.name + ".grad" && b.name != g.name + ".grad.block") continue;
      const int64_t size = base::size_of(base::accumulator_of(c.groups[0].segments[0].local.dtype));
      if (b.bytes != g.count * size) continue;
      std::vector<Range>& list = out[BufferId(static_cast<int32_t>(i))];
      int64_t at = 0;
      for (const layout::Segment& s : g.segments) {
        list.emplace_back(at * size, s.offset * size);
        at = s.offset + s.count;
      }
      list.emplace_back(at * size, b.bytes);
    }
  }
  return out;
}

std::string memory_fault(const Program& p, const Expanded& e, const Padding& padding) {
  std::vector<int> tag(static_cast<size_t>(p.arena_bytes),
                       0);                     // which life of which buffer wrote the byte; 0: none
  std::vector<int> life(p.buffers.size(), 0);  // current life; 0: not alive
  std::vector<int> freed(p.buffers.size(), -1);
  std::vector<int> micro(p.buffers.size(), -1);
  int lives = 0;
  const auto paint = [&](int64_t begin, int64_t end, int value) {
    for (int64_t k = begin; k < end; ++k) tag[static_cast<size_t>(k)] = value;
  };
  const auto shares_bytes = [&](const Buffer& a, const Buffer& b) {
    return std::max(a.offset, b.offset) < std::min(a.offset + a.bytes, b.offset + b.bytes);
  };
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const Buffer& b = p.buffers[i];
    if (b.scope != Scope::Persistent) continue;
    for (size_t j = 0; j < i; ++j)
      if (life[j] && shares_bytes(b, p.buffers[j])) return "persistent buffers overlap";
    life[i] = ++lives;
    const bool overwritten =
        b.memory_class == MemoryClass::Gradients ||
        std::any_of(p.inputs.begin(), p.inputs.end(), [&](const auto& in) { return in.buffer.index() == i; });
    paint(b.offset, b.offset + b.bytes, overwritten ? 0 : life[i]);
  }
  for (const GroupSlot& s : p.slots) {  // gathered in place: only this rank's range is up to date
    if (s.role != graph::Role::Weight) continue;
    const Buffer& b = p.buffer(s.buffer);
    for (const Body& body : p.bodies)
      for (const Instr& instr : body.instrs)
        if (instr.kind == InstrKind::Collective && instr.collective.kind == CollectiveKind::AllGather &&
            instr.out[0].buffer == s.buffer) {
          const int64_t size = base::size_of(instr.collective.dtype);
          paint(b.offset, b.offset + b.bytes, 0);
          const int64_t begin = b.offset + s.offset_bytes;
          paint(begin, begin + s.count * size, life[s.buffer.index()]);
        }
  }

  for (size_t k = 0; k < e.issues.size(); ++k) {
    const Issue& issue = e.issues[k];
    const Instr& instr = instr_of(p, issue);
    const Call& call = e.calls[static_cast<size_t>(issue.call)];
    const auto where = [&](const char* what, BufferId id) {
      return fmt::format("call {} instruction {}: {} {}", issue.call, issue.instr, p.buffer(id).name, what);
    };
    const auto touch = [&](BufferId id) -> std::string {
      const Buffer& b = p.buffer(id);
      if (life[id.index()])
        return b.scope == Scope::Micro && micro[id.index()] != call.micro
                   ? where("is of another micro-batch", id)
                   : "";
      if (freed[id.index()] == issue.call) return where("was freed", id);
      for (size_t j = 0; j < p.buffers.size(); ++j)
        if (life[j] && shares_bytes(b, p.buffers[j])) return where("overlaps", id);
      life[id.index()] = ++lives;
      micro[id.index()] = call.micro;
      return "";
    };
    const auto read = [&](const Operand& o) -> std::string {
      const int64_t base = p.buffer(o.buffer).offset;
      const auto pads = padding.find(o.buffer);
      for (int64_t at = o.offset_bytes; at < o.offset_bytes + o.bytes(); ++at) {
        if (tag[static_cast<size_t>(base + at)] == life[o.buffer.index()]) continue;
        const bool pad = pads != padding.end() &&
                         std::any_of(pads->second.begin(), pads->second.end(),
                                     [&](const Range& r) { return at >= r.first && at < r.second; });
        if (!pad) return where("is read unwritten", o.buffer);
      }
      return "";
    };
    std::string fault;
    if (instr.kind == InstrKind::Free) {
      const size_t id = instr.frees.index();
      if (freed[id] == issue.call) return where("is freed twice", instr.frees);
      life[id] = 0;
      freed[id] = issue.call;
    } else {
      for (const Operand& o : instr.in) {
        if (fault = touch(o.buffer); !fault.empty()) return fault;
        if (fault = read(o); !fault.empty()) return fault;
      }
      for (size_t i = 0; i < instr.out.size(); ++i) {
        const Operand& o = instr.out[i];
        if (fault = touch(o.buffer); !fault.empty()) return fault;
        bool overwritten = !o.type.dims.empty() && o.type.dims[0].name == graph::Dim::Tokens;
        if (instr.op)
          for (const int result : instr.op->overwritten) overwritten |= result == static_cast<int>(i);
        if (accumulates(instr, call) && !overwritten)
          if (fault = read(o); !fault.empty()) return fault;
        const int64_t begin = p.buffer(o.buffer).offset + o.offset_bytes;
        paint(begin, begin + o.bytes(), life[o.buffer.index()]);
      }
    }
    const bool ends = k + 1 == e.issues.size() || e.issues[k + 1].call != issue.call;
    const bool micro_ends = std::none_of(e.calls.begin() + issue.call + 1, e.calls.end(),
                                         [&](const Call& later) { return later.micro == call.micro; });
    for (size_t i = 0; ends && i < p.buffers.size(); ++i)
      if (life[i] && (p.buffers[i].scope == Scope::Body ||
                      (p.buffers[i].scope == Scope::Micro && micro_ends && micro[i] == call.micro)))
        return where("is the end; not freed:", BufferId(static_cast<int32_t>(i)));
  }
  return "";
}

std::string race_fault(const Program& p, const Expanded& e) {
  const size_t n = e.issues.size(), words = (n + 63) / 64;
  std::vector<std::vector<size_t>> at(p.streams.size());  // issues by stream and position
  std::vector<std::vector<uint64_t>> before(n, std::vector<uint64_t>(words, 0));
  struct Span {
    int64_t begin, end;
    bool write;
  };
  std::vector<std::vector<Span>> spans(n);
  for (size_t k = 0; k < n; ++k) {
    const Issue& issue = e.issues[k];
    const Instr& instr = instr_of(p, issue);
    const auto follow = [&](size_t earlier) {
      for (size_t w = 0; w < words; ++w) before[k][w] |= before[earlier][w];
      before[k][earlier / 64] |= uint64_t{1} << (earlier % 64);
    };
    auto& stream = at[instr.stream.index()];
    if (!stream.empty()) follow(stream.back());
    for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
      const Wait& wait = e.waits[static_cast<size_t>(w)];
      follow(at[wait.stream.index()][static_cast<size_t>(wait.position)]);
    }
    stream.push_back(k);
    for (const Operand& o : instr.in) {
      const int64_t begin = p.buffer(o.buffer).offset + o.offset_bytes;
      spans[k].push_back({begin, begin + o.bytes(), false});
    }
    for (const Operand& o : instr.out) {
      const int64_t begin = p.buffer(o.buffer).offset + o.offset_bytes;
      spans[k].push_back({begin, begin + o.bytes(), true});
    }
    for (size_t j = 0; j < k; ++j) {
      if (before[k][j / 64] >> (j % 64) & 1) continue;
      for (const Span& a : spans[k])
        for (const Span& b : spans[j])
          if ((a.write || b.write) && std::max(a.begin, b.begin) < std::min(a.end, b.end))
            return fmt::format("issues {} and {} race", j, k);
    }
  }
  return "";
}

// Removes nodes without predecessors until none is left.
static bool has_cycle(const std::vector<std::vector<int>>& next) {
  std::vector<int> degree(next.size(), 0), ready;
  for (const auto& list : next)
    for (const int t : list) ++degree[static_cast<size_t>(t)];
  for (size_t k = 0; k < next.size(); ++k)
    if (degree[k] == 0) ready.push_back(static_cast<int>(k));
  size_t done = 0;
  while (!ready.empty()) {
    const int k = ready.back();
    ready.pop_back();
    ++done;
    for (const int t : next[static_cast<size_t>(k)])
      if (--degree[static_cast<size_t>(t)] == 0) ready.push_back(t);
  }
  return done < next.size();
}

std::string world_fault(const std::vector<const Program*>& programs,
                        const std::vector<const Expanded*>& expanded) {
  // Nodes: issues; the k-th collectives of a communicator's members are one node.
  using Key = std::pair<std::string, std::vector<RankId>>;
  std::map<Key, std::map<size_t, std::vector<std::string>>> sequences;
  std::map<Key, std::vector<int>> meeting_nodes;
  std::vector<std::vector<int>> next, order;  // order: of collectives in issue order
  const auto new_node = [&] {
    return next.emplace_back(), order.emplace_back(), static_cast<int>(next.size()) - 1;
  };
  for (size_t r = 0; r < programs.size(); ++r) {
    const Program& p = *programs[r];
    const Expanded& e = *expanded[r];
    std::vector<std::vector<int>> at(p.streams.size());
    int collective = -1;  // the last in issue order
    for (const Communicator& c : p.comms) sequences[{c.name(), c.members}][r];
    for (const Issue& issue : e.issues) {
      const Instr& instr = instr_of(p, issue);
      int node = -1;
      if (instr.kind == InstrKind::Collective) {
        const Communicator& c = p.comms[instr.collective.comm.index()];
        auto& words = sequences[{c.name(), c.members}][r];
        auto& nodes = meeting_nodes[{c.name(), c.members}];
        if (words.size() == nodes.size()) nodes.push_back(new_node());
        node = nodes[words.size()];
        // A message has two sides: on the second member, its receive is compared as a send.
        CollectiveKind kind = instr.collective.kind;
        const bool first = !c.members.empty() && c.members[0] == p.rank;
        if (!first && kind == CollectiveKind::Recv)
          kind = CollectiveKind::Send;
        else if (!first && kind == CollectiveKind::Send)
          kind = CollectiveKind::Recv;
        words.push_back(fmt::format("{} {} {} {} {} {} {}", static_cast<int>(kind), instr.collective.count,
                                    static_cast<int>(instr.collective.dtype),
                                    static_cast<int>(instr.collective.reduction),
                                    static_cast<int>(instr.phase), instr.block, instr.note));
      } else {
        node = new_node();
      }
      const CollectiveKind kind = instr.collective.kind;
      if (instr.kind == InstrKind::Collective && kind != CollectiveKind::Send &&
          kind != CollectiveKind::Recv) {
        if (collective >= 0) order[static_cast<size_t>(collective)].push_back(node);
        collective = node;
      }
      auto& stream = at[instr.stream.index()];
      if (!stream.empty()) next[static_cast<size_t>(stream.back())].push_back(node);
      for (int w = issue.first_wait; w < issue.first_wait + issue.num_waits; ++w) {
        const Wait& wait = e.waits[static_cast<size_t>(w)];
        next[static_cast<size_t>(at[wait.stream.index()][static_cast<size_t>(wait.position)])].push_back(
            node);
      }
      stream.push_back(node);
    }
  }
  for (const auto& [key, by_rank] : sequences)
    for (const RankId m : key.second) {
      const auto own = by_rank.find(m.index());
      if (own == by_rank.end() || own->second != by_rank.begin()->second)
        return fmt::format("sequences differ on {}", key.first);
    }
  if (has_cycle(next)) return "a cycle";
  return has_cycle(order) ? "no one order" : "";
}

}  // namespace quintet::program::testing
