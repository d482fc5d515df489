#include "passes/min_cut.h"

#include <algorithm>

namespace quintet::passes {

void MinCut::add(size_t from, size_t to, Capacity capacity) {
  edges_of_[from].push_back(edges_.size());
  edges_.push_back({to, capacity});
  edges_of_[to].push_back(edges_.size());
  edges_.push_back({from, 0});
}

// Distances from the source over edges with capacity left; whether the sink is reached.
bool MinCut::find_levels(size_t source, size_t sink) {
  level_.assign(edges_of_.size(), -1);
  level_[source] = 0;
  std::vector<size_t> queue = {source};
  for (size_t i = 0; i < queue.size(); ++i)
    for (const size_t e : edges_of_[queue[i]])
      if (edges_[e].left > 0 && level_[edges_[e].to] < 0) {
        level_[edges_[e].to] = level_[queue[i]] + 1;
        queue.push_back(edges_[e].to);
      }
  return level_[sink] >= 0;
}

// Sends up to `most` from the node to the sink along edges to the next level.
MinCut::Capacity MinCut::push(size_t node, size_t sink, Capacity most) {
  if (node == sink) return most;
  for (size_t& i = next_[node]; i < edges_of_[node].size(); ++i) {
    const size_t e = edges_of_[node][i];
    if (edges_[e].left <= 0 || level_[edges_[e].to] != level_[node] + 1) continue;
    const Capacity sent = push(edges_[e].to, sink, std::min(most, edges_[e].left));
    if (sent == 0) continue;
    edges_[e].left -= sent;
    edges_[e ^ 1].left += sent;
    return sent;
  }
  return 0;
}

std::vector<char> MinCut::source_side(size_t source, size_t sink) {
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    while (push(source, sink, kNever) > 0) {
    }
  }
  std::vector<char> side(level_.size());
  for (size_t i = 0; i < side.size(); ++i) side[i] = level_[i] >= 0;
  return side;
}

}  // namespace quintet::passes
