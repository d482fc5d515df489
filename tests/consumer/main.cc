// A model of one's own through the public headers: a residual network over token embeddings, which no family
// of Quintet has. Nothing here speaks of parallelism.
#include <cstdio>
#include <string>

#include "base/error.h"
#include "graph/builder.h"

using namespace quintet;

namespace {

graph::Graph my_model() {
  const graph::DimSize vocab = {graph::Dim::Vocab, 50}, embed = {graph::Dim::Embed, 16},
                       ffn = {graph::Dim::Ffn, 32};
  graph::Builder b({.mode = graph::Mode::Train, .tokens = 32, .seq_len = 8});
  graph::ValueId x = b.embedding(b.weight("embed.weight", {vocab, embed}, 0.02), b.ids());
  for (int i = 0; i < 3; ++i) {
    b.next_block();
    const std::string name = "layers." + std::to_string(i) + ".";
    graph::ValueId y = b.rms_norm(x, b.norm_weight(name + "norm.weight", embed), 1e-5);
    y = b.gelu(
        b.linear(y, b.weight(name + "up.weight", {ffn, embed}, 0.02), b.bias(name + "up.bias", {ffn})));
    x = b.add(x, b.linear(y, b.weight(name + "down.weight", {embed, ffn}, 0.02)));
  }
  b.next_block();
  b.head(x, b.weight("head.weight", {vocab, embed}, 0.02));
  return b.finish();
}

}  // namespace

int main() {
  try {
    const graph::Graph model = my_model();
    for (const graph::Param& p : model.params()) {
      if (p.grads.empty()) {
        std::printf("%s has no gradient\n", model.value(p.value).name.c_str());
        return 1;
      }
    }
    std::printf("%zu parameters, %zu nodes\n", model.params().size(), model.nodes().size());
    return 0;
  } catch (const base::UserError& e) {
    std::printf("%s\n", e.what());
    return 2;
  }
}
