#include "train/header.h"

#include "comm/local.h"
#include "train/support.h"

namespace quintet {
namespace {

using test::SmallRun;

std::string header(const SmallRun& small, const std::vector<std::string>& sets) {
  const config::Recipe recipe = small.recipe(sets);
  const train::RunData data = train::load_data(recipe);
  std::string text;
  comm::run_local_world(static_cast<int>(recipe.parallel.world()), [&](comm::World& world) {
    const train::Rank rank(recipe, world, {.evaluate = recipe.eval.every > 0});
    if (world.rank().value != 0) return;
    for (const std::string& line :
         train::header_lines(recipe, data, rank, {.backend = "threads", .threads = 1}))
      text += line + "\n";
  });
  return text;
}

TEST(Header, CountsCollectivesOfATensorParallelBlock) {
  const SmallRun small;
  // Column then row split, twice a block: one all-reduce each in the forward and in the backward pass.
  EXPECT_CONTAINS(header(small, {"parallel.sequence_parallel=false"}),
                  "tp 2: 4 collectives per block per micro-batch (2 forward, 2 backward)");
  EXPECT_CONTAINS(header(small, {}), "tp 2 with sequence parallel:");
  EXPECT_CONTAINS(header(small, {}), "(4 forward,");
  EXPECT_EQ(header(small, {"parallel.tp=1", "parallel.sequence_parallel=false"}).find("\ntp "),
            std::string::npos);
}

TEST(Header, SaysHowAPipelineIsCut) {
  const SmallRun small;
  const std::vector<std::string> sets = {"parallel.pp=2", "model.layers=6", "parallel.dp_shard=1",
                                         "parallel.zero=0", "batch.micro=2"};
  const std::string text = header(small, sets);
  EXPECT_CONTAINS(text, "ranks        4 = pp 2 x tp 2,");
  EXPECT_CONTAINS(
      text,
      "pp           pp 2 stages x 1 chunk, 1f1b: blocks 0-3 | 4-5, 4 micro-batches, bubble 20.0 % "
      "with equal stages, up to 2 micro-batches in flight");
  // The whole model, not the first stage; the counts of one block, however many micro-batches are under way.
  const auto line = [](const std::string& all, const std::string& label) {
    const size_t at = all.find("\n" + label);
    return all.substr(at + 1, all.find('\n', at + 1) - at - 1);
  };
  std::vector<std::string> one = sets;
  one[0] = "parallel.pp=1";
  const std::string without = header(small, one);
  EXPECT_EQ(text.substr(0, text.find('\n')), without.substr(0, without.find('\n')));
  EXPECT_EQ(line(text, "tp  "), line(without, "tp  "));
  std::vector<std::string> v = sets;
  v.push_back("parallel.schedule=zb-v");
  EXPECT_CONTAINS(header(small, v),
                  "pp 2 stages x 2 chunks, zb-v: blocks 0-1 | 2-3 | 4 | 5, 4 micro-batches");
}

TEST(Header, ShowsWhatEachOptionDoes) {
  const SmallRun small;
  const std::string text =
      header(small, {"optimizer.freeze=[\"embed.*\"]", "eval.every=2", "optimizer.schedule.warmup=3"});
  for (const char* part :
       {"batch        8 sequences = 2 micro x 2 accumulation x 2 data ranks; 256 tokens a step, 6 steps",
        "ranks        4 = dp_shard 2 x tp 2, threads, 1 kernel thread each",
        "zero 3: parameters, gradients and optimizer state in 2 shards", "prefetched 1 block ahead",
        "freeze       8,192 of ", "(1 tensor): no gradient", "eval         every 2 steps on ",
        "after 3 steps of warm-up", "gradient norm clipped at 1", "memory       ", "activations ",
        "optimizer "})
    EXPECT_CONTAINS(text, part);
  EXPECT_CONTAINS(header(small, {"parallel.zero=1"}), "zero 1: optimizer state in 2 shards");
  EXPECT_CONTAINS(header(small, {"parallel.dp_replicate=2", "parallel.dp_shard=1", "parallel.zero=0"}),
                  "dp_replicate 2 copies of the state: ");
  EXPECT_CONTAINS(header(small, {"parallel.reshard_after_forward=false"}), "kept for the backward pass");
  EXPECT_CONTAINS(header(small, {"optimizer.clip_norm=0"}), "no clipping");
}

TEST(Header, SaysOnlyWhatHolds) {
  const SmallRun small;
  const std::string text = header(small, {"loss.chunk=16", "parallel.prefetch=50"});
  EXPECT_CONTAINS(text, "pack         documents in a sequence do not see each other");
  EXPECT_CONTAINS(text, "loss         logits of 16 of 64 token rows at a time");
  EXPECT_CONTAINS(text, "prefetched 3 blocks ahead");  // embedding, two blocks and head: four groups
  EXPECT_CONTAINS(text, "replicas compared");
  const std::string one =
      header(small, {"data.pack=false", "loss.chunk=0", "parallel.dp_shard=1", "parallel.zero=0",
                     "parallel.tp=1", "parallel.sequence_parallel=false"});
  EXPECT_CONTAINS(one, "pack         off:");
  EXPECT_CONTAINS(one, "loss         logits of all 64 token rows at once");
  EXPECT_EQ(one.find("replicas"), std::string::npos);
}

TEST(Header, SaysWhatIsRecomputed) {
  const SmallRun small;
  EXPECT_EQ(header(small, {}).find("recompute"), std::string::npos);
  EXPECT_CONTAINS(header(small, {"memory.recompute=full"}), "recompute    full: every block");
  EXPECT_CONTAINS(header(small, {"memory.recompute=selective", "memory.recompute_ops=['norm']"}),
                  "recompute    selective: norm");
  EXPECT_CONTAINS(header(small, {"memory.recompute=fit", "memory.budget=1GiB"}),
                  "recompute    fit: nothing is recomputed, +0.0 % FLOPs, planned ");
  EXPECT_CONTAINS(header(small, {"memory.recompute=fit", "memory.budget=1GiB"}), " of 1.0 GiB");
}

}  // namespace
}  // namespace quintet
