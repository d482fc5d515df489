#include "train/weights_file.h"

#include <cstring>

#include "base/error.h"
#include "train/element.h"

namespace quintet::train {

using base::DType;
using checkpoint::TensorInfo;

namespace {

// Assembles one parameter for the file. The ranks contribute disjoint elements and zeros elsewhere, so a sum
// of 64-bit words merges them bit by bit; the last word counts elements, to detect missing ones.
class Gathered {
 public:
  explicit Gathered(const TensorInfo& info)
      : info_(info), words_(static_cast<size_t>((info.bytes() + 7) / 8 + 1), int64_t{0}) {}

  void add(const Rank& rank, const Rank::Piece& piece, const layout::GlobalIndex& global) {
    QUINTET_CHECK(piece.dtype == info_.dtype, "{} is stored as {} but saved as {}", info_.name,
                  to_string(piece.dtype), to_string(info_.dtype));
    const size_t size = static_cast<size_t>(base::size_of(info_.dtype));
    const exec::HostBytes data = rank.read(piece);
    for (int64_t i = 0; i < piece.count; ++i) {
      const int64_t at = global(piece.first + i);
      if (at < 0) continue;  // padding
      std::memcpy(bytes() + static_cast<size_t>(at) * size, data.data() + static_cast<size_t>(i) * size,
                  size);
      ++words_.back();
    }
  }

  void sum(comm::Communicator& comm) {
    comm.all_reduce(words_.data(), static_cast<int64_t>(words_.size()), DType::I64, comm::ReduceOp::Sum);
    QUINTET_CHECK(words_.back() == info_.count(), "gathered {} elements of {}, expected {}", words_.back(),
                  info_.name, info_.count());
  }

  std::byte* bytes() { return reinterpret_cast<std::byte*>(words_.data()); }

 private:
  const TensorInfo& info_;
  std::vector<int64_t> words_;
};

std::map<std::string_view, Rank::State> states_of(const Rank& rank) {
  std::map<std::string_view, Rank::State> states;
  for (const Rank::State& state : rank.states()) states.emplace(state.name, state);
  return states;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t d : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(d);
  return text + "]";
}

}  // namespace

std::vector<TensorInfo> saved_tensors(const Rank& rank) {
  std::vector<TensorInfo> tensors;
  const auto add = [&](const graph::Value& v, DType dtype) {
    TensorInfo& info = tensors.emplace_back(TensorInfo{.name = v.name, .dtype = dtype, .shape = {}});
    for (const graph::DimSize& d : v.type.dims) info.shape.push_back(d.size);
  };
  // All of the model's parameters, including those of other pipeline stages.
  const graph::Graph& model = rank.compiled().logical;
  for (const graph::Param& p : model.params()) add(model.value(p.value), rank.weight_dtype(p.trainable));
  for (const graph::Value& v : model.values())
    if (v.kind == graph::ValueKind::State) add(v, v.type.dtype);
  return tensors;
}

int64_t saved_bytes(const Rank& rank) {
  int64_t bytes = 0;
  for (const TensorInfo& t : saved_tensors(rank)) bytes += t.bytes();
  return bytes;
}

std::string try_save_weights(const Rank& rank, comm::World& world, const std::string& path,
                             const std::map<std::string, std::string>& metadata, Saved what) {
  const auto wanted = [&](const program::GroupSlot& s) {
    const bool averaged = rank.compiled().groups[static_cast<size_t>(s.group)].trainable;
    return what == Saved::Averages && averaged ? s.role == graph::Role::Ema : program::holds_weights(s);
  };
  const std::vector<TensorInfo> tensors = saved_tensors(rank);
  // The pieces of each parameter that this rank contributes.
  std::map<std::string_view, std::vector<std::pair<Rank::Piece, layout::GlobalIndex>>> pieces;
  rank.visit(wanted, [&](const Rank::Piece& piece, const layout::GlobalIndex& global) {
    if (rank.owns(piece)) pieces[piece.segment->name].emplace_back(piece, global);
  });
  const std::map<std::string_view, Rank::State> states = states_of(rank);
  const auto gather = [&](const TensorInfo& info) {
    Gathered whole(info);
    if (const auto state = states.find(info.name); state != states.end()) {
      std::memcpy(whole.bytes(), rank.read(state->second.range).data(), static_cast<size_t>(info.bytes()));
      return whole;  // replicated on every rank
    }
    for (const auto& [piece, global] : pieces[info.name]) whole.add(rank, piece, global);
    whole.sum(world.world());
    return whole;
  };
  size_t gathered = 0;
  std::string failure;
  if (world.rank().value == 0) try {
      checkpoint::write_safetensors(path, tensors, metadata, [&](size_t i, std::span<std::byte> out) {
        Gathered whole = gather(tensors[i]);
        ++gathered;
        std::memcpy(out.data(), whole.bytes(), out.size());
      });
    } catch (const base::UserError& e) {
      failure = e.what();
    }
  // The other ranks take part in every gather, whether rank 0 can write or not.
  for (size_t i = gathered; i < tensors.size() && (world.rank().value != 0 || !failure.empty()); ++i)
    gather(tensors[i]);
  world.world().barrier();  // no rank continues before the file exists
  return failure;
}

void save_weights(const Rank& rank, comm::World& world, const std::string& path,
                  const std::map<std::string, std::string>& metadata, Saved what) {
  if (const std::string failure = try_save_weights(rank, world, path, metadata, what); !failure.empty())
    throw base::UserError(failure);
}

void load_weights(Rank& rank, const std::string& path) {
  const checkpoint::SafetensorsFile file(path);
  const std::vector<TensorInfo> wanted = saved_tensors(rank);
  for (const TensorInfo& w : wanted) {
    const TensorInfo* found = file.find(w.name);
    if (found == nullptr) base::fail_user("{} lacks tensor {}, which the model needs", path, w.name);
    if (found->shape != w.shape)
      base::fail_user("{}: tensor {} has shape {}, expected {}", path, w.name, shape_text(found->shape),
                      shape_text(w.shape));
    if (found->dtype != DType::F64 && found->dtype != DType::F32 && found->dtype != DType::BF16 &&
        found->dtype != DType::F16)
      base::fail_user("{}: tensor {} has dtype {}; expected f64, f32, bf16 or f16", path, w.name,
                      to_string(found->dtype));
  }
  if (file.tensors().size() != wanted.size())
    base::fail_user("{} has {} tensors, but the model has {}: it belongs to a different model", path,
                    file.tensors().size(), wanted.size());
  const auto loaded = [](const program::GroupSlot& s) {
    return program::holds_weights(s) || s.role == graph::Role::Ema;
  };
  rank.visit(loaded, [&](const Rank::Piece& piece, const layout::GlobalIndex& global) {
    const TensorInfo& info = *file.find(piece.segment->name);
    const std::byte* data = file.bytes(info).data();
    rank.write(piece, [&](std::byte* to) {
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t at = global(piece.first + i);
        write_element(to, piece.dtype, i, at < 0 ? 0.0 : read_element(data, info.dtype, at));
      }
    });
  });
  for (const Rank::State& state : rank.states()) {
    const TensorInfo* const found = file.find(std::string(state.name));
    if (found == nullptr) continue;  // the optimizer's
    const TensorInfo& info = *found;
    rank.write(state.range, [&](std::byte* to) {
      for (int64_t i = 0; i < state.count; ++i)
        write_element(to, state.dtype, i, read_element(file.bytes(info).data(), info.dtype, i));
    });
  }
  rank.weights_changed();
}

}  // namespace quintet::train
