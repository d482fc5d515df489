// Every op's gradient against finite differences in f64, through autodiff and the CPU kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/autodiff.h"
#include "support/interpreter.h"

namespace quintet::tests {
namespace {

using graph::Graph;
using graph::Type;
using graph::ValueId;

double dot(const HostTensor& a, const HostTensor& b) {
  double sum = 0;
  for (int64_t i = 0; i < a.type.count(); ++i) sum += a.real()[i] * b.real()[i];
  return sum;
}

// With step h the central difference has an error of about h^2 f''' / 6 plus u |L| / h; h = 1e-5 makes both
// about 1e-10 of the terms here, whose derivatives are of order 1 to 100.
constexpr double kStep = 1e-5, kTolerance = 1e-7;

// d(sum of dy * y)/dx by autodiff and by differences, for every float operand; y are the outputs that the
// example names.
void check_gradient(const OpExample& e) {
  SCOPED_TRACE(std::string(e.op->name) + " " + graph::to_string(e.attrs));
  Graph g;
  g.num_blocks = 1;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < e.in.size(); ++i) {
    const std::string name = "operand" + std::to_string(i);
    const bool constant = std::find(e.constants.begin(), e.constants.end(), i) != e.constants.end();
    if (e.in[i].is_real() && !constant)
      inputs.push_back(g.add_param(name, e.in[i].type, {}));
    else
      inputs.push_back(g.add_value({.name = name, .type = e.in[i].type, .kind = graph::ValueKind::Input}));
  }
  const std::vector<ValueId> out = g.add_node(*e.op, inputs, e.attrs, graph::Phase::F, 0).outputs;
  std::vector<std::pair<ValueId, ValueId>> seeds;  // y, dy
  for (const size_t i : e.outputs)
    seeds.push_back({out[i], g.add_value({.name = "dy" + std::to_string(i),
                                          .type = g.type(out[i]),
                                          .kind = graph::ValueKind::Input})});
  graph::differentiate(g, graph::DType::F64, seeds);

  Interpreter run(g);
  for (size_t i = 0; i < inputs.size(); ++i) run.at(inputs[i]) = e.in[i];
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  for (const auto& [y, dy] : seeds) {
    run.at(dy) = HostTensor(g.type(y));
    for (int64_t i = 0; i < g.type(y).count(); ++i) run.at(dy).real()[i] = normal(random);
  }
  run.run(0, g.nodes().size());

  for (const graph::Param& p : g.params()) {
    ASSERT_FALSE(p.grads.empty()) << g.value(p.value).name;
    std::vector<double> grad(static_cast<size_t>(g.type(p.value).count()), 0.0);
    for (const ValueId part : p.grads)
      for (size_t i = 0; i < grad.size(); ++i) grad[i] += run.at(part).real()[i];
    for (size_t i = 0; i < grad.size(); ++i) {
      Interpreter again(g);
      double value[2];
      for (const int side : {0, 1}) {
        for (size_t k = 0; k < inputs.size(); ++k) again.at(inputs[k]) = e.in[k];
        again.at(p.value).real()[i] += side ? kStep : -kStep;
        again.run(0, 1);
        value[side] = 0;
        for (const auto& [y, dy] : seeds) value[side] += dot(again.at(y), run.at(dy));
      }
      const double difference = (value[1] - value[0]) / (2 * kStep);
      ASSERT_NEAR(grad[i], difference, kTolerance * std::max(1.0, std::abs(difference)))
          << g.value(p.value).name << " element " << i;
    }
  }
}

TEST(Gradient, EveryOpAgreesWithFiniteDifferences) {
  std::map<const graph::OpDef*, int> checked;
  for (const OpExample& e : op_examples()) {
    if (e.op->gradient == nullptr) continue;
    check_gradient(e);
    ++checked[e.op];
  }
  // Rows that move between ranks: on one rank nothing runs, and each is the other's gradient.
  checked[&graph::kToExperts] = checked[&graph::kToTokens] = 1;
  for (const graph::OpDef* op : graph::all_ops())
    if (op->gradient != nullptr) {
      EXPECT_GE(checked[op], 1) << op->name;
    }
}

// The loss's gradient is computed with the loss itself: dlogits of loss_grad against differences of its loss.
TEST(Gradient, LossAgreesWithFiniteDifferences) {
  for (OpExample e : op_examples()) {
    if (e.op != &graph::kLossGrad) continue;
    HostTensor logits = e.in[0];
    const HostTensor labels = e.in[3], seed = e.in[4];
    const auto run = [&](const HostTensor& z) {
      const auto op = [&](const graph::OpDef& def, const std::vector<HostTensor>& in) {
        std::vector<Type> types;
        for (const HostTensor& t : in) types.push_back(t.type);
        const auto out = def.infer(types, {});
        return run_op(def, {}, in, out, whole_parts(def, types, out, {}));
      };
      const HostTensor max = op(graph::kRowMax, {z})[0];
      const HostTensor sums = op(graph::kRowSumExp, {z, max, labels})[0];
      return op(graph::kLossGrad, {z, max, sums, labels, seed});
    };
    const auto out = run(logits);
    for (int64_t i = 0; i < logits.type.count(); ++i) {
      double value[2];
      for (const int side : {0, 1}) {
        HostTensor z = logits;
        z.real()[i] += side ? kStep : -kStep;
        value[side] = *run(z)[0].real();
      }
      EXPECT_NEAR(out[1].real()[i], *seed.real() * (value[1] - value[0]) / (2 * kStep), kTolerance);
    }
  }
}

}  // namespace
}  // namespace quintet::tests
