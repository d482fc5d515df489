// Every sharding rule against the unsharded op: operands are split as the rule says, each shard runs through
// the CPU kernel with the parts that lowering would give it, and the results are combined as the rule
// says.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "graph/cache_ops.h"
#include "layout/placement.h"
#include "support/op_runner.h"

namespace quintet::tests {
namespace {

using graph::Dim;
using graph::OpDim;
using graph::Type;

// Part `part` of `parts` along a dim, with zero padding past the end.
HostTensor slice(const HostTensor& t, int dim, int part, int parts) {
  const auto d = static_cast<size_t>(dim);
  Type type = t.type;
  const int64_t global = type.dims[d].size, local = layout::shard_size(global, parts);
  type.dims[d].size = local;
  HostTensor out(type);
  int64_t outer = 1, inner = base::size_of(type.dtype);
  for (size_t i = 0; i < type.dims.size(); ++i) (i < d ? outer : inner) *= i == d ? 1 : type.dims[i].size;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < local && part * local + k < global; ++k)
      std::memcpy(out.bytes.data() + (o * local + k) * inner,
                  t.bytes.data() + (o * global + part * local + k) * inner, static_cast<size_t>(inner));
  return out;
}

// The inverse: parts concatenated, padding removed.
HostTensor join(const std::vector<HostTensor>& list, int dim, int64_t global) {
  const auto d = static_cast<size_t>(dim);
  Type type = list[0].type;
  const int64_t local = type.dims[d].size;
  type.dims[d].size = global;
  HostTensor out(type);
  int64_t outer = 1, inner = base::size_of(type.dtype);
  for (size_t i = 0; i < type.dims.size(); ++i) (i < d ? outer : inner) *= i == d ? 1 : type.dims[i].size;
  for (size_t p = 0; p < list.size(); ++p)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < local && static_cast<int64_t>(p) * local + k < global; ++k)
        std::memcpy(out.bytes.data() + (o * global + static_cast<int64_t>(p) * local + k) * inner,
                    list[p].bytes.data() + (o * local + k) * inner, static_cast<size_t>(inner));
  return out;
}

int64_t dim_size(const OpDim& d, const std::vector<Type>& in, const std::vector<Type>& out) {
  for (size_t i = 0; i < in.size(); ++i)
    if (d.in[i] >= 0) return in[i].size(d.in[i]);
  for (size_t i = 0; i < out.size(); ++i)
    if (d.out[i] >= 0) return out[i].size(d.out[i]);
  return 1;
}

std::vector<Type> types_of(const std::vector<HostTensor>& list) {
  std::vector<Type> types;
  for (const HostTensor& t : list) types.push_back(t.type);
  return types;
}

class Sharded {
 public:
  // `cuts`: direction of the rule and number of parts, in the rule's order (major first).
  Sharded(const OpExample& e, const std::vector<OpDim>& rule, const std::vector<Type>& out,
          std::vector<std::pair<size_t, int>> cuts)
      : e_(e),
        rule_(rule),
        out_(out),
        in_(types_of(e.in)),
        cuts_(std::move(cuts)),
        parts_(rule.size(), {0, 1}) {}

  std::vector<HostTensor> run() { return run(e_.in, out_, 0); }

 private:
  std::vector<HostTensor> run(const std::vector<HostTensor>& in, const std::vector<Type>& out, size_t depth) {
    if (depth == cuts_.size()) return run_shard(in, out);
    const auto [direction, parts] = cuts_[depth];
    const OpDim& d = rule_[direction];
    std::vector<std::vector<HostTensor>> results(out.size());
    for (int part = 0; part < parts; ++part) {
      parts_[direction] = {part, parts};
      std::vector<HostTensor> mine;
      for (size_t i = 0; i < in.size(); ++i)
        mine.push_back(d.in[i] >= 0 ? slice(in[i], d.in[i], part, parts) : in[i]);
      std::vector<Type> types = out;
      for (size_t i = 0; i < out.size(); ++i)
        if (d.out[i] >= 0) {
          int64_t& size = types[i].dims[static_cast<size_t>(d.out[i])].size;
          size = layout::shard_size(size, parts);
        }
      const auto r = run(mine, types, depth + 1);
      for (size_t i = 0; i < r.size(); ++i) results[i].push_back(r[i]);
    }
    std::vector<HostTensor> joined;
    for (size_t i = 0; i < out.size(); ++i) joined.push_back(combine(d, i, results[i], out[i]));
    return joined;
  }

  static HostTensor combine(const OpDim& d, size_t output, const std::vector<HostTensor>& list,
                            const Type& type) {
    if (d.out[output] >= 0) return join(list, d.out[output], type.size(d.out[output]));
    HostTensor result = list[0];
    for (size_t p = 1; p < list.size(); ++p)
      for (int64_t k = 0; k < type.count(); ++k) {
        double& r = result.real()[k];
        const double x = list[p].real()[k];
        if (d.out[output] == graph::kReplicated)
          EXPECT_EQ(r, x) << "not the same on all shards";
        else
          r = d.reduction == graph::Reduction::Sum ? r + x : std::max(r, x);
      }
    return result;
  }

  std::vector<HostTensor> run_shard(const std::vector<HostTensor>& in, const std::vector<Type>& out) const {
    std::vector<program::Part> parts;
    for (size_t i = 0; i < rule_.size(); ++i) {
      const int64_t global = dim_size(rule_[i], in_, out_),
                    local = layout::shard_size(global, parts_[i].second);
      const int64_t begin = parts_[i].first * local;
      parts.push_back({rule_[i].key, begin, local, std::clamp<int64_t>(global - begin, 0, local), global});
    }
    return run_op(*e_.op, e_.attrs, in, out, parts);
  }

  const OpExample& e_;
  const std::vector<OpDim>& rule_;
  const std::vector<Type>& out_;
  const std::vector<Type> in_;
  const std::vector<std::pair<size_t, int>> cuts_;
  std::vector<std::pair<int, int>> parts_;  // by direction: part, parts
};

class RuleTest {
 public:
  explicit RuleTest(const OpExample& e)
      : e_(e), in_(types_of(e.in)), out_(e.op->infer(in_, e.attrs)), rule_(e.op->dims(in_, out_, e.attrs)) {
    whole_ = run_op(*e.op, e.attrs, e.in, out_, whole_parts(*e.op, in_, out_, e.attrs));
  }

  // Every direction over 2 and 4 parts, and every two directions over 2 x 2.
  int run() {
    int tried = 0;
    for (size_t i = 0; i < rule_.size(); ++i) {
      tried += check({{i, 2}}) + check({{i, 4}});
      for (size_t j = i + 1; j < rule_.size(); ++j) tried += check({{i, 2}, {j, 2}});
    }
    return tried;
  }

 private:
  // What may be split where rows may not: sequences, or groups of them. Sums of sequences have a row each.
  int64_t uncut(const OpDim& d) const {
    int64_t size = dim_size(d, in_, out_);
    if (e_.attrs.find("scope") == nullptr)
      return size / e_.attrs.integer("seq_len") / (e_.attrs.find("group") ? e_.attrs.integer("group") : 1);
    for (size_t i = 0; i < in_.size(); ++i)
      if (d.in[i] >= 0) size = std::min(size, in_[i].size(d.in[i]));
    for (size_t i = 0; i < out_.size(); ++i)
      if (d.out[i] >= 0) size = std::min(size, out_[i].size(d.out[i]));
    return size;
  }

  // Blocks are not split; their factors have no head dim.
  bool has_whole_blocks(const OpDim& d, int parts) const {
    if (d.key == Dim::HeadDim) return false;
    for (size_t i = 0; i < in_.size(); ++i)
      if (d.in[i] >= 0 && in_[i].size(d.in[i]) % parts != 0) return false;
    for (size_t i = 0; i < out_.size(); ++i)
      if (d.out[i] >= 0 && out_[i].size(d.out[i]) % parts != 0) return false;
    return true;
  }

  bool allowed(const std::vector<std::pair<size_t, int>>& cuts) const {
    int64_t kv_parts = 1, head_parts = 1;
    for (const auto& [direction, parts] : cuts) {
      const OpDim& d = rule_[direction];
      if (is_dispatch(*e_.op) || d.key == Dim::Routed || d.key == Dim::Experts) return false;
      int64_t size = dim_size(d, in_, out_);
      if (d.key == Dim::Tokens && !d.any_row) size = uncut(d);
      if (!d.padded && size % parts != 0) return false;
      if (e_.attrs.find("block") != nullptr && !has_whole_blocks(d, parts)) return false;
      if (d.key == Dim::KvHeads) kv_parts = parts;
      if (d.key == Dim::Heads) head_parts = parts;
    }
    if (e_.op == &graph::kCachedAttention) {
      const int64_t kv_heads = in_[6].size(1), heads = in_[5].size(1);
      return kv_heads % kv_parts == 0 && (head_parts == 1 || kv_heads == kv_parts) &&
             heads % (kv_parts * head_parts) == 0;
    }
    const bool hop = e_.op == &graph::kAttentionHop || e_.op == &graph::kAttentionHopDx;
    if (e_.op != &graph::kAttention && e_.op != &graph::kAttentionDx && !hop) return true;
    // Rows are in the order of cp ranks: these are the parts along context; along tokens only plain order can
    // be split. A hop's rows are one part of them.
    const int64_t cp = e_.attrs.integer("cp");
    for (const auto& [direction, parts] : cuts) {
      if (rule_[direction].key == Dim::Context && (parts != cp || hop)) return false;
      if (rule_[direction].key == Dim::Tokens && cp != 1) return false;
    }
    // Attention: split between KV heads first; query heads inside a group only where one KV head is left.
    const size_t k = e_.op == &graph::kAttention || e_.op == &graph::kAttentionHop ? 1 : 2;
    const int64_t kv_heads = in_[k].size(1), heads = in_[k - 1].size(1);
    return kv_heads % kv_parts == 0 && (head_parts == 1 || kv_heads == kv_parts) &&
           heads % (kv_parts * head_parts) == 0;
  }

  int check(const std::vector<std::pair<size_t, int>>& cuts) {
    if (!allowed(cuts)) return 0;
    std::string name = std::string(e_.op->name) + " " + graph::to_string(in_[0]);
    for (const auto& [direction, parts] : cuts)
      name += ", " + std::string(graph::to_string(rule_[direction].key)) + " by " + std::to_string(parts);
    SCOPED_TRACE(name);
    const auto sharded = Sharded(e_, rule_, out_, cuts).run();
    for (size_t i = 0; i < whole_.size(); ++i) {
      if (!whole_[i].is_real()) {
        EXPECT_EQ(sharded[i].bytes, whole_[i].bytes) << "output " << i;
        continue;
      }
      double difference = 0, size = 0;
      for (int64_t k = 0; k < whole_[i].type.count(); ++k) {
        difference += std::pow(sharded[i].real()[k] - whole_[i].real()[k], 2);
        size += std::pow(whole_[i].real()[k], 2);
      }
      // At most 4 x 32 terms are added in another order.
      EXPECT_LE(std::sqrt(difference), 128 * 0x1p-53 * std::sqrt(size)) << "output " << i;
    }
    return 1;
  }

  const OpExample& e_;
  const std::vector<Type> in_, out_;
  const std::vector<OpDim> rule_;
  std::vector<HostTensor> whole_;
};

TEST(Sharding, EveryRuleAgreesWithTheWholeOp) {
  std::map<const graph::OpDef*, int> tried;
  for (const OpExample& e : op_examples()) tried[e.op] += RuleTest(e).run();
  for (const graph::OpDef* op : graph::all_ops())
    if (op->dims != nullptr && !is_dispatch(*op) && op != &graph::kRunningSum && op != &graph::kTakeRows &&
        op != &graph::kSample) {  // never sharded
      EXPECT_GE(tried[op], 2) << op->name;
    }
}

}  // namespace
}  // namespace quintet::tests
