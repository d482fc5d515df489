#include "compiler/compile.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "compiler/pipeline_schedule.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "models/build.h"
#include "optim/step_builder.h"
#include "passes/flatten.h"
#include "passes/fold.h"
#include "passes/pack.h"
#include "passes/recompute.h"
#include "program/allocate.h"
#include "program/lifetimes.h"

namespace quintet::compiler {

using graph::DType;

namespace {

// Times and dumps every pass; compile() verifies the result of a pass right after it.
class Passes {
 public:
  Passes(const CompileOptions& options, std::vector<PassRecord>& records)
      : options_(options), records_(records) {}

  template <class Fn>
  auto operator()(const char* name, Fn&& fn) {
    const int64_t start = base::now_ns();
    auto result = fn();
    records_.push_back({name, base::now_ns() - start});
    return result;
  }
  void dump(const char* name, const graph::Graph& graph) const {
    if (options_.dump) options_.dump(name, graph::to_text(graph));
  }

 private:
  const CompileOptions& options_;
  std::vector<PassRecord>& records_;
};

graph::BuildOptions build_options(const config::Recipe& r, graph::Mode mode) {
  const bool infer = mode == graph::Mode::Infer;
  return {.mode = mode,
          .compute = r.precision.compute,
          .param_grad = r.precision.gradients,
          .tokens = infer ? r.data.seq_len : r.batch.micro * r.parallel.dp() * r.data.seq_len,
          .seq_len = r.data.seq_len,
          .loss_chunk = r.loss.chunk,
          .accumulation = r.batch.accumulation,
          .packed = r.data.pack || infer,
          .deterministic = r.run.deterministic};
}

Pipeline make_pipeline(const config::Recipe& recipe, const graph::Graph& graph, bool infer) {
  const config::Parallel& p = recipe.parallel;
  if (p.pp == 1 || infer) return {layout::one_stage(graph.num_blocks), std::nullopt};
  Pipeline out;
  out.schedule = pipeline_schedule(recipe);
  const int stages = out.schedule->virtual_stages();
  out.stages.of_block =
      layout::stage_of_blocks(p.stages.empty() ? layout::balance(graph, stages) : p.stages, graph.num_blocks);
  for (int s = 0; s < stages; ++s) {
    out.stages.rank_of.push_back(out.schedule->home_of(s).rank);
    out.stages.chunk_of.push_back(out.schedule->home_of(s).chunk);
  }
  return out;
}

// The fit planned the largest program of each stage; every rank checks its own against the budget.
void require_budget(const std::optional<Fit>& fit, const program::Program& program) {
  if (!fit || fit->budget == 0 || program.arena_bytes <= fit->budget) return;
  base::fail_user(
      "rank {} plans {} bytes, which exceeds memory.budget {}: it needs more than the ranks used for the fit",
      program.rank, program.arena_bytes, fit->budget);
}

// Common to all ranks.
struct Front {
  layout::Layout layout;
  Pipeline pipeline;
  std::optional<Fit> fit;
  graph::Graph model, logical;  // before and after recompute
  layout::LocalGraph local, evaluate;
  graph::StepGraph step;  // the optimizer's, of the whole model
  layout::LocalGraph local_step;
};

// Specific to one rank.
struct Back {
  std::vector<layout::Group> groups;
  program::Program program;
  program::Expanded step, evaluate;
};

// The logical graph of the model, then the local graph that every rank executes.
Front make_front(const config::Recipe& recipe, const CompileOptions& options, Passes& pass) {
  const ModelFn model = options.model ? options.model : [&](const graph::BuildOptions& build) {
    return models::build(recipe.model, build, recipe.optimizer.freeze);
  };
  const auto build = [&](graph::Mode mode) {
    graph::Graph g = pass("build", [&] { return model(build_options(recipe, mode)); });
    graph::verify(g, "build");
    pass.dump("build", g);
    return g;
  };
  const std::vector<layout::OpRule> rules = model.rules();
  const auto partition = [&](const graph::Graph& logical, const layout::Layout& layout) {
    layout::LocalGraph local = pass("partition", [&] { return layout::partition(logical, layout, rules); });
    graph::verify(local.graph, "partition", /*local=*/true);
    pass.dump("partition", local.graph);
    return local;
  };

  const auto fold = [&](layout::LocalGraph local, bool backward) {
    if (recipe.debug.runs(config::OptionalPass::Fold)) {
      local = pass("fold", [&] { return passes::fold(std::move(local), {.backward = backward}); });
      graph::verify(local.graph, "fold", /*local=*/true);
      pass.dump("fold", local.graph);
    }
    if (!options.pack || !recipe.debug.runs(config::OptionalPass::Pack)) return local;
    local = pass("pack", [&] { return passes::pack(std::move(local)); });
    graph::verify(local.graph, "pack", /*local=*/true);
    pass.dump("pack", local.graph);
    return local;
  };

  graph::Graph plain = build(options.infer ? graph::Mode::Infer : graph::Mode::Train);
  layout::Layout layout = layout::make_layout(recipe.parallel, layout::demands_of(plain));
  graph::Graph logical = plain;
  const bool recomputes = !options.infer && recipe.debug.runs(config::OptionalPass::Recompute);
  std::optional<Fit> fit = recomputes ? options.fit : std::nullopt;
  if (recomputes) {
    if (!fit && recipe.memory.recompute == config::RecomputeKind::Fit)
      fit = pass("fit", [&] { return fit_recompute(recipe, options); });
    logical = pass("recompute", [&] {
      return passes::recompute(logical, fit ? fit->marks : passes::chosen(logical, recipe.memory));
    });
    graph::verify(logical, "recompute");
    pass.dump("recompute", logical);
  }
  Pipeline pipeline = make_pipeline(recipe, logical, options.infer);
  layout::LocalGraph local = partition(logical, layout);
  const bool parts_backward = pipeline.schedule && pipeline.schedule->splits_backward;
  if (!options.infer) local = fold(std::move(local), options.fold_backward && !parts_backward);
  layout::LocalGraph evaluate;
  if (options.evaluate) evaluate = fold(partition(build(graph::Mode::Evaluate), layout), false);
  graph::StepGraph step;
  layout::LocalGraph local_step;
  if (!options.infer) {
    step = pass("build step", [&] { return optim::build_step(logical, recipe.optimizer, recipe.precision); });
    graph::verify(step.graph, "build step");
    pass.dump("build step", step.graph);
    local_step = pass("partition step", [&] { return layout::partition_step(step, local, layout); });
    graph::verify(local_step.graph, "partition step", /*local=*/true);
    pass.dump("partition step", local_step.graph);
  }
  return {std::move(layout), std::move(pipeline), std::move(fit),  std::move(plain),     std::move(logical),
          std::move(local),  std::move(evaluate), std::move(step), std::move(local_step)};
}

// The program: bodies and calls, then lifetimes, offsets, and waits between streams.
Back make_back(const config::Recipe& recipe, const CompileOptions& options, const Front& front,
               base::RankId rank, Passes& pass) {
  const int stage_rank = front.layout.mesh.index(rank, front.layout.pipeline);
  std::vector<layout::Group> groups = pass("group", [&] {
    return layout::make_groups(front.logical, front.local, front.layout, front.pipeline.stages, stage_rank);
  });
  layout::FlatStep flat;
  if (!options.infer) {
    flat = pass("flatten", [&] { return passes::flatten(front.step, front.local_step, groups, stage_rank); });
    pass.dump("flatten", flat.graph);
  }
  program::Program program = pass("lower", [&] {
    return program::lower({.train = options.infer ? nullptr : &front.local,
                           .evaluate = options.evaluate ? &front.evaluate : nullptr,
                           .infer = options.infer ? &front.local : nullptr,
                           .groups = &groups,
                           .step = options.infer ? nullptr : &flat,
                           .stages = &front.pipeline.stages,
                           .schedule = front.pipeline.schedule ? &*front.pipeline.schedule : nullptr},
                          front.layout,
                          {.rank = rank,
                           .accumulation = static_cast<int>(recipe.batch.accumulation),
                           .compute = recipe.precision.compute,
                           .master = recipe.precision.master_type(),
                           .reduce = recipe.precision.reduce,
                           .grad = recipe.precision.gradients,
                           .split_master = recipe.precision.split_master(),
                           .fuse_adds = recipe.debug.runs(config::OptionalPass::FuseAdds),
                           .in_place = recipe.debug.runs(config::OptionalPass::InPlace),
                           .workspace_bytes = options.workspace_bytes});
  });
  pass("free", [&] { return program::insert_frees(program), 0; });
  const bool share = recipe.debug.runs(config::OptionalPass::ShareMemory);
  pass("allocate", [&] { return program::allocate(program, share), 0; });
  require_budget(front.fit, program);
  program::Expanded step, evaluate;
  if (options.expand) {
    step = pass("expand", [&] { return program::expand(program, program.calls); });
    evaluate = pass("expand", [&] { return program::expand(program, program.eval_calls); });
  }
  return {std::move(groups), std::move(program), std::move(step), std::move(evaluate)};
}

}  // namespace

Compiled compile(const config::Recipe& recipe, const CompileOptions& options) {
  std::vector<PassRecord> records;
  Passes pass(options, records);
  Front front = make_front(recipe, options, pass);
  Back back = make_back(recipe, options, front, options.rank, pass);
  return {.layout = std::move(front.layout),
          .pipeline = std::move(front.pipeline),
          .fit = std::move(front.fit),
          .logical = std::move(front.logical),
          .local = std::move(front.local),
          .step_graph = std::move(front.step),
          .groups = std::move(back.groups),
          .program = std::move(back.program),
          .step = std::move(back.step),
          .evaluate = std::move(back.evaluate),
          .passes = std::move(records)};
}

Ranks compile_ranks(const config::Recipe& recipe, const CompileOptions& options,
                    const std::vector<base::RankId>& ranks, int threads) {
  std::vector<PassRecord> records;
  Passes pass(options, records);
  Front front = make_front(recipe, options, pass);
  std::vector<RankProgram> programs(ranks.size());
  base::parallel_for(threads, ranks.size(), [&](size_t i) {
    std::vector<PassRecord> own_records;
    Passes own(options, own_records);
    Back back = make_back(recipe, options, front, ranks[i], own);
    programs[i] = {std::move(back.program), std::move(back.step), std::move(back.evaluate)};
  });
  return {std::move(front.layout), std::move(front.pipeline), std::move(front.fit), std::move(front.model),
          std::move(programs)};
}

std::vector<RankProgram> compile_world(const config::Recipe& recipe, const CompileOptions& options,
                                       int threads) {
  std::vector<base::RankId> ranks;
  for (int64_t r = 0; r < recipe.parallel.world(); ++r) ranks.emplace_back(static_cast<int32_t>(r));
  return compile_ranks(recipe, options, ranks, threads).program;
}

std::vector<base::RankId> pipeline_ranks(const config::Recipe& recipe) {
  const layout::Layout layout = layout::make_layout(recipe.parallel, recipe.model);
  return layout.mesh.group(base::RankId(0), layout.pipeline);
}

}  // namespace quintet::compiler
