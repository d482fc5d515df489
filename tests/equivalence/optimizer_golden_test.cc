// Optimizers against PyTorch, or the paper's formula where it has none (tests/golden/make_optimizers.py): the
// ops and states of the step graph, run by the CPU kernels.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "config/names.h"
#include "optim/step_builder.h"
#include "program/flat_ranges.h"
#include "support/folders.h"
#include "support/op_runner.h"

namespace quintet::tests {
namespace {

using Json = nlohmann::json;
using graph::DType;
using graph::ValueId;

Json golden(const std::string& name = "optimizers") {
  std::ifstream file(test::source_dir() + "/tests/golden/" + name + ".json");
  return Json::parse(file);
}

config::Optimizer settings(const std::string& name, const Json& g) {
  config::Optimizer o{.lr = g["lr"], .weight_decay = g["weight_decay"]};
  o.kind = config::value_of<config::OptimizerKind>(name.substr(0, name.find('_'))).value();
  o.betas = {g["betas"][0], g["betas"][1]};
  o.eps = g["eps"];
  o.trust = g["trust"];
  if (name.ends_with("_momentum") || name.ends_with("_nesterov")) o.momentum = g["momentum"];
  o.nesterov = name.ends_with("_nesterov");
  if (name.ends_with("_limits")) o.ratio_limits = g["ratio_limits"][name].get<std::array<double, 2>>();
  return o;
}

// One parameter with the states that its optimizer declares, and the ops of its update.
class Parameter {
 public:
  Parameter(const config::Optimizer& o, const std::vector<double>& start)
      : Parameter(o, start, {static_cast<int64_t>(start.size())}) {}
  Parameter(const config::Optimizer& o, const std::vector<double>& start, const std::vector<int64_t>& shape) {
    graph::Graph model;
    model.num_blocks = 1;
    graph::Type type{DType::F64, {}};
    for (const int64_t size : shape)
      type.dims.push_back({type.dims.empty() ? graph::Dim::Embed : graph::Dim::Ffn, size});
    model.add_param("p", type, {});
    step_ = optim::build_step(model, o, config::Precision::of(DType::F64));
    for (const graph::StateDecl& s : step_.states)
      if (s.param == "p" || s.role == graph::Role::Moment) tensors_[s.value] = HostTensor(s.type);
    count_ = type.count();
    weight_ = step_.graph.nodes().back().inputs[1];
    std::copy(start.begin(), start.end(), tensors_.at(weight_).real());
  }

  void step(const std::vector<double>& gradient, double lr, int64_t number, double ok = 1) {
    std::copy(gradient.begin(), gradient.end(), tensors_.at(step_.graph.nodes().back().inputs[0]).real());
    for (const graph::Node& node : step_.graph.nodes())
      if (node.op->step.kind == graph::StepKind::ParameterNorms || node.op->elementwise() || is_factors(node))
        run(node, {lr, 1, ok, static_cast<double>(number)});
  }
  std::vector<double> weights() const {
    const HostTensor& w = tensors_.at(weight_);
    return {w.real(), w.real() + w.type.count()};
  }

 private:
  static bool is_factors(const graph::Node& node) {
    return node.op == &graph::kUpdateFactors || node.op == &graph::kFactorSizes;
  }

  // An update's gradient and scalars are operands, what it updates are results in place; sums over parameters
  // are operands and a result as in the graph, of which Adafactor's are updated in place.
  void run(const graph::Node& node, std::vector<double> scalars) {
    program::Instr instr{.op = node.op, .attrs = node.attrs};
    const bool factors = is_factors(node);
    if (program::has_origins(instr))
      instr.attrs.set("origins", std::vector<int64_t>{0, 0, count_, count_, 0});  // the whole parameter
    if (factors) scalars.erase(scalars.begin(), scalars.begin() + 2);             // ok, update count
    exec::cpu::Bound bound;
    const auto bind = [](std::vector<program::Operand>& operands, auto& places, const graph::Type& type,
                         void* at) {
      operands.push_back({program::BufferId(0), 0, type});
      places.push_back(static_cast<std::byte*>(at));
    };
    size_t scalar = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      const graph::Type& type = step_.graph.type(in);
      const auto tensor = tensors_.find(in);
      if (tensor == tensors_.end())
        bind(instr.in, bound.in, type, &scalars.at(scalar++));
      else if (node.op->elementwise() && i > 0 && i <= node.outputs.size())
        bind(instr.out, bound.out, type, tensor->second.bytes.data());
      else
        bind(instr.in, bound.in, type, tensor->second.bytes.data());
    }
    for (size_t i = 0; factors && i < node.outputs.size(); ++i) {
      const size_t from = node.op == &graph::kFactorSizes ? 1 : i;
      bind(instr.out, bound.out, step_.graph.type(node.outputs[i]),
           tensors_.at(node.inputs[from]).bytes.data());
    }
    if (node.op->step.kind == graph::StepKind::ParameterNorms) {
      HostTensor& norms = tensors_[node.outputs[0]] = HostTensor(step_.graph.type(node.outputs[0]));
      bind(instr.out, bound.out, norms.type, norms.bytes.data());
    }
    device::ThreadPool pool(1);
    std::vector<double> workspace(static_cast<size_t>(exec::cpu::workspace_bytes(instr, 1) / 8 + 1));
    bound.instr = &instr;
    bound.pool = &pool;
    bound.workspace = reinterpret_cast<std::byte*>(workspace.data());
    exec::cpu::find_kernel(*instr.op).run(bound, false);
    if (factors)
      tensors_[node.outputs[0]] = tensors_.at(node.inputs[node.op == &graph::kFactorSizes ? 1 : 0]);
  }

  graph::StepGraph step_;
  int64_t count_ = 0;
  std::map<ValueId, HostTensor> tensors_;
  ValueId weight_;
};

TEST(OptimizerGolden, FiveStepsAreThoseOfTheReference) {
  const Json g = golden();
  const std::vector<double> start = g["start"];
  for (const auto& [name, weights] : g["weights"].items()) {
    SCOPED_TRACE(name);
    Parameter p(settings(name, g), start);
    for (size_t t = 0; t < weights.size(); ++t) {
      p.step(g["gradients"][t], g["lr"], static_cast<int64_t>(t) + 1);
      for (size_t i = 0; i < start.size(); ++i)
        EXPECT_NEAR(p.weights()[i], weights[t][i].get<double>(), 1e-14)
            << "step " << t + 1 << " element " << i;
    }
    const std::vector<double> before = p.weights();
    p.step(g["gradients"][0], g["lr"], 6, 0);
    EXPECT_EQ(before, p.weights()) << "a skipped step changes nothing";
  }
}

// tests/golden/make_adafactor.py
TEST(OptimizerGolden, AdafactorIsThatOfTheReference) {
  const Json g = golden("adafactor");
  for (const Json& c : g["cases"]) {
    SCOPED_TRACE(c["name"].get<std::string>() + (c["relative"] ? ", relative" : ""));
    config::Optimizer o{.kind = config::OptimizerKind::Adafactor, .lr = g["lr"]};
    o.weight_decay = g["weight_decay"];
    o.adafactor = {g["decay"], g["eps1"], g["clip"], c["relative"], g["eps2"]};
    Parameter p(o, c["start"], c["shape"]);
    for (size_t t = 0; t < c["weights"].size(); ++t) {
      p.step(c["gradients"][t], g["lr"], static_cast<int64_t>(t) + 1);
      for (size_t i = 0; i < c["start"].size(); ++i)
        EXPECT_NEAR(p.weights()[i], c["weights"][t][i].get<double>(), 1e-13)
            << "step " << t + 1 << " element " << i;
    }
    const std::vector<double> before = p.weights();
    p.step(c["gradients"][0], g["lr"], 6, 0);
    EXPECT_EQ(before, p.weights()) << "a skipped step changes nothing";
  }
}

// Every optimizer that a recipe may name has golden values.
TEST(OptimizerGolden, NamesEveryOptimizer) {
  const Json g = golden();
  for (const auto& [kind, name] : config::Names<config::OptimizerKind>::kTable) {
    const bool elsewhere = kind == config::OptimizerKind::AdamW8bit || kind == config::OptimizerKind::Muon ||
                           kind == config::OptimizerKind::Adafactor || kind == config::OptimizerKind::Custom;
    EXPECT_EQ(g["weights"].contains(std::string(name)), !elsewhere) << name;
  }
}

}  // namespace
}  // namespace quintet::tests
