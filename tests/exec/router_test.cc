// The router with its losses as a graph, and accumulation of results in its kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "exec/random_tensors.h"
#include "graph/autodiff.h"
#include "support/interpreter.h"

namespace quintet::tests {
namespace {

using graph::Attrs;
using graph::Dim;
using graph::DType;
using graph::Graph;
using graph::Phase;
using graph::Type;
using graph::ValueId;

constexpr int64_t kTokens = 12, kSeq = 4, kEmbed = 5, kExperts = 6, kChoices = 2;

HostTensor random_tensor(const Type& type, uint64_t seed) { return RandomTensors(seed).real(type.dims); }

HostTensor scalar(double value) {
  HostTensor t(Type{DType::F64, {}});
  *t.real() = value;
  return t;
}

// x w^T -> choice -> balance loss of a scope, z-loss, and weights; gradients of all three at once reach x and
// w. The objective is their sum, with the weights times `dweights`.
void check_losses(const std::string& scope) {
  SCOPED_TRACE(scope);
  Graph g;
  g.num_blocks = 1;
  const ValueId x = g.add_param("x", {DType::F64, {{Dim::Tokens, kTokens}, {Dim::Embed, kEmbed}}}, {});
  const ValueId w = g.add_param("w", {DType::F64, {{Dim::Routes, kExperts}, {Dim::Embed, kEmbed}}}, {});
  const auto add = [&](const graph::OpDef& op, std::vector<ValueId> in, Attrs attrs) {
    return g.add_node(op, std::move(in), std::move(attrs), Phase::F, 0).outputs;
  };
  const ValueId logits = add(graph::kRouter, {x, w}, {})[0];
  const auto selected = add(graph::kSelect, {logits},
                            {{"k", kChoices},
                             {"score", std::string("softmax")},
                             {"order", std::string("score_first")},
                             {"normalise", int64_t{1}},
                             {"scale", 2.0},
                             {"groups", int64_t{1}},
                             {"groups_kept", int64_t{1}},
                             {"biased", int64_t{0}},
                             {"force_balance", int64_t{0}}});
  const ValueId sums = add(graph::kBalanceSums, {selected[0], selected[1]},
                           {{"scope", scope}, {"seq_len", kSeq}, {"cp", int64_t{2}}})[0];
  std::vector<ValueId> balanced = {sums};
  if (scope == "global") balanced.push_back(add(graph::kRunningSum, {sums}, {})[0]);
  const bool by_sequence = scope == "sequence";
  const ValueId balance = add(graph::kBalanceLoss, balanced,
                              {{"coefficient", 0.5},
                               {"k", kChoices},
                               {"tokens", by_sequence ? kSeq : kTokens},
                               {"groups", by_sequence ? kTokens / kSeq : 1},
                               {"experts", kExperts},
                               {"scope", scope}})[0];
  const ValueId z = add(graph::kZLoss, {logits}, {{"coefficient", 0.01}})[0];
  const size_t forward = g.nodes().size();
  const auto input = [&](const char* name, const Type& type) {
    return g.add_value({.name = name, .type = type, .kind = graph::ValueKind::Input});
  };
  const ValueId dbalance = input("dbalance", g.type(balance)), dz = input("dz", g.type(z)),
                dweights = input("dweights", g.type(selected[2]));
  graph::differentiate(g, DType::F64, {{balance, dbalance}, {z, dz}, {selected[2], dweights}});

  Interpreter run(g);
  const HostTensor inputs[2] = {random_tensor(g.type(x), 1), random_tensor(g.type(w), 2)};
  const HostTensor given = random_tensor(g.type(selected[2]), 3);
  run.at(x) = inputs[0];
  run.at(w) = inputs[1];
  run.at(dbalance) = scalar(3);
  run.at(dz) = scalar(2);
  run.at(dweights) = given;
  run.run(0, g.nodes().size());
  EXPECT_GT(*run.at(balance).real(), 0.4);  // near its coefficient when the choice is near balance
  const auto objective = [&](Interpreter& i) {
    double sum = 3 * *i.at(balance).real() + 2 * *i.at(z).real();
    for (int64_t k = 0; k < given.type.count(); ++k) sum += given.real()[k] * i.at(selected[2]).real()[k];
    return sum;
  };
  const double h = 1e-5;
  for (const graph::Param& p : g.params()) {
    ASSERT_EQ(p.grads.size(), 1u);
    for (int64_t i = 0; i < g.type(p.value).count(); ++i) {
      double value[2];
      for (const int side : {0, 1}) {
        Interpreter again(g);
        again.at(x) = inputs[0];
        again.at(w) = inputs[1];
        again.at(p.value).real()[i] += side ? h : -h;
        again.run(0, forward);
        value[side] = objective(again);
      }
      EXPECT_NEAR(run.at(p.grads[0]).real()[i], (value[1] - value[0]) / (2 * h), 1e-7)
          << g.value(p.value).name << " element " << i;
    }
  }
}

TEST(Router, LossesAndWeightsAgreeWithFiniteDifferences) {
  for (const char* scope : {"micro", "sequence", "global"}) check_losses(scope);
}

// One op on operands in place, as an executor calls it.
struct Call {
  Call(const graph::OpDef& op, Attrs attrs, std::vector<HostTensor*> in, std::vector<HostTensor*> out) {
    instr.op = &op;
    instr.attrs = std::move(attrs);
    for (HostTensor* t : in) {
      instr.in.push_back({program::BufferId(0), 0, t->type});
      bound.in.push_back(t->bytes.data());
    }
    for (HostTensor* t : out) {
      instr.out.push_back({program::BufferId(0), 0, t->type});
      bound.out.push_back(t->bytes.data());
    }
    bound.instr = &instr;
    bound.pool = &pool;
    workspace.resize(static_cast<size_t>(exec::cpu::workspace_bytes(instr, 2)) + 64);
    const auto address = reinterpret_cast<uintptr_t>(workspace.data());
    bound.workspace = reinterpret_cast<std::byte*>((address + 63) / 64 * 64);
  }
  void run(bool accumulate) { exec::cpu::find_kernel(*instr.op).run(bound, accumulate); }

  program::Instr instr;
  exec::cpu::Bound bound;
  device::ThreadPool pool{2};
  std::vector<std::byte> workspace;
};

// Results without token rows accumulate when asked to; a slope next to a loss is overwritten.
TEST(Router, SumsAddUpOverCalls) {
  const std::set<const graph::OpDef*> sums = {&graph::kRouterDw, &graph::kExpertLoad, &graph::kRunningSum,
                                              &graph::kBalanceLoss, &graph::kZLoss};
  std::set<const graph::OpDef*> seen;
  for (OpExample e : router_examples()) {
    if (!sums.contains(e.op)) continue;
    seen.insert(e.op);
    SCOPED_TRACE(std::string(e.op->name) + " " + graph::to_string(e.attrs));
    std::vector<HostTensor*> in, out;
    std::vector<Type> types;
    for (HostTensor& t : e.in) {
      in.push_back(&t);
      types.push_back(t.type);
    }
    std::vector<HostTensor> results;
    for (const Type& t : e.op->infer(types, e.attrs)) results.push_back(random_tensor(t, 5));
    for (HostTensor& t : results) out.push_back(&t);
    Call call(*e.op, e.attrs, in, out);
    call.run(false);
    const std::vector<HostTensor> once = results;
    call.run(true);
    for (size_t o = 0; o < results.size(); ++o)
      for (int64_t i = 0; i < results[o].type.count(); ++i) {
        const double first = once[o].real()[i];
        EXPECT_NEAR(results[o].real()[i], o == 0 ? 2 * first : first, 1e-13 * std::abs(first))
            << o << " " << i;
      }
  }
  EXPECT_EQ(seen, sums);
}

TEST(Router, BiasFollowsTheLoadUnlessTheStepIsSkipped) {
  HostTensor load(Type{DType::F64, {{Dim::Flat, 5}}}), updated(Type{DType::F64, {}}),
      bias(Type{DType::F64, {{Dim::Routes, 3}}});
  const double loads[] = {6, 0, 3, 9, 9};
  std::copy_n(loads, 5, load.real());
  double& ok = *updated.real();
  Call call(graph::kUpdateBias, {{"rate", 0.25}}, {&load, &updated, &bias}, {&bias});
  const auto values = [&] { return std::vector<double>(bias.real(), bias.real() + 3); };
  ok = 0;
  call.run(false);
  EXPECT_EQ(values(), (std::vector<double>{0, 0, 0}));
  ok = 1;
  call.run(false);
  call.run(false);
  EXPECT_EQ(values(), (std::vector<double>{-0.5, 0.5, 0}));
}

}  // namespace
}  // namespace quintet::tests
