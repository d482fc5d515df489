#include "kernels/cpu/attention.h"

#include "kernels/support.h"

namespace quintet::kernels::cpu::test {
namespace {

struct Case {
  const char* name;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim, window;
  int documents;  // 0: none given, 1: runs of documents, 2: runs with padding, 3: interleaved ids with
                  // padding
  double dropout;
};

constexpr Case kCases[] = {
    {"one token", 1, 1, 1, 1, 1, 1, 0, 0, 0.0},
    {"seven tokens", 2, 7, 2, 1, 5, 3, 0, 0, 0.0},
    {"odd length", 1, 65, 2, 2, 7, 9, 0, 0, 0.0},
    {"whole blocks", 1, 128, 1, 1, 64, 64, 0, 0, 0.0},
    {"long, grouped", 1, 389, 6, 2, 16, 24, 0, 0, 0.0},
    {"documents", 2, 200, 2, 1, 16, 16, 0, 1, 0.0},
    {"padding", 2, 150, 2, 2, 16, 16, 0, 2, 0.0},
    {"interleaved", 1, 100, 1, 1, 8, 8, 0, 3, 0.0},
    {"window 1", 1, 70, 1, 1, 8, 8, 1, 0, 0.0},
    {"window 40", 1, 300, 2, 1, 16, 16, 40, 0, 0.0},
    {"window that ends at a block's edge", 1, 200, 1, 1, 8, 8, 66, 0, 0.0},
    {"window, documents", 1, 300, 2, 1, 16, 16, 130, 2, 0.0},
    {"dropout", 2, 90, 4, 2, 8, 8, 0, 1, 0.25},
};

std::vector<int32_t> documents_for(const Case& c) {
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

// A case with its inputs, and the plain double computation of everything.
struct Problem {
  Case c;
  int64_t tokens, group;
  std::vector<int32_t> documents, samples, positions;
  double scale = 0.3;
  uint64_t key = 0x1234567890abcdefu;
  int64_t head_offset = 3;
  std::vector<double> q, k, v, dout;       // contiguous
  std::vector<double> o, lse, dq, dk, dv;  // results
  // The same sums over absolute terms: what relative errors of the terms can do.
  std::vector<double> abs_o, abs_dq, abs_dk, abs_dv;

  double keep(int64_t h, int64_t i, int64_t j) const {
    if (c.dropout == 0) return 1;
    const uint64_t low = static_cast<uint64_t>(positions[j] >> 2) | static_cast<uint64_t>(positions[i]) << 32;
    const uint64_t high = static_cast<uint64_t>(samples[i]) | static_cast<uint64_t>(head_offset + h) << 32;
    const uint32_t word = base::philox(key, low, high)[positions[j] & 3];
    return word * 0x1p-32 >= c.dropout ? 1 / (1 - c.dropout) : 0;
  }
  bool sees(int64_t i, int64_t j) const {
    return i / c.seq_len == j / c.seq_len && j <= i && documents[i] >= 0 && documents[i] == documents[j] &&
           (c.window == 0 || i - j < c.window);
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
        const int64_t g = h * K / H, first = i / c.seq_len * c.seq_len;
        std::vector<double> score(i + 1), p(i + 1), dp(i + 1), abs_dp(i + 1);
        double max = -std::numeric_limits<double>::infinity(), sum = 0, dot = 0, abs_dot = 0;
        for (int64_t j = first; j <= i; ++j) {
          if (!sees(i, j)) continue;
          for (int64_t d = 0; d < D; ++d) score[j] += scale * q[(i * H + h) * D + d] * k[(j * K + g) * D + d];
          max = std::max(max, score[j]);
        }
        for (int64_t j = first; j <= i; ++j)
          if (sees(i, j)) sum += p[j] = std::exp(score[j] - max);
        lse[h * tokens + i] = max + std::log(sum);
        for (int64_t j = first; j <= i; ++j) {
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
        for (int64_t j = first; j <= i; ++j) {
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

// Rows of `width` placed `stride` apart with a sentinel between.
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

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, AllTypes);

TYPED_TEST(Attention, MatchesReference) {
  using T = TypeParam;
  using S = Stat<T>;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Problem p = problem_for<T>(c);
    AttentionShape shape;
    shape.tokens = p.tokens;
    shape.seq_len = c.seq_len;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.value_dim = c.value_dim;
    const int64_t qw = c.heads * c.head_dim, kw = c.kv_heads * c.head_dim, vw = c.kv_heads * c.value_dim,
                  ow = c.heads * c.value_dim;
    shape.q_stride = qw + 3;
    shape.k_stride = kw + 1;
    shape.v_stride = vw + 2;
    shape.o_stride = ow + 5;
    shape.dq_stride = qw + 2;
    shape.dk_stride = kw + 3;
    shape.dv_stride = vw + 1;
    shape.window = c.window;
    shape.scale = p.scale;
    shape.documents = c.documents == 0 ? nullptr : p.documents.data();
    shape.dropout_p = c.dropout;
    shape.dropout_key = p.key;
    shape.samples = p.samples.data();
    shape.positions = p.positions.data();
    shape.head_offset = p.head_offset;
    // A score is a sum of head_dim products, |q k| below 1 on average; its absolute error (and that of lse)
    // is the relative error of a weight, and the sums over keys, queries and value_dim add theirs.
    const double n = static_cast<double>(c.seq_len);
    const double score_error = unit<S>() * (c.head_dim + 4.0) * p.scale * (c.head_dim + 16.0);
    const double e = 4 * (score_error + unit<S>() * (n * static_cast<double>(p.group) + c.value_dim + 64));
    // In bf16 the backward pass reads o rounded to T: delta is off by that much.
    const double stored = std::is_same_v<T, Bf16> ? unit<T>() : 0;
    run_everywhere([&](ThreadPool& pool) {
      const Buffer<T> q = spread<T>(p.q, qw, shape.q_stride), k = spread<T>(p.k, kw, shape.k_stride),
                      v = spread<T>(p.v, vw, shape.v_stride), dout = spread<T>(p.dout, ow, shape.o_stride);
      const auto blank = [&](int64_t stride) {
        return Buffer<T>(std::vector<double>(p.tokens * stride, 77));
      };
      Buffer<T> o = blank(shape.o_stride), dq = blank(shape.dq_stride), dk = blank(shape.dk_stride),
                dv = blank(shape.dv_stride);
      Buffer<S> lse(c.heads * p.tokens);
      {
        Buffer<uint8_t> workspace(attention_workspace_bytes<T>(shape, pool.threads()));
        attention<T>(shape, q.data(), k.data(), v.data(), o.data(), lse.data(), workspace.data(), pool);
      }
      {
        Buffer<uint8_t> workspace(attention_backward_workspace_bytes<T>(shape, pool.threads()));
        attention_backward<T>(shape, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(),
                              dq.data(), dk.data(), dv.data(), workspace.data(), pool);
      }
      expect_near(
          lse, p.lse, [&](int64_t) { return e; }, "lse");
      expect_near(
          gather(o, ow, shape.o_stride), p.o, [&](int64_t i) { return e * p.abs_o[i]; }, "o");
      expect_near(
          gather(dq, qw, shape.dq_stride), p.dq, [&](int64_t i) { return (e + stored) * p.abs_dq[i]; }, "dq");
      expect_near(
          gather(dk, kw, shape.dk_stride), p.dk, [&](int64_t i) { return (e + stored) * p.abs_dk[i]; }, "dk");
      expect_near(
          gather(dv, vw, shape.dv_stride), p.dv, [&](int64_t i) { return e * p.abs_dv[i]; }, "dv");
      return bytes_of(o, lse, dq, dk, dv);
    });
  }
}

TEST(AttentionGradient, MatchesDifferences) {
  Problem p = problem_for<double>({"small", 1, 9, 2, 1, 4, 3, 5, 2, 0.3});
  const Problem solved = p;
  const auto loss = [&] {
    p.solve();
    double sum = 0;
    for (size_t i = 0; i < p.o.size(); ++i) sum += p.o[i] * p.dout[i];
    return sum;
  };
  for (size_t i = 0; i < p.q.size(); ++i) EXPECT_NEAR(solved.dq[i], difference(p.q, i, loss), 1e-8);
  for (size_t i = 0; i < p.k.size(); ++i) EXPECT_NEAR(solved.dk[i], difference(p.k, i, loss), 1e-8);
  for (size_t i = 0; i < p.v.size(); ++i) EXPECT_NEAR(solved.dv[i], difference(p.v, i, loss), 1e-8);
}

TEST(AttentionEdges, LargeScoresStayFinite) {
  ThreadPool pool(1);
  const int64_t tokens = 130, dim = 16;
  AttentionShape shape;
  shape.tokens = shape.seq_len = tokens;
  shape.heads = shape.kv_heads = 1;
  shape.head_dim = shape.value_dim = dim;
  shape.q_stride = shape.k_stride = shape.v_stride = shape.o_stride = dim;
  Buffer<float> q(std::vector<double>(tokens * dim, 100.0)), k(random_values<float>(tokens * dim, 1, 100.0)),
      v(random_values<float>(tokens * dim, 2)), o(tokens * dim), lse(tokens);
  Buffer<uint8_t> workspace(attention_workspace_bytes<float>(shape, 1));
  attention<float>(shape, q.data(), k.data(), v.data(), o.data(), lse.data(), workspace.data(), pool);
  for (int64_t i = 0; i < tokens * dim; ++i) ASSERT_TRUE(std::isfinite(o[i]) && std::abs(o[i]) < 6) << i;
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
