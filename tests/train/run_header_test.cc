#include "train/run_header.h"

#include "comm/local.h"
#include "data/foreign_file.h"
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
  // Column then row split, twice per block: one all-reduce each in the forward and in the backward pass.
  EXPECT_CONTAINS(header(small, {"parallel.sequence_parallel=false"}),
                  "tp 2: 4 collectives per block per micro-batch (2 forward, 2 backward)");
  EXPECT_CONTAINS(header(small, {}), "tp 2 with sequence parallel:");
  EXPECT_CONTAINS(header(small, {}), "(4 forward,");
  EXPECT_EQ(header(small, {"parallel.tp=1", "parallel.sequence_parallel=false"}).find("\ntp "),
            std::string::npos);
}

TEST(Header, SaysHowAPipelineIsSplit) {
  const SmallRun small;
  const std::vector<std::string> sets = {"parallel.pp=2", "model.layers=6", "parallel.dp_shard=1",
                                         "parallel.zero=0", "batch.micro=2"};
  const std::string text = header(small, sets);
  EXPECT_CONTAINS(text, "ranks        4 = pp 2 x tp 2,");
  EXPECT_CONTAINS(
      text,
      "pp           pp 2 stages x 1 chunk, 1f1b: blocks 0-2 | 3-5, 4 micro-batches, bubble 20.0 % "
      "with equal stages, up to 2 micro-batches in flight");
  // The whole model, not the first stage; counts are per block, regardless of the micro-batches in flight.
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
                  "pp 2 stages x 2 chunks, zb-v: blocks 0-1 | 2 | 3-4 | 5, 4 micro-batches");
}

TEST(Header, ShowsWhatEachOptionDoes) {
  const SmallRun small;
  const std::string text = header(small, {"optimizer.groups=[{match=\"embed.*\", update=false}]",
                                          "eval.every=2", "optimizer.schedule.warmup=3"});
  for (const char* part :
       {"batch        8 sequences = 2 micro x 2 accumulation x 2 data ranks; 256 tokens per step, 6 steps",
        "ranks        4 = dp_shard 2 x tp 2, threads, 1 core each",
        "zero 3: parameters, gradients and optimizer state in 2 shards", "prefetch 1 block ahead",
        "frozen       8,192 of ", "(1 tensor): no gradients", "eval         every 2 steps on ",
        "after 3 steps of warm-up", "gradient norm clipped at 1", "memory       ", "activations ",
        "optimizer "})
    EXPECT_CONTAINS(text, part);
  EXPECT_CONTAINS(header(small, {"parallel.zero=1"}), "zero 1: optimizer state in 2 shards");
  EXPECT_CONTAINS(header(small, {"parallel.dp_replicate=2", "parallel.dp_shard=1", "parallel.zero=0"}),
                  "dp_replicate 2 copies of the state: ");
  EXPECT_CONTAINS(header(small, {"parallel.reshard_after_forward=false"}), "kept for the backward pass");
  EXPECT_CONTAINS(header(small, {"parallel.group=2"}), "prefetch 1 group ahead; 3 groups of parameters");
  EXPECT_CONTAINS(header(small, {"parallel.dp_replicate=2", "parallel.zero_replicas=1"}),
                  "the optimizer state in 4 shards, over replicas too");
  EXPECT_CONTAINS(header(small, {"optimizer.clip_norm=0"}), "no clipping");
}

TEST(Header, SaysOnlyWhatHolds) {
  const SmallRun small;
  const std::string text = header(small, {"loss.chunk=16", "parallel.prefetch=50"});
  EXPECT_CONTAINS(text, "pack         attention does not cross document boundaries");
  EXPECT_CONTAINS(text, "loss         logits computed 16 of 64 token rows at a time");
  EXPECT_CONTAINS(text, "prefetch 3 blocks ahead");  // embedding, two blocks and head: four groups
  EXPECT_CONTAINS(text, "replicas compared");
  const std::string one =
      header(small, {"data.pack=false", "loss.chunk=0", "parallel.dp_shard=1", "parallel.zero=0",
                     "parallel.tp=1", "parallel.sequence_parallel=false"});
  EXPECT_CONTAINS(one, "pack         off:");
  EXPECT_CONTAINS(one, "loss         logits of all 64 token rows computed at once");
  EXPECT_EQ(one.find("replicas"), std::string::npos);
}

std::string line_of(const std::string& text, const std::string& label) {
  const size_t at = text.find(fmt::format("\n{:<13}", label));
  return at == std::string::npos ? "" : text.substr(at + 14, text.find('\n', at + 1) - at - 14);
}

// Of every 32 positions a document of 24 tokens fills 23 with labels.
TEST(Header, SaysHowFullBestFitSequencesAre) {
  const SmallRun small;
  const auto pack = [&](const std::vector<std::pair<int, int>>& documents, const std::string& longer) {
    std::string lines;  // documents of the lengths
    for (const auto& [count, length] : documents)
      for (int i = 0; i < count; ++i)
        lines += fmt::format("{{\"text\": \"{}\"}}\n", std::string(static_cast<size_t>(length), 'x'));
    base::write_file_atomically(small / "documents.jsonl", lines);
    return line_of(header(small, {"data.path=\"" + (small / "documents.jsonl").string() + "\"",
                                  "data.packing=\"best-fit\"", "data.validation_fraction=0",
                                  "data.long_documents=\"" + longer + "\""}),
                   "pack");
  };
  EXPECT_EQ(pack({{80, 25}}, "split"), "best fit: 75.00 % of the positions used");
  EXPECT_EQ(pack({{80, 25}, {80, 9}}, "split"), "best fit: 100.00 % of the positions used");
  EXPECT_EQ(
      pack({{80, 33}, {40, 41}}, "truncate"),
      "best fit: 100.00 % of the positions used; 40 documents longer than a sequence and truncated, 320 "
      "labels lost");
  EXPECT_EQ(pack({{80, 33}, {1, 41}}, "drop"),
            "best fit: 100.00 % of the positions used; 1 longer document dropped, 40 labels lost");

  // Documents of 33 tokens, some of which train none.
  const auto untrained = [&](int count) {
    data::MegatronWriter writer(small / "masked", 256);
    for (int i = 0; i < 80 + count; ++i)
      writer.add_document(std::vector<int32_t>(33, 7), std::vector<uint8_t>(33, i < 80));
    writer.finish();
    return line_of(header(small, {"data.path=\"" + (small / "masked").string() + "\"",
                                  "data.packing=\"best-fit\"", "data.validation_fraction=0"}),
                   "pack");
  };
  EXPECT_EQ(untrained(1),
            "best fit: 100.00 % of the positions used; 1 document or part without a trained token left out");
  EXPECT_EQ(
      untrained(2),
      "best fit: 100.00 % of the positions used; 2 documents or parts without a trained token left out");
}

TEST(Header, SaysHowSequencesAreShared) {
  const SmallRun small;
  const auto cp = [&](std::vector<std::string> sets) {
    sets.insert(sets.end(), {"parallel.tp=1", "parallel.sequence_parallel=false", "parallel.zero=0"});
    return line_of(header(small, sets), "cp");
  };
  EXPECT_EQ(cp({}), "");
  // 2 sequences of 32 tokens, half of them per rank: 32 rows of K and of V, 2 heads of 8, 4 bytes. Backward:
  // K and V circulate again, and their gradients complete the ring, which is two hops.
  EXPECT_EQ(
      cp({"parallel.cp=2", "parallel.cp_method=ring"}),
      "cp 2, ring: K and V circulate among 2 ranks; 16.0 KiB sent per block and micro-batch (4.0 KiB "
      "forward, 12.0 KiB backward); auto would choose gather: exchanging heads sends no less (48 "
      "elements per row and layer instead of 32), and chunks of 8 rows are too small for a ring to hide "
      "its transfers");
  EXPECT_CONTAINS(cp({"parallel.cp=2"}), "cp 2, gather: K and V gathered from 2 ranks; ");
  EXPECT_CONTAINS(cp({"parallel.cp=2"}), "; auto chooses this: ");
  // Q and O of 32, K and V of 16, half of each: 48 elements of 32 rows. Backward: again, plus their
  // gradients.
  EXPECT_CONTAINS(
      cp({"parallel.cp=2", "parallel.cp_method=ulysses"}),
      "ulysses: sequence exchanged for heads among 2 ranks; 18.0 KiB sent per block and micro-batch "
      "(6.0 KiB forward, 12.0 KiB backward)");
  EXPECT_CONTAINS(cp({"parallel.cp=4", "parallel.cp_method=ulysses+ring", "parallel.ulysses=2"}),
                  "sequence exchanged for heads among 2 ranks, K and V circulate among 2 such groups");
  // Traffic of routers and experts over the same ranks does not belong to attention.
  const std::vector<std::string> alone = {"parallel.dp_shard=1", "parallel.cp=2"};
  std::vector<std::string> experts = alone;
  experts.insert(experts.end(), {"model.moe.experts=64", "model.moe.top_k=2", "model.moe.ffn=16",
                                 "model.ffn=16", "model.moe.balance_loss=0.1", "parallel.ep=2"});
  EXPECT_EQ(cp(experts), cp(alone));
  const std::string text = header(
      small, {"parallel.dp_shard=1", "parallel.cp=2", "parallel.tp=1", "parallel.sequence_parallel=false"});
  EXPECT_CONTAINS(text, "ranks        2 = cp 2, ");
  EXPECT_CONTAINS(text, "zero         zero 3: parameters, gradients and optimizer state in 2 shards: ");
}

TEST(Header, SummarisesExperts) {
  const SmallRun small;
  std::vector<std::string> moe = {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=16",
                                  "model.ffn=16"};
  const auto with = [&](const std::vector<std::string>& sets) {
    std::vector<std::string> all = moe;
    all.insert(all.end(), sets.begin(), sets.end());
    return header(small, all);
  };
  EXPECT_EQ(line_of(header(small, {}), "experts"), "");
  std::string text = with({});
  EXPECT_EQ(line_of(text, "experts"), "4 in each of 2 blocks, 2 per token");
  EXPECT_EQ(line_of(text, "router"), "softmax over all experts, weights normalised to sum to 1");
  EXPECT_EQ(line_of(text, "capacity"), "unlimited, nothing is dropped");
  EXPECT_EQ(line_of(text, "ep"), "");
  EXPECT_EQ(line_of(text, "memory").find("for any routing"), std::string::npos);
  EXPECT_EQ(text.find("up to"), std::string::npos);

  // 2 x 32 tokens, half of them per tensor rank: 32 rows from each of 4 ranks, at most 2 choices each; with
  // one expert per rank, a row arrives once.
  text = with({"parallel.ep=4"});
  EXPECT_CONTAINS(line_of(text, "ep"), "ep 4: 1 expert of 4 per rank; ");
  EXPECT_CONTAINS(line_of(text, "ep"), " exchanges over dp_shard+tp (4 forward, ");
  EXPECT_CONTAINS(line_of(text, "ep"), ", up to ");
  EXPECT_CONTAINS(line_of(text, "ep"), "; room for 128 rows per rank, 2x the mean");
  EXPECT_CONTAINS(line_of(text, "dp_shard"), "expert state on one rank each");
  EXPECT_CONTAINS(line_of(text, "memory"), "for any routing");
  EXPECT_CONTAINS(line_of(text, "program"), " sent per rank");
  EXPECT_CONTAINS(line_of(text, "program"), "and up to ");
  EXPECT_EQ(line_of(text, "etp"), "");
  // Expert exchanges are not counted as tensor-parallel traffic.
  EXPECT_EQ(line_of(text, "tp"), line_of(with({}), "tp"));

  text = with({"parallel.ep=2", "parallel.etp=2", "model.moe.capacity_factor=1", "model.moe.pad=true",
               "model.moe.drop=position"});
  EXPECT_EQ(
      line_of(text, "capacity"),
      "16 rows per expert and sequence (factor 1); later rows are dropped; padded to 32 rows per expert from "
      "each rank for fixed sizes");
  EXPECT_CONTAINS(line_of(text, "ep"), "; always 256 rows per rank, 2x the mean");
  EXPECT_EQ(line_of(text, "ep").find("up to"), std::string::npos);
  EXPECT_CONTAINS(line_of(text, "etp"), "etp 2: 8 of an expert's inner width 16 per rank");

  text = with({"model.moe.score=sigmoid", "model.moe.normalise=false", "model.moe.scale=2.5",
               "model.moe.groups=2", "model.moe.groups_kept=1", "model.moe.bias_rate=0.01",
               "model.moe.balance_loss=0.1", "model.moe.balance_scope=sequence", "model.moe.z_loss=0.001",
               "model.moe.capacity_factor=1.5", "model.moe.capacity_group=2", "model.moe.shared_ffn=32",
               "model.moe.shared_gate=true", "model.moe.first_dense=1", "model.moe.force_balance=true"});
  EXPECT_EQ(line_of(text, "experts"),
            "4 in each of 1 block, 2 per token; shared experts of width 32 applied to every token, scaled by "
            "a gate");
  EXPECT_EQ(line_of(text, "router"),
            "sigmoid over all experts, weights not normalised, times 2.5; from the best 1 of 2 groups of 2 "
            "experts; selection bias adjusted by 0.01 per step against the load; balance loss 0.1 over each "
            "sequence; z-loss 0.001; routing overridden: experts assigned by position, for benchmarks");
  EXPECT_EQ(line_of(text, "capacity"),
            "48 rows per expert and group of 2 sequences (factor 1.5); the least probable rows past it are "
            "dropped");
  EXPECT_CONTAINS(line_of(with({"model.moe.order=top_k_first"}), "router"),
                  "softmax over the selected experts");
}

TEST(Header, SaysWhatIsRecomputed) {
  const SmallRun small;
  EXPECT_EQ(header(small, {}).find("recompute"), std::string::npos);
  EXPECT_CONTAINS(header(small, {"memory.recompute=full"}), "recompute    full: every block");
  EXPECT_CONTAINS(header(small, {"memory.recompute=full", "memory.recompute_chunk=2"}),
                  "recompute    full: chunks of 2 blocks, whose first one's input is kept");
  EXPECT_CONTAINS(header(small, {"memory.recompute=selective", "memory.recompute_ops=['norm']"}),
                  "recompute    selective: norm");
  EXPECT_CONTAINS(header(small, {"memory.recompute=selective",
                                 "memory.recompute_layers=[{layers=1, ops=['norm', 'rope']}]"}),
                  "recompute    selective: block 1: norm, rope; the others nothing");
  EXPECT_CONTAINS(header(small, {"parallel.order='dp-tp'"}), ", order dp_shard-dp_replicate-tp-cp-pp");
  EXPECT_CONTAINS(header(small, {"memory.recompute=fit", "memory.budget=1GiB"}),
                  "recompute    fit: nothing is recomputed, +0.0 % FLOPs, planned ");
  EXPECT_CONTAINS(header(small, {"memory.recompute=fit", "memory.budget=1GiB"}), " of 1.0 GiB");
}

}  // namespace
}  // namespace quintet
