#include "tools/layouts.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/philox.h"
#include "comm/local.h"
#include "data/text_source.h"
#include "program/verify.h"
#include "train/fit.h"

namespace quintet::tools {

using base::DType;
using train::Rank;
using train::StateKind;

namespace {

double element(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::F64:
      return reinterpret_cast<const double*>(data)[i];
    case DType::F32:
      return reinterpret_cast<const float*>(data)[i];
    case DType::BF16:
      return static_cast<float>(reinterpret_cast<const base::Bf16*>(data)[i]);
    default:
      base::fail_internal("no state of type {}", base::to_string(dtype));
  }
}

// A state of all parameters while the ranks fill it in. Ranks write disjoint elements, but share the table.
class Collector {
 public:
  Collector(const graph::Graph& logical, bool trainable_only) {
    for (const graph::Param& p : logical.params()) {
      if (trainable_only && !p.trainable) continue;
      const graph::Value& v = logical.value(p.value);
      index_[v.name] = tensors_.size();
      tensors_.push_back({v.name, std::vector<double>(static_cast<size_t>(v.type.count()))});
      written_.emplace_back(static_cast<size_t>(v.type.count()), 0);
    }
  }

  void take(const Rank& rank, StateKind kind) {
    rank.visit(kind, [&](const Rank::Piece& piece, const layout::GlobalIndex& global) {
      if (!rank.owns(piece)) return;
      const std::lock_guard lock(mutex_);
      const auto it = index_.find(piece.segment->name);
      if (it == index_.end()) return;
      any_ = true;
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t g = global(piece.first + i);
        if (g < 0) continue;
        tensors_[it->second].values[static_cast<size_t>(g)] = element(piece.data, piece.dtype, i);
        ++written_[it->second][static_cast<size_t>(g)];
      }
    });
  }

  // The tensors of a round in which every rank has taken part.
  std::vector<Tensor> finish(std::string_view what) {
    if (!any_) return {};
    for (size_t t = 0; t < tensors_.size(); ++t)
      for (size_t i = 0; i < written_[t].size(); ++i)
        QUINTET_CHECK(written_[t][i] == 1, "{} of {}: element {} is owned by {} ranks", what,
                      tensors_[t].name, i, written_[t][i]);
    return std::move(tensors_);
  }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::vector<char>> written_;
  std::map<std::string, size_t> index_;
  std::mutex mutex_;
  bool any_ = false;
};

std::vector<Tensor> states_of(const Rank& rank) {
  std::vector<Tensor> list;
  for (const Rank::State& state : rank.states()) {
    Tensor t{std::string(state.name), std::vector<double>(static_cast<size_t>(state.count))};
    for (int64_t i = 0; i < state.count; ++i)
      t.values[static_cast<size_t>(i)] = element(state.data, state.dtype, i);
    list.push_back(std::move(t));
  }
  return list;
}

std::vector<Tensor> sums_of(const Rank& rank) {
  std::vector<Tensor> list;
  for (const Rank::Sum& sum : rank.step_sums())
    list.push_back(
        {fmt::format("blocks.{}.{}", sum.block - 1, sum.name), {sum.values.begin(), sum.values.end()}});
  return list;
}

// NaN equals NaN: a step that overflowed did so on all ranks.
void require_same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b, int64_t step,
                       size_t rank) {
  QUINTET_CHECK(a.size() == b.size(), "step {}: rank {} has {} states and sums, rank 0 has {}", step, rank,
                b.size(), a.size());
  for (size_t t = 0; t < a.size(); ++t) {
    QUINTET_CHECK(a[t].name == b[t].name && a[t].values.size() == b[t].values.size(),
                  "step {}: {} of rank 0 against {} of rank {}", step, a[t].name, b[t].name, rank);
    for (size_t i = 0; i < a[t].values.size(); ++i) {
      const double x = a[t].values[i], y = b[t].values[i];
      QUINTET_CHECK(x == y || (std::isnan(x) && std::isnan(y)),
                    "step {}: element {} of {} is {} on rank 0 and {} on rank {}", step, i, a[t].name, x, y,
                    rank);
    }
  }
}

// Adds one AdamW step to the moves, from the moments it left behind.
void add_moves(std::vector<Tensor>& moves, const std::vector<Tensor>& m, const std::vector<Tensor>& v,
               const graph::Graph& logical, const config::Optimizer& o, double lr, int64_t update) {
  if (moves.empty())
    for (const Tensor& t : m) moves.push_back({t.name, std::vector<double>(t.values.size(), 0.0)});
  const double correct1 = 1 - std::pow(o.betas[0], static_cast<double>(update));
  const double correct2 = 1 - std::pow(o.betas[1], static_cast<double>(update));
  for (size_t t = 0; t < m.size(); ++t) {
    const bool decays = logical.find_param(logical.find(m[t].name))->decay;
    const double keep = 1 - (decays ? lr * o.weight_decay : 0.0);
    for (size_t i = 0; i < m[t].values.size(); ++i)
      moves[t].values[i] = moves[t].values[i] * keep -
                           lr * (m[t].values[i] / correct1) / (std::sqrt(v[t].values[i] / correct2) + o.eps);
  }
}

bool same_bits(const train::StepResult& a, const train::StepResult& b) {
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return equal(a.loss, b.loss) && equal(a.grad_norm, b.grad_norm) && equal(a.lr, b.lr) &&
         a.tokens == b.tokens && a.skipped == b.skipped;
}

int64_t longest_path(const graph::Graph& graph) {
  std::vector<int64_t> length(graph.values().size(), 0);
  int64_t longest = 0;
  for (const graph::Node& node : graph.nodes()) {
    int64_t here = 0;
    for (const graph::ValueId in : node.inputs) here = std::max(here, length[in.index()]);
    for (const graph::ValueId out : node.outputs) length[out.index()] = here + 1;
    longest = std::max(longest, here + 1);
  }
  return longest;
}

}  // namespace

LayoutRun run_layout(const config::Recipe& recipe, const data::Batches& batches,
                     const LayoutOptions& options) {
  LayoutRun run;
  const int world_size = static_cast<int>(recipe.parallel.world());
  const bool adam = recipe.optimizer.kind == config::OptimizerKind::AdamW;
  std::vector<Rank*> ranks(static_cast<size_t>(world_size));
  std::vector<train::StepResult> results(static_cast<size_t>(world_size));
  std::vector<std::vector<Tensor>> states(static_cast<size_t>(world_size)), sums(states);
  run.peaks.resize(static_cast<size_t>(world_size));
  std::unique_ptr<Collector> collector;
  int64_t updates = 0;

  const std::optional<compiler::Fit> fit = train::find_fit(recipe, options.model, options.threads);
  comm::run_local_world(world_size, [&](comm::World& world) {
    Rank rank(recipe, world,
              {.model = options.model, .threads = options.threads, .poison = options.poison, .fit = fit});
    const auto me = static_cast<size_t>(world.rank().value);
    const bool first = me == 0;
    ranks[me] = &rank;
    const graph::Graph& logical = rank.compiled().logical;

    // All ranks pour a state into one table; rank 0 makes it and takes it away.
    const auto collect = [&](StateKind kind, const char* what) {
      if (first) collector = std::make_unique<Collector>(logical, kind != StateKind::Weight);
      world.world().barrier();
      collector->take(rank, kind);
      world.world().barrier();
      return first ? collector->finish(what) : std::vector<Tensor>();
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
    auto initial = collect(StateKind::Weight, "initial weight");
    if (first) run.initial = std::move(initial);
    for (int64_t step = 0; step < options.steps; ++step) {
      results[me] = options.step ? options.step(rank, step) : rank.step(step, batches);
      states[me] = states_of(rank);
      sums[me] = sums_of(rank);
      auto gradients = collect(StateKind::Gradient, "gradient");
      auto weights = collect(StateKind::Weight, "weight");
      std::vector<Tensor> m, v;
      if (adam || step + 1 == options.steps) {
        m = collect(StateKind::Moment1, "first moment");
        v = collect(StateKind::Moment2, "second moment");
      }
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
      if (adam && !result.skipped) add_moves(run.moves, m, v, logical, recipe.optimizer, result.lr, updates);
      run.steps.push_back({result, std::move(gradients), std::move(weights), states[0], sums[0]});
      run.moment1 = std::move(m);
      run.moment2 = std::move(v);
    }
    if (first) run.longest_path = longest_path(logical);
    run.peaks[me] = {rank.planned_peak_bytes(), rank.measured_peak_bytes()};
    rank.check_replicas();
    world.world().barrier();  // rank 0 reads its peers' programs
  });
  return run;
}

config::Recipe on_one_rank(config::Recipe r) {
  const int64_t sequences_together = r.batch.micro * r.parallel.dp();
  r.parallel = {};
  r.memory = {};
  const config::Moe& moe = r.model.moe;
  int64_t micro = r.batch.global;
  while (micro > moe.capacity_group && (micro * r.data.seq_len > kOneRankTokens ||
                                        r.batch.global % micro != 0 || micro % moe.capacity_group != 0))
    --micro;
  // A balance loss over micro-batches is another one with other micro-batches.
  if (moe.balance_loss > 0 && moe.balance_scope != config::BalanceScope::Sequence) micro = sequences_together;
  r.batch.micro = micro;
  r.batch.accumulation = r.batch.global / micro;
  return r;
}

data::Dataset training_data(const config::Recipe& recipe, bool synthetic) {
  const auto split = [&](const data::Corpus& corpus) {
    return data::make_splits(corpus, {recipe.data.seq_len, recipe.data.pack, recipe.data.validation_fraction})
        .train;
  };
  if (!synthetic && !recipe.data.path.empty()) {
    const data::ByteTokenizer tokenizer;
    std::vector<base::Path> paths(recipe.data.path.begin(), recipe.data.path.end());
    data::Corpus corpus =
        paths.size() == 1 ? data::load_corpus(paths[0], tokenizer) : data::read_text(paths, tokenizer);
    corpus.require_vocab(recipe.model.vocab);
    return split(corpus);
  }
  // Enough for a few steps without a repeated sample, in documents of 1 to 2 sequences' length and a few
  // short ones.
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

data::Batches training_batches(const config::Recipe& r, const data::Dataset& dataset, data::LabelMask mask) {
  return data::Batches(
      dataset, data::Sampler(static_cast<uint64_t>(r.run.seed), dataset.size(), data::Order::Shuffled),
      {r.batch.global, r.batch.micro, r.batch.accumulation, r.parallel.dp()}, {}, std::move(mask));
}

}  // namespace quintet::tools
