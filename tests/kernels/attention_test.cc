#include "kernels/attention_problem.h"

namespace quintet::kernels::cpu::test {
namespace {

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
    {"both sides", 2, 7, 2, 1, 5, 3, 0, 0, 0.0, true},
    {"both sides, whole blocks", 1, 128, 2, 1, 16, 16, 0, 0, 0.0, true},
    {"both sides, long", 1, 389, 6, 2, 16, 24, 0, 0, 0.0, true},
    {"both sides, documents", 2, 200, 2, 1, 16, 16, 0, 1, 0.0, true},
    {"both sides, interleaved", 2, 150, 2, 2, 16, 16, 0, 3, 0.0, true},
    {"both sides, padding, dropout", 2, 150, 4, 2, 8, 8, 0, 2, 0.25, true},
};

template <class T>
class Attention : public testing::Test {};
TYPED_TEST_SUITE(Attention, AllTypes);

TYPED_TEST(Attention, MatchesReference) {
  using T = TypeParam;
  using S = Stat<T>;
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const Problem p = problem_for<T>(c);
    AttentionShape shape = shape_of(p);
    shape.q_rows = shape.k_rows = {.seq_len = c.seq_len, .sequences = c.sequences};
    shape.documents = shape.key_documents = c.documents == 0 ? nullptr : p.documents.data();
    shape.samples = p.samples.data();
    shape.positions = shape.key_positions = p.positions.data();
    const int64_t qw = p.q_width(), kw = p.k_width(), vw = p.v_width(), ow = p.o_width();
    const double e = relative_error<S>(p);
    // In bf16 the backward pass reads o rounded to T: delta has that error.
    const double stored = kHalf<T> ? unit<T>() : 0;
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
  for (const bool both_sides : {false, true}) {
    Problem p = problem_for<double>({"small", 1, 9, 2, 1, 4, 3, both_sides ? 0 : 5, 2, 0.3, both_sides});
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
}

TEST(AttentionEdges, LargeScoresStayFinite) {
  ThreadPool pool(1);
  const int64_t tokens = 130, dim = 16;
  AttentionShape shape;
  shape.q_rows = shape.k_rows = {.seq_len = tokens, .sequences = 1};
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
