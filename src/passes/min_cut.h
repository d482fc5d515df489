// Minimum cut between a source and a sink in a small directed graph: exact, in integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace quintet::passes {

class MinCut {
 public:
  // Wide enough for bytes times nanoseconds.
  __extension__ using Capacity = __int128;
  static constexpr Capacity kNever = Capacity(1) << 120;  // an edge that no cut may contain

  explicit MinCut(size_t nodes) : edges_of_(nodes) {}
  void add(size_t from, size_t to, Capacity capacity);

  // By node: whether it is on the source's side of a minimum cut. Of several minimum cuts it is the one with
  // the fewest nodes on that side, so the answer is unique. Consumes the capacities: call once.
  std::vector<char> source_side(size_t source, size_t sink);

 private:
  struct Edge {
    size_t to;
    Capacity left;  // the reverse of edge n is edge n ^ 1
  };
  bool find_levels(size_t source, size_t sink);
  Capacity push(size_t node, size_t sink, Capacity most);

  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> edges_of_;
  std::vector<int> level_;
  std::vector<size_t> next_;
};

}  // namespace quintet::passes
