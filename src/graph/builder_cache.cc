// The builder's calls for graphs with a cache, and for scores.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/cache_ops.h"

namespace quintet::graph {

ValueId Builder::sequences() {
  if (!sequences_.valid()) sequences_ = graph_.add_input(sequences_input(), graph_.type(positions_));
  return sequences_;
}

ValueId Builder::page_table() {
  if (page_table_.valid()) return page_table_;
  const CacheShape& c = options_.cache;
  if (c.pages < 1 || c.page_rows < 1 || c.sequences < 1 || c.pages_per_sequence < 1)
    base::fail_user("a cache needs pages and sequences: got {} pages of {} rows for {} sequences of {} pages",
                    c.pages, c.page_rows, c.sequences, c.pages_per_sequence);
  return page_table_ = graph_.add_input(page_table_input(),
                                        {DType::I32, {{pages_dim(), c.sequences * c.pages_per_sequence}}});
}

// Prefill: stores K and V; the model then attends to them as it does in training. Decode: the result.
ValueId Builder::cached_attention(ValueId q, ValueId k, ValueId v, const AttentionOptions& o) {
  if (o.both_sides)
    base::fail_user("attention that sees later tokens has no cache: a new token would change all before it");
  const CacheShape& c = options_.cache;
  const int64_t number = salt_;  // of the attention within the model
  const ValueId table = page_table(), sequence = sequences();
  const auto cache = [&](const char* what, ValueId rows) {
    Type type = graph_.type(rows);
    type.dims[0] = {page_rows_dim(), c.page_rows};
    type.dims.insert(type.dims.begin(), {pages_dim(), c.pages});
    return state(fmt::format("cache.{}.{}", number, what), std::move(type));
  };
  const ValueId k_cache = cache("k", k), v_cache = cache("v", v);
  if (options_.mode == Mode::Prefill) {
    graph_.add_node(kCacheAppend, {table, sequence, positions_, k, k_cache, v, v_cache},
                    {{"pages_per_sequence", c.pages_per_sequence}}, Phase::F, block_);
    return {};
  }
  ++salt_;
  Attrs attrs{{"window", o.window}, {"scale", o.scale}, {"pages_per_sequence", c.pages_per_sequence}};
  if (o.soft_cap > 0) attrs.set("soft_cap", o.soft_cap);
  if (o.chunk > 0) attrs.set("chunk", o.chunk);
  if (o.sink.valid()) attrs.set("lse", int64_t{1});
  const ValueId y =
      emit(kCachedAttention, {k_cache, v_cache, table, sequence, positions_, q, k, v}, std::move(attrs));
  if (!o.sink.valid()) return y;
  const ValueId lse = graph_.nodes()[graph_.value(y).producer.index()].outputs[3];
  return emit(kAttentionSink, {y, lse, o.sink});
}

void Builder::emit_sample(ValueId x) {
  const Sampling& s = options_.sampling;
  const int64_t vocab = graph_.type(head_w_).size(0);
  ValueId sample = samples(), position = positions_, sequence = sequences();
  std::vector<ValueId> more;
  if (s.repetition_penalty != 1) {
    const ValueId history = state(
        "cache.ids",
        {DType::I32, {{pages_dim(), options_.cache.pages}, {page_rows_dim(), options_.cache.page_rows}}});
    more.push_back(emit(kCacheAppend, {page_table(), sequence, positions_, ids_, history},
                        {{"pages_per_sequence", options_.cache.pages_per_sequence}}));
    more.push_back(page_table());
  }
  if (options_.mode == Mode::Prefill) {
    const ValueId last = graph_.add_input(last_rows_input(), {DType::I32, {{Dim::Tokens, 1}}});
    x = emit(kTakeRows, {x, last});
    sample = emit(kTakeRows, {sample, last});
    position = emit(kTakeRows, {position, last});
    sequence = emit(kTakeRows, {sequence, last});
  }
  const ValueId logits = emit_logits(x, head_w_, head_bias_, -1).capped;
  std::vector<ValueId> in = {logits, sample, position};
  if (!more.empty()) in.insert(in.end(), {more[0], more[1], sequence});
  graph_.logits = emit(kSample, std::move(in),
                       {{"temperature", s.temperature},
                        {"top_k", s.top_k},
                        {"top_p", s.top_p},
                        {"min_p", s.min_p},
                        {"repetition_penalty", s.repetition_penalty},
                        {"key", s.key},
                        {"vocab", s.vocab > 0 ? std::min(s.vocab, vocab) : vocab},
                        {"pages_per_sequence", options_.cache.pages_per_sequence}});
}

// The label's log-probability in every row, chunk by chunk, so that whole logits never exist.
void Builder::emit_scores() {
  const auto emit_row = [&](const OpDef& op, std::vector<ValueId> inputs, Attrs attrs = {}) {
    Node& node = graph_.add_node(op, std::move(inputs), std::move(attrs), Phase::F, block_);
    node.row_group = 0;
    return node.outputs[0];
  };
  graph_.row_chunk = options_.loss_chunk;
  const ValueId logits = head_logits(0);
  const ValueId max = emit_row(kRowMax, {logits});
  const ValueId sums = emit_row(kRowSumExp, {logits, max, labels_});
  graph_.logits = emit_row(kLogProb, {max, sums, labels_});
}

}  // namespace quintet::graph
