#include "config/axis_order.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "config/names.h"
#include "config/nearest.h"
#include "config/rule.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

struct SizedAxis {
  MeshAxis axis;
  const char* key;
  int64_t Parallel::*size;
};
constexpr std::array<SizedAxis, 5> kAxes = {
    {{MeshAxis::Tp, "parallel.tp", &Parallel::tp},
     {MeshAxis::Cp, "parallel.cp", &Parallel::cp},
     {MeshAxis::DpShard, "parallel.dp_shard", &Parallel::dp_shard},
     {MeshAxis::DpReplicate, "parallel.dp_replicate", &Parallel::dp_replicate},
     {MeshAxis::Pp, "parallel.pp", &Parallel::pp}}};

int64_t size_of(const Parallel& p, MeshAxis axis) {
  for (const SizedAxis& a : kAxes)
    if (a.axis == axis) return p.*a.size;
  return 1;
}

size_t place_of(const AxisOrder& order, MeshAxis axis) {
  return static_cast<size_t>(std::find(order.begin(), order.end(), axis) - order.begin());
}

constexpr const char* kOrderRule = "parallel.order names every axis once";
constexpr const char* kRestRule = "one axis takes the rest of a known number of ranks";

}  // namespace

AxisOrder default_axis_order() {
  return {MeshAxis::Tp, MeshAxis::Cp, MeshAxis::DpShard, MeshAxis::DpReplicate, MeshAxis::Pp};
}

std::optional<AxisOrder> parse_axis_order(std::string_view text, std::string& unknown) {
  AxisOrder order;
  for (bool more = true; more;) {
    const size_t dash = text.find('-');
    const std::string_view word = text.substr(0, dash);
    more = dash != std::string_view::npos;
    if (more) text.remove_prefix(dash + 1);
    if (word == "dp") {
      order.insert(order.end(), {MeshAxis::DpShard, MeshAxis::DpReplicate});
    } else if (const std::optional<MeshAxis> axis = value_of<MeshAxis>(word)) {
      order.push_back(*axis);
    } else {
      unknown = word;
      return std::nullopt;
    }
  }
  return order;
}

std::string axis_order_text(const AxisOrder& order) {
  std::string text;
  for (const MeshAxis axis : order) text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name_of(axis));
  return text;
}

std::string axis_order_words(const AxisOrder& order) {
  std::string text;
  for (const MeshAxis axis : order) text += fmt::format("{}{}", text.empty() ? "" : "-", name_of(axis));
  return text;
}

void fill_in_order(Parallel& p, Report& report) {
  if (!report.usable("parallel.order")) return;
  AxisOrder good = p.order;  // a corrected order, for the message
  std::string wrong;
  for (auto at = good.begin(); at != good.end();) {
    if (std::find(good.begin(), at, *at) == at) {
      ++at;
      continue;
    }
    wrong += fmt::format("{}names \"{}\" twice", wrong.empty() ? "" : ", and ", name_of(*at));
    at = good.erase(at);
  }
  for (const SizedAxis& a : kAxes) {
    if (place_of(good, a.axis) < good.size()) continue;
    if (p.*a.size > 1)
      wrong += fmt::format("{}leaves out \"{}\", which has {} ranks", wrong.empty() ? "" : ", and ",
                           name_of(a.axis), p.*a.size);
    good.push_back(a.axis);
  }
  if (p.ep == 1) std::erase(good, MeshAxis::Ep);  // Megatron's strings name it in every model
  if (wrong.empty()) {
    p.order = std::move(good);
    return;
  }
  report.add(kOrderRule, "parallel.order", wrong, fmt::format("[{}]", axis_order_text(good)));
  p.order = Parallel{}.order;
}

void fill_in_rest(Parallel& p, int64_t known, Report& report) {
  const SizedAxis* rest = nullptr;
  int64_t others = 1;
  bool sound = true;
  std::string text;
  for (const SizedAxis& a : kAxes) {
    int64_t& size = p.*a.size;
    if (size == -1 && rest == nullptr) {
      rest = &a;
    } else if (size == -1) {
      report.add(kRestRule, a.key, fmt::format("is -1, the rest of the ranks, and so is {}", rest->key), "1");
      size = 1;
      sound = false;
    } else if (!kAxis.contains(static_cast<double>(size)) || others > kMaxWorld) {
      sound = false;  // reported elsewhere
    } else {
      others *= size;
      if (size > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name_of(a.axis), size);
    }
  }
  if (rest == nullptr) return;
  p.*rest->size = 1;
  const int64_t world = p.ranks > 0 ? p.ranks : known;
  if (!sound)
    report.spoil(rest->key);
  else if (world <= 0)
    report.add(
        kRestRule, rest->key,
        "is -1, the rest of the ranks, but their number is not known here: mpirun and srun give it, plan "
        "and check take it from --cluster, and parallel.world sets it",
        "parallel.world with the number of ranks");
  else if (world % others != 0) {
    const std::string product =
                          text.find(" x ") == std::string::npos ? text : fmt::format("{} = {}", text, others),
                      near = nearest_multiples(others, world);
    if (p.ranks > 0)
      report.add(kRestRule, "parallel.world",
                 fmt::format("{} ranks are not a multiple of {}, so nothing is left for {} = -1", world,
                             product, rest->key),
                 near);
    else
      report.add(kRestRule, rest->key,
                 fmt::format("is -1, the rest of {} ranks, but {} does not divide them; {} ranks would do",
                             world, product, near));
    report.spoil(rest->key);
  } else
    p.*rest->size = world / others;
}

std::vector<AxisSpan> axis_spans(const Parallel& p) {
  std::vector<AxisSpan> spans;
  int64_t inner = 1;
  for (const MeshAxis axis : p.order) {
    if (axis == MeshAxis::Ep) continue;
    const int64_t size = size_of(p, axis);
    spans.push_back({axis, inner, size});
    if (axis != MeshAxis::Pp) inner *= size;
  }
  return spans;
}

int64_t inner_of(const Parallel& p, MeshAxis axis) {
  for (const AxisSpan& span : axis_spans(p))
    if (span.axis == axis) return span.inner;
  return 1;
}

int64_t stride_of(const Parallel& p, MeshAxis axis) {
  int64_t stride = 1;
  for (const AxisSpan& span : axis_spans(p)) {
    if (span.axis == axis) break;
    stride *= span.size;
  }
  return stride;
}

ExpertSpans expert_spans(const Parallel& p) {
  const int64_t ranks = p.dp() * p.cp * p.tp;
  const bool places_ep = place_of(p.order, MeshAxis::Ep) < p.order.size();
  struct Part {
    size_t place;
    int64_t ExpertSpans::*inner;
    int64_t size;
  };
  std::vector<Part> parts = {
      {2 * place_of(p.order, MeshAxis::Tp), &ExpertSpans::etp, p.etp},
      {places_ep ? 2 * place_of(p.order, MeshAxis::Ep) : 2 * place_of(p.order, MeshAxis::Tp) + 1,
       &ExpertSpans::ep, p.ep},
      {2 * place_of(p.order, MeshAxis::DpShard), &ExpertSpans::copies, ranks / (p.ep * p.etp)}};
  std::sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.place < b.place; });
  ExpertSpans spans{};
  int64_t inner = 1;
  for (const Part& part : parts) {
    spans.*part.inner = inner;
    inner *= part.size;
  }
  return spans;
}

std::vector<RankBlock> reshard_blocks(const Parallel& p) {
  const int64_t k = p.reshard_after_forward.ranks;
  std::vector<AxisSpan> axes;  // cp and dp_shard, the inner one first
  for (const AxisSpan& span : axis_spans(p))
    if (span.axis == MeshAxis::Cp || span.axis == MeshAxis::DpShard) axes.push_back(span);
  const AxisSpan &a = axes[0], &b = axes[1];
  // Where k is no whole number of ranks on both axes, the block is not a product of factors (mesh_cuts.h).
  if (k <= a.size || k % a.size != 0) return {{a.inner, a.inner * k}};
  return {{b.inner, b.inner * (k / a.size)}, {a.inner, a.inner * a.size}};
}

}  // namespace quintet::config
