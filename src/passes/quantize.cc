#include "passes/quantize.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/fp8.h"
#include "base/glob.h"
#include "base/text.h"
#include "graph/fp8_ops.h"

namespace quintet::passes {

using graph::Attrs;
using graph::DType;
using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;

namespace {

// Delayed scales of the first step, before magnitudes are known. E4M3 has full precision over 14 powers of
// two, so they need not be close: inputs of 32 and weights of 4 are not saturated, which norms and
// initialisation keep far below, and pretrained weights too.
constexpr double kFirstInput = 8, kFirstWeight = 64, kFirstGradient = 64;

using Operand = graph::ScaleOf;

// A set has a scale for each.
int64_t scale_of(int64_t set, Operand operand) {
  return graph::kNumScaleOf * set + static_cast<int64_t>(operand);
}

class Quantize {
 public:
  Quantize(const Graph& in, const QuantizeOptions& options)
      : in_(in),
        options_(options),
        multiple_(options.blocks ? std::lcm(kQuantizedMultiple, options.blocks->size) : kQuantizedMultiple),
        moved_(in.values().size()),
        readers_(in.values().size()) {
    for (size_t i = 0; i < in.nodes().size(); ++i)
      for (const ValueId v : in.nodes()[i].inputs) readers_[v.index()].push_back(i);
    for (const graph::Param& p : in.params())
      for (const ValueId g : p.grads) param_of_[g] = p.value;
  }

  Graph run() {
    choose();
    if (sets_.empty()) fail_nothing_chosen();
    copy_sources();
    for (const Node& n : in_.nodes()) {
      if (n.op == &graph::kLinear && is_chosen(n.inputs[1]))
        linear(n);
      else if (n.op == &graph::kLinearDx && is_chosen(n.inputs[1]))
        linear_dx(n);
      else if (n.op == &graph::kLinearDw && is_chosen(param_of(n)))
        linear_dw(n);
      else
        copy(n);
    }
    copy_results();
    return std::move(out_);
  }

 private:
  struct Chosen {
    int64_t set;
    ValueId x;
    int64_t produced, contracted;  // dims
  };
  struct Set {
    std::string name;  // of its first weight
    bool saves_codes = true;
  };

  bool is_chosen(ValueId weight) const { return chosen_.contains(weight); }
  ValueId param_of(const Node& dw) const {
    const auto at = param_of_.find(dw.outputs[0]);
    return at == param_of_.end() ? ValueId() : at->second;
  }
  const std::string& name_of(ValueId v) const { return in_.value(v).name; }

  // ---- Which linears

  bool is_head(const Node& n) const { return n.row_group >= 0; }

  bool fits(const graph::Type& w, size_t contracted) const {
    int64_t in = 1;
    for (size_t i = w.dims.size() - contracted; i < w.dims.size(); ++i) in *= w.dims[i].size;
    const int64_t out = w.count() / std::max<int64_t>(in, 1);
    return in % multiple_ == 0 && out % multiple_ == 0;
  }

  // Linears that could be quantised, whatever the patterns say.
  bool may_choose(const Node& n) const {
    if (n.op != &graph::kLinear || n.phase != Phase::F || in_.find_param(n.inputs[1]) == nullptr)
      return false;
    const bool inner = n.block > 0 && n.block + 1 < in_.num_blocks;
    if (is_head(n) ? !options_.head : !inner) return false;
    const std::vector<size_t>& readers = readers_[n.inputs[1].index()];
    const auto linears = std::count_if(readers.begin(), readers.end(),
                                       [&](size_t i) { return in_.nodes()[i].op == &graph::kLinear; });
    return linears == 1 && fits(in_.type(n.inputs[1]), in_.type(n.inputs[0]).dims.size() - 1);
  }

  void choose() {
    std::vector<char> used(options_.match.size(), 0);
    const auto matches = [&](const std::string& name) {
      bool any = options_.match.empty();
      for (size_t i = 0; i < used.size(); ++i)
        if (base::glob_match(options_.match[i], name)) used[i] = 1, any = true;
      return any;
    };
    std::map<std::pair<ValueId, bool>, int64_t> set_of;
    for (const Node& n : in_.nodes()) {
      if (!may_choose(n)) continue;
      const ValueId x = n.inputs[0], w = n.inputs[1];
      if (!is_head(n) && !matches(name_of(w))) continue;
      const auto [at, is_new] = set_of.try_emplace({x, is_head(n)}, static_cast<int64_t>(sets_.size()));
      if (is_new) sets_.push_back({.name = name_of(w), .saves_codes = !is_kept(x)});
      const auto contracted = static_cast<int64_t>(in_.type(x).dims.size()) - 1;
      chosen_[w] = {at->second, x, static_cast<int64_t>(in_.type(w).dims.size()) - contracted, contracted};
    }
    for (size_t i = 0; i < used.size(); ++i)
      if (!used[i]) fail_unmatched(options_.match[i]);
  }

  // Whether the backward pass reads x for more than weight gradients.
  bool is_kept(ValueId x) const {
    return std::any_of(readers_[x.index()].begin(), readers_[x.index()].end(), [&](size_t i) {
      const Node& n = in_.nodes()[i];
      return n.phase != Phase::F && n.op != &graph::kLinearDw;
    });
  }

  [[noreturn]] void fail_unmatched(const std::string& pattern) const {
    std::string names;
    size_t count = 0;
    for (const Node& n : in_.nodes()) {
      if (!may_choose(n) || is_head(n)) continue;
      constexpr size_t kFew = 3;
      if (count++ < kFew) names += (names.empty() ? "" : ", ") + name_of(n.inputs[1]);
    }
    base::fail_user(
        "precision.fp8_match: \"{}\" matches no linear layer that can be quantised; there are {}, such as {} "
        "(sizes must be multiples of {}; the head is chosen by precision.fp8_head)",
        pattern, count, names.empty() ? "none" : names, multiple_);
  }
  [[noreturn]] void fail_nothing_chosen() const {
    base::fail_user(
        "precision.linear: no linear layer of the model can be quantised: input and output sizes must be "
        "multiples of {}, and no other layer may use the weight",
        multiple_);
  }

  // ---- Rewriting

  void copy_sources() {
    for (size_t i = 0; i < in_.values().size(); ++i) {
      const graph::Value& v = in_.values()[i];
      if (v.kind == graph::ValueKind::Input || v.kind == graph::ValueKind::State)
        moved_[i] = out_.add_value(v);
      if (v.kind != graph::ValueKind::Param) continue;
      graph::Param info = *in_.find_param(ValueId(static_cast<int32_t>(i)));
      info.grads.clear();
      moved_[i] = out_.add_param(v.name, v.type, info);
    }
    if (options_.blocks)
      declare_blocks();
    else
      declare_scales();
  }

  // Of what blocks have: no scale of their own, so that `initial` says nothing.
  void declare_blocks() {
    for (const Set& set : sets_)
      for (const Operand operand : {Operand::Input, Operand::Weight, Operand::Gradient})
        out_.scales.push_back({set.name, operand, base::kE4M3.largest, 1});
  }

  void declare_scales() {
    const DType compute = in_.type(chosen_.begin()->first).dtype;
    const int64_t n = graph::kNumScaleOf * static_cast<int64_t>(sets_.size());
    scales_ =
        out_.add_value({.name = std::string(graph::kScaleState),
                        .type = {base::accumulator_of(compute), {{graph::Dim::Flat, graph::scales_size(n)}}},
                        .kind = graph::ValueKind::State});
    const double gradient = std::exp2(std::floor(std::log2(kFirstGradient * options_.step_tokens)));
    for (const Set& set : sets_) {
      out_.scales.push_back({set.name, Operand::Input, base::kE4M3.largest, kFirstInput});
      out_.scales.push_back({set.name, Operand::Weight, base::kE4M3.largest, kFirstWeight});
      out_.scales.push_back({set.name, Operand::Gradient, base::kE5M2.largest, gradient});
    }
  }

  void copy_results() {
    for (const graph::Param& p : in_.params())
      for (const ValueId g : p.grads)
        out_.find_param(moved_[p.value.index()])->grads.push_back(moved_[g.index()]);
    if (in_.loss.valid()) out_.loss = moved_[in_.loss.index()];
    if (in_.logits.valid()) out_.logits = moved_[in_.logits.index()];
    for (graph::StepSum sum : in_.step_sums) {
      sum.value = moved_[sum.value.index()];
      out_.step_sums.push_back(sum);
    }
    // Maxima are last, so that one message reduces them and one all sums.
    out_.step_sums.insert(out_.step_sums.end(), rounded_.begin(), rounded_.end());
    out_.step_sums.insert(out_.step_sums.end(), amax_.begin(), amax_.end());
    for (graph::BiasUpdate update : in_.bias_updates) {
      update.bias = moved_[update.bias.index()];
      update.load = moved_[update.load.index()];
      out_.bias_updates.push_back(update);
    }
    out_.row_chunk = in_.row_chunk;
    out_.num_blocks = in_.num_blocks;
  }

  void copy(const Node& n) {
    std::vector<ValueId> inputs;
    for (const ValueId v : n.inputs) inputs.push_back(moved_[v.index()]);
    Node& node = out_.add_node(*n.op, std::move(inputs), n.attrs, n.phase, n.block);
    node.row_group = n.row_group;
    set_results(n, node);
  }
  void set_results(const Node& old, const Node& node) {
    for (size_t i = 0; i < old.outputs.size(); ++i) moved_[old.outputs[i].index()] = node.outputs[i];
  }

  // Codes with what a GEMM needs to decode them: their own factors, or the scales of all.
  struct Coded {
    ValueId codes, factors;
  };
  struct Codes {
    Coded plain, transposed;
  };
  struct Wanted {
    bool measures = true, plain = true, transposed = true;
  };
  // `x` is a value of the old graph.
  Codes quantize(ValueId x, Operand operand, int64_t set, int64_t rows, const Wanted& wanted, Phase phase,
                 int block, int row_group) {
    const int64_t scale = scale_of(set, operand);
    std::vector<ValueId> inputs = {moved_[x.index()]};
    graph::Attrs attrs{{"format", std::string(base::to_string(format_of(operand)))}};
    if (options_.blocks) {
      attrs.set("block", options_.blocks->size);
      attrs.set("square", int64_t{is_square(operand)});
    } else {
      attrs.set("scale", scale);
      inputs.push_back(scales_);
    }
    attrs.set("rows", rows);
    attrs.set("measures", int64_t{wanted.measures});
    attrs.set("plain", int64_t{wanted.plain});
    attrs.set("transposed", int64_t{wanted.transposed});
    Node& node = out_.add_node(options_.blocks ? graph::kQuantizeBlocks : graph::kQuantize, std::move(inputs),
                               std::move(attrs), phase, block);
    node.row_group = row_group;
    const graph::QuantizeResults at = graph::quantize_results(node.attrs);
    const auto result = [&](int i) { return i < 0 ? ValueId() : node.outputs[static_cast<size_t>(i)]; };
    if (at.amax >= 0)
      amax_.push_back({graph::SumKind::Amax, result(at.amax), block, static_cast<int>(scale)});
    if (at.rounded >= 0)
      rounded_.push_back({graph::SumKind::Rounded, result(at.rounded), block, static_cast<int>(scale)});
    const auto coded = [&](int codes, int factors) {
      return Coded{result(codes), options_.blocks ? result(factors) : scales_};
    };
    return {coded(at.codes, at.factors), coded(at.transposed, at.transposed_factors)};
  }

  DType format_of(Operand operand) const {
    return operand == Operand::Gradient && !options_.blocks ? DType::E5M2 : DType::E4M3;
  }
  bool is_square(Operand operand) const {
    return operand == Operand::Weight && options_.blocks->square_weights;
  }

  // `by_scale` and `by_block` are the forms of one op.
  void emit(const Node& old, const graph::OpDef& by_scale, const graph::OpDef& by_block, const Coded& a,
            const Coded& b, const Chosen& c, Operand of_a, Operand of_b, int64_t contracted, DType out) {
    graph::Attrs attrs;
    std::vector<ValueId> inputs = {a.codes, b.codes, a.factors};
    if (options_.blocks) {
      attrs.set("block", options_.blocks->size);
      attrs.set("square", int64_t{is_square(of_b)});
      inputs.push_back(b.factors);
    } else {
      attrs.set("a_scale", scale_of(c.set, of_a));
      attrs.set("b_scale", scale_of(c.set, of_b));
    }
    attrs.set("contracted", contracted);
    attrs.set("out", std::string(base::to_string(out)));
    Node& node = out_.add_node(options_.blocks ? by_block : by_scale, std::move(inputs), std::move(attrs),
                               old.phase, old.block);
    node.row_group = old.row_group;
    set_results(old, node);
  }

  bool has_weight_gradient(ValueId x) const {
    return std::any_of(readers_[x.index()].begin(), readers_[x.index()].end(), [&](size_t i) {
      const Node& n = in_.nodes()[i];
      return n.op == &graph::kLinearDw && is_chosen(param_of(n));
    });
  }

  // A weight's codes are made outside the head's row group: once, not for every chunk.
  void linear(const Node& n) {
    const ValueId x = n.inputs[0], w = n.inputs[1];
    const Chosen& c = chosen_.at(w);
    const bool saves = sets_[static_cast<size_t>(c.set)].saves_codes && has_weight_gradient(x);
    const Wanted of_w{.plain = true, .transposed = is_head(n)};
    const Codes weight = quantize(w, Operand::Weight, c.set, c.produced, of_w, n.phase, n.block, -1);
    if (is_head(n)) transposed_weights_[w] = weight.transposed;
    const auto [input, is_new] = inputs_.try_emplace(c.set);
    if (is_new)
      input->second =
          quantize(x, Operand::Input, c.set, 1, {.transposed = saves}, n.phase, n.block, n.row_group);
    emit(n, graph::kScaledLinear, graph::kBlockLinear, input->second.plain, weight.plain, c, Operand::Input,
         Operand::Weight, c.contracted, in_.type(n.outputs[0]).dtype);
  }

  // The gradient of a linear's result, for both of its readers.
  Codes gradient(ValueId dy, const Chosen& c, const Node& n) {
    const auto [at, is_new] = gradients_.try_emplace(dy);
    if (!is_new) return at->second;
    Wanted wanted{.plain = false, .transposed = false};
    for (const size_t i : readers_[dy.index()]) {
      wanted.plain |= in_.nodes()[i].op == &graph::kLinearDx && in_.nodes()[i].inputs[0] == dy;
      wanted.transposed |= in_.nodes()[i].op == &graph::kLinearDw && in_.nodes()[i].inputs[0] == dy;
    }
    const Phase phase = n.phase == Phase::W ? Phase::B : n.phase;
    return at->second = quantize(dy, Operand::Gradient, c.set, 1, wanted, phase, n.block, n.row_group);
  }

  void linear_dx(const Node& n) {
    const ValueId dy = n.inputs[0], w = n.inputs[1];
    const Chosen& c = chosen_.at(w);
    Coded& weight = transposed_weights_[w];
    if (!weight.codes.valid())
      weight = quantize(w, Operand::Weight, c.set, c.produced, {.measures = false, .plain = false}, n.phase,
                        n.block, n.row_group)
                   .transposed;
    emit(n, graph::kScaledLinearDx, graph::kBlockLinearDx, gradient(dy, c, n).plain, weight, c,
         Operand::Gradient, Operand::Weight, c.produced, in_.type(n.outputs[0]).dtype);
  }

  void linear_dw(const Node& n) {
    const Chosen& c = chosen_.at(param_of(n));
    const Coded dy = gradient(n.inputs[0], c, n).transposed;
    Coded& x = inputs_.at(c.set).transposed;
    if (!x.codes.valid())
      x = quantize(c.x, Operand::Input, c.set, 1, {.measures = false, .plain = false}, Phase::B, n.block,
                   n.row_group)
              .transposed;
    emit(n, graph::kScaledLinearDw, graph::kBlockLinearDw, dy, x, c, Operand::Gradient, Operand::Input, 1,
         in_.type(n.outputs[0]).dtype);
  }

  const Graph& in_;
  const QuantizeOptions& options_;
  int64_t multiple_;  // of the sizes of linears
  Graph out_;
  std::vector<ValueId> moved_;                // by value of in_: its copy
  std::vector<std::vector<size_t>> readers_;  // by value of in_
  std::map<ValueId, ValueId> param_of_;       // by gradient
  std::map<ValueId, Chosen> chosen_;          // by weight
  std::vector<Set> sets_;
  ValueId scales_;
  std::map<int64_t, Codes> inputs_;     // by set
  std::map<ValueId, Codes> gradients_;  // by dy
  std::map<ValueId, Coded> transposed_weights_;
  std::vector<graph::StepSum> amax_, rounded_;
};

}  // namespace

graph::Graph quantize(const graph::Graph& graph, const QuantizeOptions& options) {
  return Quantize(graph, options).run();
}

void require_code_sizes(const graph::Graph& local) {
  for (const Node& n : local.nodes()) {
    if (!graph::is_code_linear(*n.op) || !base::is_fp8(local.type(n.inputs[0]).dtype)) continue;
    const graph::Gemm g = n.op->gemm(graph::input_types(local, n), graph::output_types(local, n), n.attrs);
    const auto is_multiple = [](double size) { return static_cast<int64_t>(size) % kQuantizedMultiple == 0; };
    if (is_multiple(g.m) && is_multiple(g.n) && is_multiple(g.k)) continue;
    base::fail_user(
        "precision.linear: in block {} this layout gives a rank a GEMM of {} rows, {} outputs and {} inputs, "
        "and 8-bit operands need multiples of {}; use fewer tensor or context ranks, or leave the layer out "
        "of precision.fp8_match",
        n.block, g.m, g.n, g.k, kQuantizedMultiple);
  }
}

void drop_unused_codes(graph::Graph& graph) {
  std::vector<char> used(graph.values().size(), 0);
  for (const Node& n : graph.nodes())
    for (const ValueId v : n.inputs) used[v.index()] = 1;
  for (const graph::StepSum& sum : graph.step_sums) used[sum.value.index()] = 1;
  for (Node& n : graph.nodes()) {
    if (!graph::makes_codes(*n.op)) continue;
    const graph::QuantizeResults at = graph::quantize_results(n.attrs);
    std::vector<ValueId> kept;
    const auto keep = [&](const char* attribute, std::initializer_list<int> results) {
      bool any = false;
      for (const int r : results) any |= r >= 0 && used[n.outputs[static_cast<size_t>(r)].index()] != 0;
      for (const int r : results) {
        if (r < 0) continue;
        const ValueId v = n.outputs[static_cast<size_t>(r)];
        if (any)
          kept.push_back(v);
        else
          graph.value(v).producer = {};
      }
      n.attrs.set(attribute, int64_t{any});
    };
    keep("measures", {at.amax, at.rounded});
    keep("plain", {at.codes, at.factors});
    keep("transposed", {at.transposed, at.transposed_factors});
    QUINTET_CHECK(!kept.empty(), "nothing reads the codes of %{}", n.inputs[0]);
    n.outputs = std::move(kept);
  }
}

}  // namespace quintet::passes
