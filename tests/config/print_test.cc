// Printed recipes read back equal; JSON contains the same keys.
#include "config/print.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "config/presets.h"
#include "config/support.h"
#include "config/validate.h"

namespace quintet::config {
namespace {

template <class T>
T pick(std::mt19937_64& rng, std::initializer_list<T> from) {
  return *(from.begin() + rng() % from.size());
}

// A random legal recipe: sizes are drawn so that most rules hold, the rest is drawn until they do.
Recipe random_recipe(std::mt19937_64& rng) {
  const auto unit = [&] { return std::uniform_real_distribution<double>(0, 1)(rng); };
  const auto coin = [&] { return rng() % 2 == 0; };
  for (;;) {
    Recipe r;
    r.name = pick<std::string>(rng, {"a", "run-1", "x_y.z"});
    r.model = presets()[rng() % presets().size()];
    if (coin()) r.model.preset.clear();
    r.model.layers = 1 + static_cast<int64_t>(rng() % 8);
    r.model.norm_eps = unit() * 1e-4 + 1e-9;
    r.model.tied = coin();
    if (r.model.family == Family::Gpt2) {
      r.model.dropout = unit();
    } else {
      r.model.rope_theta = 1 + unit() * 1e7;
      r.model.sliding_window = pick<int64_t>(rng, {0, 64});
      if (coin()) r.model.rope_scaling = {RopeScalingKind::Yarn, 1 + unit() * 40, 4096};
    }
    r.data.path = pick<std::vector<std::string>>(
        rng, {{}, {"src"}, {"quote\"back\\slash", "tab\tline\nbell\a", "\x7f", "größe"}});
    r.data.seq_len = 1 + static_cast<int64_t>(rng() % 512);
    r.data.validation_fraction = coin() ? 0 : unit();
    r.data.pack = coin();
    r.batch.micro = pick<int64_t>(rng, {0, 1, 2, 3});
    r.batch.accumulation = pick<int64_t>(rng, {0, 1, 5});
    r.parallel.dp_replicate = pick<int64_t>(rng, {1, 2, 3});
    r.parallel.dp_shard = pick<int64_t>(rng, {1, 2, 4, 8});
    r.parallel.zero = static_cast<int64_t>(rng() % 4);
    r.parallel.tp = pick<int64_t>(rng, {1, 2, 4});
    r.parallel.sequence_parallel = coin();
    using Kind = ReshardAfterForward::Kind;
    r.parallel.reshard_after_forward =
        pick<ReshardAfterForward>(rng, {{Kind::Yes, 0}, {Kind::No, 0}, {Kind::ToRanks, 2}});
    r.parallel.prefetch = static_cast<int64_t>(rng() % 3);
    using Group = Grouping::Kind;
    r.parallel.group =
        pick<Grouping>(rng, {{}, {Group::Blocks, 2}, {Group::Bytes, 64 << 20}, {Group::Bytes, 7}});
    r.parallel.zero_replicas = static_cast<int64_t>(rng() % 2);
    r.parallel.reshard_experts =
        pick(rng, {ReshardExperts::Same, ReshardExperts::Always, ReshardExperts::Never});
    r.parallel.gathered_limit = base::Bytes(pick<int64_t>(rng, {0, 4096}));
    r.parallel.persist_below = base::Bytes(pick<int64_t>(rng, {0, 1000}));
    for (auto* list : {&r.parallel.group_match, &r.parallel.keep_match, &r.parallel.persist_match,
                       &r.parallel.tp_column, &r.parallel.tp_row, &r.parallel.tp_replicate})
      *list = pick<std::vector<std::string>>(rng, {{}, {"*.attn.*"}, {"blocks.0.*", "head.weight"}});
    r.parallel.cp = pick<int64_t>(rng, {1, 1, 2, 4});
    if (r.parallel.cp > 1) {
      r.parallel.cp_method = pick(rng, {ContextMethod::Auto, ContextMethod::Gather, ContextMethod::Ring,
                                        ContextMethod::Ulysses, ContextMethod::UlyssesRing});
      r.data.seq_len = 2 * r.parallel.cp * r.parallel.tp * (1 + static_cast<int64_t>(rng() % 64));
    }
    if (r.model.moe.experts > 0) {
      r.parallel.ep = pick<int64_t>(rng, {1, 2, 4});
      r.parallel.etp = pick<int64_t>(rng, {1, 1, 2});
      r.model.moe.z_loss = unit();
      r.model.moe.scale = unit() + 1e-9;
      r.model.moe.capacity_factor = coin() ? 0 : unit() * 4;
      r.model.moe.pad = coin();
      r.model.moe.receive_bound = coin() ? 0 : unit() * 4;
      r.model.moe.drop = pick(rng, {DropPolicy::Probability, DropPolicy::Position, DropPolicy::Random});
      r.model.moe.jitter = coin() ? 0 : unit() * 0.9;
      r.model.moe.latent = pick<int64_t>(rng, {0, 1, 8});
      r.model.moe.balance = {coin() ? 0 : unit(), coin() ? 0 : unit(), coin() ? 0 : unit()};
    }
    r.parallel.pp = pick<int64_t>(rng, {1, 1, 2, 3});
    if (r.parallel.pp > 1) {
      if (coin()) r.parallel.schedule = pipeline_schedules()[rng() % pipeline_schedules().size()];
      r.parallel.chunks = pick<int64_t>(rng, {0, 0, 2, 3});
      if (coin() && r.parallel.chunks < 2 && !traits_of(r.parallel.schedule).two_chunks()) {
        r.parallel.stages.assign(static_cast<size_t>(r.parallel.pp), 1);
        r.parallel.stages.back() = std::max<int64_t>(0, r.model.layers - r.parallel.pp + 1);
      }
    }
    r.precision = Precision::of(pick(rng, {base::DType::F64, base::DType::F32, base::DType::BF16}));
    r.optimizer.kind = pick(rng, {OptimizerKind::AdamW, OptimizerKind::Sgd, OptimizerKind::Lion});
    r.optimizer.lr = unit() + 1e-12;
    if (r.optimizer.kind != OptimizerKind::Sgd)
      r.optimizer.betas = {unit(), unit()};
    else
      r.optimizer.momentum = unit();
    r.optimizer.weight_decay = unit();
    r.optimizer.clip_norm = coin() ? 0 : unit() * 1e20;
    r.optimizer.groups = pick<std::vector<ParamGroup>>(
        rng, {{},
              {{.match = "embed*", .kind = {}, .lr = {}, .weight_decay = {}, .update = false},
               {.match = "blocks.?.norm", .kind = OptimizerKind::Sgd, .lr = 0.1, .weight_decay = 0.0}}});
    r.optimizer.schedule.kind = pick(rng, {ScheduleKind::Constant, ScheduleKind::Linear, ScheduleKind::Cosine,
                                           ScheduleKind::InverseSqrt, ScheduleKind::Wsd});
    const auto length = [&] {
      const auto unit = pick(rng, {Length::Unit::Steps, Length::Unit::Sequences, Length::Unit::Tokens});
      const double per_step = unit == Length::Unit::Steps ? 1 : unit == Length::Unit::Sequences ? 16 : 1000;
      return Length{unit, static_cast<double>(rng() % 20) * per_step};
    };
    r.optimizer.schedule.warmup = length();
    if (r.optimizer.schedule.kind == ScheduleKind::Wsd) {
      r.optimizer.schedule.decay = length();
      r.optimizer.schedule.shape = pick(rng, {DecayShape::Cosine, DecayShape::OneMinusSqrt});
    }
    if (r.optimizer.schedule.kind != ScheduleKind::Constant) r.optimizer.schedule.min_lr_ratio = unit();
    r.loss.chunk = static_cast<int64_t>(rng() % 4096);
    r.eval.every = r.data.validation_fraction > 0 ? static_cast<int64_t>(rng() % 100) : 0;
    r.run.steps = 1 + static_cast<int64_t>(rng() % 1000);
    r.run.seed = static_cast<int64_t>(rng() >> 11);
    r.run.backend = pick(rng, {BackendKind::Auto, BackendKind::Local, BackendKind::Mpi});
    r.run.threads = static_cast<int64_t>(rng() % 64);
    if (problems_of(r).empty()) return resolve(r);
  }
}

TEST(Print, RandomLegalRecipesReadBackEqual) {
  std::mt19937_64 rng(20240607);
  int with_context = 0, with_experts = 0, with_latent = 0;
  for (int i = 0; i < 500; ++i) {
    const Recipe r = random_recipe(rng);
    with_context += r.parallel.cp > 1;
    with_experts += r.parallel.ep > 1;
    with_latent += r.model.mla.kv_rank > 0;
    const std::string text = to_toml(r);
    SCOPED_TRACE(text);
    ASSERT_EQ(parse(text), r);
    ASSERT_EQ(to_toml(parse(text)), text);
  }
  EXPECT_GT(with_context, 50);
  EXPECT_GT(with_experts, 10);
  EXPECT_GT(with_latent, 5);
}

TEST(Print, EveryPresetReadsBackEqual) {
  for (const Model& preset : presets()) {
    const Recipe r = parse(kGood, {"model.preset=" + preset.preset, "parallel.tp=1"});
    EXPECT_EQ(parse(to_toml(r)), r) << preset.preset;
  }
}

TEST(Print, JsonHoldsTheSameValues) {
  const Recipe r =
      parse(kGood, {"parallel.reshard_after_forward=2",
                    "optimizer.groups=[{match='a*', name='lion', lr=1}, {match='b', update=false}]"});
  const nlohmann::json j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j["name"], "example");
  EXPECT_EQ(j["model"]["preset"], "llama-tiny");
  EXPECT_EQ(j["model"]["family"], "llama");
  EXPECT_EQ(j["model"]["rope_scaling"]["kind"], "none");
  EXPECT_EQ(j["parallel"]["reshard_after_forward"], 2);
  EXPECT_EQ(j["parallel"]["sequence_parallel"], false);
  EXPECT_EQ(j["optimizer"]["lr"].get<double>(), r.optimizer.lr);
  EXPECT_EQ(j["optimizer"]["betas"], (std::vector<double>{0.9, 0.95}));
  EXPECT_EQ(j["optimizer"]["groups"].dump(),
            R"([{"lr":1.0,"match":"a*","name":"lion"},{"match":"b","update":false}])");
  EXPECT_EQ(j["optimizer"]["schedule"]["kind"], "constant");
  EXPECT_EQ(j["precision"]["compute"], "f32");
  EXPECT_EQ(j["batch"]["accumulation"], 2);
}

}  // namespace
}  // namespace quintet::config
