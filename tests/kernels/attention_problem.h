// An attention problem, its reference in plain double, and its rows in any order.
#pragma once

#include "kernels/cpu/attention/attention.h"
#include "kernels/support.h"

namespace quintet::kernels::cpu::test {

struct Case {
  const char* name;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim, window;
  int documents;  // 0: none given, 1: runs of documents, 2: runs with padding, 3: interleaved ids with
                  // padding
  double dropout;
  bool both_sides = false;
};

inline std::vector<int32_t> documents_for(const Case& c) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < c.sequences * c.seq_len; ++t) {
    const int64_t i = t % c.seq_len;
    int32_t id = c.documents == 3 ? static_cast<int32_t>(i % 3) : static_cast<int32_t>(i / 37);
    if (c.documents == 2 && i >= c.seq_len - 11) id = -1;
    if (c.documents == 3 && i % 5 == 0) id = -1;
    ids.push_back(id);
  }
  return ids;
}

// A case with its inputs and its reference in plain double.
struct Problem {
  Case c;
  int64_t tokens, group;
  std::vector<int32_t> documents, samples, positions;
  double scale = 0.3;
  uint64_t key = 0x1234567890abcdefu;
  int64_t head_offset = 3;
  std::vector<double> q, k, v, dout;       // contiguous
  std::vector<double> o, lse, dq, dk, dv;  // results
  // The same sums over absolute terms: they bound the effect of relative errors of the terms.
  std::vector<double> abs_o, abs_dq, abs_dk, abs_dv;

  int64_t q_width() const { return c.heads * c.head_dim; }
  int64_t k_width() const { return c.kv_heads * c.head_dim; }
  int64_t v_width() const { return c.kv_heads * c.value_dim; }
  int64_t o_width() const { return c.heads * c.value_dim; }

  double keep(int64_t h, int64_t i, int64_t j) const {
    if (c.dropout == 0) return 1;
    const uint64_t low = static_cast<uint64_t>(positions[j] >> 2) | static_cast<uint64_t>(positions[i]) << 32;
    const uint64_t high = static_cast<uint64_t>(samples[i]) | static_cast<uint64_t>(head_offset + h) << 32;
    const uint32_t word = base::philox(key, low, high)[positions[j] & 3];
    return word * 0x1p-32 >= c.dropout ? 1 / (1 - c.dropout) : 0;
  }
  bool sees(int64_t i, int64_t j) const {
    return i / c.seq_len == j / c.seq_len && (c.both_sides || j <= i) && documents[i] >= 0 &&
           documents[i] == documents[j] && (c.window == 0 || i - j < c.window);
  }

  void solve() {
    const int64_t H = c.heads, K = c.kv_heads, D = c.head_dim, V = c.value_dim;
    o.assign(tokens * H * V, 0);
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    abs_o = o;
    abs_dq = dq;
    abs_dk = dk;
    abs_dv = dv;
    lse.assign(H * tokens, -std::numeric_limits<double>::infinity());
    for (int64_t h = 0; h < H; ++h)
      for (int64_t i = 0; i < tokens; ++i) {
        if (documents[i] < 0) continue;
        const int64_t g = h * K / H, first = i / c.seq_len * c.seq_len,
                      end = c.both_sides ? first + c.seq_len : i + 1;
        std::vector<double> score(end), p(end), dp(end), abs_dp(end);
        double max = -std::numeric_limits<double>::infinity(), sum = 0, dot = 0, abs_dot = 0;
        for (int64_t j = first; j < end; ++j) {
          if (!sees(i, j)) continue;
          for (int64_t d = 0; d < D; ++d) score[j] += scale * q[(i * H + h) * D + d] * k[(j * K + g) * D + d];
          max = std::max(max, score[j]);
        }
        for (int64_t j = first; j < end; ++j)
          if (sees(i, j)) sum += p[j] = std::exp(score[j] - max);
        lse[h * tokens + i] = max + std::log(sum);
        for (int64_t j = first; j < end; ++j) {
          p[j] /= sum;
          const double kept = sees(i, j) ? keep(h, i, j) : 0;
          for (int64_t d = 0; d < V; ++d) {
            const double g_out = dout[(i * H + h) * V + d], value = v[(j * K + g) * V + d],
                         weight = p[j] * kept;
            o[(i * H + h) * V + d] += weight * value;
            abs_o[(i * H + h) * V + d] += weight * std::abs(value);
            dp[j] += kept * g_out * value;
            abs_dp[j] += kept * std::abs(g_out * value);
            dv[(j * K + g) * V + d] += weight * g_out;
            abs_dv[(j * K + g) * V + d] += weight * std::abs(g_out);
          }
          dot += p[j] * dp[j];
          abs_dot += p[j] * abs_dp[j];
        }
        for (int64_t j = first; j < end; ++j) {
          const double ds = p[j] * (dp[j] - dot) * scale, abs_ds = p[j] * (abs_dp[j] + abs_dot) * scale;
          for (int64_t d = 0; d < D; ++d) {
            const int64_t at_q = (i * H + h) * D + d, at_k = (j * K + g) * D + d;
            dq[at_q] += ds * k[at_k];
            dk[at_k] += ds * q[at_q];
            abs_dq[at_q] += abs_ds * std::abs(k[at_k]);
            abs_dk[at_k] += abs_ds * std::abs(q[at_q]);
          }
        }
      }
  }
};

template <class T>
Problem problem_for(const Case& c) {
  Problem p{c};
  p.tokens = c.sequences * c.seq_len;
  p.group = c.heads / c.kv_heads;
  p.documents = documents_for(c);
  if (c.documents == 0) p.documents.assign(p.tokens, 0);
  for (int64_t t = 0; t < p.tokens; ++t) {
    p.samples.push_back(static_cast<int32_t>(1000 + t / c.seq_len));
    p.positions.push_back(static_cast<int32_t>(t % c.seq_len % 37));
  }
  p.q = random_values<T>(p.tokens * c.heads * c.head_dim, 51);
  p.k = random_values<T>(p.tokens * c.kv_heads * c.head_dim, 52);
  p.v = random_values<T>(p.tokens * c.kv_heads * c.value_dim, 53);
  p.dout = random_values<T>(p.tokens * c.heads * c.value_dim, 54);
  p.solve();
  return p;
}

// Rows of `width`, `stride` apart, with a sentinel in between.
template <class T>
Buffer<T> spread(const std::vector<double>& rows, int64_t width, int64_t stride) {
  std::vector<double> out(rows.size() / width * stride, 77);
  for (size_t r = 0; r < rows.size() / width; ++r)
    for (int64_t i = 0; i < width; ++i) out[r * stride + i] = rows[r * width + i];
  return Buffer<T>(out);
}
template <class T>
Buffer<T> gather(const Buffer<T>& rows, int64_t width, int64_t stride) {
  std::vector<double> out;
  for (int64_t r = 0; r < rows.size() / stride; ++r) {
    for (int64_t i = 0; i < width; ++i) out.push_back(rows[r * stride + i]);
    for (int64_t i = width; i < stride; ++i) EXPECT_EQ(rows[r * stride + i], 77) << "between rows";
  }
  return Buffer<T>(out);
}

// The token, in plain order, of each row of a buffer.
inline std::vector<int64_t> tokens_of(const base::RowOrder& order) {
  std::vector<int64_t> tokens(static_cast<size_t>(order.rows()), -1);
  for (int64_t s = 0; s < order.sequences; ++s)
    for (int64_t r = 0; r < order.runs(); ++r) {
      const base::RowOrder::Run run = order.run(s, r);
      for (int64_t i = 0; i < run.length; ++i) tokens[run.row + i] = s * order.seq_len + run.position + i;
    }
  return tokens;
}

// Rows of `width` in a row order.
template <class V>
std::vector<V> in_order(const std::vector<V>& rows, int64_t width, const base::RowOrder& order) {
  std::vector<V> out;
  for (const int64_t t : tokens_of(order)) out.insert(out.end(), &rows[t * width], &rows[t * width] + width);
  return out;
}
// heads x tokens, with the tokens in a row order.
inline std::vector<double> columns_in_order(const std::vector<double>& rows, int64_t heads,
                                            const base::RowOrder& order) {
  std::vector<double> out;
  const int64_t tokens = static_cast<int64_t>(rows.size()) / heads;
  for (int64_t h = 0; h < heads; ++h)
    for (const int64_t t : tokens_of(order)) out.push_back(rows[h * tokens + t]);
  return out;
}

// Everything except the row orders and the index arrays. Row strides are padded, unevenly.
inline AttentionShape shape_of(const Problem& p) {
  const Case& c = p.c;
  AttentionShape shape;
  shape.heads = c.heads;
  shape.kv_heads = c.kv_heads;
  shape.head_dim = c.head_dim;
  shape.value_dim = c.value_dim;
  shape.q_stride = p.q_width() + 3;
  shape.k_stride = p.k_width() + 1;
  shape.v_stride = p.v_width() + 2;
  shape.o_stride = p.o_width() + 5;
  shape.dq_stride = p.q_width() + 2;
  shape.dk_stride = p.k_width() + 3;
  shape.dv_stride = p.v_width() + 1;
  shape.window = c.window;
  shape.both_sides = c.both_sides;
  shape.scale = p.scale;
  shape.dropout_p = c.dropout;
  shape.dropout_key = p.key;
  shape.head_offset = p.head_offset;
  return shape;
}

// A score is a sum of head_dim products, |q k| below 1 on average; its absolute error (and that of lse) is
// the relative error of a weight, and the sums over keys, queries and value_dim add theirs.
template <class S>
double relative_error(const Problem& p) {
  const double n = static_cast<double>(p.c.seq_len), d = static_cast<double>(p.c.head_dim);
  const double score_error = unit<S>() * (d + 4.0) * p.scale * (d + 16.0);
  return 4 * (score_error + unit<S>() * (n * static_cast<double>(p.group) + p.c.value_dim + 64));
}

}  // namespace quintet::kernels::cpu::test
