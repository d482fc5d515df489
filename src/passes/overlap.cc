#include "passes/overlap.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "graph/fuse_adds.h"
#include "graph/op.h"
#include "passes/rewrite.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Phase;
using graph::ValueId;

namespace {

// Rates of an ordinary GPU and its links. Only the order of nodes depends on them, and all ranks must find
// the same one, so they are constants. Per nanosecond, and nanoseconds.
constexpr double kFlops = 400e3, kBytes = 2e3, kSentBytes = 100;
constexpr int64_t kLaunch = 2'000, kLatency = 10'000;

bool sends(const Node& node) {
  if (!is_message(node)) return false;
  const auto* atoms = node.attrs.find("atoms");
  return atoms != nullptr && !node.attrs.integers("atoms").empty() && node.op != &graph::kSlice &&
         node.op != &graph::kZeroUnlessFirst;
}

int64_t compute_time(const Graph& g, const Node& node) {
  if (node.op->cost == nullptr) return 0;
  const graph::Cost cost =
      node.op->cost(graph::input_types(g, node), graph::output_types(g, node), node.attrs);
  return kLaunch + static_cast<int64_t>(std::max(cost.flops / kFlops, cost.bytes / kBytes));
}

// Of rows for experts one side is the largest number that can arrive: the other is what is sent.
int64_t message_time(const Graph& g, const Node& node) {
  const int64_t in = g.type(node.inputs[0]).bytes(), out = g.type(node.outputs[0]).bytes();
  const int64_t bytes = node.op == &graph::kAllToAllV ? std::min(in, out) : std::max(in, out);
  return kLatency + static_cast<int64_t>(static_cast<double>(bytes) / kSentBytes);
}

// The order of consecutive nodes of one block and pass.
class Segment {
 public:
  Segment(const Graph& g, const graph::FusedAdds& fused, size_t first, size_t count, bool splits_backward)
      : g_(g), fused_(fused), first_(first), splits_backward_(splits_backward), nodes_(count) {
    for (size_t i = 0; i < count; ++i) describe(i);
    add_dependencies();
    for (size_t i = count; i-- > 0;) {
      int64_t after = 0;
      for (const size_t next : nodes_[i].after) after = std::max(after, nodes_[next].tail);
      nodes_[i].tail = is_late(i) ? 0 : nodes_[i].time + after;
    }
  }

  // Indices into the graph's nodes.
  std::vector<size_t> order() {
    while (order_.size() < nodes_.size()) {
      if (const size_t message = next_message(); message < nodes_.size())
        emit(message);
      else
        emit(next_compute());
    }
    for (size_t& i : order_) i += first_;
    return std::move(order_);
  }

 private:
  struct Item {
    bool message = false;
    bool saved = false;               // a message of saved values: sent before what it is in `sends_first` of
    std::vector<size_t> after;        // nodes that depend on it
    std::vector<size_t> sends_first;  // messages of saved values
    int waits = 0;                    // nodes before it that are not in order yet
    int64_t time = 0, tail = 0;       // its own, and from its beginning to the end of all that depends on it
    int64_t ready = 0, done = 0;      // when its operands are there, when its results are
    bool emitted = false;
  };

  const Node& node(size_t i) const { return g_.nodes()[first_ + i]; }
  // Nothing waits for gradients of weights before the end of the block.
  bool is_late(size_t i) const { return node(i).phase == Phase::W && !nodes_[i].message; }

  // The node of this segment that produces a value; its size if none does.
  size_t producer(ValueId v) const {
    const NodeId id = g_.value(v).producer;
    if (!id.valid() || id.index() < first_ || id.index() >= first_ + nodes_.size()) return nodes_.size();
    return id.index() - first_;
  }

  bool reads(size_t reader, size_t i) const {
    const auto& in = node(reader).inputs;
    return std::find(in.begin(), in.end(), node(i).outputs[0]) != in.end();
  }

  void describe(size_t i) {
    Item& item = nodes_[i];
    item.message = sends(node(i));
    item.time = item.message ? message_time(g_, node(i)) : compute_time(g_, node(i));
    if (item.message) find_saved(i);
  }

  // A message that could be sent when the block begins. If other compute comes before its reader, or the
  // reader is a late one, it is sent no earlier than it was: its result takes memory.
  void find_saved(size_t i) {
    const auto is_outside = [&](ValueId v) {
      return producer(v) == nodes_.size() || nodes_[producer(v)].saved;
    };
    size_t next = i + 1;
    while (next < nodes_.size() && sends(node(next))) ++next;
    if (next == nodes_.size() || !std::all_of(node(i).inputs.begin(), node(i).inputs.end(), is_outside) ||
        (reads(next, i) && node(next).phase != Phase::W))
      return;
    nodes_[i].saved = true;
    for (size_t k = i + 1; k < nodes_.size(); ++k)
      if (k == next || reads(k, i)) nodes_[k].sends_first.push_back(i);
  }

  void depend(size_t before, size_t after) {
    if (before >= nodes_.size() || before == after || nodes_[before].saved) return;
    QUINTET_CHECK(before < after, "node {} depends on the later node {}", first_ + after, first_ + before);
    nodes_[before].after.push_back(after);
    ++nodes_[after].waits;
  }

  void add_dependencies() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const ValueId in : node(i).inputs) depend(producer(in), i);
      // An addend is computed before the op that adds it.
      if (const int add = fused_.add_of[first_ + i]; add >= 0)
        for (const ValueId in : g_.nodes()[static_cast<size_t>(add)].inputs)
          if (in != node(i).outputs[0]) depend(producer(in), i);
    }
    // The first contribution to a gradient overwrites, the others add.
    for (const graph::Param& p : g_.params())
      for (size_t k = 1; k < p.grads.size(); ++k) {
        const size_t before = producer(p.grads[k - 1]), after = producer(p.grads[k]);
        if (after < nodes_.size()) depend(before, after);
      }
  }

  // Messages are sent as soon as their operands are computed.
  size_t next_message() const {
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].message && !nodes_[i].saved && !nodes_[i].emitted && nodes_[i].waits == 0) return i;
    return nodes_.size();
  }

  // The node with the most work after it among those that need not wait; otherwise the one that waits least.
  size_t next_compute() const {
    size_t best = nodes_.size();
    const auto rank = [&](size_t i) {
      const Item& item = nodes_[i];
      return std::tuple(splits_backward_ && is_late(i), std::max(item.ready - now_, int64_t{0}), is_late(i),
                        -item.tail, i);
    };
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].message || nodes_[i].emitted || nodes_[i].waits > 0) continue;
      if (best == nodes_.size() || rank(i) < rank(best)) best = i;
    }
    QUINTET_CHECK(best < nodes_.size(), "nodes of block {} depend on one another", node(0).block);
    return best;
  }

  void emit(size_t i) {
    Item& item = nodes_[i];
    for (const size_t message : item.sends_first) {
      if (!nodes_[message].emitted) emit(message);
      if (reads(i, message)) item.ready = std::max(item.ready, nodes_[message].done);
    }
    int64_t& stream = item.message ? sent_[node(i).attrs.integers("atoms")] : now_;
    int64_t start = std::max(stream, item.ready);
    if (item.saved) start = std::max(start, now_);
    item.done = stream = start + item.time;
    item.emitted = true;
    order_.push_back(i);
    for (const size_t next : item.after) {
      --nodes_[next].waits;
      nodes_[next].ready = std::max(nodes_[next].ready, item.done);
    }
  }

  const Graph& g_;
  const graph::FusedAdds& fused_;
  const size_t first_;
  const bool splits_backward_;
  std::vector<Item> nodes_;
  std::vector<size_t> order_;
  int64_t now_ = 0;                               // of the compute stream
  std::map<std::vector<int64_t>, int64_t> sent_;  // of the streams of messages, by atoms
};

bool is_fixed(const Node& node) { return node.row_group >= 0 || node.repeat >= 0; }

// One past the last node of the segment that begins with node i.
size_t end_of_segment(const std::vector<Node>& nodes, size_t i) {
  const auto joins = [&](const Node& n) {
    return !is_fixed(nodes[i]) && !is_fixed(n) && n.block == nodes[i].block &&
           (n.phase == Phase::F) == (nodes[i].phase == Phase::F);
  };
  size_t end = i + 1;
  while (end < nodes.size() && joins(nodes[end])) ++end;
  return end;
}

}  // namespace

layout::LocalGraph overlap(layout::LocalGraph local, bool splits_backward) {
  Graph& g = local.graph;
  const graph::FusedAdds fused = graph::fuse_adds(g);
  std::vector<size_t> order;
  for (size_t i = 0; i < g.nodes().size();) {
    const size_t end = end_of_segment(g.nodes(), i);
    const auto begin = g.nodes().begin();
    const auto first = begin + static_cast<ptrdiff_t>(i), last = begin + static_cast<ptrdiff_t>(end);
    const bool moves = std::any_of(first, last, sends) &&
                       std::none_of(first, last, [](const Node& n) { return n.op == &graph::kRingShift; });
    if (moves) {
      const std::vector<size_t> nodes = Segment(g, fused, i, end - i, splits_backward).order();
      order.insert(order.end(), nodes.begin(), nodes.end());
    } else {
      for (size_t k = i; k < end; ++k) order.push_back(k);
    }
    i = end;
  }
  reorder(local, order);
  return local;
}

}  // namespace quintet::passes
