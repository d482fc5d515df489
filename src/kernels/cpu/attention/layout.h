// How attention splits its work, and the layout of one worker's scratch. Independent of the instruction set,
// so that the bytes a plan reserves hold on every machine.
#pragma once

#include "kernels/cpu/attention/attention.h"

namespace quintet::kernels::cpu {

inline constexpr int64_t kAttentionBlock = 64;  // query rows and key rows of a score block
// Query rows, over the heads of a group, that share packed keys.
inline constexpr int64_t kAttentionRows = 256;

// Elements of S, rounded up to whole cache lines: no vector unit is wider than one.
template <class S>
constexpr int64_t line_elements(int64_t n) {
  constexpr int64_t line = kWorkspaceAlignment / static_cast<int64_t>(sizeof(S));
  return (n + line - 1) / line * line;
}

// Offsets in elements of S within a worker's slot in the forward pass.
template <class S>
struct AttentionLayout {
  int64_t group, qk_width, v_width;  // query heads per KV head; padded head sizes
  int64_t run_blocks, blocks;        // query blocks per run, per sequence: no block crosses a run's end
  int64_t span_blocks, spans;        // query blocks of one task, tasks per (sequence, KV head)
  int64_t tasks;
  int64_t q, o, max, sum, kt, v, scores, key_documents, slot;

  explicit AttentionLayout(const AttentionShape& s) {
    group = s.kv_heads > 0 ? s.heads / s.kv_heads : 0;
    qk_width = line_elements<S>(s.head_dim);
    v_width = line_elements<S>(s.value_dim);
    run_blocks = (s.q_rows.run_length() + kAttentionBlock - 1) / kAttentionBlock;
    blocks = s.q_rows.runs() * run_blocks;
    span_blocks = kAttentionRows / kAttentionBlock / (group > 0 ? group : 1);
    if (span_blocks < 1) span_blocks = 1;
    if (span_blocks > blocks) span_blocks = blocks;
    spans = span_blocks > 0 ? (blocks + span_blocks - 1) / span_blocks : 0;
    tasks = s.q_rows.sequences * s.kv_heads * spans;
    const int64_t rows = group * span_blocks * kAttentionBlock;
    int64_t at = 0;
    const auto take = [&](int64_t n) {
      const int64_t begin = at;
      at += line_elements<S>(n);
      return begin;
    };
    q = take(rows * qk_width);
    o = take(rows * v_width);
    max = take(rows);
    sum = take(rows);
    kt = take(s.head_dim * kAttentionBlock);
    v = take(kAttentionBlock * v_width);
    scores = take(kAttentionBlock * kAttentionBlock);
    key_documents = take(kAttentionBlock);  // integers as wide as S
    slot = at;
  }
};

// The same for the backward pass, whose tasks are (sequence, KV head).
template <class S>
struct AttentionBackwardLayout {
  int64_t group, qk_width, v_width, tasks;
  int64_t dq, delta, q, dout, kt, vt, k, dk, dv, scores, dscores, key_documents, slot;

  explicit AttentionBackwardLayout(const AttentionShape& s) {
    group = s.kv_heads > 0 ? s.heads / s.kv_heads : 0;
    qk_width = line_elements<S>(s.head_dim);
    v_width = line_elements<S>(s.value_dim);
    tasks = s.q_rows.sequences * s.kv_heads;
    int64_t at = 0;
    const auto take = [&](int64_t n) {
      const int64_t begin = at;
      at += line_elements<S>(n);
      return begin;
    };
    dq = take(group * s.q_rows.rows_per_sequence() * qk_width);
    delta = take(group * s.q_rows.rows_per_sequence());
    q = take(kAttentionBlock * qk_width);
    dout = take(kAttentionBlock * v_width);
    kt = take(s.head_dim * kAttentionBlock);
    vt = take(s.value_dim * kAttentionBlock);
    k = take(kAttentionBlock * qk_width);
    dk = take(kAttentionBlock * qk_width);
    dv = take(kAttentionBlock * v_width);
    scores = take(kAttentionBlock * kAttentionBlock);
    dscores = take(kAttentionBlock * kAttentionBlock);
    key_documents = take(kAttentionBlock);
    slot = at;
  }
};

}  // namespace quintet::kernels::cpu
