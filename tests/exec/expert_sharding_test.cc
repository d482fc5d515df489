// Ops on routed rows, sharded. Each rank has rows in its own order with its own counts, so the operands are
// split by a row's expert and token. Rows past the counts are NaN, and results must leave theirs
// unchanged.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "support/op_runner.h"

namespace quintet::tests {
namespace {

using graph::Attrs;
using graph::Dim;
using graph::DType;
using graph::OpDim;
using graph::Type;

int64_t columns(const Type& t) { return t.count() / t.size(0); }

std::vector<Type> types_of(const std::vector<HostTensor>& list) {
  std::vector<Type> types;
  for (const HostTensor& t : list) types.push_back(t.type);
  return types;
}

std::vector<HostTensor> run(const graph::OpDef& op, const Attrs& attrs, const std::vector<HostTensor>& in) {
  return run_op(op, attrs, in, op.infer(types_of(in), attrs), {});
}

// A rank's part under a sharding.
struct Share {
  std::vector<int64_t> rows;      // of the whole, in the rank's order
  std::vector<int32_t> counts;    // two sources
  int64_t expert_begin, experts;  // whose weights it has
};

// Rows of every expert, or all rows of some experts.
Share share_of(const std::vector<int32_t>& received, Dim key, int64_t part, int64_t parts) {
  const auto experts = static_cast<int64_t>(received.size());
  Share s{.rows = {}, .counts = {}, .expert_begin = 0, .experts = experts};
  if (key == Dim::Experts) s.experts = experts / parts, s.expert_begin = part * s.experts;
  std::vector<int32_t> mine;
  int64_t first = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t n = received[static_cast<size_t>(e)];
    if (e >= s.expert_begin && e < s.expert_begin + s.experts) {
      const int64_t begin = key == Dim::Routed ? n * part / parts : 0,
                    end = key == Dim::Routed ? n * (part + 1) / parts : n;
      for (int64_t r = begin; r < end; ++r) s.rows.push_back(first + r);
      mine.push_back(static_cast<int32_t>(end - begin));
    }
    first += n;
  }
  for (const int32_t n : mine) s.counts.push_back(n / 3);
  for (const int32_t n : mine) s.counts.push_back(n - n / 3);
  return s;
}

// The rank's part of an operand that the rule shards.
HostTensor cut(const HostTensor& t, const Share& s) {
  Type type = t.type;
  switch (type.dims[0].name) {
    case Dim::Counts: {
      type.dims[0].size = static_cast<int64_t>(s.counts.size());
      HostTensor out(type);
      std::copy(s.counts.begin(), s.counts.end(), out.index());
      return out;
    }
    case Dim::Experts: {
      type.dims[0].size = s.experts;
      HostTensor out(type);
      std::copy_n(t.real() + s.expert_begin * columns(type), type.count(), out.real());
      return out;
    }
    default: {
      HostTensor out(type);
      std::fill_n(out.real(), type.count(), std::nan(""));
      const int64_t n = columns(type);
      for (size_t r = 0; r < s.rows.size(); ++r)
        std::copy_n(t.real() + s.rows[r] * n, n, out.real() + static_cast<int64_t>(r) * n);
      return out;
    }
  }
}

// Writes the rank's result to its place in the whole; a result that is not sharded is a term of a sum.
void put(const HostTensor& part, const Share& s, bool divided, HostTensor& whole) {
  const int64_t n = columns(whole.type);
  if (!divided) {
    for (int64_t i = 0; i < whole.type.count(); ++i) whole.real()[i] += part.real()[i];
  } else if (whole.type.dims[0].name == Dim::Experts) {
    std::copy_n(part.real(), part.type.count(), whole.real() + s.expert_begin * n);
  } else {
    for (size_t r = 0; r < s.rows.size(); ++r)
      std::copy_n(part.real() + static_cast<int64_t>(r) * n, n, whole.real() + s.rows[r] * n);
    for (auto i = static_cast<int64_t>(s.rows.size()) * n; i < part.type.count(); ++i)
      ASSERT_EQ(part.real()[i], 0) << "a row beyond the counts was written";
  }
}

TEST(ExpertSharding, RowsAndExpertsDivide) {
  std::set<const graph::OpDef*> tried;
  for (const OpExample& e : expert_examples()) {
    if (is_dispatch(*e.op)) continue;
    const std::vector<Type> in = types_of(e.in), out = e.op->infer(in, e.attrs);
    const std::vector<HostTensor> whole = run_op(*e.op, e.attrs, e.in, out, {});
    for (const OpDim& d : e.op->dims(in, out, e.attrs)) {
      if (d.key != Dim::Routed && d.key != Dim::Experts) continue;
      tried.insert(e.op);
      const HostTensor& counts = e.in.back();
      HostTensor copy = counts;
      const std::vector<int32_t> received(copy.index(), copy.index() + counts.type.count());
      for (const int64_t parts : {2, 4}) {
        SCOPED_TRACE(std::string(e.op->name) + ", " + std::string(to_string(d.key)) + " by " +
                     std::to_string(parts));
        std::vector<HostTensor> joined;
        for (const Type& t : out) joined.emplace_back(t);
        for (int64_t p = 0; p < parts; ++p) {
          const Share s = share_of(received, d.key, p, parts);
          std::vector<HostTensor> mine;
          for (size_t i = 0; i < e.in.size(); ++i) mine.push_back(d.in[i] == 0 ? cut(e.in[i], s) : e.in[i]);
          std::vector<Type> types = out;
          for (Type& t : types)
            if (t.dims[0].name == Dim::Experts) t.dims[0].size = s.experts;
          const auto results = run_op(*e.op, e.attrs, mine, types, {});
          for (size_t i = 0; i < out.size(); ++i) put(results[i], s, d.out[i] == 0, joined[i]);
        }
        for (size_t i = 0; i < out.size(); ++i)
          for (int64_t k = 0; k < out[i].count(); ++k)
            ASSERT_NEAR(joined[i].real()[k], whole[i].real()[k], 1e-13 * (1 + std::abs(whole[i].real()[k])))
                << "output " << i << " element " << k;
      }
    }
  }
  for (const graph::OpDef* op : {&graph::kGroupedLinear, &graph::kGroupedLinearDx, &graph::kGroupedLinearDw,
                                 &graph::kExpertAct, &graph::kExpertActDx})
    EXPECT_TRUE(tried.contains(op)) << op->name;
}

// Rows [begin, begin + size) of a value.
HostTensor rows_of(const HostTensor& t, int64_t begin, int64_t size) {
  Type type = t.type;
  type.dims[0].size = size;
  HostTensor out(type);
  const int64_t bytes = columns(t.type) * base::size_of(type.dtype);
  std::memcpy(out.bytes.data(), t.bytes.data() + begin * bytes, static_cast<size_t>(size * bytes));
  return out;
}

const OpExample& example(const std::vector<OpExample>& list, const graph::OpDef& op) {
  for (const OpExample& e : list)
    if (e.op == &op) return e;
  base::fail_internal("no example of {}", op.name);
}

// Each part of the tokens packed, changed slot by slot and unpacked separately, against all of them at once.
TEST(ExpertSharding, TokensDivide) {
  const std::vector<OpExample> list = expert_examples();
  const HostTensor &kept = example(list, graph::kRoute).in[0], &x = example(list, graph::kPack).in[0],
                   &weights = example(list, graph::kPackWeights).in[0];
  const int64_t tokens = kept.type.size(0), choices = kept.type.size(1), n = columns(x.type);
  struct Result {
    HostTensor rows, weights;
    std::vector<int64_t> send;
  };
  const auto pass = [&](int64_t begin, int64_t size, int64_t pad) {
    const Attrs route = {{"experts", int64_t{4}}, {"choices", choices}, {"pad", pad}, {"token_rows", size}},
                packing = {{"choices", choices}, {"pad", pad}},
                unpacking = {{"choices", choices}, {"pad", pad}, {"token_rows", size}};
    std::vector<HostTensor> routed = run(graph::kRoute, route, {rows_of(kept, begin, size)});
    HostTensor &order = routed[0], &send = routed[1];
    HostTensor packed = run(graph::kPack, packing, {rows_of(x, begin, size), order})[0],
               scale = run(graph::kPackWeights, packing, {rows_of(weights, begin, size), order})[0];
    for (int64_t s = 0; s < order.type.size(0); ++s) {
      if (order.index()[s] < 0) scale.real()[s] = std::nan("");  // the unused ones too
      for (int64_t i = 0; i < n; ++i) packed.real()[s * n + i] *= scale.real()[s];
    }
    return Result{run(graph::kUnpack, unpacking, {packed, order})[0],
                  run(graph::kUnpackWeights, unpacking, {scale, order})[0],
                  std::vector<int64_t>(send.index(), send.index() + 4)};
  };
  for (const int64_t pad : {0, 12}) {
    const Result whole = pass(0, tokens, pad);
    for (int64_t r = 0; r < tokens; ++r)
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        HostTensor copy = kept;
        for (int64_t c = 0; c < choices; ++c)
          if (copy.index()[r * choices + c] >= 0)
            sum += weights.real()[r * choices + c] * x.real()[r * n + i];
        ASSERT_NEAR(whole.rows.real()[r * n + i], sum, 1e-14 * (1 + std::abs(sum)));
      }
    for (const int64_t parts : {2, 3, 12}) {
      SCOPED_TRACE(::testing::Message() << parts << " parts, pad " << pad);
      std::vector<int64_t> send(4, 0);
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t size = tokens / parts, begin = p * size;
        const Result part = pass(begin, size, pad);
        EXPECT_EQ(part.rows.bytes, rows_of(whole.rows, begin, size).bytes);
        EXPECT_EQ(part.weights.bytes, rows_of(whole.weights, begin, size).bytes);
        for (size_t e = 0; e < 4; ++e) send[e] += part.send[e];
      }
      if (pad == 0) {
        EXPECT_EQ(send, whole.send);
      }
    }
  }
}

// Two ranks with two experts each, three times as many rows as one of them has: the rows that a rank
// receives, regrouped, pass through its experts and back like the whole.
TEST(ExpertSharding, RegroupedRowsMeetTheirExperts) {
  const std::vector<OpExample> list = expert_examples();
  const OpExample& linear = example(list, graph::kGroupedLinear);
  const int64_t width = linear.in[0].type.size(1);
  const Attrs regroup = {{"experts", int64_t{2}}, {"inverse", int64_t{0}}},
              inverse = {{"experts", int64_t{2}}, {"inverse", int64_t{1}}};
  // received[source][expert]
  HostTensor received(Type{DType::I32, {{Dim::Counts, 6}}});
  const int32_t counts[] = {2, 1, 0, 4, 3, 5};
  std::copy(std::begin(counts), std::end(counts), received.index());
  const int64_t total = std::accumulate(std::begin(counts), std::end(counts), int64_t{0});
  HostTensor arrived = linear.in[0], w = rows_of(linear.in[1], 0, 2);
  for (int64_t i = total * width; i < arrived.type.count(); ++i) arrived.real()[i] = std::nan("");
  const HostTensor grouped = run(graph::kRegroup, regroup, {arrived, received})[0];
  const HostTensor y = run(graph::kGroupedLinear, {}, {grouped, w, received})[0];
  const HostTensor back = run(graph::kRegroup, inverse, {y, received})[0];
  const int64_t out = y.type.size(1);
  int64_t row = 0;
  for (int64_t source = 0; source < 3; ++source)
    for (int64_t expert = 0; expert < 2; ++expert)
      for (int32_t k = 0; k < counts[source * 2 + expert]; ++k, ++row)
        for (int64_t o = 0; o < out; ++o) {
          double sum = 0;
          for (int64_t i = 0; i < width; ++i)
            sum += arrived.real()[row * width + i] * w.real()[(expert * out + o) * width + i];
          ASSERT_NEAR(back.real()[row * out + o], sum, 1e-13);
        }
  for (int64_t i = total * out; i < back.type.count(); ++i) ASSERT_EQ(back.real()[i], 0);
}

}  // namespace
}  // namespace quintet::tests
