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

  // Factors by pair; the extension is that of the positions, which stand beside the scaling in published
  // files.
  void longrope(RopeScaling& s) const {
    s.kind = RopeScalingKind::Longrope;
    const auto factors = [&](const char* name, std::vector<double>& list) {
      const HfJson* const found = find_key(params, {name});
      if (found == nullptr || !found->is_array())
        return problems.add("rope scaling of type longrope lacks the list {}", name);
      for (const HfJson& item : *found) {
        double factor = 0;
        if (!read_value(fmt::format("rope: {}", name), item, factor, problems)) return;
        list.push_back(factor);
      }
    };
    factors("short_factor", s.short_factors), factors("long_factor", s.long_factors);
    const HfJson* original = find_key(params, {"original_max_position_embeddings"});
    if (original == nullptr) original = find_key(config, {"original_max_position_embeddings"});
    if (original == nullptr)
      return problems.add("rope scaling of type longrope lacks original_max_position_embeddings");
    if (!read_value("original_max_position_embeddings", *original, s.original_positions, problems)) return;
    int64_t positions = 0;
    const HfJson* const longest = find_key(config, {"max_position_embeddings"});
    if (longest != nullptr && read_value("max_position_embeddings", *longest, positions, problems) &&
        s.original_positions > 0)
      s.factor = static_cast<double>(positions) / static_cast<double>(s.original_positions);
    else
      s.factor = required("factor", 1);
    const double derived =
        s.factor <= 1
            ? 1
            : std::sqrt(1 + std::log(s.factor) / std::log(static_cast<double>(s.original_positions)));
    s.attention_factor = number("attention_factor").value_or(derived);
  }

  // With latent attention, attention_factor is the factor on the scale of all of QK^T (mscale_all_dim), and
  // cos and sin stay unscaled, which they do where mscale = mscale_all_dim.
  void yarn(RopeScaling& s, bool latent) const {
    s.kind = RopeScalingKind::Yarn;
    s.factor = required("factor", 1);
    s.beta_fast = number("beta_fast").value_or(32);
    s.beta_slow = number("beta_slow").value_or(1);
    if (const HfJson* const whole = find_key(params, {"truncate"}))
      read_value("rope: truncate", *whole, s.truncate, problems);
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

// Keys of one set of parameters that the reader below does not know.
void refuse_unknown(const HfJson& params, const HfRope& form, HfProblems& problems) {
  static const std::set<std::string> kKnown = {
      "rope_theta",      "rope_type",        "type",         "factor",     "original_max_position_embeddings",
      "low_freq_factor", "high_freq_factor", "beta_fast",    "beta_slow",  "attention_factor",
      "mscale",          "mscale_all_dim",   "short_factor", "long_factor"};
  for (const auto& [key, value] : params.items()) {
    const bool neutral = value.is_null() || (key == "truncate" && value.is_boolean()) ||
                         (key == "partial_rotary_factor" && (value == 1.0 || !form.share_keys.empty()));
    if (!kKnown.contains(key) && !neutral)
      problems.add("rope scaling: {} = {} is not supported", key, value.dump());
  }
}

void read_scaling(const HfJson& config, const HfJson& params, Model& m, HfProblems& problems) {
  const HfJson* const kind = find_key(params, {"rope_type", "type"});
  const RopeReader reader{config, params, problems};
  if (kind == nullptr || *kind == "default") return;
  if (*kind == "linear")
    m.rope_scaling = {.kind = RopeScalingKind::Linear, .factor = reader.required("factor", 1)};
  else if (*kind == "llama3")
    reader.llama3(m.rope_scaling);
  else if (*kind == "yarn")
    reader.yarn(m.rope_scaling, m.mla.kv_rank > 0);
  else if (*kind == "longrope" || *kind == "su")  // the first files of Phi-3 say "su"
    reader.longrope(m.rope_scaling);
  else
    problems.add(
        "rope scaling of type {} is not supported; only \"default\", \"linear\", \"llama3\", \"yarn\" and "
        "\"longrope\"",
        kind->dump());
}

// What the keys say in those objects that have one of them: all the same.
double number_of(std::initializer_list<const HfJson*> objects, const std::vector<std::string>& names,
                 double absent, HfProblems& problems) {
  const HfJson* first = nullptr;
  for (const HfJson* const object : objects)
    for (const std::string& name : names) {
      const HfJson* const found = find_key(*object, {name});
      if (found == nullptr) continue;
      if (first == nullptr)
        read_value(name, *(first = found), absent, problems);
      else if (*found != *first)
        problems.add("{} = {} contradicts {}, which means the same", name, found->dump(), first->dump());
    }
  return absent;
}

void read_share(const HfJson& config, const HfJson& params, const HfRope& form, Model& m,
                HfProblems& problems) {
  std::vector<std::string> names = form.share_keys;
  names.emplace_back("partial_rotary_factor");
  const double share = number_of({&params, &config}, names, form.share, problems);
  const int64_t head_dim = m.head_dim > 0 ? m.head_dim : m.heads > 0 ? m.embed / m.heads : 0;
  const auto rotated = static_cast<int64_t>(static_cast<double>(head_dim) * share);
  if (share <= 0 || share > 1) problems.add("{} must be above 0 and at most 1, got {}", names[0], share);
  m.rotary_dim = rotated == head_dim ? 0 : rotated;
}

// Layers with windows, of which the model may have none, rotate by a theta of their own, unscaled.
void read_local(const HfJson& config, const HfJson* local, Model& m, HfProblems& problems) {
  static const HfJson kNone = HfJson::object();
  if (local == nullptr) local = &kNone;
  const HfJson* const kind = find_key(*local, {"rope_type", "type"});
  if (kind != nullptr && *kind != "default")
    problems.add("rope scaling of type {} in layers with a window is not supported", kind->dump());
  refuse_unknown(*local, {}, problems);
  std::vector<std::string> names = {"rope_theta"};
  double theta = number_of({local}, names, 0, problems);
  if (theta == 0) theta = number_of({&config}, {"rope_local_base_freq"}, 1e4, problems);
  if (m.sliding_window > 0) m.local_rope_theta = theta;
}

void read_rope(const HfJson& config, Model& m, HfProblems& problems, const HfRope& form) {
  static const HfJson kNone = HfJson::object();
  const HfJson* params = find_key(config, {"rope_parameters", "rope_scaling"});
  if (params == nullptr) params = &kNone;
  require_one_value(config, {"rope_parameters", "rope_scaling"}, problems);
  if (!params->is_object()) return problems.add("rope_scaling must be an object, got {}", params->dump());
  if (form.by_layer_type) {
    const HfJson* const full = find_key(*params, {"full_attention"});
    const HfJson* const local = find_key(*params, {"sliding_attention"});
    for (const HfJson* const set : {full, local})
      if (set != nullptr && !set->is_object())
        return problems.add("rope_parameters must have an object for every type of layer");
    read_local(config, local, m, problems);
    if (full != nullptr || local != nullptr) params = full != nullptr ? full : &kNone;
  }
  m.rope_theta = number_of({params, &config}, form.theta_keys, form.theta, problems);
  if (m.rope_theta <= 0) problems.add("rope_theta must be above 0, got {}", m.rope_theta);
  refuse_unknown(*params, form, problems);
  if (!form.share_keys.empty()) read_share(config, *params, form, m, problems);
  read_scaling(config, *params, m, problems);
}

void write_set(const Model& m, HfJson& p, const HfRope& form) {
  const RopeScaling& s = m.rope_scaling;
  p = {{"rope_theta", m.rope_theta}, {"rope_type", "default"}};
  if (!form.share_keys.empty() && m.head_dim > 0)
    p["partial_rotary_factor"] =
        m.rotary_dim == 0 ? 1.0 : static_cast<double>(m.rotary_dim) / static_cast<double>(m.head_dim);
  if (s.kind == RopeScalingKind::None) return;
  p["factor"] = s.factor;
  if (s.kind == RopeScalingKind::Linear) {
    p["rope_type"] = "linear";
    return;
  }
  p["original_max_position_embeddings"] = s.original_positions;
  if (s.kind == RopeScalingKind::Longrope) {
    p["rope_type"] = "longrope";
    p["short_factor"] = s.short_factors, p["long_factor"] = s.long_factors;
    p["attention_factor"] = s.attention_factor;
    return;
  }
  if (s.kind == RopeScalingKind::Llama3) {
    p["rope_type"] = "llama3";
    p["low_freq_factor"] = s.low_freq_factor, p["high_freq_factor"] = s.high_freq_factor;
    return;
  }
  p["rope_type"] = "yarn";
  p["beta_fast"] = s.beta_fast, p["beta_slow"] = s.beta_slow;
  if (!s.truncate) p["truncate"] = false;
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

void write_rope(const Model& m, HfJson& config, const HfRope& form) {
  HfJson& p = config["rope_parameters"] = HfJson::object();
  write_set(m, form.by_layer_type ? p["full_attention"] : p, form);
  if (m.rope_scaling.kind == RopeScalingKind::Longrope)
    config["original_max_position_embeddings"] = m.rope_scaling.original_positions;
  if (!form.by_layer_type) return;
  const double theta = m.local_rope_theta > 0 ? m.local_rope_theta : m.rope_theta;
  p["sliding_attention"] = {{"rope_theta", theta}, {"rope_type", "default"}};
}

}  // namespace

HfKey rope_key(HfRope form) {
  std::vector<std::string> names = {"rope_parameters", "rope_scaling"};
  names.insert(names.end(), form.theta_keys.begin(), form.theta_keys.end());
  names.insert(names.end(), form.share_keys.begin(), form.share_keys.end());
  if (form.by_layer_type) names.emplace_back("rope_local_base_freq");
  return {.names = names,
          .read = [=](const HfJson& config, Model& model,
                      HfProblems& problems) { read_rope(config, model, problems, form); },
          .write = [=](const Model& model, HfJson& config) { write_rope(model, config, form); }};
}

}  // namespace quintet::config
