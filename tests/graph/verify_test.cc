// Each rule of the verifier is violated once, in an otherwise valid graph.
#include "graph/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/support.h"
#include "graph/text.h"

namespace quintet::graph {
namespace {

using testing::tiny_llama;

Node& node(Graph& g, const OpDef& op, Phase phase = Phase::F) {
  return *std::find_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return n.op == &op && n.phase == phase; });
}

Param& some_param(Graph& g, std::string_view name) { return *g.find_param(g.find(name)); }

// The graph must be refused with a message that contains all the parts.
void expect_refused(const Graph& g, const std::vector<std::string>& parts, bool local = false) {
  try {
    verify(g, "a pass", local);
    ADD_FAILURE() << "was accepted; expected: " << parts.back();
  } catch (const base::InternalError& e) {
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with("after a pass: ")) << text;
    for (const std::string& part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << text << "\nexpected: " << part;
  }
}

std::string at(const Node& n) {
  return "after a pass: node %" + std::to_string(n.outputs[0].value) + " " + std::string(n.op->name) + ": ";
}

TEST(Verify, AcceptsGoodGraphs) {
  EXPECT_NO_THROW(verify(tiny_llama(), "build"));
  EXPECT_NO_THROW(verify(tiny_llama({.tied = true, .freeze = {"w*"}}), "build"));
  EXPECT_NO_THROW(verify(tiny_llama({.mode = Mode::Infer}), "build"));
  EXPECT_NO_THROW(verify(tiny_llama(), "build", true));
  EXPECT_NO_THROW(verify(Graph(), "nothing"));
}

TEST(Verify, OperandBeforeDefinition) {
  Graph g = tiny_llama();
  Node& n = node(g, kSwiGlu);
  n.inputs[0] = node(g, kRowMax).outputs[0];
  expect_refused(g, {at(n), "is used before it is defined"});
}

TEST(Verify, NodesOutOfOrder) {
  Graph g = tiny_llama();
  std::swap(g.nodes()[0], g.nodes()[1]);
  expect_refused(g, {"rms_norm", "is used before it is defined"});
}

TEST(Verify, OperandThatIsNotAValue) {
  Graph g = tiny_llama();
  node(g, kAdd).inputs[1] = ValueId();
  expect_refused(g, {at(node(g, kAdd)), "is not a value of the graph"});
  g = tiny_llama();
  node(g, kAdd).inputs[1] = ValueId(100000);
  expect_refused(g, {at(node(g, kAdd)), "%100000 is not a value of the graph"});
}

TEST(Verify, OperandCount) {
  Graph g = tiny_llama();
  node(g, kRope).inputs.pop_back();
  expect_refused(g, {at(node(g, kRope)), "takes 2 to 2 operands, has 1"});
}

TEST(Verify, ResultType) {
  Graph g = tiny_llama();
  Node& n = node(g, kSwiGlu);
  g.value(n.outputs[0]).type.dims[1].size = 25;
  expect_refused(g, {at(n), "must be f32[tokens=8, ffn=24], is f32[tokens=8, ffn=25]"});
  g = tiny_llama();
  g.value(node(g, kSwiGlu).outputs[0]).type.dtype = DType::BF16;
  expect_refused(g, {at(node(g, kSwiGlu)), "is bf16["});
}

TEST(Verify, ResultCount) {
  Graph g = tiny_llama();
  node(g, kRmsNorm).outputs.pop_back();
  expect_refused(g, {at(node(g, kRmsNorm)), "infers 2 results, has 1"});
}

TEST(Verify, OperandsThatTheOpRefuses) {
  Graph g = tiny_llama();
  Node& n = node(g, kLinear);
  n.inputs[0] = g.find("ids");
  expect_refused(g, {at(n), "operands do not fit: [linear]"});
}

TEST(Verify, LocalGraphsMayHaveOtherSizes) {
  Graph g = tiny_llama();
  Node& n = node(g, kSwiGlu);
  g.value(n.outputs[0]).type.dims[1].size = 12;
  EXPECT_THROW(verify(g, "partition", false), base::InternalError);
  EXPECT_NO_THROW(verify(g, "partition", true));
}

TEST(Verify, PlacementOpsAreExemptFromInference) {
  Graph g = tiny_llama({.mode = Mode::Infer});
  Type half = g.type(g.logits);
  half.dims[1].size = 19;
  g.add_node_typed(kReduceScatter, {g.logits},
                   {{"atoms", std::vector<int64_t>{0}}, {"dim", int64_t{1}}, {"reduce", std::string("sum")}},
                   Phase::F, 2, {half});
  EXPECT_NO_THROW(verify(g, "partition", false));
}

TEST(Verify, MissingAttribute) {
  Graph g = tiny_llama();
  node(g, kRmsNorm).attrs = {};
  expect_refused(g, {at(node(g, kRmsNorm)), "attribute eps is missing"});
}

TEST(Verify, AttributeOfAnotherKind) {
  Graph g = tiny_llama();
  node(g, kRmsNorm).attrs.set("eps", int64_t{1});
  expect_refused(g, {at(node(g, kRmsNorm)), "attribute eps must be a real, is an integer"});
}

TEST(Verify, ExtraAttribute) {
  Graph g = tiny_llama();
  node(g, kSwiGlu).attrs.set("beta", 1.0);
  expect_refused(g, {at(node(g, kSwiGlu)), "has an attribute beta, which the op does not take"});
}

TEST(Verify, AttributeTwice) {
  Graph g = tiny_llama();
  node(g, kRmsNorm).attrs = {{"eps", 1e-5}, {"eps", 1e-6}};
  expect_refused(g, {at(node(g, kRmsNorm)), "an attribute is given twice"});
}

TEST(Verify, AttributesOfLocalGraphsToo) {
  Graph g = tiny_llama();
  node(g, kRmsNorm).attrs = {};
  expect_refused(g, {"attribute eps is missing"}, /*local=*/true);
}

TEST(Verify, ForwardUsesNoBackward) {
  Graph g = tiny_llama();
  node(g, kSwiGlu).phase = Phase::B;
  expect_refused(g, {"linear", "phase F uses %", "a result of the later phase B"});
  g = tiny_llama();
  node(g, kSwiGlu).phase = Phase::W;
  expect_refused(g, {"phase F uses %", "a result of the later phase W"});
}

TEST(Verify, BackwardUsesNoWeightGradient) {
  Graph g = tiny_llama();
  node(g, kSwiGluDx, Phase::B).phase = Phase::W;
  expect_refused(g, {"linear_dx", "phase B uses %", "a result of the later phase W"});
}

TEST(Verify, BlockLabels) {
  Graph g = tiny_llama();
  node(g, kSwiGlu).block = 3;
  expect_refused(g, {at(node(g, kSwiGlu)), "block 3 is not one of 0 to 2"});
  g = tiny_llama();
  some_param(g, "wq.weight").block = -1;
  expect_refused(g, {"parameter wq.weight: block -1 is not one of 0 to 2"});
}

TEST(Verify, ResultProducedTwice) {
  Graph g = tiny_llama();
  g.nodes().push_back(node(g, kSwiGlu));
  expect_refused(g, {"is given by an earlier node too"});
}

TEST(Verify, ResultThatIsAnInput) {
  Graph g = tiny_llama();
  node(g, kSwiGlu).outputs[0] = g.find("labels");
  expect_refused(g, {"is an input or a parameter"});
}

TEST(Verify, Producer) {
  Graph g = tiny_llama();
  Node& n = node(g, kSwiGlu);
  g.value(n.outputs[0]).producer = NodeId(0);
  expect_refused(g, {at(n), "names node number 0 as its producer"});
}

TEST(Verify, NodeWithoutOp) {
  Graph g = tiny_llama();
  g.nodes()[0].op = nullptr;
  expect_refused(g, {"every node needs an op"});
}

TEST(Verify, GradientDims) {
  Graph g = tiny_llama();
  std::swap(some_param(g, "wq.weight").grads, some_param(g, "wk.weight").grads);
  expect_refused(
      g, {"parameter wq.weight: gradient %", "must have the dims of f32[heads=4, head_dim=6, embed=16]"});
  EXPECT_NO_THROW(verify(g, "partition", true));
}

TEST(Verify, GradientWithoutAProducer) {
  Graph g = tiny_llama();
  some_param(g, "wq.weight").grads = {some_param(g, "wq.weight").value};
  expect_refused(g, {"parameter wq.weight: gradient %", "is computed by no node"});
  some_param(g, "wq.weight").grads = {ValueId()};
  expect_refused(g, {"parameter wq.weight: gradient %", "is computed by no node"});
}

TEST(Verify, GradientOfFrozenParameter) {
  Graph g = tiny_llama();
  some_param(g, "wq.weight").trainable = false;
  expect_refused(g, {"parameter wq.weight is frozen, yet has a gradient %"});
}

TEST(Verify, LossIsAScalarResult) {
  Graph g = tiny_llama();
  g.loss = node(g, kRowMax).outputs[0];
  expect_refused(g, {"the loss %", "must be a scalar, is f32[tokens=8]"});
  g.loss = g.find("seed");
  expect_refused(g, {"the loss %", "is computed by no node"});
  g = tiny_llama({.mode = Mode::Infer});
  g.logits = ValueId(100000);
  expect_refused(g, {"the logits %100000 is computed by no node"});
}

TEST(Verify, NamesAreUnique) {
  Graph g = tiny_llama();
  g.value(g.find("wq.weight")).name = "ids";
  expect_refused(g, {"two inputs or parameters are called ids"});
}

TEST(Verify, ListOfParameters) {
  Graph g = tiny_llama();
  g.params().pop_back();
  expect_refused(g, {"parameter head.weight is not in the list of parameters"});
  g = tiny_llama();
  g.params().push_back(g.params()[1]);
  expect_refused(g, {"parameter attn_norm.weight is listed twice"});
  g = tiny_llama();
  g.params()[0].value = g.find("ids");
  expect_refused(g, {"which is not a parameter"});
}

}  // namespace
}  // namespace quintet::graph
