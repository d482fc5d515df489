#include "plan/layout_warnings.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace quintet::plan {

bool tensor_groups_cross(const config::Parallel& p, const hardware::Cluster& c) {
  const int64_t domain = std::max(c.domain, 1);
  return p.tp > 1 && p.world() > domain && domain % p.tp != 0;
}

std::vector<std::string> layout_warnings(const config::Parallel& p, const hardware::Cluster& c) {
  std::vector<std::string> list;
  if (tensor_groups_cross(p, c)) {
    const int64_t domain = std::max(c.domain, 1), inside = std::gcd(p.tp, domain);
    list.push_back(
        fmt::format("parallel.tp = {} crosses the slow link ({}): the fast one joins {} device{}; "
                    "parallel.tp = {} with parallel.pp "
                    "= {} would stay inside",
                    p.tp, c.outer.title.empty() ? c.outer.name : c.outer.title, domain,
                    domain == 1 ? "" : "s", inside, p.pp * (p.tp / inside)));
  }
  return list;
}

}  // namespace quintet::plan
