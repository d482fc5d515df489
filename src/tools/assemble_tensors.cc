#include "tools/assemble_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/f16.h"

namespace quintet::tools {

using base::DType;
using train::Rank;

double element_of(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::F64:
      return reinterpret_cast<const double*>(data)[i];
    case DType::F32:
      return reinterpret_cast<const float*>(data)[i];
    case DType::BF16:
      return static_cast<float>(reinterpret_cast<const base::Bf16*>(data)[i]);
    case DType::F16:
      return static_cast<float>(reinterpret_cast<const base::F16*>(data)[i]);
    case DType::U8:
      return static_cast<double>(reinterpret_cast<const uint8_t*>(data)[i]);
    default:
      base::fail_internal("a tensor of unsupported dtype {}", base::to_string(dtype));
  }
}

TensorAssembler::TensorAssembler(const graph::Graph& logical, const Has& has) {
  for (const graph::Param& p : logical.params()) {
    if (!has(p)) continue;
    const graph::Value& v = logical.value(p.value);
    index_[v.name] = tensors_.size();
    tensors_.push_back({v.name, std::vector<double>(static_cast<size_t>(v.type.count()))});
    written_.emplace_back(static_cast<size_t>(v.type.count()), 0);
  }
}

void TensorAssembler::take(const Rank& rank, const Rank::Wanted& wanted) {
  rank.visit(wanted, [&](const Rank::Piece& piece, const layout::GlobalIndex& global) {
    if (!rank.owns(piece)) return;
    const std::lock_guard lock(mutex_);
    const auto it = index_.find(piece.segment->name);
    if (it == index_.end()) return;
    any_ = true;
    const exec::HostBytes data = rank.read(piece);
    for (int64_t i = 0; i < piece.count; ++i) {
      const int64_t g = global(piece.first + i);
      if (g < 0) continue;
      tensors_[it->second].values[static_cast<size_t>(g)] =
          element_of(data.data(), piece.dtype, i / piece.block);
      ++written_[it->second][static_cast<size_t>(g)];
    }
  });
}

void TensorAssembler::sum(comm::Communicator& comm) {
  for (size_t t = 0; t < tensors_.size(); ++t) {
    const auto count = static_cast<int64_t>(written_[t].size());
    comm.all_reduce(tensors_[t].values.data(), count, DType::F64, comm::ReduceOp::Sum);
    comm.all_reduce(written_[t].data(), count, DType::I32, comm::ReduceOp::Sum);
  }
  int32_t any = any_;
  comm.all_reduce(&any, 1, DType::I32, comm::ReduceOp::Max);
  any_ = any != 0;
}

std::vector<Tensor> TensorAssembler::finish(std::string_view what) {
  if (!any_) return {};
  for (size_t t = 0; t < tensors_.size(); ++t)
    for (size_t i = 0; i < written_[t].size(); ++i)
      QUINTET_CHECK(written_[t][i] == 1, "{} of {}: element {} is owned by {} ranks", what, tensors_[t].name,
                    i, written_[t][i]);
  return std::move(tensors_);
}

std::vector<Tensor> states_of(const Rank& rank) {
  std::vector<Tensor> list;
  for (const Rank::State& state : rank.states()) {
    Tensor t{std::string(state.name), std::vector<double>(static_cast<size_t>(state.count))};
    const exec::HostBytes data = rank.read(state.range);
    for (int64_t i = 0; i < state.count; ++i)
      t.values[static_cast<size_t>(i)] = element_of(data.data(), state.dtype, i);
    list.push_back(std::move(t));
  }
  return list;
}

std::vector<Tensor> sums_of(const Rank& rank) {
  std::vector<Tensor> list;
  // Which values share a quantize op, and how often weights are quantised, depends on the layout; the share
  // of saturated values of a scale does not. Magnitudes are also a state; how many values became 0 is not
  // compared (11 in verify.h).
  std::map<int, size_t> of_scale;
  for (const Rank::Sum& sum : rank.step_sums()) {
    if (sum.kind == graph::SumKind::Amax) continue;
    const std::string name = fmt::format("blocks.{}.{}", sum.block - 1, to_string(sum.kind));
    if (sum.kind != graph::SumKind::Rounded) {
      list.push_back({name, {sum.values.begin(), sum.values.end()}, sum.kind, sum.block});
      continue;
    }
    const auto [at, is_new] = of_scale.try_emplace(sum.scale, list.size());
    if (is_new) list.push_back({fmt::format("{}.{}", name, sum.scale), {0, 0}, sum.kind, sum.block});
    for (size_t i = 0; i < 2; ++i) list[at->second].values[i] += sum.values[i];
  }
  for (const auto& [scale, at] : of_scale) {
    std::vector<double>& counts = list[at].values;
    counts = {counts[0] > 0 ? counts[1] / counts[0] : 0};
  }
  return list;
}

const Tensor* find(const std::vector<Tensor>& list, const std::string& name) {
  for (const Tensor& t : list)
    if (t.name == name) return &t;
  return nullptr;
}

namespace {

// The moment of a parameter that an update of the given ops writes: the average of its gradients or of their
// squares.
const Tensor* find(const std::vector<Moments>& moments, std::initializer_list<const graph::OpDef*> ops,
                   bool of_squares, const std::string& param) {
  for (const Moments& m : moments)
    if (std::find(ops.begin(), ops.end(), m.op) != ops.end() && m.of_squares == of_squares && !m.of_weights)
      if (const Tensor* const found = find(m.tensors, param)) return found;
  return nullptr;
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// One step of one parameter: the previous moves become those after it.
class Move {
 public:
  Move(const config::Optimizer& o, const train::StepResult& result, int64_t update)
      : o_(o),
        lr_(result.lr),
        decay_(result.decay_ratio),
        clip_(o.clip_norm > 0 && result.grad_norm > o.clip_norm ? o.clip_norm / result.grad_norm : 1),
        correct1_(1 - std::pow(o.betas[0], static_cast<double>(update))),
        correct2_(1 - std::pow(o.betas[1], static_cast<double>(update))) {}

  void adam(std::vector<double>& moves, const optim::ParamSettings& s, const Tensor& m,
            const Tensor& v) const {
    const double lr = lr_ * s.lr_factor;
    const double keep = s.kind == config::OptimizerKind::Adam ? 1 : 1 - lr * decay_ * s.weight_decay;
    for (size_t i = 0; i < moves.size(); ++i) moves[i] = moves[i] * keep - lr * direction(m, v, i);
  }
  void lamb(std::vector<double>& moves, const optim::ParamSettings& s, const Tensor& m, const Tensor& v,
            const Tensor& before) const {
    std::vector<double> u(moves.size());
    for (size_t i = 0; i < u.size(); ++i)
      u[i] = direction(m, v, i) + decay_ * s.weight_decay * before.values[i];
    const double weight = norm_of(before.values), change = norm_of(u);
    const double ratio = s.row % 2 == 1 && weight > 0 && change > 0 ? limited(weight / change) : 1;
    for (size_t i = 0; i < u.size(); ++i) moves[i] -= lr_ * s.lr_factor * ratio * u[i];
  }
  void lars(std::vector<double>& moves, const optim::ParamSettings& s, const Tensor* velocity,
            const Tensor& gradient, const Tensor& before) const {
    const double weight = norm_of(before.values), size = clip_ * norm_of(gradient.values);
    const double ratio = s.row % 2 == 1 && weight > 0 && size > 0
                             ? limited(o_.trust * weight / (size + decay_ * s.weight_decay * weight))
                             : 1;
    for (size_t i = 0; i < moves.size(); ++i)
      moves[i] -= velocity ? velocity->values[i]
                           : lr_ * s.lr_factor * ratio *
                                 (clip_ * gradient.values[i] + decay_ * s.weight_decay * before.values[i]);
  }

 private:
  double limited(double ratio) const {
    const auto& [least, largest] = o_.ratio_limits;
    return largest > 0 ? std::clamp(ratio, least, largest) : std::max(ratio, least);
  }
  double direction(const Tensor& m, const Tensor& v, size_t i) const {
    return (m.values[i] / correct1_) / (std::sqrt(v.values[i] / correct2_) + o_.eps);
  }

  const config::Optimizer& o_;
  double lr_, decay_, clip_, correct1_, correct2_;
};

}  // namespace

void add_moves(LayoutRun& run, const std::vector<Moments>& moments, const std::vector<Tensor>& gradients,
               const config::Optimizer& o, const train::StepResult& result, int64_t update) {
  using config::OptimizerKind;
  const Move move(o, result, update);
  const std::vector<Tensor>& weights = run.steps.empty() ? run.initial : run.steps.back().weights;
  for (const Tensor& g : gradients) {
    const optim::ParamSettings& s = run.settings.at(g.name);
    const Tensor& before = *find(weights, g.name);
    const auto moment = [&](bool of_squares) {
      return find(moments, {&graph::kAdamW, &graph::kAdam, &graph::kAdamW8bit, &graph::kLamb}, of_squares,
                  g.name);
    };
    const Tensor *m = moment(false), *v = moment(true);
    if (m == nullptr && s.kind != OptimizerKind::Lars) continue;
    auto moves =
        std::find_if(run.moves.begin(), run.moves.end(), [&](const Tensor& x) { return x.name == g.name; });
    if (moves == run.moves.end())
      moves = run.moves.insert(moves, {g.name, std::vector<double>(g.values.size(), 0.0)});
    if (s.kind == OptimizerKind::Lars)
      move.lars(moves->values, s, find(moments, {&graph::kLars}, false, g.name), g, before);
    else if (s.kind == OptimizerKind::Lamb)
      move.lamb(moves->values, s, *m, *v, before);
    else
      move.adam(moves->values, s, *m, *v);
  }
  if (o.ema == 0) return;
  if (run.average_moves.empty())
    for (const Tensor& t : run.moves)
      run.average_moves.push_back({t.name, std::vector<double>(t.values.size(), 0.0)});
  for (size_t t = 0; t < run.moves.size(); ++t)
    for (size_t i = 0; i < run.moves[t].values.size(); ++i) {
      double& average = run.average_moves[t].values[i];
      average += (1 - o.ema) * (run.moves[t].values[i] - average);
    }
}

int64_t longest_path(const graph::Graph& graph) {
  std::vector<int64_t> length(graph.values().size(), 0);
  int64_t longest = 0;
  for (const graph::Node& node : graph.nodes()) {
    int64_t here = 0;
    for (const graph::ValueId in : node.inputs) here = std::max(here, length[in.index()]);
    for (const graph::ValueId out : node.outputs) length[out.index()] = here + 1;
    longest = std::max(longest, here + 1);
  }
  return longest;
}

}  // namespace quintet::tools
