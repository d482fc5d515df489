// Verification results as text and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "config/names.h"
#include "tools/verify.h"

namespace quintet::tools {

namespace {

// Checks of the same kind and step form one row of the table, with the worst one shown.
struct Row {
  const Check* worst = nullptr;
  int64_t count = 0, failed = 0;
};

double ratio(const Check& c) {
  if (!c.pass) return 1e300 * (c.error == c.error ? 1 : 2);
  return c.tolerance > 0 ? c.error / c.tolerance : 0;
}

std::string title(const Check& c) {
  if (c.kind == Check::Kind::InitialWeight || c.kind == Check::Kind::Peak) return to_string(c.kind);
  return fmt::format("{}, step {}", to_string(c.kind), c.step);
}

std::string explain(const Check& c) {
  const std::string what = c.name.empty() ? title(c) : fmt::format("{} {}", title(c), c.name);
  if (c.kind == Check::Kind::InitialWeight)
    return fmt::format("{}: {} elements are not bit-equal", what, c.error);
  return fmt::format("{}: {} in the layout, {} on one rank; error {:.3g}, tolerance {:.3g}", what, c.layout,
                     c.one_rank, c.error, c.tolerance);
}

}  // namespace

std::string to_string(Check::Kind kind) {
  switch (kind) {
    case Check::Kind::InitialWeight:
      return "initial weights";
    case Check::Kind::Loss:
      return "loss";
    case Check::Kind::Gradient:
      return "gradients";
    case Check::Kind::GradientNorm:
      return "gradient norm";
    case Check::Kind::Moment:
      return "optimizer moments";
    case Check::Kind::Weight:
      return "weights";
    case Check::Kind::Tokens:
      return "valid tokens";
    case Check::Kind::Peak:
      return "peak memory as planned";
    case Check::Kind::Sum:
      return "sums over the step";
    case Check::Kind::State:
      return "states of all ranks";
  }
  return {};
}

std::string describe(const config::Parallel& p) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (p.pp > 1)
    add(fmt::format("pp {} {}{}", p.pp, p.schedule,
                    p.chunks > 1 ? fmt::format(" x {} chunks", p.chunks) : ""));
  if (p.dp_replicate > 1) add(fmt::format("dp_replicate {}", p.dp_replicate));
  if (p.dp_shard > 1) add(fmt::format("dp_shard {}", p.dp_shard));
  if (p.dp_shard * p.cp > 1) add(fmt::format("zero {}", p.zero));
  if (p.cp > 1)
    add(fmt::format("cp {} {}{}", p.cp, config::name_of(p.cp_method),
                    p.ulysses > 0 ? fmt::format(" (ulysses {})", p.ulysses) : ""));
  if (p.tp > 1) add(fmt::format("tp {}{}", p.tp, p.sequence_parallel ? " with sequence parallel" : ""));
  if (p.ep > 1) add(fmt::format("ep {}", p.ep));
  if (p.etp > 1) add(fmt::format("etp {}", p.etp));
  return text.empty() ? "one rank" : text;
}

std::string to_table(const VerifyResult& r) {
  std::vector<std::pair<std::string, Row>> rows;
  for (const Check& c : r.checks) {
    const std::string name = title(c);
    auto it = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.first == name; });
    if (it == rows.end()) it = rows.insert(rows.end(), {name, {}});
    Row& row = it->second;
    if (row.worst == nullptr || ratio(c) > ratio(*row.worst)) row.worst = &c;
    ++row.count;
    row.failed += !c.pass;
  }
  std::string text = fmt::format("{} against one rank: {} ranks, {}, {} step{}, {}\n\n", r.layout, r.world,
                                 base::to_string(r.dtype), r.steps, r.steps == 1 ? "" : "s",
                                 r.synthetic ? "synthetic tokens" : "the recipe's data");
  text += fmt::format("{:<28} {:>7} {:>7}  {:>10} {:>10}  {}\n", "compared", "values", "failed", "error",
                      "tolerance", "worst");
  for (const auto& [name, row] : rows)
    text += fmt::format("{:<28} {:>7} {:>7}  {:>10.3g} {:>10.3g}  {}\n", name, row.count, row.failed,
                        row.worst->error, row.worst->tolerance, row.worst->name);
  if (r.blind() > 0)
    text += fmt::format(
        "\n{} of {} comparisons prove nothing: both runs skipped the step, or rounding in {} may be as large "
        "as the value itself{}.\n",
        r.blind(), r.checks.size(), base::to_string(r.dtype),
        r.dtype == base::DType::F64 ? " (values that are zero except for rounding)"
                                    : "; --dtype f64 is a sharper test");
  if (r.sensitive() > 0)
    text += fmt::format(
        "\n{} of {} comparisons exceed the tolerance, but one rank whose weights are off by a rounding error "
        "differs from one rank by as much: the model is ill-conditioned and amplifies rounding.\n",
        r.sensitive(), r.checks.size());
  const Check* first = r.first_mismatch();
  text += first ? fmt::format("\nFAIL. First mismatch: {}\n", explain(*first))
                : fmt::format("\nPASS. The layout computes the same result as one rank.\n");
  return text;
}

std::string to_json(const VerifyResult& r) {
  using Json = nlohmann::ordered_json;
  const auto json = [](const Check& c) {
    Json j = {{"what", to_string(c.kind)},
              {"step", c.step},
              {"layout", c.layout},
              {"one_rank", c.one_rank},
              {"error", c.error},
              {"tolerance", c.tolerance},
              {"pass", c.pass}};
    if (!c.name.empty()) j["name"] = c.name;
    if (c.blind) j["proves_nothing"] = true;
    if (c.amplified > 0) j["amplified"] = c.amplified;
    return j;
  };
  Json j = {{"pass", r.pass()},           {"layout", r.layout},
            {"world", r.world},           {"dtype", base::to_string(r.dtype)},
            {"steps", r.steps},           {"data", r.synthetic ? "synthetic" : "recipe"},
            {"tolerance", r.tolerance},   {"comparisons", r.checks.size()},
            {"prove_nothing", r.blind()}, {"ill_conditioned", r.sensitive()}};
  j["first_mismatch"] = r.first_mismatch() ? json(*r.first_mismatch()) : Json();
  j["checks"] = Json::array();
  for (const Check& c : r.checks) j["checks"].push_back(json(c));
  return j.dump(2);
}

}  // namespace quintet::tools
