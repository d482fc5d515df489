#include "graph/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "graph/support.h"

namespace quintet::graph {
namespace {

using testing::tiny_llama;

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

bool same_bits(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const double* d = std::get_if<double>(&a)) return same_bits(*d, std::get<double>(b));
  if (const auto* list = std::get_if<std::vector<double>>(&a)) {
    const auto& other = std::get<std::vector<double>>(b);
    return list->size() == other.size() &&
           (list->empty() || std::memcmp(list->data(), other.data(), list->size() * sizeof(double)) == 0);
  }
  return a == b;
}

// Member by member, so that a member that the text omits is found.
void expect_same(const Graph& a, const Graph& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.logits, b.logits);
  EXPECT_EQ(a.row_chunk, b.row_chunk);
  EXPECT_EQ(a.num_blocks, b.num_blocks);
  ASSERT_EQ(a.step_sums.size(), b.step_sums.size());
  for (size_t i = 0; i < a.step_sums.size(); ++i) {
    EXPECT_EQ(a.step_sums[i].kind, b.step_sums[i].kind);
    EXPECT_EQ(a.step_sums[i].value, b.step_sums[i].value);
    EXPECT_EQ(a.step_sums[i].block, b.step_sums[i].block);
  }
  ASSERT_EQ(a.bias_updates.size(), b.bias_updates.size());
  for (size_t i = 0; i < a.bias_updates.size(); ++i) {
    EXPECT_EQ(a.bias_updates[i].bias, b.bias_updates[i].bias);
    EXPECT_EQ(a.bias_updates[i].load, b.bias_updates[i].load);
    EXPECT_TRUE(same_bits(a.bias_updates[i].rate, b.bias_updates[i].rate));
  }
  ASSERT_EQ(a.values().size(), b.values().size());
  for (size_t i = 0; i < a.values().size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "%" << i);
    const Value &x = a.values()[i], &y = b.values()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.type, y.type);
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.producer, y.producer);
  }
  ASSERT_EQ(a.params().size(), b.params().size());
  for (size_t i = 0; i < a.params().size(); ++i) {
    const Param &x = a.params()[i], &y = b.params()[i];
    EXPECT_EQ(x.value, y.value);
    EXPECT_EQ(x.init, y.init);
    EXPECT_TRUE(same_bits(x.stddev, y.stddev));
    EXPECT_EQ(x.decay, y.decay);
    EXPECT_EQ(x.trainable, y.trainable);
    EXPECT_EQ(x.block, y.block);
    EXPECT_EQ(x.grads, y.grads);
  }
  ASSERT_EQ(a.nodes().size(), b.nodes().size());
  for (size_t i = 0; i < a.nodes().size(); ++i) {
    SCOPED_TRACE(to_text(a, a.nodes()[i]));
    const Node &x = a.nodes()[i], &y = b.nodes()[i];
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.inputs, y.inputs);
    EXPECT_EQ(x.outputs, y.outputs);
    EXPECT_EQ(x.phase, y.phase);
    EXPECT_EQ(x.block, y.block);
    EXPECT_EQ(x.row_group, y.row_group);
    ASSERT_EQ(x.attrs.items().size(), y.attrs.items().size());
    for (size_t j = 0; j < x.attrs.items().size(); ++j) {
      EXPECT_EQ(x.attrs.items()[j].first, y.attrs.items()[j].first);
      EXPECT_TRUE(same_bits(x.attrs.items()[j].second, y.attrs.items()[j].second));
    }
  }
}

void expect_round_trip(const Graph& g) {
  const std::string text = to_text(g);
  const Graph again = parse_text(text);
  expect_same(g, again);
  EXPECT_EQ(to_text(again), text);
}

TEST(GraphText, RoundTripOfModels) {
  expect_round_trip(tiny_llama());
  expect_round_trip(tiny_llama({.tied = true, .freeze = {"w?.weight"}}));
  expect_round_trip(tiny_llama({.mode = Mode::Evaluate}));
  expect_round_trip(tiny_llama({.mode = Mode::Infer}));
  expect_round_trip(Graph());
}

TEST(GraphText, RoundTripOfEveryOpAndAttribute) {
  for (const testing::OpCase& c : testing::op_cases()) {
    Graph g;
    std::vector<ValueId> inputs;
    for (const Type& t : c.in)
      inputs.push_back(
          g.add_value({.name = "in" + std::to_string(inputs.size()), .type = t, .kind = ValueKind::Input}));
    g.add_node(*c.op, inputs, c.attrs, Phase::W, 3).row_group = 2;
    g.num_blocks = 4;
    expect_round_trip(g);
  }
}

TEST(GraphText, RoundTripOfOddThings) {
  Graph g;
  g.num_blocks = 2;
  g.row_chunk = 1024;
  const Type type{DType::BF16, {{Dim::Tokens, 8}, {Dim::Embed, 0}}};
  const ValueId x =
      g.add_value({.name = "a \"quoted\\name\"\nof two lines", .type = type, .kind = ValueKind::Input});
  Param info;
  info.init = Init::Zeros;
  info.stddev = 0.1 + 0.2;
  info.decay = info.trainable = false;
  info.block = 1;
  const ValueId p = g.add_param("", {DType::F64, {}}, info);
  Node& n =
      g.add_node(kAdd, {x, x},
                 {{"empty", std::vector<int64_t>{}},
                  {"no_reals", std::vector<double>{}},
                  {"list", std::vector<int64_t>{-1, std::numeric_limits<int64_t>::min(), 7}},
                  {"third", 1.0 / 3.0},
                  {"whole", 3.0},
                  {"minus_zero", -0.0},
                  {"small", std::numeric_limits<double>::denorm_min()},
                  {"big", std::numeric_limits<double>::max()},
                  {"infinite", std::vector<double>{std::numeric_limits<double>::infinity(), -1e300, 2.0}},
                  {"text", std::string("a, b} \"c\" \\ = %3")},
                  {"number", int64_t{-5}}},
                 Phase::B, 1);
  n.row_group = 0;
  g.value(n.outputs[0]).name = "hint";
  g.params()[0].grads = {n.outputs[0], x, p};
  g.add_value({.name = "left over", .type = type});
  const ValueId bias = g.add_value({.name = "bias", .type = type, .kind = ValueKind::State});
  g.step_sums = {{SumKind::Load, n.outputs[0], 1}, {SumKind::Running, x, 0}};
  g.bias_updates = {{bias, n.outputs[0], 1.0 / 3.0}};
  g.add_value({.name = "", .type = type});
  expect_round_trip(g);
}

// Value numbers need not follow the order of nodes, nor parameters the order of their numbers.
TEST(GraphText, OrderIsFree) {
  const Graph g = parse_text(R"(
# a comment, and blank lines

graph blocks=1 row_chunk=0 loss=none logits=%0
param %3 "b" f32[embed=16] init=zeros stddev=0.02 decay=no trainable=yes block=0 grads=[]
input %2 "x" f32[tokens=8, embed=16]
param %1 "w" f32[embed=16] init=ones stddev=0.02 decay=no trainable=yes block=0 grads=[]
  %4 = bias_add(%2, %1) : f32[tokens=8, embed=16] F block=0
%0 = bias_add( %4,%3 ):f32[tokens=8,embed=16] F block=0
)");
  ASSERT_EQ(g.params().size(), 2u);
  EXPECT_EQ(g.value(g.params()[0].value).name, "b");
  EXPECT_EQ(g.value(ValueId(4)).producer, NodeId(0));
  EXPECT_EQ(g.value(ValueId(0)).producer, NodeId(1));
  expect_round_trip(g);
}

TEST(GraphText, Refusals) {
  const std::string head = "graph blocks=1 row_chunk=0 loss=none logits=none\n";
  const std::string x = head + "input %0 \"x\" f32[tokens=8, embed=16]\n";
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"", "line 1: expected a header"},
      {"\n# only a comment\n", "line 3: expected a header"},
      {"input %0 \"x\" f32[]\n", "line 1: expected 'graph'"},
      {"graph blocks=one", "line 1: expected an integer, got 'one'"},
      {"graph blocks=1 row_chunk=0 loss=%0 logits=none\n", "line 1: %0 is not defined anywhere"},
      {head + "output %0 \"x\" f32[]\n",
       "line 2: expected input, state, param, unused, sum, scale, bias_update or a node"},
      {head + "input 0 \"x\" f32[]\n", "line 2: expected '%'"},
      {head + "input %0 x f32[]\n", "line 2: expected the input's name in quotes, got 'x f32[]'"},
      {head + "input %0 \"x f32[]\n", "line 2: expected a closing '\"'"},
      {head + "input %0 \"x\" g32[]\n",
       "line 2: expected a dtype (f64, f32, bf16, f16, i64, i32, u8), got 'g32[]'"},
      {head + "input %0 \"x\" f32[rows=8]\n", "line 2: expected the name of a dim"},
      {head + "input %0 \"x\" f32[tokens=-8]\n", "line 2: expected a size of 0 or more, got '-8]'"},
      {head + "input %0 \"x\" f32[tokens=8 embed=16]\n", "line 2: expected ','"},
      {head + "input %0 \"x\" f32[tokens=8\n", "line 2: expected ',', got the end of the line"},
      {head + "input %0 \"x\" f32[] f32[]\n", "line 2: expected the end of the line, got 'f32[]'"},
      {x + "input %0 \"y\" f32[]\n", "line 3: %0 is already defined in line 2"},
      {x + "input %2 \"y\" f32[]\n", "value numbers must run from 0 without gaps: %1 is missing"},
      {x + "%1 = ad(%0, %0) : f32[] F block=0\n",
       "line 3: expected the name of an op, got 'ad'; the nearest is 'add'"},
      {x + "%1 = add(%0, %7) : f32[] F block=0\n", "line 3: %7 is not defined anywhere"},
      {x + "%1 = add(%0, %-1) : f32[] F block=0\n", "line 3: expected a value's number after '%', got '-1)"},
      {x + "%1 = add(%0, %0 : f32[] F block=0\n", "line 3: expected ','"},
      {x + "%1 = add(%0, %0) {a=} : f32[] F block=0\n", "line 3: expected a value, got '}"},
      {x + "%1 = add(%0, %0) {a=1, a=2} : f32[] F block=0\n",
       "line 3: expected an attribute that is not there yet"},
      {x + "%1 = add(%0, %0) {a=[1 x]} : f32[] F block=0\n", "line 3: expected an integer or ']', got 'x]}"},
      {x + "%1 = add(%0, %0) {a=99999999999999999999} : f32[] F block=0\n", "line 3: expected an integer"},
      {x + "%1 = add(%0, %0) F block=0\n", "line 3: expected ':'"},
      {x + "%1, %2 = add(%0, %0) : f32[] F block=0\n", "line 3: expected ',', got 'F block=0'"},
      {x + "%1 = add(%0, %0) : f32[] X block=0\n", "line 3: expected a phase: F, B or W, got 'X block=0'"},
      {x + "%1 = add(%0, %0) : f32[] F\n", "line 3: expected 'block', got the end of the line"},
      {x + "%1 = add(%0, %0) : f32[] F block=0 rows=1\n", "line 3: expected 'row_group'"},
      {head + "param %0 \"w\" f32[] init=random", "line 2: expected normal, ones or zeros, got 'random'"},
      {head + "param %0 \"w\" f32[] init=ones stddev=x", "line 2: expected a real number, got 'x'"},
      {head + "param %0 \"w\" f32[] init=ones stddev=1 decay=maybe",
       "line 2: expected yes or no, got 'maybe'"},
      {head + "param %0 \"w\" f32[] init=ones stddev=1 decay=no trainable=yes block=0 grads=[%4]",
       "line 2: %4 is not defined anywhere"},
      {x + "sum \"loads\" %0 block=0",
       "line 3: expected \"load\", \"balance_loss\", \"micro_batch_balance_loss\", "
       "\"sequence_balance_loss\", \"global_balance_loss\", \"z_loss\", \"next_token_loss\", \"running\", "
       "\"amax\" or \"rounded\", got '\"loads\""},
  };
  for (const auto& [text, message] : faults) {
    try {
      parse_text(text);
      ADD_FAILURE() << "was accepted:\n" << text;
    } catch (const base::UserError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos)
          << text << "\nsaid:     " << e.what() << "\nexpected: " << message;
    }
  }
}

// Every prefix of a text is either parsed or refused.
TEST(GraphText, EveryPrefixIsParsedOrRefused) {
  const std::string text = to_text(tiny_llama());
  for (size_t n = 0; n < text.size(); n += 3) {
    try {
      parse_text(text.substr(0, n));
    } catch (const base::UserError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("line ")) << e.what();
    }
  }
}

}  // namespace
}  // namespace quintet::graph
