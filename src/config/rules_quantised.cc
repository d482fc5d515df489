// Rules for quantised linear layers: precision.linear, fp8_match and fp8_head.
#include <numeric>

#include "config/nearest.h"
#include "config/quantised.h"
#include "config/rule.h"

namespace quintet::config {
namespace {

// What GEMMs of 8-bit operands require of their sizes: rows of 16 bytes.
constexpr int64_t kMultiple = 16;

std::string linear_text(const Recipe& r) { return fmt::format("\"{}\"", name_of(r.precision.linear)); }

void fp8_needs_bf16(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (!p.quantises() || p.compute == base::DType::BF16) return;
  const bool emulates = p.compute == base::DType::F32 || p.compute == base::DType::F64;
  if (emulates && r.run.device != DeviceKind::Cuda) return;
  fail("precision.linear",
       fmt::format("{} requires precision.compute = \"bf16\", got \"{}\"{}", linear_text(r),
                   name_of(p.compute), emulates ? ": f32 and f64 emulate fp8, only on CPUs" : ""),
       "\"compute\"");
}

void blocks_of_32_need_cpus(const Recipe& r, const Fail& fail) {
  if (r.precision.linear == LinearKind::Mxfp8 && r.run.device == DeviceKind::Cuda)
    fail("precision.linear",
         fmt::format("{} is emulated only on CPUs: GPUs before Blackwell have no matmuls of it",
                     linear_text(r)),
         "\"fp8-block\"");
}

// Every layout has the same blocks: a rank holds whole ones, and one along token rows is inside a sequence.
void ranks_hold_whole_blocks(const Recipe& r, const Fail& fail) {
  const int64_t block = code_block(r.precision.linear);
  if (block == 0) return;
  const Model& m = r.model;
  const Parallel& p = r.parallel;
  const int64_t seq_len = r.data.seq_len, runs = p.cp > 1 ? 2 * p.cp : 1;
  const int64_t shared = p.sequence_parallel ? p.tp : 1;  // ranks that divide the token rows of a micro-batch
  const int64_t unit = std::lcm(block * runs, block * p.cp * shared);
  if (seq_len % (block * runs) != 0)
    fail("data.seq_len",
         fmt::format("{} gives a rank runs of {} tokens of a sequence{}, which {} needs in multiples of {}",
                     seq_len, seq_len / runs,
                     p.cp > 1 ? fmt::format(" (two for each of parallel.cp {} ranks)", p.cp) : "",
                     linear_text(r), block),
         nearest_multiples(unit, seq_len));
  else if (r.batch.micro * seq_len / p.cp % (block * shared) != 0)
    fail("data.seq_len",
         fmt::format("{} gives a rank {} of the {} token rows of a micro-batch (parallel.tp {} with sequence "
                     "parallel), which {} needs in multiples of {}",
                     seq_len, r.batch.micro * seq_len / p.cp / p.tp, r.batch.micro * seq_len / p.cp, p.tp,
                     linear_text(r), block),
         nearest_multiples(unit, seq_len));
  const auto check = [&](const char* what, int64_t size, int64_t ranks) {
    // Others are not quantised, or not sharded evenly, which another rule reports.
    if (size % block != 0 || size % ranks != 0 || size / ranks % block == 0) return;
    int64_t fewer = p.tp - 1;
    while (fewer > 1 && (size % fewer != 0 || size / fewer % block != 0)) --fewer;
    fail("parallel.tp",
         fmt::format("{} gives a rank {} of the {} {}, which {} needs in multiples of {}", p.tp, size / ranks,
                     size, what, linear_text(r), block),
         fmt::format("{}", fewer));
  };
  if (r.precision.fp8_match.empty()) {
    if (m.mla.kv_rank == 0) {
      check("features of all heads (model.heads x head_dim)", m.heads * m.head_dim, p.tp);
      check("features of all KV heads (model.kv_heads x head_dim)", m.kv_heads * m.head_dim,
            std::min(p.tp, m.kv_heads));
    }
    if (m.has_dense_block()) check("features of model.ffn", m.ffn, p.tp);
    check("features of model.moe.shared_ffn", m.moe.shared_ffn, p.tp);
  }
  if (r.precision.fp8_head && r.loss.chunk % block != 0)
    fail("loss.chunk",
         fmt::format("{} token rows at a time, which {} in the head needs in multiples of {}", r.loss.chunk,
                     linear_text(r), block),
         nearest_multiples(block, r.loss.chunk) + ", or 0");
}

void fp8_keys_need_quantised_linears(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.quantises()) return;
  const char* const why = "unless precision.linear quantises, as \"fp8-delayed\" does";
  if (!p.fp8_match.empty()) fail("precision.fp8_match", fmt::format("has no effect {}", why), "leave it out");
  idle(fail, "precision.fp8_head", p.fp8_head, false, why);
}

// Emulation has no such limit, so that small models can be compared in many layouts. Whole blocks are more.
void quantised_sizes_are_multiples(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (!p.quantises() || p.compute != base::DType::BF16 || code_block(p.linear) > 0) return;
  const Model& m = r.model;
  const int64_t rows = r.batch.micro * r.data.seq_len / r.parallel.cp, tp = r.parallel.tp;
  if (rows % kMultiple != 0)
    fail("data.seq_len",
         fmt::format(
             "{} gives a rank {} token rows per micro-batch (batch.micro {}, parallel.cp {}), which {} "
             "needs in multiples of {}",
             r.data.seq_len, rows, r.batch.micro, r.parallel.cp, linear_text(r), kMultiple),
         nearest_multiples(kMultiple * r.parallel.cp, r.data.seq_len));
  const auto check = [&](const char* what, int64_t size) {
    // Others are not quantised, or not sharded evenly, which another rule reports.
    if (size % kMultiple != 0 || size % tp != 0 || size / tp % kMultiple == 0) return;
    int64_t fewer = tp - 1;
    while (fewer > 1 && (size % fewer != 0 || size / fewer % kMultiple != 0)) --fewer;
    fail("parallel.tp",
         fmt::format("{} gives a rank {} of the {} {}, which {} needs in multiples of {}", tp, size / tp,
                     size, what, linear_text(r), kMultiple),
         fmt::format("{}", fewer));
  };
  if (m.mla.kv_rank == 0) check("features of all heads (model.heads x head_dim)", m.heads * m.head_dim);
  if (m.has_dense_block()) check("features of model.ffn", m.ffn);
  check("features of model.moe.shared_ffn", m.moe.shared_ffn);
}

void fp8_head_fits_vocab(const Recipe& r, const Fail& fail) {
  if (!r.precision.quantises() || !r.precision.fp8_head) return;
  const int64_t block = code_block(r.precision.linear), multiple = std::max(kMultiple, block),
                ranks = r.precision.compute == base::DType::BF16 || block > 0 ? r.parallel.tp : 1,
                unit = multiple * ranks;
  if (r.model.vocab % unit != 0)
    fail("precision.fp8_head",
         fmt::format("requires a model.vocab in multiples of {}{}, got {}", multiple,
                     ranks > 1 ? fmt::format(" x parallel.tp {}", ranks) : "", r.model.vocab),
         fmt::format("false, or model.vocab {}", nearest_multiples(unit, r.model.vocab)));
}

}  // namespace

std::vector<Rule> quantised_rules() {
  return {{"quantised linears require bf16 compute",
           {"precision.linear", "precision.compute", "run.device"},
           fp8_needs_bf16},
          {"precision.linear = \"mxfp8\" requires CPUs",
           {"precision.linear", "run.device"},
           blocks_of_32_need_cpus},
          {"ranks hold whole blocks of quantised values",
           {"precision.linear", "precision.fp8_match", "precision.fp8_head", "data.seq_len", "batch.micro",
            "parallel.cp", "parallel.tp", "parallel.sequence_parallel", "model.heads", "model.kv_heads",
            "model.head_dim", "model.ffn", "model.moe.shared_ffn", "loss.chunk"},
           ranks_hold_whole_blocks},
          {"fp8 keys require quantised linears",
           {"precision.linear", "precision.fp8_match", "precision.fp8_head"},
           fp8_keys_need_quantised_linears},
          {"quantised linears have sizes in multiples of 16 on every rank",
           {"precision.linear", "precision.compute", "data.seq_len", "batch.micro", "parallel.cp",
            "parallel.tp", "model.heads", "model.head_dim", "model.ffn", "model.moe.shared_ffn"},
           quantised_sizes_are_multiples},
          {"precision.fp8_head fits model.vocab",
           {"precision.linear", "precision.fp8_head", "precision.compute", "model.vocab", "parallel.tp"},
           fp8_head_fits_vocab}};
}

}  // namespace quintet::config
