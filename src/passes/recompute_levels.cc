#include "passes/recompute_levels.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/min_cut.h"

namespace quintet::passes {

using graph::Graph;
using graph::Node;
using graph::Phase;
using graph::ValueId;
using graph::ValueKind;

namespace {

// Ops of equal value are selected one after another, in model order, and not in one level: times are counted
// in fractions of a nanosecond, and an op's index in its block breaks ties.
constexpr int64_t kUnitsPerNano = 4096;

class Block {
 public:
  Block(const Graph& graph, int block, const Prices& prices)
      : graph_(graph), prices_(prices), may_(recomputable(graph)) {
    std::vector<char> read_later(graph.values().size(), 0);  // by the backward pass
    for (const Node& n : graph.nodes())
      if (n.phase != Phase::F)
        for (const ValueId v : n.inputs) read_later[v.index()] = 1;
    const auto touch = [&](ValueId v, bool inside) {
      const auto [it, is_new] = values_.try_emplace(v.index());
      if (!is_new) return;
      it->second.read_later = read_later[v.index()];
      // What is kept anyway costs nothing more: parameters, inputs, and what other blocks keep.
      const bool free = graph.value(v).kind != ValueKind::Result || (!inside && read_later[v.index()]);
      it->second.bytes = free ? 0 : prices.bytes[v.index()];
    };
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const Node& n = graph.nodes()[i];
      if (n.block != block || n.phase != Phase::F) continue;
      if (may_[i]) nodes_.push_back(i);
      for (const ValueId v : n.inputs) {
        const graph::NodeId p = graph.value(v).producer;
        touch(v, p.valid() && graph.nodes()[p.index()].block == block);
      }
      for (const ValueId v : n.outputs) touch(v, true);
    }
  }

  std::vector<Level> levels() {
    std::vector<Level> list = {level_of({}), least_kept()};
    if (list[1].kept_bytes >= list[0].kept_bytes) list.pop_back();
    // Between two corners there may be more; the cut at the slope of their line finds one below it.
    for (size_t i = 0; i + 1 < list.size();) {
      const int64_t bytes = list[i].kept_bytes - list[i + 1].kept_bytes;
      const int64_t time = units(list[i + 1]) - units(list[i]);
      Level between = cut(time, bytes);
      const auto height = [&](const Level& l) {
        return MinCut::Capacity(l.kept_bytes) * time + MinCut::Capacity(units(l)) * bytes;
      };
      if (height(between) < height(list[i]))
        list.insert(list.begin() + static_cast<std::ptrdiff_t>(i) + 1, std::move(between));
      else
        ++i;
    }
    for (size_t i = 0; i + 1 < list.size(); ++i)
      QUINTET_CHECK(std::includes(list[i + 1].nodes.begin(), list[i + 1].nodes.end(), list[i].nodes.begin(),
                                  list[i].nodes.end()),
                    "level {} of a block does not contain the one before it", i + 1);
    return list;
  }

 private:
  struct Info {
    int64_t bytes = 0;
    bool read_later = false;
  };

  int64_t units_of(size_t place) const {
    return std::max<int64_t>(1, prices_.nanos[nodes_[place]]) * kUnitsPerNano + static_cast<int64_t>(place);
  }
  int64_t units(const Level& l) const {
    int64_t sum = 0;
    for (size_t place = 0; place < nodes_.size(); ++place)
      if (std::binary_search(l.nodes.begin(), l.nodes.end(), nodes_[place])) sum += units_of(place);
    return sum;
  }

  Level level_of(std::vector<size_t> nodes) const {
    Level level{.nodes = std::move(nodes)};
    std::vector<char> again(graph_.nodes().size(), 0);
    for (const size_t i : level.nodes) {
      again[i] = 1;
      level.nanos += std::max<int64_t>(1, prices_.nanos[i]);
    }
    std::map<size_t, Info> needed = values_;
    for (const size_t i : level.nodes)
      for (const ValueId v : graph_.nodes()[i].inputs) needed[v.index()].read_later = true;
    for (const auto& [v, info] : needed) {
      const graph::NodeId p = graph_.values()[v].producer;
      if (info.read_later && !(p.valid() && again[p.index()])) level.kept_bytes += info.bytes;
    }
    return level;
  }

  // The fewest bytes regardless of time, and of such sets the fastest.
  Level least_kept() const {
    int64_t all = 1;
    for (size_t place = 0; place < nodes_.size(); ++place) all += units_of(place);
    return cut(all, 1);
  }

  // The set with the least kept_bytes * byte_price + time * time_price. A value that the backward pass needs
  // is on the source's side, and so is an op that is recomputed. Cut edges are the cost: a needed value
  // whose op is not recomputed is kept, an op that is recomputed takes its time.
  Level cut(int64_t byte_price, int64_t time_price) const {
    std::map<size_t, size_t> place_of_value, place_of_node;
    for (const auto& [v, info] : values_) place_of_value.emplace(v, 2 + place_of_value.size());
    for (const size_t i : nodes_) place_of_node.emplace(i, 2 + values_.size() + place_of_node.size());
    constexpr size_t kSource = 0, kSink = 1;
    MinCut graph(2 + values_.size() + nodes_.size());
    for (const auto& [v, info] : values_) {
      if (info.read_later) graph.add(kSource, place_of_value[v], MinCut::kNever);
      const graph::NodeId p = graph_.values()[v].producer;
      const auto producer = p.valid() ? place_of_node.find(p.index()) : place_of_node.end();
      graph.add(place_of_value[v], producer == place_of_node.end() ? kSink : producer->second,
                MinCut::Capacity(info.bytes) * byte_price);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const size_t me = place_of_node[nodes_[i]];
      graph.add(me, kSink, MinCut::Capacity(units_of(i)) * time_price);
      for (const ValueId v : graph_.nodes()[nodes_[i]].inputs)
        graph.add(me, place_of_value[v.index()], MinCut::kNever);
    }
    const std::vector<char> side = graph.source_side(kSource, kSink);
    std::vector<size_t> recomputed;
    for (const size_t i : nodes_)
      if (side[place_of_node[i]]) recomputed.push_back(i);
    return level_of(std::move(recomputed));
  }

  const Graph& graph_;
  const Prices& prices_;
  const Marks may_;
  std::vector<size_t> nodes_;      // of the block that may be recomputed, in order
  std::map<size_t, Info> values_;  // that ops of the block read or write
};

}  // namespace

std::vector<Level> recompute_levels(const Graph& graph, int block, const Prices& prices) {
  QUINTET_CHECK(prices.bytes.size() == graph.values().size() && prices.nanos.size() == graph.nodes().size(),
                "the prices belong to another graph");
  return Block(graph, block, prices).levels();
}

}  // namespace quintet::passes
