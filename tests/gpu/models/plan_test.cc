// From an expansion to launches; needs no GPU.
#include "exec/cuda/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/compile.h"
#include "exec/cuda/kernel.h"
#include "exec/decode/scratch.h"
#include "exec/executor.h"
#include "gpu/models/support.h"

namespace quintet {
namespace {

using exec::cuda::LaunchPlan;

compiler::Compiled compile(const std::vector<std::string>& settings, int rank) {
  compiler::CompileOptions options;
  options.rank = base::RankId(rank);
  options.workspace_bytes = exec::workspace_of(exec::Device::Cuda, 1);
  return compiler::compile(test::gpu_recipe("llama", "bf16", settings), options);
}

const std::vector<std::vector<std::string>> kLayouts = {
    {},
    {"parallel.dp_shard=2", "parallel.zero=3", "parallel.tp=2", "parallel.sequence_parallel=true"},
    {"parallel.pp=2", "parallel.dp_shard=2"},
    {"parallel.cp=2", "parallel.cp_method=\"ring\""}};

TEST(LaunchPlan, EveryWaitIsAnEventOrTheOrderOfAStream) {
  for (const auto& layout : kLayouts)
    for (const bool poison : {false, true}) {
      const compiler::Compiled c = compile(layout, 1 % static_cast<int>(layout.empty() ? 1 : 2));
      const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, poison);
      ASSERT_EQ(plan.steps.size(), c.step.issues.size());
      std::vector<std::vector<size_t>> at(c.program.streams.size());
      int waits = 0;
      for (size_t i = 0; i < plan.steps.size(); ++i) {
        const program::Issue& issue = c.step.issues[i];
        at[instr_of(c.program, issue).stream.index()].push_back(i);
        const LaunchPlan::Step& step = plan.steps[i];
        const auto begin = plan.waits.begin() + step.first_wait, end = begin + step.num_waits;
        for (int w = 0; w < issue.num_waits; ++w) {
          const program::Wait& wait = c.step.waits[static_cast<size_t>(issue.first_wait + w)];
          const LaunchPlan::Step& other =
              plan.steps[at[wait.stream.index()][static_cast<size_t>(wait.position)]];
          EXPECT_TRUE(other.lane == step.lane || std::find(begin, end, other.event) != end) << i;
          ++waits;
        }
      }
      EXPECT_TRUE(layout.empty() || waits > 0);
      EXPECT_EQ(plan.not_captured.empty(), !poison);
    }
}

// Parameters and gradients are transferred by one call per block and group of ranks, for any number of
// tensors.
TEST(LaunchPlan, ABlockIsGatheredAndReducedByOneCall) {
  int calls = 0;
  for (const auto& layout : kLayouts)
    for (const program::Body& body : compile(layout, 0).program.bodies) {
      std::map<std::pair<std::string, int>, int> of_block;  // by note and communicator
      for (const program::Instr& i : body.instrs)
        if (i.kind == program::InstrKind::Collective &&
            (i.note.starts_with("gather block") || i.note.starts_with("reduce block"))) {
          EXPECT_EQ(++of_block[std::pair(i.note, i.collective.comm.value)], 1) << i.note;
          ++calls;
        }
    }
  EXPECT_GT(calls, 20);
}

TEST(LaunchPlan, InputsOfMicroBatchesDoNotOverlap) {
  const compiler::Compiled c = compile({}, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  ASSERT_EQ(plan.loads.size(), 4u);  // 8 sequences in micro-batches of 2
  int64_t at = 0;
  for (size_t m = 0; m < plan.loads.size(); ++m) {
    EXPECT_EQ(plan.loads[m].micro, static_cast<int>(m));
    for (const LaunchPlan::Load::Input& input : plan.loads[m].inputs) {
      EXPECT_GE(input.offset, std::max(at, program::kScalarBytes * c.program.num_scalar_inputs()));
      EXPECT_EQ(input.bytes, 2 * 96 * 4) << graph::to_string(input.spec);
      at = input.offset + input.bytes;
    }
  }
  EXPECT_GE(plan.staging_bytes, at);
}

// The copy of a checkpoint may run until the first instruction that changes what it copies: not before the
// gradients are complete.
TEST(LaunchPlan, UpdatesWaitForTheCopyOfTheStates) {
  for (const auto& layout : kLayouts) {
    const compiler::Compiled c = compile(layout, 0);
    const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
    std::set<int> buffers;
    for (const program::GroupSlot& s : c.program.slots)
      if (s.keep == graph::Keep::Saved) buffers.insert({s.buffer.value, s.lower.value});
    size_t first = plan.steps.size();
    std::set<int> waited;  // lanes
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      const LaunchPlan::Step& step = plan.steps[i];
      const program::Instr& instr = instr_of(c.program, c.step.issues[i]);
      if (step.changes_saved) {
        EXPECT_TRUE(waited.insert(step.lane).second) << "once for each lane";
        first = std::min(first, i);
      }
      if (instr.kind != program::InstrKind::Compute) continue;
      for (const program::Operand& o : instr.out)
        if (buffers.contains(o.buffer.value) && instr.note.find("gather") == std::string::npos)
          EXPECT_TRUE(waited.contains(step.lane)) << "issue " << i << " writes a state";
    }
    ASSERT_LT(first, plan.steps.size()) << "a step changes the states";
    EXPECT_GT(first, plan.steps.size() / 2) << "and not before its end";
  }
}

const std::vector<std::string> kExpertsElsewhere = {"model.moe.experts=4", "model.moe.top_k=2",
                                                    "model.moe.ffn=32",    "model.ffn=32",
                                                    "parallel.dp_shard=2", "parallel.ep=2"};

TEST(LaunchPlan, CountsOfALayerAreReadBackOnce) {
  const compiler::Compiled c = compile(kExpertsElsewhere, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  int reads = 0, exchanges = 0;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const program::Instr& instr = instr_of(c.program, c.step.issues[i]);
    const bool by_counts = instr.kind == program::InstrKind::Collective &&
                           instr.collective.kind == program::CollectiveKind::AllToAllV && instr.in.size() > 1;
    EXPECT_EQ(plan.steps[i].counts >= 0, by_counts);
    EXPECT_TRUE(by_counts || !plan.steps[i].reads_back);
    if (!by_counts) continue;
    ++exchanges;
    reads += plan.steps[i].reads_back;
    EXPECT_LE(plan.steps[i].counts + instr.in[1].bytes() + instr.in[2].bytes(), plan.counts_bytes);
  }
  const int layers = 2, micro_batches = 2;  // 8 sequences, 2 ranks, 2 at once
  EXPECT_EQ(reads, layers * micro_batches);
  EXPECT_EQ(exchanges, 6 * reads);  // rows, weights and results, in both directions
  EXPECT_NE(plan.not_captured.find("read back 4 times in every step"), std::string::npos)
      << plan.not_captured;
}

// With a bound of received rows: the number of passes comes with the counts of the first pass; no Repeat
// waits for it. Counts of a further pass are read back in that pass, and no piece has instructions of one.
TEST(LaunchPlan, PassesAreReadBackWithTheirCounts) {
  std::vector<std::string> settings = kExpertsElsewhere;
  settings.push_back("model.moe.receive_bound=0.5");
  const compiler::Compiled c = compile(settings, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  int repeats = 0, reads = 0;
  std::map<int64_t, int64_t> read;  // place -> offset in the arena
  bool fresh = false;               // the counts of this pass are known
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const LaunchPlan::Step& step = plan.steps[i];
    const program::Instr& instr = instr_of(c.program, c.step.issues[i]);
    EXPECT_TRUE(!instr.repeated || (step.lane == 0 && step.piece < 0)) << i;
    EXPECT_LE(step.passes + 4, plan.counts_bytes) << i;
    if (instr.kind == program::InstrKind::Repeat) {
      ++repeats;
      fresh = false;
      const program::Operand& passes = instr.in[0];
      EXPECT_FALSE(step.reads_passes) << i;
      EXPECT_EQ(step.passes_offset, c.program.buffer(passes.buffer).offset + passes.offset_bytes);
      ASSERT_TRUE(read.contains(step.passes)) << i;
      EXPECT_EQ(read.at(step.passes), step.passes_offset);
    } else if (step.reads_passes) {
      ++reads;
      EXPECT_TRUE(step.reads_back && !instr.repeated) << i;
      read[step.passes] = step.passes_offset;
    } else if (instr.repeated && step.counts >= 0) {
      EXPECT_EQ(step.reads_back, !std::exchange(fresh, true)) << i;
    }
  }
  EXPECT_EQ(reads, 2 * 2);        // layers, micro-batches
  EXPECT_EQ(repeats, 2 * reads);  // forward and backward
}

TEST(LaunchPlan, PaddedExpertsAreOneGraph) {
  std::vector<std::string> settings = kExpertsElsewhere;
  settings.insert(settings.end(), {"model.moe.capacity_factor=1.25", "model.moe.pad=true"});
  const compiler::Compiled c = compile(settings, 0);
  int exchanges = 0;
  for (const program::Body& body : c.program.bodies)
    for (const program::Instr& i : body.instrs)
      exchanges +=
          i.kind == program::InstrKind::Collective && i.collective.kind == program::CollectiveKind::AllToAllV;
  EXPECT_GT(exchanges, 6);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  EXPECT_EQ(plan.not_captured, "");
  EXPECT_EQ(plan.counts_bytes, 0);
  EXPECT_TRUE(plan.pieces.empty());
}

// Forward is recomputed before backward: its counts are rewritten and must be read again.
TEST(LaunchPlan, CountsThatWereWrittenAgainAreReadAgain) {
  std::vector<std::string> settings = kExpertsElsewhere;
  settings.push_back("memory.recompute=\"full\"");
  const compiler::Compiled c = compile(settings, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  int reads = 0, writes = 0;
  // Counts known to the host must be current: every count exchange is followed by a read before the next row
  // exchange by the same counts.
  std::map<int, bool> fresh;  // by buffer of received counts: written since it was last read
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const program::Instr& instr = instr_of(c.program, c.step.issues[i]);
    if (instr.kind != program::InstrKind::Collective ||
        instr.collective.kind != program::CollectiveKind::AllToAllV)
      continue;
    if (instr.in.size() == 1) {
      fresh[instr.out[0].buffer.value] = true;
      ++writes;
      continue;
    }
    bool& is_fresh = fresh[instr.in[2].buffer.value];
    EXPECT_EQ(plan.steps[i].reads_back, is_fresh) << i;
    is_fresh = false;
    reads += plan.steps[i].reads_back;
  }
  EXPECT_EQ(reads, writes);
}

// Every kernel is launched once, in stream order, and nothing waits in the middle of a piece.
TEST(LaunchPlan, PiecesAreRunsOfTheComputeStream) {
  const compiler::Compiled c = compile(kExpertsElsewhere, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  ASSERT_GT(plan.pieces.size(), 4u);
  EXPECT_LT(plan.num_graphs, static_cast<int>(plan.pieces.size())) << "micro-batches share graphs";
  std::vector<int> seen(plan.steps.size());
  std::map<int, std::vector<int>> instrs;  // by graph
  int inside = 0, kernels = 0, last = -1;
  for (size_t p = 0; p < plan.pieces.size(); ++p) {
    const std::vector<int>& issues = plan.pieces[p].issues;
    EXPECT_GT(issues.front(), last);
    last = issues.back();
    std::vector<int> launched;
    for (size_t k = 0; k < issues.size(); ++k) {
      const auto i = static_cast<size_t>(issues[k]);
      const LaunchPlan::Step& step = plan.steps[i];
      EXPECT_EQ(step.piece, static_cast<int>(p));
      EXPECT_EQ(step.lane, 0);
      EXPECT_TRUE(k == 0 || (step.num_waits == 0 && issues[k] > issues[k - 1])) << i;
      EXPECT_TRUE(k + 1 == issues.size() || step.event < 0) << i;
      EXPECT_EQ(seen[i]++, 0);
      const program::Issue& issue = c.step.issues[i];
      if (instr_of(c.program, issue).kind != program::InstrKind::Compute) continue;
      ++inside;
      launched.insert(launched.end(), {issue.body, issue.instr,
                                       accumulates(instr_of(c.program, issue),
                                                   c.step.calls[static_cast<size_t>(issue.call)])});
    }
    const auto [at, is_new] = instrs.try_emplace(plan.pieces[p].graph, launched);
    EXPECT_TRUE(is_new || at->second == launched) << "pieces of one graph launch the same";
  }
  for (const program::Issue& issue : c.step.issues)
    kernels += instr_of(c.program, issue).kind == program::InstrKind::Compute;
  EXPECT_GT(inside, kernels * 2 / 3) << "of " << kernels;
  // One graph holds everything if nothing is read back, and nothing is captured with poisoned memory.
  const compiler::Compiled dense = compile({}, 0);
  EXPECT_TRUE(exec::cuda::make_launch_plan(dense.program, dense.step, false).pieces.empty());
  EXPECT_TRUE(exec::cuda::make_launch_plan(c.program, c.step, true).pieces.empty());
}

// If every rank has all experts nothing is exchanged by counts: only kernels depend on them.
TEST(LaunchPlan, OwnExpertsAreOneGraph) {
  const compiler::Compiled c =
      compile({"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=32", "model.ffn=32"}, 0);
  const LaunchPlan plan = exec::cuda::make_launch_plan(c.program, c.step, false);
  EXPECT_EQ(plan.not_captured, "");
  EXPECT_EQ(plan.counts_bytes, 0);
}

// Scratch is planned by a separate table, which builds without CUDA have too: all of its ops are kernels
// here, and every instruction has a kernel and the scratch of the table.
TEST(Workspace, IsPlannedForTheKernelsThatRun) {
  for (const graph::OpDef* op : graph::all_ops()) {
    const exec::Scratch* const s = exec::find_scratch(op);
    if (s != nullptr && s->cuda != nullptr) {
      EXPECT_NO_THROW(exec::cuda::find_kernel(*op)) << op->name;
    }
  }
  std::vector<std::vector<std::string>> layouts = kLayouts;
  layouts.push_back(kExpertsElsewhere);
  for (const auto& layout : layouts)
    for (const program::Body& body : compile(layout, 0).program.bodies)
      for (const program::Instr& i : body.instrs) {
        if (i.kind != program::InstrKind::Compute) continue;
        EXPECT_EQ(exec::cuda::find_kernel(*i.op).op, i.op);
        EXPECT_EQ(exec::cuda_scratch_bytes(i), i.workspace_bytes) << i.op->name;
      }
}

}  // namespace
}  // namespace quintet
