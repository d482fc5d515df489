// Rules for the context and expert axes and for mesh cuts.
#include <algorithm>
#include <functional>
#include <numeric>

#include "config/context_parallel.h"
#include "config/demands.h"
#include "config/mesh_cuts.h"
#include "config/names.h"
#include "config/nearest.h"
#include "config/rule.h"

namespace quintet::config {

using base::Dim;

namespace {

// The values nearest to `v` on either side, up to `max`, that `legal` accepts: "2 or 4"; empty when there are
// none.
std::string nearest_legal(int64_t v, int64_t max, const std::function<bool(int64_t)>& legal) {
  std::string text;
  for (int64_t n = std::min(v - 1, max); n >= 1; --n)
    if (legal(n)) {
      text = fmt::format("{}", n);
      break;
    }
  for (int64_t n = v + 1; n <= max; ++n)
    if (legal(n)) return text.empty() ? fmt::format("{}", n) : text + fmt::format(" or {}", n);
  return text;
}

// ---- context

bool has_windows(const Model& m) {
  for (int64_t block = 0; block < m.layers; ++block)
    if (m.windowed(block)) return true;
  return false;
}

void context_keys_need_cp(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.cp == 1) {
    idle(fail, "parallel.cp_method", p.cp_method, ContextMethod::Auto, "with parallel.cp = 1");
    idle(fail, "parallel.ulysses", p.ulysses, int64_t{0}, "with parallel.cp = 1");
    return idle(fail, "parallel.cp_method_windowed", p.cp_method_windowed, ContextMethod::Auto,
                "with parallel.cp = 1");
  }
  if (p.cp_method != ContextMethod::UlyssesRing && windowed_method(p) != ContextMethod::UlyssesRing)
    idle(fail, "parallel.ulysses", p.ulysses, int64_t{0},
         fmt::format("with parallel.cp_method = \"{}\"", name_of(p.cp_method)));
  if (r.model.family != Family::Custom && !has_windows(r.model))
    idle(fail, "parallel.cp_method_windowed", p.cp_method_windowed, ContextMethod::Auto,
         "without blocks that have a sliding window");
}

void context_divides_sequence(const Recipe& r, const Fail& fail) {
  const int64_t cp = r.parallel.cp, seq = r.data.seq_len;
  if (cp == 1 || seq % (2 * cp) == 0) return;
  fail("parallel.cp",
       fmt::format("{} splits a sequence into {} chunks, two per rank, which does not divide data.seq_len {}",
                   cp, 2 * cp, seq),
       fmt::format("data.seq_len {}", nearest_multiples(2 * cp, seq)));
}

void ulysses_fits(const Recipe& r, ContextMethod method, const std::string& key, const Fail& fail) {
  const Parallel& p = r.parallel;
  const Model& m = r.model;
  const int64_t all_heads = attention_heads(m), all_kv = attention_kv_heads(m);
  if (p.cp == 1 || all_heads % p.tp != 0 || (all_kv % p.tp != 0 && p.tp % all_kv != 0)) return;
  const int64_t heads = all_heads / p.tp;
  const auto others = [&] {
    const int64_t u = largest_ulysses(p, m);
    return u > 1 ? fmt::format("\"ring\", or \"ulysses+ring\" with ulysses {}", u) : std::string("\"ring\"");
  };
  if (method == ContextMethod::Ulysses && heads % p.cp != 0)
    fail(key,
         fmt::format(
             "\"ulysses\" exchanges sequence for heads, but parallel.cp {} does not divide the {} heads of "
             "a tensor rank (model.heads {} / tp {})",
             p.cp, heads, all_heads, p.tp),
         others());
  const int64_t kv = kv_heads_per_rank(p, all_kv);
  if (method == ContextMethod::Ulysses && heads % p.cp == 0 && !heads_divide(p, m, p.cp))
    fail(
        key,
        fmt::format("\"ulysses\" distributes over parallel.cp {} ranks the {} KV heads of a tensor rank, but "
                    "neither number divides the other",
                    p.cp, kv),
        others());
  if (method != ContextMethod::UlyssesRing) return;
  const int64_t u = p.ulysses;
  const auto legal = [&](int64_t n) { return n > 1 && n < p.cp && p.cp % n == 0 && heads_divide(p, m, n); };
  if (legal(u)) return;
  const std::string near = nearest_legal(u, p.cp, legal);
  if (near.empty())
    fail(key,
         fmt::format("\"ulysses+ring\" needs a number of ranks greater than 1 and less than parallel.cp {} "
                     "that divides cp and the {} heads of a tensor rank, and divides its {} KV heads or is a "
                     "multiple of them; there is none",
                     p.cp, heads, kv),
         heads_divide(p, m, p.cp) ? "\"ulysses\"" : "\"ring\"");
  else
    fail("parallel.ulysses",
         fmt::format(
             "{} must divide parallel.cp {} and the {} heads of a tensor rank, divide its {} KV heads or "
             "be a multiple of them, and be greater than 1 and less than {}",
             u, p.cp, heads, kv, p.cp),
         near);
}

void ulysses_fits(const Recipe& r, const Fail& fail) {
  ulysses_fits(r, r.parallel.cp_method, "parallel.cp_method", fail);
  if (windowed_method(r.parallel) != r.parallel.cp_method)
    ulysses_fits(r, windowed_method(r.parallel), "parallel.cp_method_windowed", fail);
}

// ---- experts

void expert_ranks_need_experts(const Recipe& r, const Fail& fail) {
  if (r.model.moe.experts > 0) return;
  idle(fail, "parallel.ep", r.parallel.ep, int64_t{1}, "without experts (model.moe.experts = 0)");
  idle(fail, "parallel.etp", r.parallel.etp, int64_t{1}, "without experts (model.moe.experts = 0)");
}

void expert_ranks_divide_experts(const Recipe& r, const Fail& fail) {
  const Moe& x = r.model.moe;
  const Parallel& p = r.parallel;
  if (x.experts == 0) return;
  if (x.experts % p.ep != 0)
    fail("parallel.ep", fmt::format("{} does not divide model.moe.experts {}", p.ep, x.experts),
         nearest_divisors(x.experts, p.ep));
  if (x.ffn > 0 && x.ffn % p.etp != 0)
    fail("parallel.etp", fmt::format("{} does not divide model.moe.ffn {}", p.etp, x.ffn),
         nearest_divisors(x.ffn, p.etp));
}

void shared_experts_divide(const Recipe& r, const Fail& fail) {
  const int64_t tp = r.parallel.tp, ffn = r.model.moe.shared_ffn;
  if (ffn % tp != 0)
    fail("parallel.tp", fmt::format("{} does not divide model.moe.shared_ffn {}", tp, ffn),
         nearest_divisors(ffn, tp));
}

bool expert_ranks_fit(const Parallel& p) { return p.dp() * p.cp * p.tp % (p.ep * p.etp) == 0; }

void expert_ranks_divide_mesh(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (!world_in_reach(p) || r.model.moe.experts == 0 || r.model.moe.experts % p.ep != 0 ||
      expert_ranks_fit(p))
    return;
  const int64_t ranks = p.dp() * p.cp * p.tp;
  const auto legal = [&](int64_t n) { return r.model.moe.experts % n == 0 && ranks % (n * p.etp) == 0; };
  const std::string near = nearest_legal(p.ep, ranks, legal);
  fail("parallel.ep",
       fmt::format("ep {} x etp {} = {} does not divide the {} ranks of dp {} x cp {} x tp {}", p.ep, p.etp,
                   p.ep * p.etp, ranks, p.dp(), p.cp, p.tp),
       near.empty() ? fmt::format("etp {}", nearest_divisors(ranks, p.etp)) : near);
}

// ---- cuts of the mesh

void mesh_has_cuts(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const base::DimDemands wanted = demands(r.model);
  const int64_t experts = base::demanded(wanted, Dim::Experts), heads = base::demanded(wanted, Dim::Heads);
  using Kind = ReshardAfterForward::Kind;
  // Rejected by other rules.
  if (!world_in_reach(p)) return;
  for (const ContextMethod method : {p.cp_method, windowed_method(p)}) {
    if (heads % (p.tp * std::max<int64_t>(1, ulysses_ranks(p, method))) != 0) return;
    if (method == ContextMethod::UlyssesRing && (p.ulysses < 1 || p.cp % p.ulysses != 0)) return;
  }
  if (experts > 0 && !expert_ranks_fit(p)) return;
  const int64_t k = p.reshard_after_forward.ranks;
  if (p.reshard_after_forward.kind == Kind::ToRanks && (k < 1 || p.dp_shard * p.cp % k != 0)) return;

  const std::vector<Cut> cuts = mesh_cuts(p, wanted);
  const size_t at = first_bad_cut(cuts);
  if (at == cuts.size()) return;
  const Cut &inner = cuts[at], &outer = cuts[at + 1];
  const auto either = [&](const char* key) { return inner.key == key || outer.key == key; };
  const std::string text =
      fmt::format("rank groups of {} ({}) and of {} ({}) have no common refinement: {} does not divide {}",
                  inner.size, inner.why, outer.size, outer.why, inner.size, outer.size);
  const auto fits = [&](const Parallel& changed) {
    const std::vector<Cut> c = mesh_cuts(changed, wanted);
    return first_bad_cut(c) == c.size();
  };
  if (either("parallel.ep") || either("parallel.etp")) {
    const bool ep = either("parallel.ep");
    int64_t Parallel::*axis = ep ? &Parallel::ep : &Parallel::etp;
    const int64_t whole = ep ? experts : base::demanded(wanted, Dim::ExpertFfn);
    const std::string near = nearest_legal(p.*axis, p.dp() * p.cp * p.tp, [&](int64_t n) {
      Parallel changed = p;
      changed.*axis = n;
      return whole % n == 0 && expert_ranks_fit(changed) && fits(changed);
    });
    return fail(ep ? "parallel.ep" : "parallel.etp", text, near);
  }
  fail("parallel.reshard_after_forward", text, nearest_legal(k, p.dp_shard * p.cp - 1, [&](int64_t n) {
         Parallel changed = p;
         changed.reshard_after_forward.ranks = n;
         return n > 1 && p.dp_shard * p.cp % n == 0 && fits(changed);
       }));
}

// ---- models that a program supplies

void custom_dims_divide(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (r.model.family != Family::Custom) return;
  if (r.model.demands.empty())
    return fail("model.family",
                "\"custom\" is a model that a program supplies through the library (docs/api.md); a recipe "
                "alone has none",
                "leave it out and name a model with model.preset");
  if (!world_in_reach(p)) return;
  for (const base::DimDemand& d : r.model.demands) {
    const int64_t ranks = ranks_of(p, d.dim);
    const bool shared = d.need == base::DimNeed::Share && ranks % d.size == 0;
    if (d.need == base::DimNeed::Pad || d.size % ranks == 0 || shared) continue;
    fail(axis_key(d.dim),
         fmt::format("{} does not divide the model's {} {}", ranks, base::to_string(d.dim), d.size),
         nearest_divisors(d.size, ranks));
  }
  if (base::demanded(r.model.demands, Dim::Experts) == 0) {
    idle(fail, "parallel.ep", p.ep, int64_t{1}, "with a model that has no experts");
    idle(fail, "parallel.etp", p.etp, int64_t{1}, "with a model that has no experts");
  } else if (!expert_ranks_fit(p)) {
    fail("parallel.ep", fmt::format("ep {} x etp {} does not divide the {} ranks of dp {} x cp {} x tp {}",
                                    p.ep, p.etp, p.dp() * p.cp * p.tp, p.dp(), p.cp, p.tp));
  }
  ulysses_fits(r, fail);
  mesh_has_cuts(r, fail);
}

void dims_belong_to_the_model(const Recipe& r, const Fail& fail) {
  for (const auto& [name, axis] : r.parallel.dims) {
    if (r.model.family != Family::Custom) {
      fail("parallel.dims",
           fmt::format("places the dim \"{}\", but only a custom model has dims of its own", name),
           "leave it out");
      continue;
    }
    std::string known;
    bool found = false;
    for (const base::DimDemand& d : r.model.demands) {
      if (!base::is_user_dim(d.dim)) continue;
      found = found || base::to_string(d.dim) == name;
      known += fmt::format("{}{}", known.empty() ? "" : ", ", base::to_string(d.dim));
    }
    if (!found)
      fail("parallel.dims", fmt::format("places the dim \"{}\", which the model does not have", name),
           known.empty() ? "leave it out" : known);
  }
}

}  // namespace

__int128 wide_world(const Parallel& p) {
  __int128 ranks = 1;
  for (const int64_t axis : {p.pp, p.dp_replicate, p.dp_shard, p.cp, p.tp}) ranks *= axis;
  return ranks;
}

bool world_in_reach(const Parallel& p) { return wide_world(p) <= kMaxWorld; }

std::string layout_text(const Parallel& p) {
  std::string text = p.pp > 1 ? fmt::format("pp {} x ", p.pp) : "";
  text += fmt::format("dp_replicate {} x dp_shard {} x ", p.dp_replicate, p.dp_shard);
  if (p.cp > 1) text += fmt::format("cp {} x ", p.cp);
  return text + fmt::format("tp {}", p.tp);
}

std::vector<Rule> mesh_rules() {
  return {
      {"context keys require parallel.cp > 1",
       {"parallel.cp", "parallel.cp_method", "parallel.cp_method_windowed", "parallel.ulysses",
        "model.sliding_window"},
       context_keys_need_cp},
      {"2 x parallel.cp divides data.seq_len", {"parallel.cp", "data.seq_len"}, context_divides_sequence},
      {"the Ulysses ranks divide the heads",
       {"parallel.cp", "parallel.cp_method", "parallel.cp_method_windowed", "parallel.ulysses", "parallel.tp",
        "model.heads", "model.kv_heads"},
       ulysses_fits},
      {"expert axes require experts",
       {"parallel.ep", "parallel.etp", "model.moe.experts"},
       expert_ranks_need_experts},
      {"expert axes divide the experts",
       {"parallel.ep", "parallel.etp", "model.moe.experts", "model.moe.ffn"},
       expert_ranks_divide_experts},
      {"parallel.tp divides model.moe.shared_ffn",
       {"parallel.tp", "model.moe.shared_ffn"},
       shared_experts_divide},
      {"ep x etp divides dp x cp x tp",
       {"parallel.ep", "parallel.etp", "parallel.pp", "parallel.dp_replicate", "parallel.dp_shard",
        "parallel.cp", "parallel.tp", "model.moe.experts"},
       expert_ranks_divide_mesh},
      {"rank groups have a common refinement",
       {"parallel.ep", "parallel.etp", "parallel.pp", "parallel.dp_replicate", "parallel.dp_shard",
        "parallel.cp", "parallel.cp_method", "parallel.cp_method_windowed", "parallel.ulysses", "parallel.tp",
        "parallel.reshard_after_forward", "parallel.order", "model.heads", "model.kv_heads",
        "model.mla.kv_rank", "model.moe.experts", "model.moe.ffn"},
       mesh_has_cuts},
      {"ranks divide the dims of a custom model",
       {"model.family", "parallel.ep", "parallel.etp", "parallel.pp", "parallel.dp_replicate",
        "parallel.dp_shard", "parallel.cp", "parallel.cp_method", "parallel.cp_method_windowed",
        "parallel.ulysses", "parallel.tp", "parallel.order", "parallel.dims",
        "parallel.reshard_after_forward"},
       custom_dims_divide},
      {"parallel.dims names dims of the model", {"model.family", "parallel.dims"}, dims_belong_to_the_model},
  };
}

}  // namespace quintet::config
