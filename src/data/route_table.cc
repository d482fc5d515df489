#include "data/route_table.h"

#include "base/error.h"

namespace quintet::data {

void fill_routes(const RouteTable& table, int64_t place, std::span<const int32_t> ids,
                 std::span<int32_t> out) {
  const int64_t sample = place - table.first;
  if (sample < 0 || sample >= table.samples)
    base::fail_user("data.routes: '{}' has the choices of samples {} to {} of the run, but not of sample {}",
                    table.name, table.first, table.first + table.samples - 1, place);
  const auto rows = static_cast<size_t>(table.seq_len), columns = static_cast<size_t>(table.columns);
  QUINTET_CHECK(ids.size() == rows && out.size() == rows * columns,
                "routes of {} x {} rows into {} for {} ids", rows, columns, out.size(), ids.size());
  const auto recorded = table.ids.subspan(static_cast<size_t>(sample) * rows, rows);
  for (size_t at = 0; at < rows; ++at)
    if (recorded[at] != ids[at])
      base::fail_user(
          "data.routes: '{}' was recorded for other tokens: sample {} has id {} at position {}, and {} in "
          "this run. Record it again for this run's data ('quintet routes')",
          table.name, place, recorded[at], at, ids[at]);
  const auto from = table.routes.subspan(static_cast<size_t>(sample) * rows * columns, rows * columns);
  for (size_t i = 0; i < from.size(); ++i) out[i] = from[i] + 1;
}

}  // namespace quintet::data
