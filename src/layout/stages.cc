#include "layout/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "graph/op.h"

namespace quintet::layout {

Stages one_stage(int num_blocks) {
  return {.of_block = std::vector<int>(static_cast<size_t>(num_blocks), 0), .rank_of = {0}, .chunk_of = {0}};
}

std::vector<int64_t> balance(const graph::Graph& graph, int stages) {
  const size_t layers = static_cast<size_t>(graph.num_blocks) - 2, n = static_cast<size_t>(stages);
  std::vector<double> cost(static_cast<size_t>(graph.num_blocks), 0);
  for (const graph::Node& node : graph.nodes())
    if (node.phase == graph::Phase::F && node.op->cost)
      cost[static_cast<size_t>(node.block)] +=
          node.op->cost(graph::input_types(graph, node), graph::output_types(graph, node), node.attrs).flops;
  std::vector<double> prefix(layers + 1, 0);
  for (size_t l = 0; l < layers; ++l) prefix[l + 1] = prefix[l] + cost[l + 1];
  // worst[s][l]: the least possible cost of the most expensive of the first s stages when they hold l layers.
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> worst(n + 1, std::vector<double>(layers + 1, never));
  std::vector<std::vector<size_t>> from(n + 1, std::vector<size_t>(layers + 1, 0));
  worst[0][0] = 0;
  for (size_t s = 1; s <= n; ++s)
    for (size_t l = 1; l <= layers; ++l)
      for (size_t k = 0; k < l; ++k) {
        double here = prefix[l] - prefix[k];
        if (s == 1) here += cost.front();
        if (s == n) here += cost.back();
        const double all = std::max(worst[s - 1][k], here);
        if (all <= worst[s][l])
          worst[s][l] = all, from[s][l] = k;  // ties: the last, so that earlier stages get more
      }
  QUINTET_CHECK(worst[n][layers] < never, "{} layers do not fill {} stages", layers, stages);
  std::vector<int64_t> sizes(n);
  for (size_t s = n, l = layers; s > 0; --s) {
    sizes[s - 1] = static_cast<int64_t>(l - from[s][l]);
    l = from[s][l];
  }
  return sizes;
}

std::vector<int> stage_of_blocks(const std::vector<int64_t>& layers, int num_blocks) {
  QUINTET_CHECK(std::accumulate(layers.begin(), layers.end(), int64_t{0}) == num_blocks - 2,
                "layers per stage do not add up to {}", num_blocks - 2);
  std::vector<int> of = {0};
  for (size_t s = 0; s < layers.size(); ++s)
    of.insert(of.end(), static_cast<size_t>(layers[s]), static_cast<int>(s));
  of.push_back(static_cast<int>(layers.size()) - 1);
  return of;
}

}  // namespace quintet::layout
