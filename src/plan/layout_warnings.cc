#include "plan/layout_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "config/axis_order.h"

namespace quintet::plan {

namespace {

// Neighbouring ranks that hold whole tensor groups: tp, times the axes inside it.
int64_t tensor_span(const config::Parallel& p) { return config::stride_of(p, config::MeshAxis::Tp) * p.tp; }

}  // namespace

bool tensor_groups_cross(const config::Parallel& p, const hardware::Cluster& c) {
  const int64_t domain = std::max(c.domain, 1);
  return p.tp > 1 && p.world() > domain && domain % tensor_span(p) != 0;
}

std::vector<std::string> layout_warnings(const config::Parallel& p, const hardware::Cluster& c) {
  std::vector<std::string> list;
  if (tensor_groups_cross(p, c)) {
    const int64_t domain = std::max(c.domain, 1), inside = std::gcd(p.tp, domain);
    const std::string where =
        fmt::format("parallel.tp = {} crosses the slow link ({}): the fast one joins {} device{}", p.tp,
                    c.outer.title.empty() ? c.outer.name : c.outer.title, domain, domain == 1 ? "" : "s");
    if (const int64_t stride = tensor_span(p) / p.tp; stride > 1 && domain % p.tp == 0)
      list.push_back(fmt::format(
          "{}, and its ranks are {} apart; tp first in parallel.order would stay inside", where, stride));
    else
      list.push_back(fmt::format("{}; parallel.tp = {} with parallel.pp = {} would stay inside", where,
                                 inside, p.pp * (p.tp / inside)));
  }
  return list;
}

}  // namespace quintet::plan
