#include "compiler/compile.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "compiler/pipeline_schedule.h"
#include "compiler/stage_balance.h"
#include "config/batch_ramp.h"
#include "config/quantised.h"
#include "graph/text.h"
#include "graph/verify.h"
#include "models/build.h"
#include "optim/step_builder.h"
#include "passes/divide_saved.h"
#include "passes/flatten.h"
#include "passes/fold.h"
#include "passes/fold_codes.h"
#include "passes/overflow.h"
#include "passes/overlap.h"
#include "passes/pack.h"
#include "passes/quantize.h"
#include "passes/recompute.h"
#include "program/allocate.h"
#include "program/lifetimes.h"
#include "program/text.h"
#include "program/verify.h"

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
  const bool replays = mode == graph::Mode::Train && !r.data.routes.empty();
  return {.mode = mode,
          .compute = r.precision.compute,
          .param_grad = r.precision.gradients,
          .tokens = infer ? r.data.seq_len : r.batch.micro * r.parallel.dp() * r.data.seq_len,
          .seq_len = r.data.seq_len,
          .loss_chunk = r.loss.chunk,
          .accumulation = r.batch.accumulation,
          .packed = r.data.pack || infer,
          .deterministic = r.run.deterministic,
          .groups = models::param_groups(r.optimizer),
          .routes = replays ? r.model.moe.choices_in(r.model.layers) : 0};
}

passes::QuantizeOptions quantize_options(const config::Recipe& r) {
  passes::QuantizeOptions options{.match = r.precision.fp8_match,
                                  .head = r.precision.fp8_head,
                                  .step_tokens = static_cast<double>(r.batch.global * r.data.seq_len),
                                  .blocks = {}};
  if (const int64_t block = config::code_block(r.precision.linear); block > 0)
    options.blocks = {.size = block, .square_weights = r.precision.linear == config::LinearKind::Fp8Block};
  return options;
}

// A decoded row is a sequence of its own; a prompt or a pack of texts is one.
graph::BuildOptions entry_options(const config::Recipe& r, const Serving& serving,
                                  const Serving::Entry& entry) {
  graph::BuildOptions options = build_options(r, entry.mode);
  options.tokens = entry.rows;
  options.seq_len = entry.mode == graph::Mode::Decode ? 1 : entry.rows;
  options.packed = entry.mode == graph::Mode::Score || (entry.mode == graph::Mode::Routes && r.data.pack);
  options.cache = serving.cache;
  options.sampling = serving.sampling;
  return options;
}

// A kind of step other than that of batch.accumulation micro-batches.
struct StepKind {
  int64_t accumulation = 0;
  bool measures = false;
};

std::vector<StepKind> step_kinds(const config::Recipe& recipe) {
  std::vector<StepKind> kinds;
  for (const int64_t n : config::smaller_accumulations(recipe)) kinds.push_back({.accumulation = n});
  if (recipe.run.noise_scale_every > 0)
    kinds.push_back({.accumulation = config::noise_accumulation(recipe), .measures = true});
  return kinds;
}

Pipeline make_pipeline(const config::Recipe& recipe, const graph::Graph& model, bool infer) {
  const config::Parallel& p = recipe.parallel;
  if (p.pp == 1 || infer) return {layout::one_stage(model.num_blocks), std::nullopt};
  Pipeline out;
  out.schedule = pipeline_schedule(recipe);
  for (const StepKind& kind : step_kinds(recipe)) {
    config::Recipe smaller = recipe;
    smaller.batch.accumulation = kind.accumulation;
    out.variants.push_back(pipeline_schedule(smaller));
  }
  out.stages.of_block =
      layout::stage_of_blocks(blocks_per_stage(recipe, block_work(recipe, model)), model.num_blocks);
  for (int s = 0; s < out.schedule->virtual_stages(); ++s) {
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
  std::vector<layout::LocalGraph> entries;  // Serving::entries; `local` is the first, before passes
  graph::StepGraph step;                    // the optimizer's, of the whole model
  layout::LocalGraph local_step;
};

// Specific to one rank.
struct Back {
  std::vector<layout::Group> groups;
  program::Program program;
  program::Expanded step, evaluate;
  std::vector<program::Expanded> variants;
  base::Hash class_hash;
};

// The program that represents a class, as lowered: without scratch, frees and offsets.
struct Representative {
  program::Program program;
  base::Hash hash;
};

// The logical graph of the model, then the local graph that every rank executes.
Front make_front(const config::Recipe& recipe, const CompileOptions& options, Passes& pass) {
  const ModelFn model = options.model ? options.model : [&](const graph::BuildOptions& build) {
    return models::build(recipe.model, build);
  };
  const auto build_with = [&](const graph::BuildOptions& how) {
    graph::Graph g = pass("build", [&] { return model(how); });
    graph::verify(g, "build");
    pass.dump("build", g);
    return g;
  };
  const auto build = [&](graph::Mode mode) { return build_with(build_options(recipe, mode)); };
  const std::vector<layout::OpRule> rules = model.rules();
  const auto partition = [&](const graph::Graph& logical, const layout::Layout& layout) {
    layout::LocalGraph local = pass("partition", [&] { return layout::partition(logical, layout, rules); });
    graph::verify(local.graph, "partition", /*local=*/true);
    pass.dump("partition", local.graph);
    return local;
  };

  const auto runs = [&](OptionalPass optional) { return !options.disabled.contains(optional); };
  const auto fold = [&](layout::LocalGraph local, bool backward) {
    if (runs(OptionalPass::Fold)) {
      local = pass("fold", [&] { return passes::fold(std::move(local), {.backward = backward}); });
      graph::verify(local.graph, "fold", /*local=*/true);
      pass.dump("fold", local.graph);
    }
    if (!runs(OptionalPass::Pack)) return local;
    local = pass("pack", [&] { return passes::pack(std::move(local)); });
    graph::verify(local.graph, "pack", /*local=*/true);
    pass.dump("pack", local.graph);
    return local;
  };
  const auto add_passes = [&](layout::LocalGraph local, bool splits_backward) {
    local = pass("overflow", [&] { return passes::add_overflow_passes(std::move(local), splits_backward); });
    graph::verify(local.graph, "overflow", /*local=*/true);
    pass.dump("overflow", local.graph);
    return local;
  };
  const auto overlap = [&](layout::LocalGraph local, bool splits_backward) {
    if (!runs(OptionalPass::Overlap)) return local;
    local = pass("overlap", [&] { return passes::overlap(std::move(local), splits_backward); });
    graph::verify(local.graph, "overlap", /*local=*/true);
    pass.dump("overlap", local.graph);
    return local;
  };
  const auto fold_codes = [&](layout::LocalGraph local) {
    if (!runs(OptionalPass::Fold)) return local;
    local = pass("fold codes", [&] { return passes::fold_codes(std::move(local)); });
    graph::verify(local.graph, "fold codes", /*local=*/true);
    pass.dump("fold codes", local.graph);
    return local;
  };

  const bool infers = options.infer || options.serving;
  graph::Graph plain = options.serving
                           ? build_with(entry_options(recipe, *options.serving, options.serving->entries[0]))
                           : build(infers ? graph::Mode::Infer : graph::Mode::Train);
  if (!infers) layout::require_matches(plain, recipe.parallel);
  layout::Layout layout = layout::make_layout(recipe.parallel, layout::demands_of(plain));
  graph::Graph logical = plain;
  // Training only: evaluation and generation compute in precision.compute.
  const bool quantises = !infers && recipe.precision.quantises();
  if (quantises) {
    logical = pass("quantize", [&] { return passes::quantize(logical, quantize_options(recipe)); });
    graph::verify(logical, "quantize");
    pass.dump("quantize", logical);
  }
  const bool recomputes = !infers && runs(OptionalPass::Recompute);
  Pipeline pipeline = make_pipeline(recipe, plain, infers);
  std::optional<Fit> fit = recomputes ? options.fit : std::nullopt;
  if (recomputes) {
    if (!fit && recipe.memory.recompute == config::RecomputeKind::Fit)
      fit = pass("fit", [&] { return fit_recompute(recipe, options); });
    const std::vector<int>& stages = pipeline.stages.of_block;
    logical = pass("recompute", [&] {
      if (fit) return passes::recompute(logical, fit->marks);
      return passes::recompute(logical, passes::chosen(logical, recipe.memory, stages),
                               passes::chunks_of(logical, recipe.memory, stages));
    });
    graph::verify(logical, "recompute");
    pass.dump("recompute", logical);
  }
  if (quantises) passes::drop_unused_codes(logical);
  layout::LocalGraph local = partition(logical, layout);
  if (quantises) passes::require_code_sizes(local.graph);
  if (!infers && recipe.memory.split_saved) {
    local = pass("divide saved", [&] { return passes::divide_saved(std::move(local), layout); });
    graph::verify(local.graph, "divide saved", /*local=*/true);
    pass.dump("divide saved", local.graph);
  }
  const bool parts_backward = pipeline.schedule && pipeline.schedule->splits_backward;
  if (!infers) local = fold(std::move(local), options.fold_backward && !parts_backward);
  if (quantises) local = fold_codes(std::move(local));
  local = add_passes(std::move(local), parts_backward);
  if (!infers) local = overlap(std::move(local), parts_backward);
  std::vector<layout::LocalGraph> entries;
  if (options.serving)
    for (const Serving::Entry& entry : options.serving->entries)
      entries.push_back(add_passes(
          fold(partition(
                   entries.empty() ? logical : build_with(entry_options(recipe, *options.serving, entry)),
                   layout),
               false),
          false));
  layout::LocalGraph evaluate;
  if (options.evaluate)
    evaluate =
        overlap(add_passes(fold(partition(build(graph::Mode::Evaluate), layout), false), false), false);
  graph::StepGraph step;
  layout::LocalGraph local_step;
  if (infers) {
    step.states = graph::weight_states(logical, recipe.precision.compute);
  } else {
    step = pass("build step", [&] {
      return optim::build_step(logical, recipe.optimizer, recipe.precision,
                               {.spikes = recipe.run.skip_spike.window > 0}, recipe.run.seed,
                               options.model.optimizer());
    });
    graph::verify(step.graph, "build step");
    pass.dump("build step", step.graph);
    local_step = pass("partition step", [&] { return layout::partition_step(step, local, layout); });
    graph::verify(local_step.graph, "partition step", /*local=*/true);
    pass.dump("partition step", local_step.graph);
  }
  return {std::move(layout),  std::move(pipeline),  std::move(fit),      std::move(plain),
          std::move(logical), std::move(local),     std::move(evaluate), std::move(entries),
          std::move(step),    std::move(local_step)};
}

struct Lowered {
  std::vector<layout::Group> groups;
  program::Program program;
};

int place_of(const Front& front, base::RankId rank) {
  return front.layout.mesh.index(rank, front.layout.pipeline);
}

// Bodies and calls.
Lowered lower(const config::Recipe& recipe, const CompileOptions& options, const Front& front,
              base::RankId rank, Passes& pass) {
  const int place = place_of(front, rank);
  std::vector<layout::Group> groups = pass("group", [&] {
    return layout::make_groups(front.logical, front.local, front.layout, front.pipeline.stages, place,
                               front.step.storage_classes(), front.step.state_blocks());
  });
  layout::FlatStep flat;
  const bool infers = options.infer || options.serving;
  if (!infers) {
    flat = pass("flatten", [&] {
      return passes::flatten(front.step, front.local_step, groups, front.layout.mesh, place);
    });
    pass.dump("flatten", flat.graph);
  }
  std::vector<program::VariantOptions> variants;
  if (!infers)
    for (const StepKind& kind : step_kinds(recipe)) {
      const bool pipeline = front.pipeline.schedule.has_value();
      variants.push_back({.accumulation = static_cast<int>(kind.accumulation),
                          .measures = kind.measures,
                          .schedule = pipeline ? &front.pipeline.variants[variants.size()] : nullptr});
    }
  std::vector<const layout::LocalGraph*> entries;
  for (const layout::LocalGraph& entry : front.entries) entries.push_back(&entry);
  program::Program program = pass("lower", [&] {
    return program::lower({.train = infers ? nullptr : &front.local,
                           .evaluate = options.evaluate ? &front.evaluate : nullptr,
                           .infer = infers && entries.empty() ? &front.local : nullptr,
                           .entries = entries,
                           .groups = &groups,
                           .states = &front.step.states,
                           .step = infers ? nullptr : &flat,
                           .stages = &front.pipeline.stages,
                           .schedule = front.pipeline.schedule ? &*front.pipeline.schedule : nullptr,
                           .variants = std::move(variants)},
                          front.layout,
                          {.rank = rank,
                           .accumulation = static_cast<int>(recipe.batch.accumulation),
                           .compute = recipe.precision.compute,
                           .reduce = recipe.precision.reduce,
                           .grad = recipe.precision.gradients,
                           .fuse_adds = !options.disabled.contains(OptionalPass::FuseAdds),
                           .workspace_bytes = options.workspace_bytes});
  });
  return {std::move(groups), std::move(program)};
}

// One rank per pipeline rank: the first along all other axes.
std::vector<base::RankId> representatives(const Front& front) {
  return front.layout.mesh.group(base::RankId(0), front.layout.pipeline);
}

program::Program lower_representative(const config::Recipe& recipe, CompileOptions options,
                                      const Front& front, int place) {
  options.workspace_bytes = {};
  options.dump = {};
  std::vector<PassRecord> records;
  Passes pass(options, records);
  return lower(recipe, options, front, representatives(front)[static_cast<size_t>(place)], pass).program;
}

std::string text_of(const program::Program& representative) {
  return program::to_text(representative, {}, {.full = true});
}

Representative make_representative(const config::Recipe& recipe, const CompileOptions& options,
                                   const Front& front, int place) {
  Representative out{lower_representative(recipe, options, front, place), {}};
  out.hash = base::hash_of(text_of(out.program));
  return out;
}

// A lowered program with lifetimes and offsets; with a representative of its class (none: a trial) also with
// the waits between streams, and verified.
Back make_back(const config::Recipe& recipe, const CompileOptions& options, const Front& front,
               base::RankId rank, const Representative* representative, Passes& pass) {
  Lowered lowered = lower(recipe, options, front, rank, pass);
  program::Program& program = lowered.program;
  if (representative)
    pass("verify", [&] {
      program::verify_member(program, representative->program, front.layout.mesh, front.layout.pipeline);
      return 0;
    });
  const program::FreeOptions frees{.gradient_blocks = front.layout.gradient_blocks,
                                   .keep_sent = !options.disabled.contains(OptionalPass::Overlap)};
  pass("free", [&] { return program::insert_frees(program, frees), 0; });
  const bool share = !options.disabled.contains(OptionalPass::ShareMemory);
  pass("allocate", [&] { return program::allocate(program, share), 0; });
  require_budget(front.fit, program);
  Back back{.groups = std::move(lowered.groups),
            .program = std::move(program),
            .step = {},
            .evaluate = {},
            .variants = {},
            .class_hash = representative ? representative->hash : base::Hash{}};
  if (!representative) return back;
  back.step = pass("expand", [&] { return program::expand(back.program, back.program.calls); });
  back.evaluate = pass("expand", [&] { return program::expand(back.program, back.program.eval_calls); });
  for (const program::StepVariant& v : back.program.variants)
    back.variants.push_back(pass("expand", [&] { return program::expand(back.program, v.calls); }));
  pass("verify", [&] {
    program::verify(back.program, back.step);
    for (const program::Expanded& e : back.variants) program::verify(back.program, e);
    if (options.evaluate) program::verify(back.program, back.evaluate);
    return 0;
  });
  return back;
}

Compiled compile_one(const config::Recipe& recipe, const CompileOptions& options, bool verified) {
  std::vector<PassRecord> records;
  Passes pass(options, records);
  Front front = make_front(recipe, options, pass);
  std::optional<Representative> representative;
  if (verified)
    representative = pass("represent", [&] {
      return make_representative(recipe, options, front, place_of(front, options.rank));
    });
  Back back =
      make_back(recipe, options, front, options.rank, representative ? &*representative : nullptr, pass);
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
          .variants = std::move(back.variants),
          .class_hash = back.class_hash,
          .passes = std::move(records)};
}

// With no ranks given: the representatives.
Ranks compile_some(const config::Recipe& recipe, const CompileOptions& options,
                   std::vector<base::RankId> ranks, int threads, bool verified) {
  std::vector<PassRecord> records;
  Passes pass(options, records);
  Front front = make_front(recipe, options, pass);
  if (ranks.empty()) ranks = representatives(front);
  std::vector<int> places;
  if (verified)
    for (const base::RankId rank : ranks) places.push_back(place_of(front, rank));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::vector<Representative> classes(places.size());
  base::parallel_for(threads, places.size(),
                     [&](size_t i) { classes[i] = make_representative(recipe, options, front, places[i]); });
  std::vector<RankProgram> programs(ranks.size());
  base::parallel_for(threads, ranks.size(), [&](size_t i) {
    const auto place = std::find(places.begin(), places.end(), place_of(front, ranks[i]));
    const Representative* like = verified ? &classes[static_cast<size_t>(place - places.begin())] : nullptr;
    std::vector<PassRecord> own_records;
    Passes own(options, own_records);
    Back back = make_back(recipe, options, front, ranks[i], like, own);
    programs[i] = {.groups = std::move(back.groups),
                   .program = std::move(back.program),
                   .step = std::move(back.step),
                   .evaluate = std::move(back.evaluate),
                   .variants = std::move(back.variants),
                   .class_hash = back.class_hash};
  });
  return {.layout = std::move(front.layout),
          .pipeline = std::move(front.pipeline),
          .fit = std::move(front.fit),
          .model = std::move(front.model),
          .states = std::move(front.step.states),
          .program = std::move(programs)};
}

void verify_together(const Ranks& classes) {
  using Pick = std::function<const program::Expanded*(const RankProgram&)>;
  std::vector<Pick> picks = {[](const RankProgram& r) { return &r.step; },
                             [](const RankProgram& r) { return &r.evaluate; }};
  for (size_t v = 0; v < classes.program.front().variants.size(); ++v)
    picks.push_back([v](const RankProgram& r) { return &r.variants[v]; });
  for (const Pick& pick : picks) {
    std::vector<const program::Program*> programs;
    std::vector<const program::Expanded*> list;
    for (const RankProgram& r : classes.program) programs.push_back(&r.program), list.push_back(pick(r));
    program::verify_classes(programs, list, [&](base::RankId rank) {
      return classes.layout.mesh.index(rank, classes.layout.pipeline);
    });
  }
}

}  // namespace

graph::Graph training_graph(const config::Recipe& recipe) {
  return models::build(recipe.model, build_options(recipe, graph::Mode::Train));
}

int Serving::find(graph::Mode mode, int64_t rows) const {
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].mode == mode && entries[i].rows == rows) return static_cast<int>(i);
  return -1;
}

Compiled compile(const config::Recipe& recipe, const CompileOptions& options) {
  return compile_one(recipe, options, true);
}

Compiled compile_unverified(const config::Recipe& recipe, const CompileOptions& options) {
  return compile_one(recipe, options, false);
}

Ranks compile_ranks(const config::Recipe& recipe, const CompileOptions& options,
                    const std::vector<base::RankId>& ranks, int threads) {
  return compile_some(recipe, options, ranks, threads, true);
}

std::vector<RankProgram> compile_world(const config::Recipe& recipe, const CompileOptions& options,
                                       int threads) {
  std::vector<base::RankId> ranks;
  for (int64_t r = 0; r < recipe.parallel.world(); ++r) ranks.emplace_back(static_cast<int32_t>(r));
  return compile_ranks(recipe, options, ranks, threads).program;
}

Ranks compile_classes(const config::Recipe& recipe, const CompileOptions& options, int threads) {
  Ranks classes = compile_some(recipe, options, {}, threads, true);
  verify_together(classes);
  return classes;
}

Ranks compile_classes_unverified(const config::Recipe& recipe, const CompileOptions& options, int threads) {
  return compile_some(recipe, options, {}, threads, false);
}

void expand(Ranks& classes, int threads) {
  base::parallel_for(threads, classes.program.size(), [&](size_t i) {
    RankProgram& r = classes.program[i];
    r.step = program::expand(r.program, r.program.calls);
    r.evaluate = program::expand(r.program, r.program.eval_calls);
    r.variants.clear();
    for (const program::StepVariant& v : r.program.variants)
      r.variants.push_back(program::expand(r.program, v.calls));
  });
}

void verify(const Ranks& classes, int threads) {
  base::parallel_for(threads, classes.program.size(), [&](size_t i) {
    const RankProgram& r = classes.program[i];
    program::verify(r.program, r.step);
    for (const program::Expanded& e : r.variants) program::verify(r.program, e);
    if (!r.evaluate.calls.empty()) program::verify(r.program, r.evaluate);
  });
  verify_together(classes);
}

std::string class_text(const config::Recipe& recipe, const CompileOptions& options, int pipeline_place) {
  std::vector<PassRecord> records;
  Passes pass(options, records);
  const Front front = make_front(recipe, options, pass);
  return text_of(lower_representative(recipe, options, front, pipeline_place));
}

}  // namespace quintet::compiler
