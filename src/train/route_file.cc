#include "train/route_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "config/batch_ramp.h"

namespace quintet::train {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::TensorInfo;

const TensorInfo& tensor(const SafetensorsFile& file, const std::string& path, const char* name,
                         base::DType dtype, const std::vector<int64_t>& shape) {
  const TensorInfo* const found = file.find(name);
  if (found == nullptr) base::fail_user("data.routes: '{}' has no tensor \"{}\"", path, name);
  std::vector<int64_t> wanted = shape;
  wanted[0] = found->shape.empty() ? 0 : found->shape[0];
  if (found->dtype != dtype || found->shape != wanted)
    base::fail_user("data.routes: '{}': \"{}\" is {}[{}], but this run needs {}[samples, {}]", path, name,
                    checkpoint::safetensors_name(found->dtype), fmt::join(found->shape, ", "),
                    checkpoint::safetensors_name(dtype), fmt::join(shape.begin() + 1, shape.end(), ", "));
  return *found;
}

int64_t first_sample(const SafetensorsFile& file, const std::string& path) {
  const auto found = file.metadata().find(kFirstSample);
  if (found == file.metadata().end()) return 0;
  const std::string& text = found->second;
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    base::fail_user("data.routes: '{}': {} is \"{}\", expected a whole number of at least 0", path,
                    kFirstSample, text);
  return value;
}

// Every block's choices of a row are distinct experts, or the first of them is -1.
void check_choices(const data::RouteTable& table, const config::Moe& moe) {
  for (size_t at = 0; at < table.routes.size(); at += static_cast<size_t>(moe.top_k)) {
    const auto row = table.routes.subspan(at, static_cast<size_t>(moe.top_k));
    if (row[0] == -1) continue;
    for (size_t j = 0; j < row.size(); ++j) {
      const bool again = std::count(row.begin(), row.begin() + static_cast<ptrdiff_t>(j), row[j]) > 0;
      if (row[j] >= 0 && row[j] < moe.experts && !again) continue;
      const auto place = static_cast<int64_t>(at) / table.columns;
      base::fail_user(
          "data.routes: '{}': sample {}, position {}: the choices {} are not {} distinct experts of {} (or "
          "-1 first, where the router chooses)",
          table.name, table.first + place / table.seq_len, place % table.seq_len, fmt::join(row, ", "),
          moe.top_k, moe.experts);
    }
  }
}

}  // namespace

std::shared_ptr<const data::RouteTable> open_routes(const config::Recipe& recipe) {
  const std::string& path = recipe.data.routes;
  if (path.empty()) return nullptr;
  const auto file = std::make_shared<SafetensorsFile>(path);
  const int64_t seq_len = recipe.data.seq_len, columns = recipe.model.moe.choices_in(recipe.model.layers);
  const TensorInfo& ids = tensor(*file, path, kRouteIds, base::DType::I32, {0, seq_len});
  const TensorInfo& routes = tensor(*file, path, kRoutes, base::DType::I16, {0, seq_len, columns});
  if (ids.shape[0] != routes.shape[0])
    base::fail_user("data.routes: '{}' has the ids of {} samples and the choices of {}", path, ids.shape[0],
                    routes.shape[0]);
  const auto values = [&]<class T>(const TensorInfo& t, const T*) {
    return std::span(reinterpret_cast<const T*>(file->bytes(t).data()), static_cast<size_t>(t.count()));
  };
  if (reinterpret_cast<uintptr_t>(file->bytes(ids).data()) % alignof(int32_t) != 0)
    base::fail_user("data.routes: '{}': \"{}\" is not aligned: store it before \"{}\"", path, kRouteIds,
                    kRoutes);
  auto table = std::make_shared<data::RouteTable>(
      data::RouteTable{.name = path,
                       .first = first_sample(*file, path),
                       .samples = ids.shape[0],
                       .seq_len = seq_len,
                       .columns = columns,
                       .ids = values(ids, static_cast<const int32_t*>(nullptr)),
                       .routes = values(routes, static_cast<const int16_t*>(nullptr)),
                       .memory = file});
  const int64_t end = config::BatchRamp(recipe).after(recipe.run.steps).sequences;
  if (table->first + table->samples < end)
    base::fail_user(
        "data.routes: '{}' ends with sample {}, but the run trains on samples up to {}: record more steps "
        "('quintet routes'), or shorten the run",
        path, table->first + table->samples - 1, end - 1);
  check_choices(*table, recipe.model.moe);
  return table;
}

}  // namespace quintet::train
