#include "train/load_hf.h"

#include <map>

#include "program/cache_ops.h"
#include "program/fp8_ops.h"
#include "train/saved_state.h"

namespace quintet::train {

std::vector<checkpoint::TensorInfo> model_tensors(const Rank& rank) {
  std::vector<checkpoint::TensorInfo> tensors;
  const graph::Graph& model = rank.compiled().logical;
  const auto add = [&](const graph::Value& v) {
    auto& info =
        tensors.emplace_back(checkpoint::TensorInfo{.name = v.name, .dtype = v.type.dtype, .shape = {}});
    for (const graph::DimSize& d : v.type.dims) info.shape.push_back(d.size);
  };
  for (const graph::Param& p : model.params()) add(model.value(p.value));
  for (const graph::Value& v : model.values())
    if (v.kind == graph::ValueKind::State && !graph::is_cache(v) && v.name != graph::kScaleState) add(v);
  return tensors;
}

HfLoad load_hf(Rank& rank, hf::ModelFolder& folder) {
  HfLoad load;
  std::map<std::string, std::string> averages;  // by name: what they average
  for (const graph::StateDecl& s : rank.compiled().step_graph.states)
    if (s.role == graph::Role::Ema) averages[s.name] = s.param;
  const int64_t before = folder.source().bytes_read();
  for (const StatePiece& piece : state_pieces(rank, Holding::All)) {
    std::string name = piece.saved.tensor.name;
    if (const auto average = averages.find(name); average != averages.end()) name = average->second;
    if (folder.map().find(name) == nullptr) continue;  // a moment, which starts at 0
    const base::DType dtype = piece.saved.tensor.dtype;
    write_elements(rank, piece, [&](const checkpoint::Region& region, std::span<std::byte> out) {
      folder.reader().read(name, region, dtype, out);
    });
    load.bytes_stored += piece.memory_bytes();
  }
  rank.weights_changed();
  load.bytes_read = folder.source().bytes_read() - before;
  return load;
}

}  // namespace quintet::train
