// Rules for quantised linear layers: precision.linear, fp8_match and fp8_head.
#include "config/nearest.h"
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
                   name_of(p.compute), emulates ? ": f32 and f64 emulate fp8, on CPUs only" : ""),
       "\"compute\"");
}

void fp8_keys_need_quantised_linears(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.quantises()) return;
  const char* const why = "unless precision.linear quantises, as \"fp8-delayed\" does";
  if (!p.fp8_match.empty()) fail("precision.fp8_match", fmt::format("has no effect {}", why), "leave it out");
  idle(fail, "precision.fp8_head", p.fp8_head, false, why);
}

// Emulation has no such limit, so that small models can be compared in many layouts.
void quantised_sizes_are_multiples(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (!p.quantises() || p.compute != base::DType::BF16) return;
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
  const int64_t ranks = r.precision.compute == base::DType::BF16 ? r.parallel.tp : 1,
                unit = kMultiple * ranks;
  if (r.model.vocab % unit != 0)
    fail("precision.fp8_head",
         fmt::format("requires a model.vocab in multiples of {}{}, got {}", kMultiple,
                     ranks > 1 ? fmt::format(" x parallel.tp {}", ranks) : "", r.model.vocab),
         fmt::format("false, or model.vocab {}", nearest_multiples(unit, r.model.vocab)));
}

}  // namespace

std::vector<Rule> quantised_rules() {
  return {{"quantised linears require bf16 compute",
           {"precision.linear", "precision.compute", "run.device"},
           fp8_needs_bf16},
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
