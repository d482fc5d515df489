#include "exec/cuda/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "base/error.h"
#include "exec/messages.h"

namespace quintet::exec::cuda {

using program::CollectiveKind;
using program::Instr;
using program::InstrKind;
using program::Issue;

namespace {

constexpr int64_t kStagingAlign = 256;

class Planner {
 public:
  Planner(const program::Program& p, const program::Expanded& e, bool poison)
      : p_(p), e_(e), poison_(poison), issue_at_(p.streams.size()) {
    plan_.steps.resize(e.issues.size());
    plan_.lane_used.assign(p.streams.size(), 0);
  }

  LaunchPlan make() {
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      const size_t stream = instr(i).stream.index();
      QUINTET_CHECK(e_.issues[i].position == static_cast<int>(issue_at_[stream].size()),
                    "issue {} is at position {} of its stream, after {} others", i, e_.issues[i].position,
                    issue_at_[stream].size());
      issue_at_[stream].push_back(static_cast<int>(i));
      plan_.steps[i].lane = poison_ && !is_message(p_, instr(i)) ? 0 : static_cast<int>(stream);
      plan_.lane_used[static_cast<size_t>(plan_.steps[i].lane)] = 1;
    }
    const std::vector<int> frees = poison_ ? frees_before_messages(p_, e_, buffers_in_messages(p_))
                                           : std::vector<int>(e_.issues.size(), -1);
    for (size_t i = 0; i < e_.issues.size(); ++i) waits(i, frees[i]);
    saved_states();
    loads();
    counts();
    pieces();
    plan_.not_captured = obstacle();
    return std::move(plan_);
  }

 private:
  const Instr& instr(size_t issue) const { return instr_of(p_, e_.issues[issue]); }

  void waits(size_t i, int free_before) {
    const Issue& issue = e_.issues[i];
    LaunchPlan::Step& step = plan_.steps[i];
    step.first_wait = static_cast<int>(plan_.waits.size());
    const auto add = [&](program::StreamId stream, int position) {
      LaunchPlan::Step& other =
          plan_.steps[static_cast<size_t>(issue_at_[stream.index()][static_cast<size_t>(position)])];
      if (other.lane == step.lane) return;  // in order anyway
      QUINTET_CHECK(&other < &step, "issue {} waits for a later one", i);
      if (other.event < 0) other.event = plan_.num_events++;
      plan_.waits.push_back(other.event);
    };
    for (int w = 0; w < issue.num_waits; ++w) {
      const program::Wait& wait = e_.waits[static_cast<size_t>(issue.first_wait + w)];
      add(wait.stream, wait.position);
    }
    // A stream whose issues are executed by two lanes still runs in order.
    if (poison_ && issue.position > 0) add(instr(i).stream, issue.position - 1);
    if (free_before >= 0) add(program::kComputeStream, free_before);
    step.num_waits = static_cast<int>(plan_.waits.size()) - step.first_wait;
  }

  void loads() {
    const auto aligned = [](int64_t bytes) {
      return (bytes + kStagingAlign - 1) / kStagingAlign * kStagingAlign;
    };
    int64_t at =
        aligned(p_.num_scalar_inputs() * program::kScalarBytes);  // after the scalars that the host sets
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      const Instr& load = instr(i);
      if (load.kind != InstrKind::LoadBatch) continue;
      plan_.steps[i].load = static_cast<int>(plan_.loads.size());
      LaunchPlan::Load& l = plan_.loads.emplace_back();
      l.micro = e_.calls[static_cast<size_t>(e_.issues[i].call)].micro;
      for (const program::Operand& o : load.out) {
        const program::Buffer& buffer = p_.buffer(o.buffer);
        l.inputs.push_back({.spec = p_.input(o.buffer)->spec,
                            .offset = at,
                            .bytes = o.bytes(),
                            .arena_offset = buffer.offset + o.offset_bytes});
        at += aligned(o.bytes());
      }
    }
    plan_.staging_bytes = at;
  }

  // Bytes of the arena.
  struct Bytes {
    int64_t begin = 0, end = 0;
    bool meets(const Bytes& other) const { return begin < other.end && other.begin < end; }
    friend bool operator<(const Bytes& a, const Bytes& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    }
  };
  Bytes bytes_of(const program::Operand& o) const {
    const int64_t begin = p_.buffer(o.buffer).offset + o.offset_bytes;
    return {begin, begin + o.bytes()};
  }

  // Gathering parameters in place leaves a rank's own range as it is.
  static bool changes(const Instr& i, const program::Operand& out) {
    const bool gathers = i.kind == InstrKind::Collective && i.collective.kind == CollectiveKind::AllGather;
    return !gathers || i.in[0].buffer != out.buffer;
  }

  void saved_states() {
    std::vector<Bytes> saved;
    const auto add = [&](program::BufferId id, int64_t offset, int64_t bytes) {
      const int64_t begin = p_.buffer(id).offset + offset;
      saved.push_back({begin, begin + bytes});
    };
    for (const program::GroupSlot& s : p_.slots) {
      if (s.keep != graph::Keep::Saved) continue;
      const int64_t elements = (s.count + s.block - 1) / s.block,
                    bytes = elements * (s.lower.valid() ? 2 : base::size_of(s.dtype));  // split in halves
      add(s.buffer, s.offset_bytes, bytes);
      if (s.lower.valid()) add(s.lower, 0, bytes);
    }
    for (const program::StatePlace& s : p_.states) saved.push_back(bytes_of(s.place));
    std::vector<char> found(p_.streams.size(), 0);
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      char& in_lane = found[static_cast<size_t>(plan_.steps[i].lane)];
      if (in_lane != 0) continue;
      for (const program::Operand& o : instr(i).out)
        for (const Bytes& s : saved)
          if (s.meets(bytes_of(o)) && changes(instr(i), o)) in_lane = 1;
      plan_.steps[i].changes_saved = in_lane != 0;
    }
  }

  static bool exchanges_by_counts(const Instr& i) {
    return i.kind == InstrKind::Collective && i.collective.kind == CollectiveKind::AllToAllV &&
           i.in.size() > 1 && i.attrs.integer("pad") == 0;
  }

  // Counts that were read back stay valid until something is written where they are stored. What is read back
  // in a pass that may not run is not known after it.
  void counts() {
    std::map<std::pair<Bytes, Bytes>, int64_t> places;
    std::map<std::pair<Bytes, Bytes>, bool> known, before_repeat;
    std::map<Bytes, const program::Operand*> passes;  // by the counts to send, written together with them
    const auto read_passes = [&](size_t i, const program::Operand& number) {
      const std::pair key(bytes_of(number), Bytes{});
      const auto [place, is_new] = places.try_emplace(key, plan_.counts_bytes);
      if (is_new) plan_.counts_bytes += number.bytes();
      plan_.steps[i].passes = place->second;
      plan_.steps[i].reads_passes = !std::exchange(known[key], true);
      plan_.steps[i].passes_offset = key.first.begin;
    };
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      const Instr& instr = this->instr(i);
      if (instr.kind == InstrKind::Repeat) {
        read_passes(i, instr.in[0]);
        before_repeat = known;
      }
      if (instr.kind == InstrKind::End)
        for (auto& [key, is_known] : known) is_known = is_known && before_repeat[key];
      if (exchanges_by_counts(instr)) {
        const std::pair key(bytes_of(instr.in[1]), bytes_of(instr.in[2]));
        const auto [place, is_new] = places.try_emplace(key, plan_.counts_bytes);
        if (is_new) plan_.counts_bytes += instr.in[1].bytes() + instr.in[2].bytes();
        plan_.steps[i].counts = place->second;
        plan_.steps[i].reads_back = !std::exchange(known[key], true);
        const auto number = passes.find(key.first);
        if (plan_.steps[i].reads_back && !instr.repeated && number != passes.end())
          read_passes(i, *number->second);
      }
      const auto written = [&](const Bytes& w) {
        for (auto& [key, is_known] : known)
          if (key.first.meets(w) || key.second.meets(w)) is_known = false;
      };
      for (const program::Operand& o : instr.out) written(bytes_of(o));
      if (instr.kind == InstrKind::Free) {
        const program::Buffer& freed = p_.buffer(instr.frees);
        written({freed.offset, freed.offset + freed.bytes});
      }
      if (instr.kind == InstrKind::Compute && instr.op == &graph::kSplitRows && !instr.repeated)
        passes[bytes_of(instr.out[1])] = &instr.out[3];
    }
  }

  void pieces() {
    if (poison_ || plan_.counts_bytes == 0) return;
    constexpr int kShortest = 4;  // kernels; fewer are as fast when launched one by one
    std::map<std::vector<int64_t>, int> graphs;
    std::vector<int> now;
    const auto finish = [&] {
      std::vector<int64_t> launches;  // what is launched, and how
      for (const int i : now) {
        const Issue& issue = e_.issues[static_cast<size_t>(i)];
        const Instr& instr = instr_of(p_, issue);
        if (instr.kind != InstrKind::Compute) continue;
        launches.insert(launches.end(),
                        {issue.body, issue.instr,
                         int64_t{accumulates(instr, e_.calls[static_cast<size_t>(issue.call)])}});
      }
      if (launches.size() >= 3 * kShortest) {
        for (const int i : now)
          plan_.steps[static_cast<size_t>(i)].piece = static_cast<int>(plan_.pieces.size());
        const int graph = graphs.try_emplace(launches, static_cast<int>(graphs.size())).first->second;
        plan_.pieces.push_back({now, graph});
      }
      now.clear();
    };
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      const LaunchPlan::Step& step = plan_.steps[i];
      if (step.lane != 0) continue;
      const InstrKind kind = instr(i).kind;
      const bool fits = (kind == InstrKind::Compute || kind == InstrKind::Free) && !instr(i).repeated;
      if (!fits || step.num_waits > 0 || step.changes_saved) finish();
      if (!fits) continue;
      now.push_back(static_cast<int>(i));
      if (step.event >= 0) finish();
    }
    finish();
    plan_.num_graphs = static_cast<int>(graphs.size());
  }

  std::string obstacle() const {
    if (poison_) return "freed memory is overwritten";
    if (plan_.counts_bytes == 0) return "";
    const auto reads = std::count_if(plan_.steps.begin(), plan_.steps.end(),
                                     [](const LaunchPlan::Step& s) { return s.reads_back; });
    return fmt::format(
        "experts on other ranks: the row counts of all-to-alls are read back {} times in every step; the "
        "computation in between is replayed as {} pieces from {} graphs; with model.moe.capacity_factor and "
        "model.moe.pad it would be one",
        reads, plan_.pieces.size(), plan_.num_graphs);
  }

  const program::Program& p_;
  const program::Expanded& e_;
  const bool poison_;
  std::vector<std::vector<int>> issue_at_;  // by stream and position
  LaunchPlan plan_;
};

}  // namespace

LaunchPlan make_launch_plan(const program::Program& program, const program::Expanded& expanded, bool poison) {
  return Planner(program, expanded, poison).make();
}

}  // namespace quintet::exec::cuda
