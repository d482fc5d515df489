#include "exec/cuda/plan.h"

#include <algorithm>
#include <iterator>

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
    loads();
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
      QUINTET_CHECK(&other < &step, "issue {} waits for one that comes later", i);
      if (other.event < 0) other.event = plan_.num_events++;
      plan_.waits.push_back(other.event);
    };
    for (int w = 0; w < issue.num_waits; ++w) {
      const program::Wait& wait = e_.waits[static_cast<size_t>(issue.first_wait + w)];
      add(wait.stream, wait.position);
    }
    // A stream whose issues are carried by two lanes stays in order all the same.
    if (poison_ && issue.position > 0) add(instr(i).stream, issue.position - 1);
    if (free_before >= 0) add(program::kComputeStream, free_before);
    step.num_waits = static_cast<int>(plan_.waits.size()) - step.first_wait;
  }

  void loads() {
    int64_t at = kStagingAlign;
    static_assert(std::size(kHostScalars) * sizeof(double) <= kStagingAlign);
    for (size_t i = 0; i < e_.issues.size(); ++i) {
      const Instr& load = instr(i);
      if (load.kind != InstrKind::LoadBatch) continue;
      plan_.steps[i].load = static_cast<int>(plan_.loads.size());
      LaunchPlan::Load& l = plan_.loads.emplace_back();
      l.micro = e_.calls[static_cast<size_t>(e_.issues[i].call)].micro;
      for (const program::Operand& o : load.out) {
        const program::Buffer& buffer = p_.buffer(o.buffer);
        l.inputs.push_back({.name = buffer.name.substr(0, buffer.name.find('@')),  // "ids@2" in slot 2
                            .offset = at,
                            .bytes = o.bytes(),
                            .arena_offset = buffer.offset + o.offset_bytes});
        at += (o.bytes() + kStagingAlign - 1) / kStagingAlign * kStagingAlign;
      }
    }
    plan_.staging_bytes = at;
  }

  std::string obstacle() const {
    if (poison_) return "freed memory is overwritten";
    for (size_t i = 0; i < e_.issues.size(); ++i)
      if (instr(i).kind == InstrKind::Collective && instr(i).collective.kind == CollectiveKind::AllToAllV)
        return "experts on other ranks: how many rows go where is read back in every step (all-to-all of "
               "rows)";
    return "";
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
