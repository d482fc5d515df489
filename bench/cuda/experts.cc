// Mixture-of-experts kernels: router, routing, row moves, activation, balance. Also the concatenated heads
// of latent attention and the kernels around ring hops and packed documents. Small operands measure latency
// only.
#include "cuda/harness.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/segments.cuh"
#include "kernels/cuda/experts/balance.h"
#include "kernels/cuda/experts/dispatch.h"
#include "kernels/cuda/experts/expert_act.h"
#include "kernels/cuda/experts/router.h"
#include "kernels/cuda/experts/router_limit.h"
#include "kernels/cuda/experts/router_select.h"
#include "kernels/cuda_scratch/attention.h"

namespace quintet::bench {
namespace {

struct Mixture {
  int64_t tokens, embed, experts, choices, ffn;
};

std::string with(const char* what, std::initializer_list<int64_t> sizes) {
  std::string out = what;
  for (const int64_t size : sizes) out += (out == what ? " " : " x ") + std::to_string(size);
  return out;
}

// Distinct experts for each token, uniformly distributed.
std::vector<int32_t> draw_choices(const Mixture& m) {
  std::vector<int32_t> out;
  uint32_t h = 1;
  for (int64_t t = 0; t < m.tokens; ++t) {
    h = h * 1664525u + 1013904223u;
    const int64_t first = (h >> 8) % m.experts, step = 1 + 2 * ((h >> 4) % (m.experts / 2));  // 2^n experts
    for (int64_t j = 0; j < m.choices; ++j)
      out.push_back(static_cast<int32_t>((first + j * step) % m.experts));
  }
  return out;
}

void routers(const Mixture& m) {
  used = 0;
  const kernels::RouterShape s{.rows = m.tokens, .routes = m.experts, .embed = m.embed};
  const auto x_bytes = static_cast<double>(2 * m.tokens * m.embed),
             w_bytes = static_cast<double>(2 * m.experts * m.embed),
             logit_bytes = static_cast<double>(4 * m.tokens * m.experts),
             pair_bytes = static_cast<double>(4 * m.tokens * m.choices);
  auto *x = random<Bf16>(m.tokens * m.embed), *w = random<Bf16>(m.experts * m.embed),
       *dx = take<Bf16>(m.tokens * m.embed);
  auto *logits = random<float>(m.tokens * m.experts), *scores = take<float>(m.tokens * m.experts),
       *dscores = random<float>(m.tokens * m.experts), *dlogits = take<float>(m.tokens * m.experts),
       *weights = take<float>(m.tokens * m.choices), *dweights = random<float>(m.tokens * m.choices),
       *dw = take<float>(m.experts * m.embed);
  int32_t *chosen = integers(draw_choices(m)), *kept = take<int32_t>(m.tokens * m.choices);
  void* space = take<char>(k::router_dw_workspace_bytes<Bf16>(s));
  report(with("router", {m.tokens, m.embed, m.experts}), x_bytes + w_bytes + logit_bytes,
         [=](int) { k::router<Bf16>(s, x, w, logits, stream); });
  report(with("router_dx", {m.tokens, m.embed, m.experts}), x_bytes + w_bytes + logit_bytes,
         [=](int) { k::router_dx<Bf16>(s, dscores, w, dx, stream); });
  report(with("router_dw f32", {m.tokens, m.embed, m.experts}), x_bytes + 2 * w_bytes + logit_bytes,
         [=](int) { k::router_dw<Bf16, float>(s, dscores, x, dw, false, space, stream); });

  const kernels::SelectShape pick{.rows = m.tokens, .experts = m.experts, .k = m.choices, .normalise = true};
  report(with("select", {m.tokens, m.experts, m.choices}), 2 * logit_bytes + 2 * pair_bytes,
         [=](int) { k::select<float>(pick, logits, nullptr, nullptr, scores, chosen, weights, stream); });
  report(with("select_dx", {m.tokens, m.experts, m.choices}), 3 * logit_bytes + 2 * pair_bytes,
         [=](int) { k::select_dx<float>(pick, logits, chosen, dweights, dscores, dlogits, stream); });
  const base::RowOrder order{.seq_len = 4096, .sequences = m.tokens / 4096};
  const kernels::LimitShape limit{
      .order = order, .k = m.choices, .capacity = 4096 * m.choices / m.experts * 5 / 4, .by_weight = true};
  void* limit_space = take<char>(k::limit_workspace_bytes(limit));
  report(with("limit by weight", {m.tokens, m.experts, m.choices}), 3 * pair_bytes,
         [=](int) { k::limit<float>(limit, chosen, weights, kept, limit_space, stream); });

  const kernels::LoadShape load{.rows = m.tokens, .experts = m.experts, .k = m.choices};
  auto* loads = take<double>(m.experts + 2);
  auto* sums = random<float>(2 * m.experts * order.sequences);
  double *loss = doubles({0}), *dloss = doubles({1});
  void* balance_space =
      take<char>(std::max({k::expert_load_workspace_bytes(load), k::z_loss_workspace_bytes(m.tokens),
                           k::balance_sums_workspace_bytes(order, m.experts)}));
  report(with("expert_load", {m.tokens, m.experts, m.choices}), logit_bytes + 2 * pair_bytes, [=](int) {
    k::expert_load<float>(load, chosen, kept, scores, loads, false, balance_space, stream);
  });
  report(with("balance_sums", {m.tokens, m.experts, m.choices}), logit_bytes + pair_bytes, [=](int) {
    k::balance_sums<float>(order, m.experts, m.choices, scores, chosen, sums, balance_space, stream);
  });
  report(with("balance_dx", {m.tokens, m.experts}), logit_bytes,
         [=](int) { k::balance_dx<float>(order, m.experts, sums, dlogits, stream); });
  report(with("z_loss", {m.tokens, m.experts}), logit_bytes, [=](int) {
    k::z_loss<float>(logits, m.tokens, m.experts, 1e-3, loss, false, balance_space, stream);
  });
  report(with("z_loss_dx", {m.tokens, m.experts}), 2 * logit_bytes,
         [=](int) { k::z_loss_dx<float>(logits, m.tokens, m.experts, 1e-3, dloss, dlogits, stream); });
}

void moves(const Mixture& m) {
  used = 0;
  const int64_t slots = m.tokens * m.choices, row = 2 * m.embed;
  const auto token_bytes = static_cast<double>(m.tokens * row), slot_bytes = static_cast<double>(slots * row);
  auto *x = random<Bf16>(m.tokens * m.embed), *y = random<Bf16>(slots * m.embed),
       *z = take<Bf16>(slots * m.embed);
  auto *weights = random<float>(slots), *packed = take<float>(slots);
  int32_t *kept = integers(draw_choices(m)), *order = take<int32_t>(slots), *send = take<int32_t>(m.experts);
  // Four sources that sent rows to the local experts.
  const std::vector<int32_t> counts(static_cast<size_t>(4 * m.experts),
                                    static_cast<int32_t>(slots / (4 * m.experts)));
  int32_t* received = integers(counts);
  void* space = take<char>(std::max({k::route_workspace_bytes(m.tokens, m.choices, m.experts),
                                     k::pack_rows_workspace_bytes(m.tokens, m.choices),
                                     k::unpack_rows_workspace_bytes(m.tokens, m.choices),
                                     k::regroup_workspace_bytes(4, m.experts)}));
  const auto bytes_of = [](Bf16* p) { return reinterpret_cast<std::byte*>(p); };
  const double pair_bytes = 4.0 * static_cast<double>(slots);
  report(with("route", {m.tokens, m.choices, m.experts}), 2 * pair_bytes, [=](int) {
    k::route(kept, m.tokens, m.choices, m.experts, false, slots, order, send, space, stream);
  });
  report(with("pack_rows", {m.tokens, m.choices, m.embed}), token_bytes + slot_bytes, [=](int) {
    k::pack_rows(bytes_of(x), order, m.tokens, m.choices, false, bytes_of(z), slots, row, space, stream);
  });
  report(with("unpack_rows", {m.tokens, m.choices, m.embed}), token_bytes + slot_bytes, [=](int) {
    k::unpack_rows<Bf16>(y, order, slots, m.choices, nullptr, x, m.tokens, m.embed, space, stream);
  });
  report(
      with("unpack_rows + addend", {m.tokens, m.choices, m.embed}), 2 * token_bytes + slot_bytes,
      [=](int) { k::unpack_rows<Bf16>(y, order, slots, m.choices, x, x, m.tokens, m.embed, space, stream); });
  report(with("pack_weights", {m.tokens, m.choices}), 3 * pair_bytes,
         [=](int) { k::pack_weights<float>(weights, order, false, packed, slots, stream); });
  report(with("unpack_weights", {m.tokens, m.choices}), 3 * pair_bytes,
         [=](int) { k::unpack_weights<float>(packed, order, slots, nullptr, weights, slots, stream); });
  for (const bool inverse : {false, true})
    report(with(inverse ? "regroup back" : "regroup", {slots, m.embed}), 2 * slot_bytes, [=](int) {
      k::regroup(bytes_of(y), received, 4, m.experts, inverse, bytes_of(z), slots, row, space, stream);
    });
  report(with("sum_copies", {m.choices, m.tokens, m.embed}), token_bytes + slot_bytes,
         [=](int) { k::sum_copies<Bf16>(y, m.choices, x, m.tokens * m.embed, stream); });
}

void activations(const Mixture& m) {
  used = 0;
  const int64_t rows = m.tokens * m.choices, n = m.ffn;
  const auto bytes = static_cast<double>(2 * rows * n);
  auto *dh = random<Bf16>(rows * n), *gate = random<Bf16>(rows * n), *up = random<Bf16>(rows * n),
       *dgate = take<Bf16>(rows * n), *dup = take<Bf16>(rows * n);
  auto *weight = random<float>(rows), *dweight = take<float>(rows);
  auto* count = take<int64_t>(1);
  k::count_rows(integers({static_cast<int32_t>(rows)}), 1, rows, count, stream);
  report(with("expert_act", {rows, n}), 3 * bytes,
         [=](int) { k::expert_act<Bf16>(gate, up, weight, dup, count, rows, n, {}, stream); });
  report(with("expert_act_backward", {rows, n}), 5 * bytes, [=](int) {
    k::expert_act_backward<Bf16>(dh, gate, up, weight, dgate, dup, dweight, count, rows, n, {}, stream);
  });
}

void gates(int64_t rows, int64_t n) {
  used = 0;
  const auto bytes = static_cast<double>(2 * rows * n);
  auto *y = random<Bf16>(rows * n), *dz = random<Bf16>(rows * n), *g = random<Bf16>(rows),
       *z = take<Bf16>(rows * n), *dg = take<Bf16>(rows);
  report(with("scale_rows", {rows, n}), 2 * bytes,
         [=](int) { k::scale_rows<Bf16>(y, g, z, rows, n, stream); });
  report(with("scale_rows_backward", {rows, n}), 3 * bytes,
         [=](int) { k::scale_rows_backward<Bf16>(dz, y, g, z, dg, rows, n, stream); });
}

// Latent attention: 128 dims per head, plus 64 rotary dims, which keys share between heads.
void joins(int64_t rows, int64_t heads) {
  used = 0;
  constexpr int64_t d1 = 128, d2 = 64;
  auto *a = random<Bf16>(rows * heads * d1), *b = random<Bf16>(rows * heads * d2),
       *y = random<Bf16>(rows * heads * (d1 + d2));
  for (const bool shared : {false, true}) {
    const std::string size = with(shared ? ", shared" : "", {rows, heads}) + " x 128 + 64";
    const auto bytes =
        static_cast<double>(2 * rows * (heads * (d1 + d2) + heads * d1 + (shared ? 1 : heads) * d2));
    report("join_heads" + size, bytes,
           [=](int) { k::join_heads<Bf16>(a, b, shared, y, rows, heads, d1, d2, stream); });
    report("join_heads_backward" + size, bytes,
           [=](int) { k::join_heads_backward<Bf16>(y, shared, a, b, rows, heads, d1, d2, stream); });
  }
}

// A hop whose queries attend to none of the local keys: it only reads q and merges with the previous hops in
// place. Sequences are short, so that few key tiles are skipped.
void merges(int64_t rows, int64_t heads, int64_t dim) {
  used = 0;
  k::AttentionShape s;
  s.q_rows = {.seq_len = 128, .sequences = rows / 64, .ranks = 2, .first = 0, .count = 1};
  s.k_rows = {.seq_len = 128, .sequences = rows / 64, .ranks = 2, .first = 1, .count = 1};
  s.heads = s.kv_heads = heads;
  s.head_dim = s.value_dim = dim;
  s.q_stride = s.k_stride = s.v_stride = s.o_stride = heads * dim;
  s.window = 1;
  auto *q = random<Bf16>(rows * heads * dim), *key = random<Bf16>(rows * heads * dim);
  auto *o = random<float>(rows * heads * dim), *lse = random<float>(rows * heads);
  const auto bytes = static_cast<double>((8 + 2) * rows * heads * dim);
  report(with("attention_hop, the merge alone", {rows, heads, dim}), bytes,
         [=](int) { k::attention_hop<Bf16>(s, q, key, key, o, lse, o, lse, stream); });
}

void segments(int64_t tokens, int64_t heads, int64_t dim) {
  used = 0;
  std::vector<int32_t> documents;
  for (int64_t i = 0; i < tokens; ++i) documents.push_back(static_cast<int32_t>(i % 4096 / 700));
  int32_t* at = integers(documents);
  constexpr int64_t kMaxSegments = 256;
  const k::Segments found = k::Segments::at(take<char>(k::segments_bytes(kMaxSegments)), kMaxSegments);
  const int64_t stride = heads * dim;
  auto *lse = random<float>(tokens * heads), *stats = random<float>(tokens * heads);
  auto* o = reinterpret_cast<uint16_t*>(random<Bf16>(tokens * stride));
  const double token_bytes = 4.0 * static_cast<double>(tokens),
               stat_bytes = token_bytes * static_cast<double>(heads);
  report(with("find_segments", {tokens}), token_bytes, [=](int) {
    k::find_segments(at, tokens / 4096, 4096, {stride, stride, stride, stride, heads}, found, stream);
  });
  report(with("finish_forward", {tokens, heads}), 2 * stat_bytes + token_bytes, [=](int) {
    k::finish_forward(at, tokens, heads, stats, found.refused, lse, o, stride, stride, stream);
  });
  report(with("begin_backward", {tokens, heads}), 2 * stat_bytes,
         [=](int) { k::begin_backward(tokens, heads, lse, stats, stream); });
  report(with("pack_stats", {tokens, heads}), 2 * stat_bytes,
         [=](int) { k::pack_stats(lse, tokens, 4096, heads, tokens / 4096, 4096, stats, stream); });
  const k::RowPart part{o, stride, stride};
  report(with("finish_backward", {tokens, heads}), token_bytes,
         [=](int) { k::finish_backward(at, tokens, found.refused, part, part, part, stream); });
}

}  // namespace

void experts() {
  // The sizes of Mixtral, DeepSeek-MoE and Qwen3-MoE.
  for (const Mixture& m : {Mixture{16384, 4096, 8, 2, 14336}, Mixture{16384, 2048, 64, 8, 1408},
                           Mixture{16384, 2048, 128, 8, 768}}) {
    routers(m);
    moves(m);
    activations(m);
  }
  gates(16384, 2048);
  gates(16384, 4096);
  joins(16384, 16);
  joins(16384, 128);
  merges(16384, 32, 128);
  segments(16384, 32, 128);
}

}  // namespace quintet::bench
