// Scratch on a GPU, computed by hand. Needs neither a GPU nor a build for one.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "compiler/compile.h"
#include "config/parse.h"
#include "exec/executor.h"

namespace quintet {
namespace {

// Calls f(instruction) for a step of a recipe.
program::Program for_each_instr(const std::vector<std::string>& sets,
                                const std::function<void(const program::Instr&)>& f) {
  const config::Recipe recipe = config::parse(
      "name = \"x\"\n[model]\nfamily = \"llama\"\nlayers = 1\nembed = 512\nffn = 1024\nheads = 8\n"
      "kv_heads = 2\nvocab = 1000\n[data]\nseq_len = 1024\npack = false\n[batch]\nmicro = 4\n"
      "[precision]\ncompute = \"bf16\"\n[optimizer]\nlr = 1e-3\n[loss]\nchunk = 256\n[run]\nsteps = 1\n"
      "device = \"cuda\"\ndeterministic = false\n",
      sets);
  compiler::CompileOptions options;
  options.workspace_bytes = exec::workspace_of(exec::Device::Cuda, 1);
  compiler::Compiled c = compiler::compile(recipe, options);
  for (const program::Body& body : c.program.bodies)
    for (const program::Instr& i : body.instrs) f(i);
  return std::move(c.program);
}

// Largest scratch of each op, by name.
std::map<std::string, int64_t> scratch_of(const std::vector<std::string>& sets) {
  std::map<std::string, int64_t> most;
  int64_t all = 0;
  const program::Program program = for_each_instr(sets, [&](const program::Instr& i) {
    if (i.kind != program::InstrKind::Compute) return;
    int64_t& bytes = most[std::string(i.op->name)];
    bytes = std::max(bytes, i.workspace_bytes);
    all = std::max(all, bytes);
  });
  EXPECT_EQ(program.buffer(program.workspace).bytes, all);
  return most;
}

constexpr int64_t kMiB = 1 << 20, kRows = 4096, kHeads = 8, kHeadDim = 64;

TEST(CudaWorkspace, OfADenseModel) {
  const auto most = scratch_of({});
  EXPECT_EQ(most.at("linear"), 32 * kMiB);
  EXPECT_EQ(most.at("linear_dw"), 32 * kMiB);
  EXPECT_EQ(most.at("linears"), 32 * kMiB);
  EXPECT_EQ(most.at("rms_norm"), 0);
  EXPECT_EQ(most.at("rms_norm_backward"), 480 * 512 * 4);
  EXPECT_EQ(most.at("cross_entropy"), 256 * 8);
  // Tokens by row, their number, bits of 128 buckets of 1024 rows, a count for each of 128 segments and four
  // slabs, two rows for each segment.
  EXPECT_EQ(most.at("embedding_dw"), kRows * 16 + 256 + 128 * 1024 / 8 + 128 * 4 * 4 + 128 * 2 * 512 * 4);
  EXPECT_EQ(most.at("qkv_attention"), 24 * kMiB);  // the slack, and half of it again
  // Statistics; cuDNN's sums, dq, and dk and dv of every query head; slack.
  EXPECT_EQ(most.at("qkv_attention_dx"),
            kRows * kHeads * 4 + kRows * kHeads * (4 + 4 * kHeadDim + 2 * 2 * kHeadDim) + 16 * kMiB);
}

// Deterministic gradients use the native tiled kernels, like packed documents, whatever the head size.
TEST(CudaWorkspace, OfDeterministicAttention) {
  const auto most = scratch_of({"run.deterministic=true"});
  EXPECT_EQ(most.at("qkv_attention_dx"),
            256 + 256 + kRows * 8 + kRows / 32 * 4 + 256 + kRows * kHeads * 8 + 256);
  const auto others = scratch_of({"run.deterministic=true", "model.heads=16", "model.kv_heads=4"});
  EXPECT_EQ(others.at("qkv_attention_dx"),
            256 + 256 + kRows * 8 + kRows / 32 * 4 + 256 + kRows * 16 * 8 + 256);
}

// Packed documents use the native tiled kernels: the dropout key; a flag for each sequence; the span of every
// token's document; the order of tiles of 32 tokens and 4 heads, backward of 128 keys too; lse and the sum of
// dout * o of every row. Deterministic or not.
TEST(CudaWorkspace, OfPackedDocuments) {
  for (const char* deterministic : {"run.deterministic=true", "run.deterministic=false"}) {
    const auto most = scratch_of({"data.pack=true", deterministic});
    EXPECT_EQ(most.at("qkv_attention"), 256 + 256 + kRows * 8 + kRows / 32 * 4);
    EXPECT_EQ(most.at("qkv_attention_dx"),
              256 + 256 + kRows * 8 + kRows / 32 * 4 + 256 + kRows * kHeads * 8 + 256);
  }
}

// Where cuDNN does not apply: the sums of the native kernels, after the dropout key.
TEST(CudaWorkspace, OfNativeAttention) {
  const auto most = scratch_of({"precision.compute=f32"});
  EXPECT_EQ(most.at("qkv_attention"), 256);
  EXPECT_EQ(most.at("qkv_attention_dx"), 256 + kRows * kHeads * 4);
}

// Half of the rows of every sequence, as on each of two ring ranks: the hop's o and lse, or its dq, and
// cuDNN's scratch. Here that is the minimum for one KV group of a sequence.
TEST(CudaWorkspace, OfHopsOfARing) {
  const std::vector<std::string> ring = {"parallel.cp=2", "parallel.cp_method=\"ring\""};
  const auto most = scratch_of(ring);
  const int64_t rows = kRows / 2, width = kHeads * kHeadDim;
  EXPECT_EQ(most.at("attention_hop"), rows * width * 2 + rows * kHeads * 4 + 24 * kMiB);
  EXPECT_EQ(most.at("attention_hop_dx"),
            rows * width * 2 + rows * kHeads * 4 +
                (512 * 4 * (4 + 4 * kHeadDim + 2 * 2 * kHeadDim) + 16 * kMiB) * 3 / 2);
  // Packed, native kernels: spans of whole sequences, tiles of the given rows.
  std::vector<std::string> packed = ring;
  packed.push_back("data.pack=true");
  EXPECT_EQ(scratch_of(packed).at("attention_hop"), 256 + 256 + kRows * 8 + 256);
  EXPECT_EQ(scratch_of(packed).at("attention_hop_dx"),
            256 + 256 + kRows * 8 + 256 + 256 + rows * kHeads * 8 + 256);
}

// All rows, half of the heads: o and lse, and copies of q, k, v and documents with ascending rows; backward
// copies of o, lse, q, k, v, documents and do, and their gradients.
TEST(CudaWorkspace, OfRowsThatWereExchangedForHeads) {
  const auto most = scratch_of({"parallel.cp=2", "parallel.cp_method=\"ulysses\""});
  const int64_t heads = kHeads / 2, wide = kRows * heads * kHeadDim * 2, narrow = wide / heads,
                lse = kRows * heads * 4, documents = kRows * 4;
  EXPECT_EQ(most.at("attention"), 2 * wide + lse + 2 * narrow + documents + 24 * kMiB);
  EXPECT_EQ(most.at("attention_dx"),
            4 * wide + lse + 4 * narrow + documents + lse +
                std::max(kRows * heads * (4 + 4 * kHeadDim + 2 * 2 * kHeadDim) + 16 * kMiB,
                         (1024 * heads * (4 + 4 * kHeadDim + 2 * 2 * kHeadDim) + 16 * kMiB) * 3 / 2));
}

// Like hops of a ring in one call, plus o or dq of earlier hops.
TEST(CudaWorkspace, OfGatheredKeys) {
  const auto ring = scratch_of({"parallel.cp=2", "parallel.cp_method=\"ring\""}),
             gather = scratch_of({"parallel.cp=2", "parallel.cp_method=\"gather\""});
  const int64_t before = kRows / 2 * kHeads * kHeadDim * 4;
  EXPECT_EQ(gather.at("attention"), ring.at("attention_hop") + before);
  EXPECT_EQ(gather.at("attention_dx"), ring.at("attention_hop_dx") + before);
}

TEST(CudaWorkspace, OfExperts) {
  const auto most = scratch_of({"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=1024"});
  const int64_t pairs = kRows * 2;
  EXPECT_EQ(most.at("router_dw"), 8 * 4 * 512 * 4);  // eight chunks of 512 rows
  EXPECT_EQ(most.at("route"), 8 * 5 * 4);  // eight chunks count pairs of four experts, and of lower tiles
  EXPECT_EQ(most.at("grouped_linear"), 5 * 8);
  EXPECT_EQ(most.at("unpack"), pairs * 4);
  // Pairs, ends of columns in the four groups, counts of their two chunks.
  const auto limited = scratch_of(
      {"model.moe.experts=4", "model.moe.top_k=2", "model.moe.ffn=1024", "model.moe.capacity_factor=1.25"});
  EXPECT_EQ(limited.at("limit"), pairs * 8 + 4 * 128 * 8 + 4 * 2 * 128 * 4);
}

}  // namespace
}  // namespace quintet
