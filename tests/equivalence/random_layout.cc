#include "equivalence/random_layout.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "config/print.h"
#include "config/validate.h"
#include "tools/verify.h"

namespace quintet::tests {

using config::Family;
using config::OptimizerKind;
using config::Recipe;
using config::ReshardAfterForward;
using config::RopeScalingKind;

data::LabelMask make_mask(MaskKind kind, int64_t global) {
  switch (kind) {
    case MaskKind::All:
      return {};
    case MaskKind::Scattered:
      return [](const data::LabelSite& s) {
        return s.sequence % 3 != 1 && (s.sequence * 7 + s.position * 5 + s.step) % 3 != 0;
      };
    case MaskKind::FirstOnly:
      return
          [global](const data::LabelSite& s) { return s.sequence < (global + 3) / 4 && s.position % 2 == 0; };
    case MaskKind::OneToken:
      return [global](const data::LabelSite& s) {
        return s.sequence == (s.step + global / 2) % global && s.position == 1;
      };
  }
  return {};
}

Recipe resolved(Recipe r, int64_t micro, int64_t accumulation) {
  r.batch = {micro * accumulation * r.parallel.dp(), micro, accumulation};
  return config::resolve(r);
}

Recipe small_recipe() {
  Recipe r;
  r.name = "small";
  r.model = {.family = Family::Llama,
             .layers = 2,
             .embed = 16,
             .ffn = 24,
             .heads = 4,
             .kv_heads = 2,
             .head_dim = 4,
             .vocab = 259};
  r.data.seq_len = 8;
  r.precision = config::Precision::of(base::DType::F64);
  r.optimizer.lr = 1e-2;
  r.run.steps = 8;
  r.run.seed = 5;
  return r;
}

namespace {

class Generator {
 public:
  explicit Generator(std::mt19937_64& random) : random_(random) {}

  Case draw() {
    Case c;
    Recipe& r = c.recipe;
    r.name = "fuzz";
    r.precision = config::Precision::of(base::DType::F64);
    r.run.steps = 8;
    r.run.seed = pick(0, 1 << 20);
    parallel(r.parallel);
    pipeline(r.parallel);
    model(r.model, r.parallel.tp);
    if (r.parallel.pp > 1) stages(r);
    r.data.seq_len = pick(5, 16);
    r.data.pack = chance(3, 4);
    if (r.model.family == Family::Gpt2) r.model.max_positions = r.data.seq_len + pick(0, 3);
    r.batch.micro = pick(1, 3);
    r.batch.accumulation = of({1, 1, 2, 3});
    if (r.parallel.pp > 1) r.batch.accumulation = pick(1, 6);
    if (r.parallel.schedule == "interleaved") r.batch.accumulation = r.parallel.pp * pick(1, 2);
    r.batch.global = r.batch.micro * r.batch.accumulation * r.parallel.dp();
    r.loss.chunk = of({0, 0, 1, 3, 7, 16});
    memory(r);
    optimizer(r);
    c.mask = static_cast<MaskKind>(of({0, 1, 1, 2, 3}));
    c.poison = chance(1, 3);
    c.steps = pick(2, 3);
    return c;
  }

 private:
  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  int64_t of(std::initializer_list<int64_t> list) {
    return list.begin()[pick(0, static_cast<int64_t>(list.size()) - 1)];
  }
  bool chance(int64_t a, int64_t of) { return pick(1, of) <= a; }

  void parallel(config::Parallel& p) {
    do {
      p.pp = of({1, 1, 2, 2, 3, 4});
      p.dp_replicate = p.pp > 1 ? of({1, 1, 1, 2}) : of({1, 1, 1, 2, 2, 3});
      p.dp_shard = p.pp > 1 ? of({1, 1, 2, 2, 3, 4}) : of({1, 2, 2, 3, 4, 4, 8});
      p.tp = p.pp > 1 ? of({1, 1, 2, 2, 3, 4}) : of({1, 2, 2, 3, 4, 4, 8});
    } while (p.world() > (p.pp > 1 ? 32 : 16) || p.world() == 1);
    if (p.tp > 1) p.sequence_parallel = chance(1, 2);
    if (p.dp_shard == 1) return;
    p.zero = of({0, 1, 2, 3, 3, 3});
    if (p.zero > 0) p.prefetch = of({0, 1, 1, 2, 3});
    if (p.zero != 3) return;
    using Kind = ReshardAfterForward::Kind;
    p.reshard_after_forward.kind = static_cast<Kind>(of({0, 1, 1, 2}));
    if (p.reshard_after_forward.kind == Kind::ToRanks) p.reshard_after_forward.ranks = of({2, 4});
  }

  void pipeline(config::Parallel& p) {
    if (p.pp == 1) return;
    const auto names = config::pipeline_schedules();
    p.schedule = names[static_cast<size_t>(pick(0, static_cast<int64_t>(names.size()) - 1))];
    p.chunks = config::needs_two_chunks(p.schedule) ? 2 : 1;
    if (p.schedule == "interleaved" && p.pp < 4) p.chunks = pick(2, 3);
  }

  // As many blocks as there are places for them or a few more, sometimes cut by hand: then some places may
  // have none.
  void stages(Recipe& r) {
    config::Parallel& p = r.parallel;
    const int64_t places = p.pp * p.chunks;
    r.model.layers = places + pick(0, 2);
    if (!chance(1, 3)) return;
    p.stages.assign(static_cast<size_t>(places), 0);
    for (int64_t i = 0; i < r.model.layers; ++i) ++p.stages[static_cast<size_t>(pick(0, places - 1))];
  }

  void model(config::Model& m, int64_t tp) {
    m.family = chance(2, 3) ? Family::Llama : Family::Gpt2;
    m.layers = pick(1, 3);
    m.heads = tp * of({1, 1, 2});
    if (m.heads == 1) m.heads = of({1, 2, 4});
    m.ffn = tp * pick(2, 9);
    m.vocab = 256 + pick(0, 17);
    m.tied = chance(1, 2);
    if (m.family == Family::Gpt2) {
      m.kv_heads = m.heads;
      m.head_dim = m.heads >= 8 ? of({2, 3, 4}) : pick(3, 7);
      m.embed = m.heads * m.head_dim;
      m.dropout = of({0, 1}) ? 0.2 : 0;
      return;
    }
    m.head_dim = 2 * pick(1, 4);
    m.embed = pick(12, 32);
    do m.kv_heads = pick(1, m.heads);
    while (m.heads % m.kv_heads != 0 || (tp % m.kv_heads != 0 && m.kv_heads % tp != 0));
    m.qkv_bias = chance(1, 3);
    m.qk_norm = chance(1, 3);
    m.sliding_window = of({0, 0, 3, 4});
    if (chance(1, 4))
      m.rope_scaling = {.kind = RopeScalingKind::Llama3, .factor = 4, .original_positions = 16};
    else if (chance(1, 4))
      m.rope_scaling = {.kind = RopeScalingKind::Yarn, .factor = 4, .original_positions = 16};
  }

  void memory(Recipe& r) {
    if (!chance(1, 2)) return;
    r.memory.recompute = static_cast<config::RecomputeKind>(of({1, 2}));
    if (r.memory.recompute == config::RecomputeKind::Full) r.memory.recompute_every = pick(1, r.model.layers);
  }

  void optimizer(Recipe& r) {
    config::Optimizer& o = r.optimizer;
    o.lr = 1e-2;
    if (chance(1, 4)) {
      o.kind = OptimizerKind::Sgd;
      o.momentum = of({0, 1}) ? 0.9 : 0.0;
    }
    o.weight_decay = of({0, 1}) ? 0.1 : 0.0;
    o.clip_norm = std::array{0.0, 0.05, 1.0}[static_cast<size_t>(pick(0, 2))];
    if (!chance(1, 3)) return;
    std::vector<std::string> patterns = {
        "embed.weight", "blocks.0.*", "*norm*", "final_norm.*", "blocks.*.attn.w?.weight", "*.down.weight"};
    if (!r.model.tied) patterns.push_back("head.weight");
    if (r.model.family == Family::Gpt2)
      patterns.insert(patterns.end(), {"positions.weight", "*.bias", "blocks.*.ffn_norm.weight"});
    if (r.model.layers > 1) patterns.push_back("blocks.1.attn.*");
    o.freeze.push_back(patterns[static_cast<size_t>(pick(0, static_cast<int64_t>(patterns.size()) - 1))]);
  }

  std::mt19937_64& random_;
};

std::optional<Case> legal(Case c) {
  try {
    c.recipe.batch.global = c.recipe.batch.micro * c.recipe.batch.accumulation * c.recipe.parallel.dp();
    c.recipe = config::resolve(c.recipe);
    return c;
  } catch (const config::RecipeError&) {
    return std::nullopt;
  }
}

}  // namespace

Case random_case(std::mt19937_64& random) {
  for (;;)
    if (auto c = legal(Generator(random).draw())) return *c;
}

std::optional<std::string> failure_of(const Case& c) {
  try {
    const tools::VerifyResult r = tools::verify(c.recipe, {.steps = c.steps,
                                                           .synthetic = true,
                                                           .poison = c.poison,
                                                           .mask = make_mask(c.mask, c.recipe.batch.global)});
    if (r.pass()) return std::nullopt;
    return tools::to_table(r);
  } catch (const std::exception& error) {
    return error.what();
  }
}

Case shrink(Case failing) {
  using Change = std::function<void(Case&)>;
  // Each change only takes away, so that no two of them undo one another and the search ends.
  const std::vector<Change> changes = {
      [](Case& c) { c.poison = false; },
      [](Case& c) {
        config::Parallel& p = c.recipe.parallel;
        p.pp = p.chunks = 1;
        p.schedule.clear();
        p.stages.clear();
      },
      [](Case& c) { c.recipe.parallel.stages.clear(); },
      [](Case& c) {
        config::Parallel& p = c.recipe.parallel;
        if (p.pp == 1) return;
        p.schedule = "gpipe";
        p.chunks = 1;
        p.stages.clear();
      },
      [](Case& c) {
        c.recipe.parallel.pp = std::min<int64_t>(c.recipe.parallel.pp, 2);
        c.recipe.parallel.stages.clear();
      },
      [](Case& c) {
        c.recipe.model.layers =
            std::min(c.recipe.model.layers, c.recipe.parallel.pp * c.recipe.parallel.chunks);
        c.recipe.parallel.stages.clear();
      },
      [](Case& c) { c.recipe.parallel.dp_replicate = 1; },
      [](Case& c) {
        c.recipe.parallel.dp_shard = 1;
        c.recipe.parallel.zero = 0;
        c.recipe.parallel.prefetch = 1;
        c.recipe.parallel.reshard_after_forward = {};
      },
      [](Case& c) {
        c.recipe.parallel.tp = 1;
        c.recipe.parallel.sequence_parallel = false;
      },
      [](Case& c) { c.recipe.parallel.dp_shard = std::min<int64_t>(c.recipe.parallel.dp_shard, 2); },
      [](Case& c) { c.recipe.parallel.tp = std::min<int64_t>(c.recipe.parallel.tp, 2); },
      [](Case& c) { c.recipe.parallel.reshard_after_forward = {}; },
      [](Case& c) {
        c.recipe.parallel.zero = 0;
        c.recipe.parallel.prefetch = 1;
        c.recipe.parallel.reshard_after_forward = {};
      },
      [](Case& c) { c.recipe.parallel.zero = std::max<int64_t>(0, c.recipe.parallel.zero - 1); },
      [](Case& c) { c.recipe.parallel.sequence_parallel = false; },
      [](Case& c) { c.recipe.parallel.prefetch = 1; },
      [](Case& c) { c.recipe.memory = {}; },
      [](Case& c) { c.recipe.batch.accumulation = 1; },
      [](Case& c) { c.recipe.batch.accumulation = std::min<int64_t>(c.recipe.batch.accumulation, 2); },
      [](Case& c) { c.recipe.batch.micro = 1; },
      [](Case& c) { c.recipe.model.layers = 1; },
      [](Case& c) { c.recipe.model.vocab = 256; },
      [](Case& c) { c.recipe.model.tied = false; },
      [](Case& c) { c.recipe.model.kv_heads = c.recipe.model.heads; },
      [](Case& c) { c.recipe.model.dropout = 0; },
      [](Case& c) { c.recipe.model.qkv_bias = false; },
      [](Case& c) { c.recipe.model.qk_norm = false; },
      [](Case& c) { c.recipe.model.sliding_window = 0; },
      [](Case& c) { c.recipe.model.rope_scaling = {}; },
      [](Case& c) { c.recipe.data.seq_len = std::min<int64_t>(c.recipe.data.seq_len, 8); },
      [](Case& c) { c.recipe.data.pack = false; },
      [](Case& c) { c.recipe.loss.chunk = 0; },
      [](Case& c) { c.recipe.optimizer.freeze.clear(); },
      [](Case& c) { c.recipe.optimizer.clip_norm = 0; },
      [](Case& c) { c.recipe.optimizer.weight_decay = 0; },
      [](Case& c) {
        c.recipe.optimizer.kind = OptimizerKind::Sgd;
        c.recipe.optimizer.momentum = 0;
      },
      [](Case& c) { c.mask = MaskKind::All; },
      [](Case& c) { c.steps = std::min<int64_t>(c.steps, 2); },
      [](Case& c) { c.steps = 1; },
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (const Change& change : changes) {
      Case c = failing;
      change(c);
      const auto candidate = legal(std::move(c));
      if (!candidate || (candidate->recipe == failing.recipe && candidate->mask == failing.mask &&
                         candidate->poison == failing.poison && candidate->steps == failing.steps))
        continue;
      if (!failure_of(*candidate)) continue;
      failing = *candidate;
      smaller = true;
    }
  }
  return failing;
}

std::string to_text(const Case& c) {
  const char* masks[] = {"all", "scattered", "first only", "one token"};
  return fmt::format("# {}; mask: {}; poison: {}; steps: {}\n{}", tools::describe(c.recipe.parallel),
                     masks[static_cast<int>(c.mask)], c.poison, c.steps, config::to_toml(c.recipe));
}

}  // namespace quintet::tests
