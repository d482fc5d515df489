#include "tools/run_layout.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "comm/local.h"
#include "data/open_corpus.h"
#include "kernels/dynamic_map.h"
#include "program/matrix_pieces.h"
#include "program/verify.h"
#include "tools/assemble_tensors.h"
#include "tools/matrix_moves.h"
#include "train/memory_check.h"
#include "train/run_data.h"

namespace quintet::tools {

using base::DType;
using train::Rank;

namespace {

constexpr double kUnsure = 1e-12;

// NaN equals NaN: a step that overflowed did so on all ranks.
void require_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b, int64_t step,
                       size_t rank) {
  QUINTET_CHECK(a.size() == b.size(), "step {}: rank {} has {} states and sums, rank 0 has {}", step, rank,
                b.size(), a.size());
  for (size_t t = 0; t < a.size(); ++t) {
    QUINTET_CHECK(a[t].name == b[t].name && a[t].values.size() == b[t].values.size(),
                  "step {}: {} on rank 0 does not match {} on rank {}", step, a[t].name, b[t].name, rank);
    for (size_t i = 0; i < a[t].values.size(); ++i) {
      const double x = a[t].values[i], y = b[t].values[i];
      QUINTET_CHECK(x == y || (std::isnan(x) && std::isnan(y)),
                    "step {}: element {} of {} is {} on rank 0 and {} on rank {}", step, i, a[t].name, x, y,
                    rank);
    }
  }
}

bool same_bits(const train::StepResult& a, const train::StepResult& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return equal(a.loss, b.loss) && equal(a.grad_norm, b.grad_norm) && equal(a.lr, b.lr) &&
         a.decay_ratio == b.decay_ratio && a.tokens == b.tokens && a.skipped == b.skipped;
}

void unscale(std::vector<Tensor>& gradients, double loss_scale) {
  for (Tensor& t : gradients)
    for (double& g : t.values) g /= loss_scale;
}

// Whether the moments of every step are wanted, not only those of the last.
bool needs_moments(const config::Optimizer& o) {
  using config::OptimizerKind;
  return o.uses(OptimizerKind::AdamW) || o.uses(OptimizerKind::Adam) || o.uses(OptimizerKind::Lion) ||
         o.uses(OptimizerKind::Lamb) || o.uses(OptimizerKind::Lars) || o.uses(OptimizerKind::Muon) ||
         o.uses(OptimizerKind::AdamW8bit);
}

// Newton-Schulz in narrow types rounds far more than its operands differ.
bool in_f64(const config::Recipe& r) { return r.precision.compute == DType::F64; }

std::map<std::string, optim::ParamSettings> settings_of(const graph::Graph& logical,
                                                        const config::Optimizer& o) {
  std::map<std::string, optim::ParamSettings> settings;
  for (const graph::Param& p : logical.params())
    if (p.trainable) settings[logical.value(p.value).name] = optim::settings_of(o, p);
  return settings;
}

std::map<std::string, int> routed_in(const graph::Graph& logical) {
  std::map<std::string, int> routed;
  for (const graph::Param& p : logical.params()) {
    const graph::Type& type = logical.type(p.value);
    if (std::ranges::any_of(type.dims, [](const graph::DimSize& d) {
          return d.name == base::Dim::Experts || d.name == base::Dim::Routes;
        }))
      routed[logical.value(p.value).name] = p.block;
  }
  return routed;
}

// Lion takes the sign of an interpolated momentum: where that is nothing but rounding, layouts may differ. A
// whole tensor may have no gradient but rounding (a bias of K, the router of one expert per token), so that
// its own largest element says nothing: the root mean square of all gradients counts, too. `run.moments` are
// those before the update.
void add_unsure(LayoutRun& run, const std::vector<Tensor>& gradients, const config::Optimizer& o,
                double norm) {
  const double clip = o.clip_norm > 0 && norm > o.clip_norm ? o.clip_norm / norm : 1;
  double elements = 0, squares = 0;
  for (const Tensor& g : gradients) {
    elements += static_cast<double>(g.values.size());
    for (const double x : g.values) squares += x * x;
  }
  const double mean = (1 - o.betas[0]) * clip * std::sqrt(squares / elements);
  const Moments* momenta = nullptr;
  for (const Moments& m : run.moments)
    if (m.op == &graph::kLion) momenta = &m;
  const bool first = run.unsure.empty();
  for (const Tensor& g : gradients) {
    if (run.settings.at(g.name).kind != config::OptimizerKind::Lion) continue;
    if (first) run.unsure.push_back({g.name, std::vector<double>(g.values.size(), 0.0)});
    const Tensor* const before = momenta ? find(momenta->tensors, g.name) : nullptr;
    std::vector<double> u(g.values.size());
    double largest = mean;
    for (size_t i = 0; i < u.size(); ++i) {
      u[i] = std::abs(o.betas[0] * (before ? before->values[i] : 0) + (1 - o.betas[0]) * clip * g.values[i]);
      largest = std::max(largest, u[i]);
    }
    auto unsure =
        std::find_if(run.unsure.begin(), run.unsure.end(), [&](const Tensor& t) { return t.name == g.name; });
    for (size_t i = 0; i < u.size(); ++i)
      if (u[i] <= kUnsure * largest) unsure->values[i] = 1;
  }
}

// Codes become the numbers that they stand for; their scales are not compared separately.
void decode(std::vector<Moments>& list) {
  std::vector<const Moments*> scales;  // declared in the order of their codes
  for (const Moments& m : list)
    if (m.scales) scales.push_back(&m);
  auto next = scales.begin();
  for (Moments& codes : list) {
    if (!codes.codes) continue;
    QUINTET_CHECK(next != scales.end(), "{} has no scales", codes.name);
    const Moments& own = **next++;
    for (size_t t = 0; t < codes.tensors.size(); ++t)
      for (size_t i = 0; i < codes.tensors[t].values.size(); ++i) {
        double& x = codes.tensors[t].values[i];
        const auto code = static_cast<size_t>(x);
        x = double{codes.of_squares ? kernels::kUnsignedMap.value[code] : kernels::kSignedMap.value[code]} *
            own.tensors[t].values[i];
      }
  }
  std::erase_if(list, [](const Moments& m) { return m.scales; });
}

// The moments that moved the weights, where those that are stored are rounded: as the kernels compute them
// from the stored ones of the step before and the gradients.
std::vector<Moments> before_rounding(const LayoutRun& run, std::vector<Moments> stored,
                                     const std::vector<Moments>& previous,
                                     const std::vector<Tensor>& gradients, const config::Recipe& recipe,
                                     const train::StepResult& result) {
  const double norm = result.grad_norm, decay_ratio = result.decay_ratio;
  const config::Optimizer& o = recipe.optimizer;
  const bool stochastic = recipe.precision.moments_rounding == config::MomentsRounding::Stochastic;
  const double clip = o.clip_norm > 0 && norm > o.clip_norm ? o.clip_norm / norm : 1;
  for (size_t k = 0; k < stored.size(); ++k) {
    const bool coupled = stored[k].op == &graph::kAdam;
    const bool rounds = coupled || stored[k].op == &graph::kAdamW || stored[k].op == &graph::kLamb;
    if (stored[k].op != &graph::kAdamW8bit && !(stochastic && rounds)) continue;
    const double beta = o.betas[stored[k].of_squares ? 1 : 0];
    for (size_t t = 0; t < stored[k].tensors.size(); ++t) {
      Tensor& tensor = stored[k].tensors[t];
      const Tensor& gradient = *find(gradients, tensor.name);
      // Adam adds weight decay to the gradient.
      const Tensor& weight = *find(run.steps.empty() ? run.initial : run.steps.back().weights, tensor.name);
      const double decay = coupled ? decay_ratio * run.settings.at(tensor.name).weight_decay : 0;
      for (size_t i = 0; i < tensor.values.size(); ++i) {
        const double g = clip * gradient.values[i] + decay * weight.values[i];
        const double before = previous.empty() ? 0 : previous[k].tensors[t].values[i];
        tensor.values[i] = beta * before + (1 - beta) * (stored[k].of_squares ? g * g : g);
      }
    }
  }
  return stored;
}

// The node that updates the states of a slot; null: none does.
const graph::Node* update_of(const graph::StepGraph& step, const std::string& slot) {
  for (const graph::Node& node : step.graph.nodes())
    for (size_t i = 1; i <= node.outputs.size() && i < node.inputs.size(); ++i)
      if (const graph::StateDecl* state = step.find(node.inputs[i]); state != nullptr && state->slot == slot)
        if (node.op->gated) return &node;
  return nullptr;
}

double gain_of(const graph::Node* update) {
  return update != nullptr && update->op->step.gain != nullptr ? update->op->step.gain(update->attrs) : 1;
}

std::map<std::string, double> gains_of(const graph::StepGraph& step) {
  std::map<std::string, double> gains;
  for (const graph::Node& node : step.graph.nodes())
    if (node.op->step.kind == graph::StepKind::Update)
      if (const graph::StateDecl* gradient = step.find(node.inputs[0]))
        gains[gradient->param] = gain_of(&node);
  return gains;
}

// Every state that an optimizer declares, whichever ranks hold it. `collect` takes the slot, its name and the
// parameters that have it.
template <class Collect>
std::vector<Moments> collect_moments(const Rank& rank, const Collect& collect) {
  const compiler::Compiled& compiled = rank.compiled();
  std::vector<Moments> list;
  std::map<std::string, std::set<std::string>> params;  // by slot
  for (const graph::StateDecl& state : compiled.step_graph.states) {
    if (!graph::is_optimizer_state(state.role) || state.param.empty()) continue;
    std::set<std::string>& own = params[state.slot];
    if (own.empty()) {
      const graph::Node* const update = update_of(compiled.step_graph, state.slot);
      list.push_back({.name = state.slot,
                      .op = update != nullptr ? update->op : nullptr,
                      .gain = gain_of(update),
                      .of_squares = state.of_squares,
                      .of_weights = state.role == graph::Role::Ema,
                      .codes = state.type.dtype == DType::U8,
                      .scales = state.block > 1,
                      .tensors = {}});
    }
    own.insert(state.param);
  }
  for (Moments& m : list)
    m.tensors = collect(
        [&](const program::GroupSlot& s) { return s.slot == m.name; }, m.name,
        [&](const graph::Param& p) { return params[m.name].contains(compiled.logical.value(p.value).name); });
  decode(list);
  return list;
}

Peak peak_of(const Rank& rank, base::RankId id) {
  const compiler::Compiled& compiled = rank.compiled();
  return {.planned = rank.planned_peak_bytes(),
          .measured = rank.measured_peak_bytes(),
          .place = compiled.layout.mesh.index(id, compiled.layout.pipeline),
          .uneven = program::deals_unevenly(compiled.program)};
}

const TensorAssembler::Has kAll = [](const graph::Param&) { return true; },
                           kTrained = [](const graph::Param&p) { return p.trainable; };

}  // namespace

LayoutRun run_layout(const config::Recipe& recipe, const data::Batches& batches,
                     const LayoutOptions& options) {
  LayoutRun run{.device = train::device_of(recipe)};
  comm::require_local_ranks(recipe.parallel.world());
  const int world_size = static_cast<int>(recipe.parallel.world());
  const bool every_step = needs_moments(recipe.optimizer);
  std::vector<Rank*> ranks(static_cast<size_t>(world_size));
  std::vector<train::StepResult> results(static_cast<size_t>(world_size));
  std::vector<std::vector<Tensor>> states(static_cast<size_t>(world_size)), sums(states);
  run.peaks.resize(static_cast<size_t>(world_size));
  std::unique_ptr<TensorAssembler> assembler;
  int64_t updates = 0;

  const std::optional<compiler::Fit> fit =
      options.fit ? options.fit
                  : train::find_fit(recipe, options.model, options.threads, options.disabled_passes);
  comm::run_local_world(world_size, [&](comm::World& world) {
    Rank rank(recipe, world,
              {.model = options.model,
               .threads = options.threads,
               .poison = options.poison,
               .local_rank = world.rank().value,
               .capture = options.capture,
               .tune = options.tune,
               .log = options.log,
               .fit = fit,
               .disabled_passes = options.disabled_passes});
    const auto me = static_cast<size_t>(world.rank().value);
    const bool first = me == 0;
    ranks[me] = &rank;
    const graph::Graph& logical = rank.compiled().logical;

    // All ranks write a state into one table, which rank 0 creates and removes.
    const auto collect = [&](const Rank::Wanted& wanted, std::string_view what,
                             const TensorAssembler::Has& has = kTrained) {
      if (first) assembler = std::make_unique<TensorAssembler>(logical, has);
      world.world().barrier();
      assembler->take(rank, wanted);
      world.world().barrier();
      return first ? assembler->finish(what) : std::vector<Tensor>();
    };

    world.world().barrier();
    if (first && options.verify_together) {
      std::vector<const program::Program*> programs;
      std::vector<const program::Expanded*> expanded;
      for (const Rank* r : ranks) {
        programs.push_back(&r->compiled().program);
        expanded.push_back(&r->compiled().step);
      }
      program::verify_together(programs, expanded);
    }
    if (options.prepare) options.prepare(rank);
    auto initial = collect(program::holds_weights, "initial weight", kAll);
    if (first) {
      run.initial = std::move(initial);
      run.settings = settings_of(logical, recipe.optimizer);
      run.routed = routed_in(logical);
      run.gains = gains_of(rank.compiled().step_graph);
      run.matrices = matrices_of(rank.compiled().step_graph);
      run.factored = factored_of(rank.compiled().step_graph);
    }
    for (int64_t step = 0; step < options.steps; ++step) {
      results[me] = options.step ? options.step(rank, step) : rank.step(step, batches);
      states[me] = states_of(rank);
      sums[me] = sums_of(rank);
      auto gradients = collect(program::holds_gradients, "gradient");
      auto weights = collect(program::holds_weights, "weight", kAll);
      std::vector<Moments> moments;
      if (every_step || step + 1 == options.steps) moments = collect_moments(rank, collect);
      if (!first) continue;
      const train::StepResult& result = results[0];
      for (size_t r = 1; r < results.size(); ++r) {
        QUINTET_CHECK(same_bits(result, results[r]),
                      "step {}: ranks 0 and {} report different results: loss {} and {}, norm {} and {}",
                      step, r, result.loss, results[r].loss, result.grad_norm, results[r].grad_norm);
        require_same_bits(states[0], states[r], step, r);
        require_same_bits(sums[0], sums[r], step, r);
      }
      updates += !result.skipped;
      unscale(gradients, result.loss_scale);
      if (!result.skipped) {
        if (in_f64(recipe)) add_matrix_moves(run, moments, gradients, recipe.optimizer, result);
        add_factored_moves(run, gradients, recipe.optimizer, result, updates);
        add_moves(run, before_rounding(run, moments, run.moments, gradients, recipe, result), gradients,
                  recipe.optimizer, result, updates);
        add_unsure(run, gradients, recipe.optimizer, result.grad_norm);
      }
      run.steps.push_back({result, std::move(gradients), std::move(weights), states[0], sums[0]});
      run.moments = std::move(moments);
    }
    if (first) run.longest_path = longest_path(logical);
    run.peaks[me] = peak_of(rank, base::RankId(static_cast<int32_t>(me)));
    rank.check_replicas();
    world.world().barrier();  // rank 0 reads its peers' programs
  });
  return run;
}

LayoutRun run_layout_on(comm::World& world, const config::Recipe& recipe, const data::Batches& batches,
                        const LayoutOptions& options, int64_t local_rank) {
  LayoutRun run{.device = train::device_of(recipe)};
  comm::Communicator& all = world.world();
  const bool first = world.rank().value == 0;
  Rank rank(recipe, world,
            {.model = options.model,
             .threads = options.threads,
             .poison = options.poison,
             .local_rank = local_rank,
             .capture = options.capture,
             .tune = options.tune,
             .log = options.log,
             .fit = train::find_fit(recipe, options.model, options.threads, options.disabled_passes),
             .disabled_passes = options.disabled_passes});
  const graph::Graph& logical = rank.compiled().logical;
  if (options.prepare) options.prepare(rank);
  const auto collect = [&](const Rank::Wanted& wanted, std::string_view what,
                           const TensorAssembler::Has& has = kTrained) {
    TensorAssembler assembler(logical, has);
    assembler.take(rank, wanted);
    assembler.sum(all);
    return first ? assembler.finish(what) : std::vector<Tensor>();
  };
  run.initial = collect(program::holds_weights, "initial weight", kAll);
  run.settings = settings_of(logical, recipe.optimizer);
  run.routed = routed_in(logical);
  run.gains = gains_of(rank.compiled().step_graph);
  run.matrices = matrices_of(rank.compiled().step_graph);
  run.factored = factored_of(rank.compiled().step_graph);
  int64_t updates = 0;
  for (int64_t step = 0; step < options.steps; ++step) {
    const train::StepResult result = options.step ? options.step(rank, step) : rank.step(step, batches);
    const double mine[2] = {result.loss, result.grad_norm};
    std::vector<double> theirs(2 * static_cast<size_t>(world.size()));
    all.all_gather(mine, theirs.data(), 2, DType::F64);
    for (size_t r = 0; r < theirs.size(); ++r)
      QUINTET_CHECK(std::memcmp(&theirs[r], &theirs[r % 2], sizeof(double)) == 0,
                    "step {}: ranks 0 and {} report different results: {} and {}", step, r / 2, theirs[r % 2],
                    theirs[r]);
    StepState state{result, collect(program::holds_gradients, "gradient"),
                    collect(program::holds_weights, "weight", kAll), states_of(rank), sums_of(rank)};
    unscale(state.gradients, result.loss_scale);
    if (first && !result.skipped) add_unsure(run, state.gradients, recipe.optimizer, result.grad_norm);
    const std::vector<Moments> previous = std::move(run.moments);
    run.moments = collect_moments(rank, collect);
    updates += !result.skipped;
    if (first && !result.skipped) {
      if (in_f64(recipe)) add_matrix_moves(run, run.moments, state.gradients, recipe.optimizer, result);
      add_factored_moves(run, state.gradients, recipe.optimizer, result, updates);
      add_moves(run, before_rounding(run, run.moments, previous, state.gradients, recipe, result),
                state.gradients, recipe.optimizer, result, updates);
    }
    run.steps.push_back(std::move(state));
  }
  run.longest_path = longest_path(logical);
  const Peak own = peak_of(rank, world.rank());
  const int64_t peak[4] = {own.planned, own.measured, own.place, int64_t{own.uneven}};
  std::vector<int64_t> peaks(4 * static_cast<size_t>(world.size()));
  all.all_gather(peak, peaks.data(), 4, DType::I64);
  for (size_t r = 0; r < peaks.size(); r += 4)
    run.peaks.push_back({.planned = peaks[r],
                         .measured = peaks[r + 1],
                         .place = static_cast<int>(peaks[r + 2]),
                         .uneven = peaks[r + 3] != 0});
  rank.check_replicas();
  return run;
}

config::Recipe on_one_rank(config::Recipe r) {
  const int64_t sequences_together = r.batch.micro * r.parallel.dp();
  r.parallel = {};
  r.memory = {};
  const config::Moe& moe = r.model.moe;
  int64_t micro = r.batch.global;
  const auto divides = [&](int64_t sequences) {
    return r.batch.global % sequences == 0 &&
           std::all_of(r.batch.ramp.begin(), r.batch.ramp.end(),
                       [&](const config::BatchStage& s) { return s.global % sequences == 0; });
  };
  while (micro > moe.capacity_group &&
         (micro * r.data.seq_len > kOneRankTokens || !divides(micro) || micro % moe.capacity_group != 0))
    --micro;
  // The scope of a balance loss over micro-batches changes with the micro-batches.
  if (moe.balance_over(config::BalanceScope::MicroBatch) > 0 ||
      moe.balance_over(config::BalanceScope::Global) > 0)
    micro = sequences_together;
  r.batch.micro = micro;
  r.batch.accumulation = r.batch.global / micro;
  return r;
}

data::Dataset training_data(const config::Recipe& recipe, bool synthetic) {
  const auto split = [&](const data::Corpus& corpus) {
    data::Dataset dataset = data::make_splits(corpus, train::dataset_options(recipe)).train;
    if (recipe.model.family == config::Family::Bert)
      dataset.set_masked_tokens(
          train::masked_tokens(recipe, *tokenizer::load_tokenizer(recipe.data.tokenizer), "data.mlm"));
    return dataset;
  };
  if (!synthetic && !recipe.data.path.empty()) {
    const auto tokenizer = tokenizer::load_tokenizer(recipe.data.tokenizer);
    const std::vector<base::Path> paths(recipe.data.path.begin(), recipe.data.path.end());
    data::Corpus corpus =
        data::open_corpus(paths, *tokenizer, 0, data::text_options(recipe.data, *tokenizer)).corpus;
    corpus.require_vocab(recipe.model.vocab);
    return split(corpus);
  }
  // Enough for a few steps without repeating a sample, in documents of 1 to 2 sequences and a few short ones.
  const uint64_t key = base::stream_key(static_cast<uint64_t>(recipe.run.seed), "synthetic documents");
  const int64_t wanted = (4 * recipe.batch.global + 2) * recipe.data.seq_len + 1;
  data::CorpusBuilder builder("synthetic tokens", recipe.model.vocab);
  std::vector<int32_t> document;
  for (uint64_t counter = 0; builder.tokens() < wanted;) {
    const uint64_t span = static_cast<uint64_t>(recipe.data.seq_len) * 2;
    const uint64_t draw = base::philox(key, counter++)[0];
    const uint64_t length = 1 + draw % span / (1 + draw / span % 3);
    document.clear();
    for (uint64_t i = 0; i < length; ++i)
      document.push_back(
          static_cast<int32_t>(base::philox(key, counter++)[1] % static_cast<uint64_t>(recipe.model.vocab)));
    builder.add_document(document);
  }
  return split(builder.finish());
}

namespace {

// Choices of experts for data.routes: k neighbours from a random one on; every seventh row has none.
void random_routes(const config::Moe& moe, int64_t place, std::span<int32_t> out) {
  for (size_t at = 0; at < out.size(); ++at) {
    const auto block = static_cast<uint64_t>(at) / static_cast<uint64_t>(moe.top_k);
    const uint64_t draw =
        base::philox(base::stream_key(0, "routes") ^ static_cast<uint64_t>(place), block)[0];
    const auto expert = (draw + at % static_cast<size_t>(moe.top_k)) % static_cast<uint64_t>(moe.experts);
    out[at] = block % 7 == 0 ? 0 : static_cast<int32_t>(expert) + 1;
  }
}

}  // namespace

data::Batches training_batches(const config::Recipe& r, const data::Dataset& dataset, data::LabelMask mask) {
  data::Batches batches(
      dataset, data::Sampler(static_cast<uint64_t>(r.run.seed), dataset.size(), data::Order::Shuffled),
      {r.batch.global, r.batch.micro, r.batch.accumulation, r.parallel.dp()}, {}, std::move(mask));
  batches.set_stages(train::batch_starts(r));
  if (!r.data.routes.empty())
    batches.set_routes([moe = r.model.moe](int64_t place, std::span<const int32_t>, std::span<int32_t> out) {
      random_routes(moe, place, out);
    });
  return batches;
}

}  // namespace quintet::tools
