#include "tools/step_times.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "sim/durations.h"

namespace quintet::tools {
namespace {

using program::BodyKind;
using program::Instr;
using program::InstrKind;
using program::kComputeStream;

class Reading {
 public:
  Reading(const program::Program& program, const program::Expanded& expanded, const observe::RankTrace& trace)
      : program_(program), expanded_(expanded), at_(program.streams.size()), spans_(expanded.issues.size()) {
    for (size_t k = 0; k < expanded.issues.size(); ++k) at_[instr(k).stream.index()].push_back(k);
    // Records are grouped by stream, in issue order.
    const std::vector<observe::TraceRecord> records = trace.records();
    size_t next = 0;
    for (const std::vector<size_t>& stream : at_)
      for (const size_t k : stream) {
        if (instr(k).kind == InstrKind::Free) continue;
        QUINTET_CHECK(next < records.size(), "the trace has {} events, fewer than the program",
                      records.size());
        const observe::TraceRecord& r = records[next++];
        spans_[k] = {r.start_ns, r.start_ns + r.dur_ns, 0};
        first_ = std::min(first_, r.start_ns);
        last_ = std::max(last_, r.start_ns + r.dur_ns);
      }
    QUINTET_CHECK(next == records.size(), "the trace has {} events, the program {}", records.size(), next);
  }

  StepTimes run() {
    StepTimes t;
    t.comms.resize(program_.comms.size());
    if (first_ > last_) return t;
    int64_t now = first_;
    std::vector<program::Wait> awaited;
    for (const size_t k : at_[kComputeStream.index()]) {
      add_waits(k, awaited);  // includes the waits of frees, which the stream executes too
      if (instr(k).kind == InstrKind::Free) continue;
      const Span& span = spans_[k];
      if (span.start > now) add_stall(t, awaited, now, span.start);
      awaited.clear();
      count(t, k, std::max<int64_t>(span.end - std::max(span.start, now), 0));
      now = std::max(now, span.end);
    }
    for (size_t s = 0; s < at_.size(); ++s)
      if (!at_[s].empty())
        awaited.push_back({program::StreamId(static_cast<int32_t>(s)), static_cast<int>(at_[s].size()) - 1});
    if (last_ > now) add_stall(t, awaited, now, last_);
    t.span = seconds(last_ - first_);
    for (size_t s = 0; s < at_.size(); ++s)
      for (const size_t k : at_[s])
        if (instr(k).kind == InstrKind::Collective)
          t.comms[instr(k).collective.comm.index()].push_back(
              {seconds(spans_[k].end - spans_[k].start), seconds(spans_[k].exposed)});
    return t;
  }

 private:
  struct Span {
    int64_t start = 0, end = 0, exposed = 0;
  };

  static double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }
  const Instr& instr(size_t k) const { return instr_of(program_, expanded_.issues[k]); }

  void add_waits(size_t k, std::vector<program::Wait>& to) const {
    const program::Issue& issue = expanded_.issues[k];
    for (int w = 0; w < issue.num_waits; ++w)
      to.push_back(expanded_.waits[static_cast<size_t>(issue.first_wait) + static_cast<size_t>(w)]);
  }

  void count(StepTimes& t, size_t k, int64_t ns) const {
    const BodyKind body = program_.bodies[static_cast<size_t>(expanded_.issues[k].body)].kind;
    const Instr& i = instr(k);
    if (i.kind == InstrKind::LoadBatch) {
      t.load += seconds(ns);
    } else if (body == BodyKind::Begin || body == BodyKind::Step) {
      t.optimizer += seconds(ns);
    } else {
      const sim::WorkClass c = i.kind == InstrKind::Compute ? sim::class_of(*i.op) : sim::WorkClass::Other;
      (c == sim::WorkClass::Matmul      ? t.matmul
       : c == sim::WorkClass::Attention ? t.attention
                                        : t.other) += seconds(ns);
    }
  }

  // Of `awaited` and its predecessors in its stream, the issue that ended last among those that started
  // before `to`. Issues of the compute stream itself do not explain a stall. -1: none.
  int latest(const std::vector<program::Wait>& awaited, int64_t to) const {
    int best = -1;
    for (const program::Wait& wait : awaited) {
      if (wait.stream == kComputeStream) continue;
      for (int p = wait.position; p >= 0; --p) {
        const size_t k = at_[wait.stream.index()][static_cast<size_t>(p)];
        if (instr(k).kind == InstrKind::Free || spans_[k].start >= to) continue;
        if (best < 0 || spans_[k].end > spans_[static_cast<size_t>(best)].end) best = static_cast<int>(k);
        break;
      }
    }
    return best;
  }

  // The compute stream was empty in [from, to).
  void add_stall(StepTimes& t, std::vector<program::Wait> awaited, int64_t from, int64_t to) {
    while (to > from) {
      const int k = latest(awaited, to);
      if (k < 0 || spans_[static_cast<size_t>(k)].end <= from) break;
      Span& span = spans_[static_cast<size_t>(k)];
      const int64_t end = std::min(span.end, to), start = std::max(span.start, from);
      t.idle += seconds(to - end);
      if (instr(static_cast<size_t>(k)).kind == InstrKind::Collective)
        span.exposed += end - start;
      else
        count(t, static_cast<size_t>(k), end - start);  // casts of sent data
      to = start;
      awaited.clear();
      add_waits(static_cast<size_t>(k), awaited);
      const program::Issue& issue = expanded_.issues[static_cast<size_t>(k)];
      if (issue.position > 0) awaited.push_back({instr(static_cast<size_t>(k)).stream, issue.position - 1});
    }
    t.idle += seconds(to - from);
  }

  const program::Program& program_;
  const program::Expanded& expanded_;
  std::vector<std::vector<size_t>> at_;  // issue by stream and position
  std::vector<Span> spans_;              // by issue
  int64_t first_ = std::numeric_limits<int64_t>::max(), last_ = std::numeric_limits<int64_t>::min();
};

}  // namespace

StepTimes step_times(const program::Program& program, const program::Expanded& expanded,
                     const observe::RankTrace& trace) {
  return Reading(program, expanded, trace).run();
}

}  // namespace quintet::tools
