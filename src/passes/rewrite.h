// A local graph while nodes of it are being merged: the readers of values, and which nodes are gone.
#pragma once

#include "layout/partition.h"

namespace quintet::passes {

class Rewrite {
 public:
  explicit Rewrite(layout::LocalGraph local);

  const graph::Graph& graph() const { return local_.graph; }
  size_t size() const { return gone_.size(); }  // nodes
  const graph::Node& node(size_t i) const { return local_.graph.nodes()[i]; }
  graph::Node& node(size_t i) { return local_.graph.nodes()[i]; }
  // The nodes that read a value, in order, as in the original graph.
  const std::vector<size_t>& readers(graph::ValueId v) const { return readers_[v.index()]; }
  // The node that produced a value in the original graph; null when none did.
  const graph::Node* producer(graph::ValueId v) const {
    const graph::NodeId producer = local_.graph.value(v).producer;
    return producer.valid() ? &node(producer.index()) : nullptr;
  }
  size_t producer_index(graph::ValueId v) const { return local_.graph.value(v).producer.index(); }
  // Adds a value that the model does not have.
  graph::ValueId add_value(graph::Type type);

  // A node that became another one is sharded like that one.
  void take_divisions(size_t to, size_t from) { local_.divisions[to] = local_.divisions[from]; }

  bool is_gone(size_t i) const { return gone_[i] != 0; }
  void remove(size_t i) { gone_[i] = 1; }

  // The remaining nodes in their old order; those that need a value produced later now follow its producer.
  layout::LocalGraph finish();

 private:
  layout::LocalGraph local_;
  std::vector<std::vector<size_t>> readers_;  // by value
  std::vector<char> gone_;                    // by node: merged into another
};

// Puts the nodes into this order: a permutation of their indices in which values are produced before their
// first use.
void reorder(layout::LocalGraph& local, const std::vector<size_t>& order);

// Whether ranks exchange the node's result.
bool is_message(const graph::Node& node);

}  // namespace quintet::passes
