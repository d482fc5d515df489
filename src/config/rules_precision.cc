// Rules for [precision], but for precision.linear (rules_quantised.cc).
#include "config/names.h"
#include "config/optimizer_traits.h"
#include "config/rule.h"

namespace quintet::config {
namespace {

void f64_is_all_or_nothing(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  const bool wide = p.compute == base::DType::F64;
  const auto check = [&](const char* key, base::DType t) {
    if ((t == base::DType::F64) == wide) return;
    fail(key,
         fmt::format("{} contradicts precision.compute = \"{}\": f64 must be used for all five keys or none",
                     name_of(t), name_of(p.compute)),
         wide ? "\"f64\"" : "\"f32\"");
  };
  if (!p.split_master()) check("precision.master", p.master_type());
  check("precision.moments", p.moments);
  check("precision.gradients", p.gradients);
  check("precision.reduce", p.reduce);
}

void master_is_not_narrower(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.master == Master::Bf16)
    fail("precision.master",
         "bf16 master weights lose every update smaller than 1/256 of the weight; use f32 precision",
         p.compute == base::DType::BF16 ? "\"split\"" : "\"f32\"");
}

void split_masters_need_bf16_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.split_master() && p.compute != base::DType::BF16)
    fail("precision.master",
         fmt::format("\"split\" requires precision.compute = \"bf16\", got \"{}\": the upper half of a split "
                     "master is the bf16 weight used by matmuls",
                     name_of(p.compute)),
         fmt::format("\"{}\"", name_of(Precision::of(p.compute).master)));
}

void bf16_gradients_need_bf16_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.gradients == base::DType::BF16 && p.compute != base::DType::BF16)
    fail(
        "precision.gradients",
        fmt::format("\"bf16\" requires precision.compute = \"bf16\", got \"{}\"; to communicate gradients in "
                    "bf16, set precision.reduce",
                    name_of(p.compute)),
        fmt::format("\"{}\"", name_of(Precision::of(p.compute).gradients)));
}

// With f64 the moments stay f64 numbers and are rounded to those of bf16: what verifies layouts.
void stochastic_rounding_needs_bf16_moments(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  if (p.moments_rounding == MomentsRounding::Nearest) return;
  if (r.optimizer.kind == OptimizerKind::AdamW8bit)
    return fail(
        "precision.moments_rounding",
        "\"stochastic\" has no effect with optimizer.name = \"adamw8bit\", which stores the nearest code",
        "\"nearest\"");
  const auto refuse = [&](OptimizerKind kind) {
    if (r.optimizer.uses(kind))
      fail("precision.moments_rounding",
           fmt::format("\"stochastic\" is not supported yet with optimizer.name = \"{}\"", name_of(kind)),
           "\"nearest\"");
    return r.optimizer.uses(kind);
  };
  if (refuse(OptimizerKind::Custom)) return;
  for (const OptimizerTraits& t : optimizer_traits())
    if (t.kind != OptimizerKind::AdamW8bit && !t.rounds_moments && refuse(t.kind)) return;
  if (p.moments == base::DType::F32)
    fail("precision.moments_rounding",
         "\"stochastic\" requires precision.moments = \"bf16\", got \"f32\", which is not rounded",
         "\"nearest\"");
}

void bf16_moments_need_moments(const Recipe& r, const Fail& fail) {
  const Optimizer& o = r.optimizer;
  if (r.precision.moments != base::DType::BF16 || stores_moments(o)) return;
  fail("precision.moments",
       fmt::format("\"bf16\" has no effect with optimizer.name = \"{}\"{}, which stores no moments",
                   name_of(o.kind), reads_key(o, "optimizer.momentum") ? " and optimizer.momentum = 0" : ""),
       "\"f32\"");
}

void f16_is_only_for_compute(const Recipe& r, const Fail& fail) {
  const Precision& p = r.precision;
  const auto check = [&](const char* key, base::DType t) {
    if (t == base::DType::F16)
      fail(key, "\"f16\" is allowed only for precision.compute: gradient sums overflow it, squares underflow",
           fmt::format("\"{}\"", name_of(Precision::of(p.compute).reduce)));
  };
  check("precision.moments", p.moments);
  check("precision.gradients", p.gradients);
  // By default it follows the gradients, which are reported above.
  if (p.gradients != base::DType::F16) check("precision.reduce", p.reduce);
}

void tf32_needs_f32_on_a_gpu(const Recipe& r, const Fail& fail) {
  if (!r.precision.tf32) return;
  if (r.run.device != DeviceKind::Cuda)
    fail("precision.tf32", "requires run.device = \"cuda\": CPUs have no tf32 matmuls", "false");
  else if (r.precision.compute != base::DType::F32)
    fail("precision.tf32",
         fmt::format("has no effect with precision.compute = \"{}\": it applies to f32 matmuls",
                     name_of(r.precision.compute)),
         "false");
}

void dynamic_scale_keys_fit(const Recipe& r, const Fail& fail) {
  const Precision &p = r.precision, none;
  if (!p.loss_scale.dynamic) {
    const std::string why = "unless precision.loss_scale = \"dynamic\"";
    idle(fail, "precision.loss_scale_window", p.loss_scale_window, none.loss_scale_window, why);
    idle(fail, "precision.loss_scale_start", p.loss_scale_start, none.loss_scale_start, why);
    idle(fail, "precision.loss_scale_min", p.loss_scale_min, none.loss_scale_min, why);
    idle(fail, "precision.loss_scale_hysteresis", p.loss_scale_hysteresis, none.loss_scale_hysteresis, why);
  } else if (p.loss_scale_min > p.loss_scale_start) {
    fail("precision.loss_scale_min",
         fmt::format("{} exceeds precision.loss_scale_start {}", p.loss_scale_min, p.loss_scale_start),
         fmt::format("{}", p.loss_scale_start));
  }
}

}  // namespace

std::vector<Rule> precision_rules() {
  return {
      {"f64 is used for all precision keys or for none",
       {"precision.compute", "precision.master", "precision.moments", "precision.gradients",
        "precision.reduce"},
       f64_is_all_or_nothing},
      {"precision.master is at least f32", {"precision.compute", "precision.master"}, master_is_not_narrower},
      {"precision.master = \"split\" requires bf16 compute",
       {"precision.compute", "precision.master"},
       split_masters_need_bf16_compute},
      {"precision.gradients = \"bf16\" requires bf16 compute",
       {"precision.compute", "precision.gradients"},
       bf16_gradients_need_bf16_compute},
      {"precision.moments_rounding = \"stochastic\" requires bf16 moments",
       {"precision.moments", "precision.moments_rounding", "optimizer.name"},
       stochastic_rounding_needs_bf16_moments},
      {"precision.moments = \"bf16\" requires moments",
       {"precision.moments", "optimizer.name", "optimizer.momentum"},
       bf16_moments_need_moments},
      {"f16 is allowed only for precision.compute",
       {"precision.compute", "precision.moments", "precision.gradients", "precision.reduce"},
       f16_is_only_for_compute},
      {"precision.tf32 requires f32 compute on a GPU",
       {"precision.compute", "precision.tf32", "run.device"},
       tf32_needs_f32_on_a_gpu},
      {"keys of a dynamic loss scale require precision.loss_scale = \"dynamic\"",
       {"precision.loss_scale", "precision.loss_scale_window", "precision.loss_scale_start",
        "precision.loss_scale_min", "precision.loss_scale_hysteresis"},
       dynamic_scale_keys_fit},
  };
}

}  // namespace quintet::config
