// A graph as readable text that can be parsed: print -> parse -> print gives the same text, and the parsed
// graph equals the printed one, doubles bit for bit.
//
//   graph blocks=3 row_chunk=0 loss=%9 logits=none
//   input %0 "ids" i32[tokens=8]
//   param %4 "embed" f32[vocab=37, embed=16] init=normal stddev=1 decay=yes trainable=yes block=0 grads=[%31]
//   %5 = embedding(%4, %0) : f32[tokens=8, embed=16] F block=0
//   %7, %8 = rms_norm(%5, %6) {eps=1e-05} : f32[tokens=8, embed=16], f32[tokens=8] F block=1 row_group=0
//
// Lines are in this order: the header, inputs, parameters in the order of Graph::params(), nodes in execution
// order. The name of a result follows its number in quotes. Results that no node produces any more are
// written `unused %12 f32[tokens=8]`. Blank lines and lines that begin with # are skipped.
#pragma once

#include <string>
#include <string_view>

#include "graph/graph.h"

namespace quintet::graph {

std::string to_text(const Graph& graph);
std::string to_text(const Graph& graph, const Node& node);  // one line, without a newline

// UserError with the line number and what was expected there. Types are taken as written: verify() compares
// them with the ops' inference.
Graph parse_text(std::string_view text);

}  // namespace quintet::graph
