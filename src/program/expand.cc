#include "program/expand.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace quintet::program {
namespace {

// The arena split at every boundary of every operand: an operand is then a run of pieces, and the last
// accesses to a piece are a few integers.
class Pieces {
 public:
  explicit Pieces(const Program& p) : program_(p) {
    std::vector<char> whole(p.buffers.size(), 0);  // most operands are whole buffers: add each once
    for (const Body& body : p.bodies)
      for (const Instr& instr : body.instrs)
        for (const auto* list : {&instr.in, &instr.out})
          for (const Operand& o : *list) {
            const int64_t bytes = o.bytes();
            if (o.offset_bytes == 0 && bytes == p.buffer(o.buffer).bytes &&
                std::exchange(whole[o.buffer.index()], 1))
              continue;
            cuts_.push_back(begin_of(o));
            cuts_.push_back(begin_of(o) + bytes);
          }
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
  }

  size_t count() const { return cuts_.size(); }
  std::pair<int, int> of(const Operand& o) const {
    if (o.bytes() == 0) return {0, 0};
    const int64_t begin = begin_of(o);
    return {find(begin), find(begin + o.bytes())};
  }

 private:
  int64_t begin_of(const Operand& o) const { return program_.buffer(o.buffer).offset + o.offset_bytes; }
  int find(int64_t at) const {
    return static_cast<int>(std::lower_bound(cuts_.begin(), cuts_.end(), at) - cuts_.begin());
  }
  const Program& program_;
  std::vector<int64_t> cuts_;
};

// Pieces of the operands of every instruction, computed once for all calls.
struct Access {
  int first, last;
  bool write;
};

class Expander {
 public:
  Expander(const Program& p, const std::vector<Call>& calls) : program_(p), pieces_(p) {
    out_.calls = calls;
    out_.num_streams = static_cast<int>(p.streams.size());
    streams_ = static_cast<size_t>(out_.num_streams);
    for (const Body& body : p.bodies) {
      auto& list = accesses_.emplace_back(body.instrs.size());
      for (size_t i = 0; i < body.instrs.size(); ++i) list[i] = accesses_of(body.instrs[i]);
    }
    writers_.assign(pieces_.count() * 2, -1);
    readers_.assign(pieces_.count() * streams_, -1);
    length_.assign(streams_, 0);
    known_.assign(streams_, std::vector<int>(streams_, -1));
    history_.resize(streams_);
  }

  Expanded run() {
    for (size_t c = 0; c < out_.calls.size(); ++c) {
      const int body = out_.calls[c].body;
      const auto& instrs = program_.bodies[static_cast<size_t>(body)].instrs;
      for (size_t i = 0; i < instrs.size(); ++i)
        if (takes_part(instrs[i], out_.calls[c]))
          issue(static_cast<int>(c), body, static_cast<int>(i), instrs[i]);
    }
    return std::move(out_);
  }

 private:
  std::vector<Access> accesses_of(const Instr& instr) const {
    std::vector<Access> list;
    const auto add = [&](const Operand& o, bool write) {
      const auto [first, last] = pieces_.of(o);
      if (first < last) list.push_back({first, last, write});
    };
    for (const Operand& o : instr.in) add(o, false);
    for (const Operand& o : instr.out) add(o, true);
    return list;
  }

  void issue(int call, int body, int index, const Instr& instr) {
    const size_t s = instr.stream.index();
    Issue issue{.call = call,
                .body = body,
                .instr = index,
                .position = length_[s],
                .first_wait = static_cast<int>(out_.waits.size())};
    const std::vector<Access>& accesses = accesses_[static_cast<size_t>(body)][static_cast<size_t>(index)];
    if (instr.kind != InstrKind::Free) {
      // The latest instruction of every other stream that this one must not overtake.
      std::vector<int>& needed = scratch_;
      needed.assign(streams_, -1);
      for (const Access& a : accesses)
        for (int p = a.first; p < a.last; ++p) {
          const size_t piece = static_cast<size_t>(p);
          if (const int w = writers_[piece * 2]; w >= 0)
            needed[static_cast<size_t>(w)] =
                std::max(needed[static_cast<size_t>(w)], writers_[piece * 2 + 1]);
          if (a.write)
            for (size_t t = 0; t < streams_; ++t)
              needed[t] = std::max(needed[t], readers_[piece * streams_ + t]);
        }
      // Drop what an earlier wait, or a wait of an instruction waited for, already implies.
      std::vector<int>& known = known_[s];
      for (size_t t = 0; t < streams_; ++t) {
        if (t == s || needed[t] <= known[t]) continue;
        bool implied = false;
        for (size_t u = 0; u < streams_ && !implied; ++u)
          implied = u != s && u != t && needed[u] > known[u] && at_completion(u, needed[u])[t] >= needed[t];
        if (!implied) out_.waits.push_back({StreamId(static_cast<int32_t>(t)), needed[t]});
      }
      for (size_t w = static_cast<size_t>(issue.first_wait); w < out_.waits.size(); ++w) {
        const Wait& wait = out_.waits[w];
        const int* then = at_completion(wait.stream.index(), wait.position);
        for (size_t t = 0; t < streams_; ++t) known[t] = std::max(known[t], then[t]);
      }
      known[s] = issue.position - 1;
    }
    issue.num_waits = static_cast<int>(out_.waits.size()) - issue.first_wait;
    // What is known to be complete once this instruction is.
    history_[s].insert(history_[s].end(), known_[s].begin(), known_[s].end());
    history_[s][history_[s].size() - streams_ + s] = issue.position;
    ++length_[s];
    if (instr.kind != InstrKind::Free)
      for (const Access& a : accesses)
        for (int p = a.first; p < a.last; ++p) {
          const size_t piece = static_cast<size_t>(p);
          if (a.write) {
            writers_[piece * 2] = static_cast<int>(s);
            writers_[piece * 2 + 1] = issue.position;
            for (size_t t = 0; t < streams_; ++t) readers_[piece * streams_ + t] = -1;
          } else {
            readers_[piece * streams_ + s] = issue.position;
          }
        }
    out_.issues.push_back(issue);
  }

  const int* at_completion(size_t stream, int position) const {
    return &history_[stream][static_cast<size_t>(position) * streams_];
  }

  const Program& program_;
  const Pieces pieces_;
  size_t streams_ = 1;
  Expanded out_;
  std::vector<std::vector<std::vector<Access>>> accesses_;  // by body and instruction
  std::vector<int> writers_;                                // by piece: stream and position of the last write
  std::vector<int> readers_;                                // by piece and stream: last read since that write
  std::vector<int> length_;                                 // by stream
  std::vector<std::vector<int>> known_;                     // by stream: complete before its next instruction
  std::vector<std::vector<int>> history_;  // by stream; by position and stream: the same, at its completion
  std::vector<int> scratch_;
};

}  // namespace

Expanded expand(const Program& program, const std::vector<Call>& calls) {
  return Expander(program, calls).run();
}

}  // namespace quintet::program
