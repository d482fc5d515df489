// The executor itself: graphs, bits, memory, drawing, tracing, saving.
#include <cmath>
#include <cstring>
#include <set>

#include "base/philox.h"
#include "base/temp_folder.h"
#include "comm/local.h"
#include "gpu/models/runtime_calls.h"
#include "gpu/models/support.h"
#include "train/element.h"
#include "train/loop_trace.h"

namespace quintet {
namespace {

std::vector<std::string> all_models() {
  std::vector<std::string> all = test::dense_models();
  all.insert(all.end(), test::expert_models().begin(), test::expert_models().end());
  return all;
}

TEST(Graph, ReplayMatchesPlainLaunchesBitForBit) {
  for (const std::string& model : all_models())
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      SCOPED_TRACE(model + " " + dtype);
      const config::Recipe r = test::gpu_recipe(model, dtype);
      test::expect_same_bits(test::run(r, {.steps = 5, .capture = true}),
                             test::run(r, {.steps = 5, .capture = false}));
    }
}

TEST(Determinism, TwoRunsGiveTheSameBits) {
  for (const std::string& model : all_models())
    for (const char* dtype : {"f64", "f32", "bf16"}) {
      SCOPED_TRACE(model + " " + dtype);
      const config::Recipe r = test::gpu_recipe(model, dtype);
      test::expect_same_bits(test::run(r, {.steps = 4}), test::run(r, {.steps = 4}));
    }
}

std::vector<double> losses_of(const config::Recipe& r, const data::Batches& batches,
                              train::RankOptions options) {
  std::vector<double> list;
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(r, world, std::move(options));
    for (int64_t s = 0; s < 3; ++s) list.push_back(rank.step(s, batches).loss);
  });
  return list;
}

// Timings differ from run to run, and with them the fastest algorithm. Only stored choices may decide.
TEST(Determinism, TimedChoicesAreKeptOrNotMade) {
  const test::TempFolder folder;
  const base::Path file = folder / "cache/tuned.txt";
  const config::Recipe r = test::gpu_recipe("llama", "f32");
  const data::Dataset dataset = tools::training_data(r, true);
  const data::Batches batches = tools::training_batches(r, dataset);
  const auto plain = losses_of(r, batches, {.tune = false});
  for (int run = 0; run < 3; ++run)
    EXPECT_EQ(losses_of(r, batches, {.tune = true}), plain) << "timed, and nothing keeps it";
  const auto first = losses_of(r, batches, {.tune = true, .tuned = file});
  ASSERT_TRUE(base::file_exists(file));
  const std::string kept = base::read_file(file);
  EXPECT_FALSE(kept.empty());
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(losses_of(r, batches, {.tune = true, .tuned = file}), first);
    EXPECT_EQ(base::read_file(file), kept) << "timed again";
  }
}

// From the third step on (the first is plain, the second is captured): no allocation, one wait of the host at
// the end, and everything in one launch.
TEST(Step, AllocatesNothingAndWaitsOnlyAtItsEnd) {
  std::vector<std::string> models = all_models();
  models.insert(models.end(), test::fast_models().begin(), test::fast_models().end());
  for (const std::string& model : models)
    for (const bool capture : {true, false}) {
      SCOPED_TRACE(model + (capture ? ", graph" : ", plain launches"));
      const config::Recipe r = test::gpu_recipe(model, "bf16");
      const data::Dataset dataset = tools::training_data(r, true);
      const data::Batches batches = tools::training_batches(r, dataset);
      comm::run_local_world(1, [&](comm::World& world) {
        train::Rank rank(r, world, {.capture = capture, .tune = false});
        for (int64_t s = 0; s < 3; ++s) rank.step(s, batches);
        const test::RuntimeCalls before = test::runtime_calls();
        for (int64_t s = 3; s < 6; ++s) rank.step(s, batches);
        const test::RuntimeCalls after = test::runtime_calls();
        EXPECT_GT(before.allocations, 0);
        EXPECT_EQ(after.allocations - before.allocations, 0);
        EXPECT_EQ(after.waits - before.waits, 3);
        EXPECT_EQ(after.graph_launches - before.graph_launches, capture ? 3 : 0);
      });
    }
}

// Every step has its own tokens, learning rate, dropout and results.
TEST(Step, MayStartWhileThePreviousOneRuns) {
  for (const std::string& model : all_models()) {
    SCOPED_TRACE(model);
    const config::Recipe r = test::gpu_recipe(model, "f32", {"optimizer.schedule.warmup=8"});
    const data::Dataset dataset = tools::training_data(r, true);
    const data::Batches batches = tools::training_batches(r, dataset);
    std::vector<std::vector<double>> apart, ahead;
    const auto keep = [](const train::StepResult& s, std::vector<std::vector<double>>& list) {
      list.push_back({s.loss, s.grad_norm, s.lr, static_cast<double>(s.tokens)});
    };
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(r, world, {.tune = false});
      for (int64_t s = 0; s < 8; ++s) keep(rank.step(s, batches), apart);
    });
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(r, world, {.tune = false});
      for (int64_t s = 0; s < 2; ++s) {
        rank.start_step(s, batches);
        EXPECT_FALSE(rank.may_run_ahead()) << "the memory that step " << s << " touches is measured";
        keep(rank.finish_step(), ahead);
      }
      rank.start_step(2, batches);
      EXPECT_TRUE(rank.may_run_ahead());
      for (int64_t s = 3; s < 8; ++s) {
        rank.start_step(s, batches);
        keep(rank.finish_step(), ahead);
      }
      keep(rank.finish_step(), ahead);
    });
    EXPECT_EQ(ahead, apart);
  }
}

TEST(Memory, StaysWithinThePlanAndIsUsed) {
  for (const std::string& model : all_models()) {
    SCOPED_TRACE(model);
    const tools::LayoutRun run = test::run(test::gpu_recipe(model, "bf16"), {.steps = 2});
    EXPECT_LE(run.peaks[0].measured, run.peaks[0].planned);
    // At least weights in bf16 and masters in f32.
    int64_t parameters = 0;
    for (const tools::Tensor& t : run.initial) parameters += static_cast<int64_t>(t.values.size());
    EXPECT_GT(run.peaks[0].measured, (2 + 4) * parameters);
  }
}

// Random words are the host's; logarithm and cosine are the device's.
TEST(Draw, MatchesTheCpusWeights) {
  for (const char* dtype : {"f64", "f32", "bf16"}) {
    SCOPED_TRACE(dtype);
    const config::Recipe r = test::gpu_recipe("llama-odd", dtype, {"model.vocab=20001"});
    const auto gpu = test::run(r, {.steps = 0}).initial,
               cpu = test::run(test::on_cpu(r), {.steps = 0}).initial;
    ASSERT_EQ(gpu.size(), cpu.size());
    int64_t differ = 0, count = 0;
    double worst = 0;
    for (size_t t = 0; t < gpu.size(); ++t)
      for (size_t i = 0; i < gpu[t].values.size(); ++i) {
        const double a = gpu[t].values[i], b = cpu[t].values[i];
        ++count;
        if (a == b) continue;
        ++differ;
        worst = std::max(worst, std::abs(a - b) / std::abs(b));
      }
    EXPECT_GT(count, 1000000);
    if (std::string(dtype) == "f64") {
      EXPECT_LE(worst, 4 * 0x1p-52);
    } else {
      EXPECT_LE(differ, 2) << "of " << count;
      EXPECT_LE(worst, 0x1p-23);
    }
  }
}

TEST(HostView, WhatIsWrittenIsReadAndPaddingIsZero) {
  const config::Recipe r = test::gpu_recipe("llama", "bf16");
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(r, world, {});
    double next = 0;
    rank.visit(program::holds_weights, [&](const train::Rank::Piece& piece, const layout::GlobalIndex&) {
      rank.write(piece, [&](std::byte* data) {
        for (int64_t i = 0; i < piece.count; ++i)
          train::write_element(data, piece.dtype, i, 1 + 0x1p-20 * static_cast<double>(i % 4096));
      });
      next += 1;
      const exec::HostBytes held = rank.read(piece);
      for (int64_t i = 0; i < piece.count; i += 7)
        ASSERT_EQ(train::read_element(held.data(), piece.dtype, i),
                  1 + 0x1p-20 * static_cast<double>(i % 4096));
    });
    EXPECT_GT(next, 0);
    rank.weights_changed();  // the compute copies are rounded from the masters
    const program::GroupSlot& copy = *rank.compiled().program.find_slot(0, "param");
    ASSERT_EQ(copy.keep, graph::Keep::Derived);
    const exec::HostBytes param = rank.read({copy.buffer, 0, 16});
    for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(train::read_element(param.data(), base::DType::BF16, i), 1.0);
  });
}

TEST(Trace, HoldsEveryInstructionAndChangesNoBit) {
  const config::Recipe r = test::gpu_recipe("llama", "f32");
  const data::Dataset dataset = tools::training_data(r, true);
  const data::Batches batches = tools::training_batches(r, dataset);
  const auto losses = [&](bool traced) {
    std::vector<double> list;
    comm::run_local_world(1, [&](comm::World& world) {
      train::Rank rank(r, world, {});
      observe::RankTrace trace = train::make_trace(rank, world.rank(), 1);
      for (int64_t s = 0; s < 4; ++s) {
        if (traced && s == 2) rank.executor().trace_next(&trace, s);
        list.push_back(rank.step(s, batches).loss);
      }
      if (!traced) return;
      size_t expected = 0;
      for (const program::Issue& issue : rank.compiled().step.issues)
        expected += instr_of(rank.compiled().program, issue).kind != program::InstrKind::Free;
      EXPECT_EQ(trace.events(), expected);
      int64_t total = 0;
      for (const observe::TraceRecord& e : trace.records()) total += e.dur_ns;
      EXPECT_GT(total, 0);
    });
    return list;
  };
  EXPECT_EQ(losses(true), losses(false));
}

TEST(Save, TheCpuLoadsWhatTheGpuSaved) {
  const test::TempFolder folder;
  const config::Recipe r = test::gpu_recipe("experts-shared-bias", "bf16");
  const auto state = [](const train::Rank& rank) {
    std::vector<std::byte> bytes;
    rank.visit(program::holds_weights, [&](const train::Rank::Piece& p, const layout::GlobalIndex&) {
      const exec::HostBytes held = rank.read(p);
      bytes.insert(bytes.end(), held.data(), held.data() + p.bytes());
    });
    return bytes;
  };
  std::vector<std::byte> gpu, cpu;
  const data::Dataset dataset = tools::training_data(r, true);
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(r, world, {});
    rank.step(0, tools::training_batches(r, dataset));
    test::save_state(rank, world, r, folder.path());
    gpu = state(rank);
  });
  comm::run_local_world(1, [&](comm::World& world) {
    train::Rank rank(test::on_cpu(r), world, {});
    test::load_weights(rank, folder.path());
    cpu = state(rank);
  });
  EXPECT_EQ(gpu, cpu);
}

}  // namespace
}  // namespace quintet
