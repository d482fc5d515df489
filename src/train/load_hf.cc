#include "train/load_hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "base/clock.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "base/text.h"
#include "checkpoint/reader.h"
#include "program/cache_ops.h"
#include "program/fp8_ops.h"
#include "train/element.h"
#include "train/saved_state.h"

namespace quintet::train {
namespace {

// At most kWriteBytes of a weight in this rank's memory.
struct WeightPart {
  std::string name;  // of the weight
  StatePiece piece;
};

// By name: what they average.
std::map<std::string, std::string> names_of_averages(const Rank& rank) {
  std::map<std::string, std::string> averages;
  for (const graph::StateDecl& s : rank.compiled().step_graph.states)
    if (s.role == graph::Role::Ema) averages[s.name] = s.param;
  return averages;
}

std::vector<WeightPart> weight_parts(const Rank& rank, const hf::NameMap& map) {
  const std::map<std::string, std::string> averages = names_of_averages(rank);
  std::vector<WeightPart> parts;
  for (const StatePiece& piece : state_pieces(rank, Holding::All)) {
    std::string name = piece.saved.tensor.name;
    if (const auto average = averages.find(name); average != averages.end()) name = average->second;
    if (map.find(name) == nullptr) continue;  // a moment, which starts at 0
    const int64_t count = piece.saved.region.count,
                  at_once = kWriteBytes / base::size_of(piece.saved.tensor.dtype);
    for (int64_t first = 0; first < count; first += at_once)
      parts.push_back({name, part_of(piece, first, std::min(at_once, count - first))});
  }
  return parts;
}

// With upcycle_slices = n, the n slices of a network have 1/n of its weight each: their outputs are
// multiplied by n.
void multiply_output(const std::string& name, int64_t slices, std::span<std::byte> values,
                     base::DType dtype) {
  if (slices == 1 || name.find(".ffn.experts.down.") == std::string::npos) return;
  const auto count = static_cast<int64_t>(values.size()) / base::size_of(dtype);
  for (int64_t i = 0; i < count; ++i)
    write_element(values.data(), dtype, i,
                  read_element(values.data(), dtype, i) * static_cast<double>(slices));
}

// The rows of the n slices of a network are those of one expert of a router with 1/n of the experts: a token
// chooses all slices or none.
void draw_routers_of_slices(Rank& rank) {
  const int64_t slices = rank.recipe().model.moe.upcycle_slices;
  const graph::Graph& model = rank.compiled().logical;
  const std::map<std::string, std::string> averages = names_of_averages(rank);
  for (const StatePiece& piece : state_pieces(rank, Holding::All)) {
    std::string name = piece.saved.tensor.name;
    if (const auto average = averages.find(name); average != averages.end()) name = average->second;
    if (!name.ends_with(".ffn.router.weight")) continue;
    const auto param = std::ranges::find(model.params(), name,
                                         [&](const graph::Param& p) { return model.value(p.value).name; });
    if (param == model.params().end()) continue;  // a moment, which starts at 0
    const uint64_t key = base::stream_key(static_cast<uint64_t>(rank.recipe().run.seed), name);
    const base::DType dtype = piece.saved.tensor.dtype;
    const int64_t columns = piece.saved.tensor.shape.at(1);
    write_elements(rank, piece, [&](const checkpoint::Region& region, std::span<std::byte> out) {
      const checkpoint::Runs runs(region);
      for (int64_t r = 0; r < runs.size(); ++r) {
        const checkpoint::Run run = runs[r];
        for (int64_t i = 0; i < run.length; ++i) {
          const int64_t row = (run.tensor + i) / columns / slices, column = (run.tensor + i) % columns;
          write_element(out.data(), dtype, run.at + i,
                        param->stddev * base::normal(key, static_cast<uint64_t>(row * columns + column)));
        }
      }
    });
  }
}

// Readers that threads take turns with: each has a file position and buffers.
class WeightReaders {
 public:
  WeightReaders(const hf::ModelFolder& folder, int64_t count) {
    for (int64_t i = 0; i < count; ++i) all_.push_back(folder.open_reader());
    for (hf::ModelFolder::OpenReader& r : all_) free_.push_back(&r);
  }
  int64_t bytes_read() const {
    int64_t bytes = 0;
    for (const hf::ModelFolder::OpenReader& r : all_) bytes += r.source->bytes_read();
    return bytes;
  }
  template <class F>
  void use(const F& read) {
    hf::ModelFolder::OpenReader* const reader = take();
    try {
      read(reader->weights);
    } catch (...) {
      give_back(reader);
      throw;
    }
    give_back(reader);
  }

 private:
  hf::ModelFolder::OpenReader* take() {
    const std::lock_guard lock(mutex_);
    hf::ModelFolder::OpenReader* const reader = free_.back();
    free_.pop_back();
    return reader;
  }
  void give_back(hf::ModelFolder::OpenReader* reader) {
    const std::lock_guard lock(mutex_);
    free_.push_back(reader);
  }

  std::vector<hf::ModelFolder::OpenReader> all_;
  std::mutex mutex_;
  std::vector<hf::ModelFolder::OpenReader*> free_;
};

}  // namespace

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

HfLoad load_hf(Rank& rank, const hf::ModelFolder& folder) {
  HfLoad load;
  const std::vector<WeightPart> parts = weight_parts(rank, folder.map());
  for (const WeightPart& part : parts) load.bytes_stored += part.piece.memory_bytes();
  const int64_t threads = std::min<int64_t>(checkpoint::kReadThreads, load.bytes_stored / kWriteBytes + 1);
  rank.draw_weights([&](const program::GroupSlot&, const layout::Segment& segment) {
    return folder.map().find(segment.name) == nullptr;
  });
  const int64_t slices = rank.recipe().model.moe.upcycle ? rank.recipe().model.moe.upcycle_slices : 1;
  if (slices > 1) draw_routers_of_slices(rank);
  WeightReaders readers(folder, threads);
  base::parallel_for(static_cast<int>(threads), parts.size(), [&](size_t i) {
    const WeightPart& part = parts[i];
    readers.use([&](hf::WeightReader& weights) {
      write_elements(rank, part.piece, [&](const checkpoint::Region& region, std::span<std::byte> out) {
        weights.read(part.name, region, part.piece.saved.tensor.dtype, out);
        multiply_output(part.name, slices, out, part.piece.saved.tensor.dtype);
      });
    });
  });
  rank.weights_changed();
  load.bytes_read = readers.bytes_read();
  return load;
}

std::vector<std::string> load_first_weights_of(const std::string& path, const hf::ModelFolder& folder,
                                               Rank& rank, comm::World& world) {
  const int64_t begin = base::now_ns();
  int64_t bytes = load_hf(rank, folder).bytes_read;
  world.world().all_reduce(&bytes, 1, base::DType::I64, comm::ReduceOp::Sum);
  const int64_t ns = std::max<int64_t>(1, base::now_ns() - begin);
  std::vector<std::string> lines = folder.notes();
  lines.push_back(fmt::format(
      "weights of '{}' loaded in {}: {} read by {} rank{}, {}/s", path, base::human_duration(ns),
      base::human_bytes(bytes), world.size(), world.size() == 1 ? "" : "s",
      base::human_bytes(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(ns)))));
  return lines;
}

}  // namespace quintet::train
