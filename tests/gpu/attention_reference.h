// Attention by its definition (kernels/attention_geometry.h) in f64, pair by pair, including options of the
// tiled kernels only: non-causal attention, soft caps, sinks. Deliberately slow and plain.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "base/philox.h"
#include "kernels/attention_geometry.h"

namespace quintet::tests {

struct ReferenceAttention : kernels::AttentionGeometry {
  bool causal = true;
  double soft_cap = 0;
  std::vector<double> sinks;  // empty: none
  uint64_t dropout_key = 0;

  // Rows in the order of the tensors: position and sequence of each.
  struct Place {
    int64_t sequence, position, row, whole;  // `whole`: the row among key_documents
  };
  static std::vector<Place> places(const base::RowOrder& rows) {
    std::vector<Place> list(static_cast<size_t>(rows.rows()));
    for (int64_t s = 0; s < rows.sequences; ++s)
      for (int64_t r = 0; r < rows.runs(); ++r) {
        const auto run = rows.run(s, r);
        for (int64_t i = 0; i < run.length; ++i)
          list[static_cast<size_t>(run.row + i)] = {s, run.position + i, run.row + i,
                                                    rows.row_in_whole(s, run.position + i)};
      }
    return list;
  }
  bool sees(const Place& q, const Place& k) const {
    if (q.sequence != k.sequence) return false;
    const int64_t distance = q.position - k.position;
    if (causal ? distance < 0 || (window > 0 && distance >= window)
               : window > 0 && std::abs(distance) >= window)
      return false;
    return documents == nullptr || (documents[q.row] >= 0 && documents[q.row] == key_documents[k.whole]);
  }
  double keep(const Place& q, const Place& k, int64_t head) const {
    if (dropout_p == 0) return 1;
    const auto column = static_cast<uint32_t>(key_positions[k.whole]);
    const auto words = base::philox(
        dropout_key, (column >> 2) | uint64_t{static_cast<uint32_t>(positions[q.row])} << 32,
        static_cast<uint32_t>(samples[q.row]) | uint64_t{static_cast<uint32_t>(head_offset + head)} << 32);
    return static_cast<double>(words[column & 3]) >= dropout_p * 0x1p32 ? 1 / (1 - dropout_p) : 0;
  }
};

struct ReferenceResult {
  std::vector<double> o, lse, dq, dk, dv, dsinks;
};

// o, lse and gradients in one pass. With `before` (o and lse of other keys) the results are those over all
// keys, and the gradients those of the given keys.
inline ReferenceResult reference_attention(const ReferenceAttention& a, const std::vector<double>& q,
                                           const std::vector<double>& k, const std::vector<double>& v,
                                           const std::vector<double>& dout,
                                           const std::vector<double>& o_before = {},
                                           const std::vector<double>& lse_before = {}) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const auto queries = ReferenceAttention::places(a.q_rows), keys = ReferenceAttention::places(a.k_rows);
  const int64_t rows = a.q_rows.rows(), group = a.heads / a.kv_heads;
  ReferenceResult r;
  r.o.assign(static_cast<size_t>(rows * a.o_stride), 0);
  r.lse.assign(static_cast<size_t>(rows * a.heads), kNone);
  r.dq.assign(static_cast<size_t>(rows * a.dq_stride), 0);
  r.dk.assign(static_cast<size_t>(a.k_rows.rows() * a.dk_stride), 0);
  r.dv.assign(static_cast<size_t>(a.k_rows.rows() * a.dv_stride), 0);
  r.dsinks.assign(static_cast<size_t>(a.heads), 0);
  const auto dot = [](const double* x, const double* y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
    return sum;
  };
  const auto one_group = [&](int64_t kv) {
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
      for (const auto& i : queries) {
        struct Pair {
          const ReferenceAttention::Place* key;
          double score, slope, keep, weight = 0;
        };
        std::vector<Pair> pairs;
        double top = kNone;
        for (const auto& j : keys) {
          if (!a.sees(i, j)) continue;
          double s = a.scale * dot(&q[static_cast<size_t>(i.row * a.q_stride + head * a.head_dim)],
                                   &k[static_cast<size_t>(j.row * a.k_stride + kv * a.head_dim)], a.head_dim),
                 slope = 1;
          if (a.soft_cap > 0) {
            const double t = std::tanh(s / a.soft_cap);
            s = a.soft_cap * t;
            slope = 1 - t * t;
          }
          pairs.push_back({&j, s, slope, a.keep(i, j, head)});
          top = std::max(top, s);
        }
        const auto at = static_cast<size_t>(head * rows + i.row);
        if (!a.sinks.empty()) top = std::max(top, a.sinks[static_cast<size_t>(head)]);
        const double earlier = lse_before.empty() ? kNone : lse_before[at];
        top = std::max(top, earlier);
        if (top == kNone) continue;
        double sum = std::exp(earlier - top);
        if (!a.sinks.empty()) sum += std::exp(a.sinks[static_cast<size_t>(head)] - top);
        for (const Pair& p : pairs) sum += std::exp(p.score - top);
        const double lse = r.lse[at] = top + std::log(sum);
        const auto o_at = static_cast<size_t>(i.row * a.o_stride + head * a.value_dim);
        const double* const g = &dout[o_at];
        double* const o = &r.o[o_at];
        if (earlier != kNone)
          for (int64_t d = 0; d < a.value_dim; ++d)
            o[d] = o_before[o_at + static_cast<size_t>(d)] * std::exp(earlier - lse);
        for (Pair& p : pairs) {
          p.weight = std::exp(p.score - lse);
          const double* const value = &v[static_cast<size_t>(p.key->row * a.v_stride + kv * a.value_dim)];
          for (int64_t d = 0; d < a.value_dim; ++d) o[d] += p.weight * p.keep * value[d];
        }
        const double delta = dot(o, g, a.value_dim);
        if (!a.sinks.empty())
          r.dsinks[static_cast<size_t>(head)] -= std::exp(a.sinks[static_cast<size_t>(head)] - lse) * delta;
        for (const Pair& p : pairs) {
          const auto v_at = static_cast<size_t>(p.key->row * a.v_stride + kv * a.value_dim),
                     dv_at = static_cast<size_t>(p.key->row * a.dv_stride + kv * a.value_dim),
                     k_at = static_cast<size_t>(p.key->row * a.k_stride + kv * a.head_dim),
                     dk_at = static_cast<size_t>(p.key->row * a.dk_stride + kv * a.head_dim),
                     q_at = static_cast<size_t>(i.row * a.q_stride + head * a.head_dim),
                     dq_at = static_cast<size_t>(i.row * a.dq_stride + head * a.head_dim);
          const double ds = p.weight * (dot(g, &v[v_at], a.value_dim) * p.keep - delta) * p.slope * a.scale;
          for (int64_t d = 0; d < a.value_dim; ++d)
            r.dv[dv_at + static_cast<size_t>(d)] += p.weight * p.keep * g[d];
          for (int64_t d = 0; d < a.head_dim; ++d) {
            r.dq[dq_at + static_cast<size_t>(d)] += ds * k[k_at + static_cast<size_t>(d)];
            r.dk[dk_at + static_cast<size_t>(d)] += ds * q[q_at + static_cast<size_t>(d)];
          }
        }
      }
  };
  std::vector<std::thread> threads;
  for (int64_t kv = 0; kv < a.kv_heads; ++kv) threads.emplace_back(one_group, kv);
  for (auto& t : threads) t.join();
  return r;
}

}  // namespace quintet::tests
