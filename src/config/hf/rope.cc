#include <cmath>
#include <set>

#include "config/hf/keys.h"

namespace quintet::config {
namespace {

double mscale_of(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

struct RopeReader {
  const HfJson& config;
  const HfJson& params;
  HfProblems& problems;

  std::optional<double> number(const char* name) const {
    const HfJson* const found = find_key(params, {name});
    double value = 0;
    if (found == nullptr || !read_value(fmt::format("rope: {}", name), *found, value, problems)) return {};
    return value;
  }
  double required(const char* name, double otherwise) const {
    const auto value = number(name);
    if (!value) problems.add("rope scaling lacks {}", name);
    return value.value_or(otherwise);
  }

  void llama3(RopeScaling& s) const {
    s.kind = RopeScalingKind::Llama3;
    s.factor = required("factor", 1);
    s.low_freq_factor = required("low_freq_factor", 1);
    s.high_freq_factor = required("high_freq_factor", 4);
    s.original_positions = static_cast<int64_t>(required("original_max_position_embeddings", 8192));
  }

  // With latent attention, attention_factor is the factor on the scale of all of QK^T (mscale_all_dim), and
  // cos and sin stay unscaled, which they do where mscale = mscale_all_dim.
  void yarn(RopeScaling& s, bool latent) const {
    s.kind = RopeScalingKind::Yarn;
    s.factor = required("factor", 1);
    s.beta_fast = number("beta_fast").value_or(32);
    s.beta_slow = number("beta_slow").value_or(1);
    const HfJson* const positions = find_key(config, {"max_position_embeddings"});
    const auto original = number("original_max_position_embeddings");
    if (!original && (positions == nullptr || !positions->is_number()))
      problems.add("rope scaling lacks original_max_position_embeddings");
    else
      s.original_positions = static_cast<int64_t>(original ? *original : positions->get<double>());
    const double mscale = number("mscale").value_or(0), all = number("mscale_all_dim").value_or(0);
    const auto given = number("attention_factor");
    if (latent) {
      if (given || all == 0 || mscale != all)
        problems.add(
            "rope scaling of type yarn with latent attention needs mscale = mscale_all_dim, got {} and {}",
            mscale, all);
      s.attention_factor = mscale_of(s.factor, all);
    } else {
      s.attention_factor = given                     ? *given
                           : mscale != 0 && all != 0 ? mscale_of(s.factor, mscale) / mscale_of(s.factor, all)
                                                     : mscale_of(s.factor, 1);
    }
  }
};

void read_rope(const HfJson& config, Model& m, HfProblems& problems, double default_theta) {
  static const HfJson kNone = HfJson::object();
  const HfJson* params = find_key(config, {"rope_parameters", "rope_scaling"});
  if (params == nullptr) params = &kNone;
  if (!params->is_object()) return problems.add("rope_scaling must be an object, got {}", params->dump());
  m.rope_theta = default_theta;
  for (const HfJson* const from : {&config, params})
    if (const HfJson* const theta = find_key(*from, {"rope_theta"}))
      read_value("rope_theta", *theta, m.rope_theta, problems);
  static const std::set<std::string> kKnown = {
      "rope_theta",      "rope_type",        "type",      "factor",    "original_max_position_embeddings",
      "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow", "attention_factor",
      "mscale",          "mscale_all_dim"};
  for (const auto& [key, value] : params->items()) {
    const bool neutral = value.is_null() || (key == "truncate" && value == true) ||
                         (key == "partial_rotary_factor" && value == 1.0);
    if (!kKnown.contains(key) && !neutral)
      problems.add("rope scaling: {} = {} is not supported", key, value.dump());
  }
  const HfJson* const kind = find_key(*params, {"rope_type", "type"});
  const RopeReader reader{config, *params, problems};
  if (kind == nullptr || *kind == "default") return;
  if (*kind == "llama3")
    reader.llama3(m.rope_scaling);
  else if (*kind == "yarn")
    reader.yarn(m.rope_scaling, m.mla.kv_rank > 0);
  else
    problems.add("rope scaling of type {} is not supported; only \"default\", \"llama3\" and \"yarn\"",
                 kind->dump());
}

void write_rope(const Model& m, HfJson& config) {
  const RopeScaling& s = m.rope_scaling;
  HfJson& p = config["rope_parameters"] = {{"rope_theta", m.rope_theta}, {"rope_type", "default"}};
  if (s.kind == RopeScalingKind::None) return;
  p["factor"] = s.factor;
  p["original_max_position_embeddings"] = s.original_positions;
  if (s.kind == RopeScalingKind::Llama3) {
    p["rope_type"] = "llama3";
    p["low_freq_factor"] = s.low_freq_factor, p["high_freq_factor"] = s.high_freq_factor;
    return;
  }
  p["rope_type"] = "yarn";
  p["beta_fast"] = s.beta_fast, p["beta_slow"] = s.beta_slow;
  if (m.mla.kv_rank == 0) {
    p["attention_factor"] = s.attention_factor;
    return;
  }
  // The factor was computed from an mscale of a few digits; find it again.
  const double exact = s.factor > 1 ? (s.attention_factor - 1) / (0.1 * std::log(s.factor)) : 1;
  const double rounded = std::round(exact * 1e6) / 1e6;
  const double mscale = mscale_of(s.factor, rounded) == s.attention_factor ? rounded : exact;
  p["mscale"] = mscale, p["mscale_all_dim"] = mscale;
}

}  // namespace

HfKey rope_key(double default_theta) {
  return {.names = {"rope_parameters", "rope_scaling", "rope_theta"},
          .read = [=](const HfJson& config, Model& model,
                      HfProblems& problems) { read_rope(config, model, problems, default_theta); },
          .write = write_rope};
}

}  // namespace quintet::config
