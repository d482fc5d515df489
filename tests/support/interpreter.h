// Runs the nodes of a graph one after another through the CPU kernels.
#pragma once

#include <map>

#include "support/op_runner.h"

namespace quintet::tests {

class Interpreter {
 public:
  explicit Interpreter(const graph::Graph& graph) : graph_(graph) {}
  HostTensor& at(graph::ValueId id) { return values_[id.value]; }

  void run(size_t first, size_t last) {
    for (size_t n = first; n < last; ++n) {
      const graph::Node& node = graph_.nodes()[n];
      std::vector<HostTensor> in;
      for (const graph::ValueId v : node.inputs) in.push_back(at(v));
      const auto in_types = graph::input_types(graph_, node), out_types = graph::output_types(graph_, node);
      const auto out =
          run_op(*node.op, node.attrs, in, out_types, whole_parts(*node.op, in_types, out_types, node.attrs));
      for (size_t i = 0; i < out.size(); ++i) at(node.outputs[i]) = out[i];
    }
  }

 private:
  const graph::Graph& graph_;
  std::map<int32_t, HostTensor> values_;
};

}  // namespace quintet::tests
