// Attention over rows sharded over context ranks: queries of some ranks against whole keys, and against the
// keys of one ring rank after another.
#include "kernels/attention_problem.h"

namespace quintet::kernels::cpu::test {
namespace {

struct CutCase {
  Case c;
  int64_t cp, ulysses;
};

// name, sequences, seq_len, heads, kv_heads, head_dim, value_dim, window, documents, dropout
const CutCase kCutCases[] = {
    {{"one rank", 2, 70, 2, 1, 8, 8, 0, 1, 0.0}, 1, 1},
    {{"runs of one row", 3, 4, 2, 1, 5, 3, 0, 0, 0.0}, 2, 1},
    {{"runs of one row, documents", 2, 8, 2, 2, 4, 4, 0, 3, 0.0}, 4, 1},
    {{"odd runs", 2, 30, 4, 2, 7, 9, 0, 1, 0.0}, 3, 1},
    {{"whole blocks", 1, 256, 2, 2, 16, 16, 0, 0, 0.0}, 2, 1},
    {{"a row more than a block", 1, 520, 2, 1, 8, 12, 0, 0, 0.0}, 4, 1},
    {{"runs of 100", 1, 400, 3, 1, 8, 8, 0, 2, 0.0}, 2, 1},
    {{"window within a run", 2, 360, 2, 1, 8, 8, 20, 0, 0.0}, 3, 1},
    {{"window over runs, documents", 1, 240, 2, 2, 8, 8, 75, 1, 0.0}, 4, 1},
    {{"window 1", 1, 48, 1, 1, 4, 4, 1, 0, 0.0}, 4, 1},
    {{"interleaved documents", 2, 96, 2, 1, 8, 8, 0, 3, 0.0}, 4, 1},
    {{"dropout", 2, 72, 4, 2, 8, 6, 0, 1, 0.25}, 3, 1},
    {{"heads and ring", 2, 200, 4, 2, 8, 8, 0, 1, 0.0}, 4, 2},
    {{"heads and ring, dropout", 2, 48, 2, 1, 8, 8, 30, 2, 0.25}, 4, 2},
    {{"both sides", 2, 30, 4, 2, 7, 9, 0, 1, 0.0, true}, 3, 1},
    {{"both sides, whole blocks", 1, 512, 2, 2, 16, 16, 0, 0, 0.0, true}, 2, 1},
    {{"both sides, heads and ring, dropout", 2, 48, 2, 1, 8, 8, 0, 2, 0.25, true}, 4, 2},
    {{"heads only", 2, 132, 2, 1, 8, 10, 0, 1, 0.0}, 3, 3},
};

// A problem in whole order, its buffers, and the expected results for any rows of it.
template <class T>
class Cut {
  using S = Stat<T>;

 public:
  Cut(const CutCase& cut, const Problem& problem, ThreadPool& pool)
      : p_(problem),
        cut_(cut),
        pool_(pool),
        whole_{cut.c.seq_len, cut.c.sequences, cut.cp, 0, cut.cp},
        key_documents_(in_order(p_.documents, 1, whole_)),
        key_positions_(in_order(p_.positions, 1, whole_)),
        e_(relative_error<S>(p_)) {}

  int64_t ring() const { return cut_.cp / cut_.ulysses; }
  base::RowOrder whole() const { return whole_; }
  base::RowOrder rank(int64_t g) const {
    base::RowOrder order = whole_;
    order.first = g * cut_.ulysses;
    order.count = cut_.ulysses;
    return order;
  }

  // The queries in a row order: inputs, masks and results.
  struct Queries {
    base::RowOrder rows;
    std::vector<int32_t> documents, samples, positions;
    Buffer<T> q, dout;
    Buffer<T> o;      // of attention, or of the hops, rounded
    Buffer<S> sum_o;  // of the hops
    Buffer<S> lse, sum_dq;
    Buffer<T> dq;
  };
  Queries queries(const base::RowOrder& rows) const {
    const AttentionShape s = shape_of(p_);
    const auto blank = [&](int64_t stride) { return std::vector<double>(rows.rows() * stride, 77); };
    return {rows,
            in_order(p_.documents, 1, rows),
            in_order(p_.samples, 1, rows),
            in_order(p_.positions, 1, rows),
            spread<T>(in_order(p_.q, p_.q_width(), rows), p_.q_width(), s.q_stride),
            spread<T>(in_order(p_.dout, p_.o_width(), rows), p_.o_width(), s.o_stride),
            Buffer<T>(blank(s.o_stride)),
            Buffer<S>(blank(s.o_stride)),
            Buffer<S>(p_.c.heads * rows.rows()),
            Buffer<S>(blank(s.dq_stride)),
            Buffer<T>(blank(s.dq_stride))};
  }
  struct Keys {
    base::RowOrder rows;
    Buffer<T> k, v, dk, dv;
  };
  Keys keys(const base::RowOrder& rows) const {
    const AttentionShape s = shape_of(p_);
    const auto blank = [&](int64_t stride) {
      return Buffer<T>(std::vector<double>(rows.rows() * stride, 77));
    };
    return {rows, spread<T>(in_order(p_.k, p_.k_width(), rows), p_.k_width(), s.k_stride),
            spread<T>(in_order(p_.v, p_.v_width(), rows), p_.v_width(), s.v_stride), blank(s.dk_stride),
            blank(s.dv_stride)};
  }

  AttentionShape shape(const Queries& q, const Keys& k) const {
    AttentionShape s = shape_of(p_);
    s.q_rows = q.rows;
    s.k_rows = k.rows;
    if (p_.c.documents != 0) {
      s.documents = q.documents.data();
      s.key_documents = key_documents_.data();
    }
    s.samples = q.samples.data();
    s.positions = q.positions.data();
    s.key_positions = key_positions_.data();
    return s;
  }

  // Checks the results of the queries: o, lse and dq.
  void forward_and_backward(Queries& q, Keys& k) const {
    const AttentionShape s = shape(q, k);
    Buffer<uint8_t> forward(attention_workspace_bytes<T>(s, pool_.threads())),
        backward(attention_backward_workspace_bytes<T>(s, pool_.threads()));
    attention<T>(s, q.q.data(), k.k.data(), k.v.data(), q.o.data(), q.lse.data(), forward.data(), pool_);
    attention_backward<T>(s, q.dout.data(), q.q.data(), k.k.data(), k.v.data(), q.o.data(), q.lse.data(),
                          q.dq.data(), k.dk.data(), k.dv.data(), backward.data(), pool_);
    expect_lse(q);
    expect_o(q.o, q);
    expect_dq(q.dq, q);
  }
  void hop(Queries& q, const Keys& k, bool first) const {
    const AttentionShape s = shape(q, k);
    Buffer<uint8_t> workspace(attention_workspace_bytes<T>(s, pool_.threads()));
    attention_hop<T>(s, q.q.data(), k.k.data(), k.v.data(), first ? nullptr : q.sum_o.data(),
                     first ? nullptr : q.lse.data(), q.sum_o.data(), q.lse.data(), workspace.data(), pool_);
  }
  void hop_backward(Queries& q, Keys& k, bool first) const {
    const AttentionShape s = shape(q, k);
    Buffer<uint8_t> workspace(attention_backward_workspace_bytes<T>(s, pool_.threads()));
    Keys share = keys(k.rows);
    attention_hop_backward<T>(s, q.dout.data(), q.q.data(), k.k.data(), k.v.data(), q.o.data(), q.lse.data(),
                              first ? nullptr : q.sum_dq.data(), q.sum_dq.data(), share.dk.data(),
                              share.dv.data(), workspace.data(), pool_);
    add_keys(first ? std::vector<const Keys*>{&share} : std::vector<const Keys*>{&k, &share}, k);
  }
  static void round_sums(Queries& q) {
    for (int64_t i = 0; i < q.o.size(); ++i) q.o.data()[i] = element<T>(q.sum_o[i]);
  }

  // In bf16 the backward pass reads o rounded to T: delta has that error.
  double stored() const { return kHalf<T> ? unit<T>() : 0; }

  template <class O>
  void expect_rows(const Buffer<O>& got, int64_t stride, const std::vector<double>& want,
                   const std::vector<double>& terms, int64_t width, const base::RowOrder& rows, double error,
                   const char* what) const {
    const std::vector<double> values = in_order(want, width, rows), sizes = in_order(terms, width, rows);
    expect_near(
        gather(got, width, stride), values, [&](int64_t i) { return error * sizes[i]; }, what);
  }
  void expect_lse(const Queries& q) const {
    expect_near(
        q.lse, columns_in_order(p_.lse, p_.c.heads, q.rows), [&](int64_t) { return e_; }, "lse");
  }
  // `hops`: number of roundings of a running sum in a result, in addition to the last.
  template <class O>
  void expect_o(const Buffer<O>& o, const Queries& q, double hops = 0) const {
    expect_rows(o, shape_of(p_).o_stride, p_.o, p_.abs_o, p_.o_width(), q.rows, e_ * (1 + hops), "o");
  }
  template <class O>
  void expect_dq(const Buffer<O>& dq, const Queries& q) const {
    expect_rows(dq, shape_of(p_).dq_stride, p_.dq, p_.abs_dq, p_.q_width(), q.rows, e_ + stored(), "dq");
  }
  void expect_keys(const Keys& k, double hops = 0) const {
    const AttentionShape s = shape_of(p_);
    const double rounding = hops * unit<T>();
    expect_rows(k.dk, s.dk_stride, p_.dk, p_.abs_dk, p_.k_width(), k.rows, e_ + stored() + rounding, "dk");
    expect_rows(k.dv, s.dv_stride, p_.dv, p_.abs_dv, p_.v_width(), k.rows, e_ + rounding, "dv");
  }
  // The partial dk and dv of `list` added up.
  void add_keys(const std::vector<const Keys*>& list, Keys& sum) const {
    for (Buffer<T> Keys::*member : {&Keys::dk, &Keys::dv}) {
      const int64_t stride = member == &Keys::dk ? shape_of(p_).dk_stride : shape_of(p_).dv_stride;
      const int64_t width = member == &Keys::dk ? p_.k_width() : p_.v_width();
      for (int64_t i = 0; i < (sum.*member).size(); ++i) {
        if (i % stride >= width) continue;
        double total = 0;
        for (const Keys* k : list) total += (k->*member)[i];
        (sum.*member).data()[i] = element<T>(total);
      }
    }
  }

 private:
  const Problem& p_;
  const CutCase& cut_;
  ThreadPool& pool_;
  base::RowOrder whole_;
  std::vector<int32_t> key_documents_, key_positions_;
  double e_;
};

template <class T>
class AttentionCut : public testing::Test {};
TYPED_TEST_SUITE(AttentionCut, AllTypes);

// Runs `check` on every case; its result must not depend on the number of threads.
template <class T>
void on_every_cut(const std::function<std::vector<uint8_t>(const Cut<T>&)>& check) {
  for (const CutCase& c : kCutCases) {
    SCOPED_TRACE(c.c.name);
    const Problem problem = problem_for<T>(c.c);
    run_everywhere([&](ThreadPool& pool) { return check(Cut<T>(c, problem, pool)); });
  }
}

TYPED_TEST(AttentionCut, QueriesOfSomeRanksAgainstAllKeys) {
  using T = TypeParam;
  on_every_cut<T>([](const Cut<T>& cut) {
    std::vector<uint8_t> bytes;
    std::vector<typename Cut<T>::Keys> partial;
    for (int64_t g = 0; g < cut.ring(); ++g) {
      SCOPED_TRACE(testing::Message() << "ring rank " << g);
      auto q = cut.queries(cut.rank(g));
      partial.push_back(cut.keys(cut.whole()));
      cut.forward_and_backward(q, partial.back());
      append(bytes, bytes_of(q.o, q.lse, q.dq, partial.back().dk, partial.back().dv));
    }
    auto sum = cut.keys(cut.whole());
    std::vector<const typename Cut<T>::Keys*> shares;
    for (const auto& k : partial) shares.push_back(&k);
    cut.add_keys(shares, sum);
    cut.expect_keys(sum, static_cast<double>(cut.ring()));
    return bytes;
  });
}

// The layout of head parallelism: all rows of both, one rank after another.
TYPED_TEST(AttentionCut, AllQueriesAgainstAllKeys) {
  using T = TypeParam;
  on_every_cut<T>([](const Cut<T>& cut) {
    auto q = cut.queries(cut.whole());
    auto k = cut.keys(cut.whole());
    cut.forward_and_backward(q, k);
    cut.expect_keys(k);
    return bytes_of(q.o, q.lse, q.dq, k.dk, k.dv);
  });
}

TYPED_TEST(AttentionCut, HopsOfARingAddUp) {
  using T = TypeParam;
  on_every_cut<T>([](const Cut<T>& cut) {
    const int64_t ring = cut.ring();
    std::vector<typename Cut<T>::Queries> queries;
    std::vector<typename Cut<T>::Keys> keys;
    for (int64_t g = 0; g < ring; ++g) {
      queries.push_back(cut.queries(cut.rank(g)));
      keys.push_back(cut.keys(cut.rank(g)));
    }
    const auto each_hop = [&](auto&& fn) {
      for (int64_t hop = 0; hop < ring; ++hop)
        for (int64_t g = 0; g < ring; ++g) fn(queries[g], keys[(g - hop + ring) % ring], hop == 0);
    };
    each_hop([&](auto& q, auto& k, bool first) { cut.hop(q, k, first); });
    for (auto& q : queries) cut.round_sums(q);
    each_hop([&](auto& q, auto& k, bool first) { cut.hop_backward(q, k, first); });
    std::vector<uint8_t> bytes;
    for (int64_t g = 0; g < ring; ++g) {
      SCOPED_TRACE(testing::Message() << "ring rank " << g);
      cut.expect_lse(queries[g]);
      cut.expect_o(queries[g].sum_o, queries[g], static_cast<double>(ring));
      cut.expect_dq(queries[g].sum_dq, queries[g]);
      cut.expect_keys(keys[g], static_cast<double>(ring));
      append(bytes, bytes_of(queries[g].sum_o, queries[g].lse, queries[g].sum_dq, keys[g].dk, keys[g].dv));
    }
    return bytes;
  });
}

// One rank of one sequence: hops with the same keys under different documents.
struct OneRank {
  static constexpr int64_t kRows = 70, kDim = 8;
  ThreadPool pool{1};
  Buffer<float> q{random_values<float>(kRows * kDim, 1)}, k{random_values<float>(kRows * kDim, 2)},
      v{random_values<float>(kRows * kDim, 3)}, o{kRows * kDim}, lse{kRows};
  std::vector<int32_t> documents = std::vector<int32_t>(kRows, 0);

  void hop(int32_t key_document, bool first) {
    const std::vector<int32_t> key_documents(kRows, key_document);
    AttentionShape s;
    s.q_rows = s.k_rows = {.seq_len = kRows, .sequences = 1};
    s.heads = s.kv_heads = 1;
    s.head_dim = s.value_dim = s.q_stride = s.k_stride = s.v_stride = s.o_stride = kDim;
    s.documents = documents.data();
    s.key_documents = key_documents.data();
    Buffer<uint8_t> workspace(attention_workspace_bytes<float>(s, 1));
    attention_hop<float>(s, q.data(), k.data(), v.data(), first ? nullptr : o.data(),
                         first ? nullptr : lse.data(), o.data(), lse.data(), workspace.data(), pool);
  }
};

TEST(AttentionHop, HopsThatSeeNothingChangeNothing) {
  for (const Isa set : instruction_sets()) {
    limit_isa(set);
    OneRank plain, with;
    plain.documents[3] = with.documents[3] = -1;
    plain.hop(0, true);
    ASSERT_TRUE(std::isfinite(plain.lse[0]));
    EXPECT_EQ(plain.lse[3], -std::numeric_limits<double>::infinity());
    for (int64_t d = 0; d < OneRank::kDim; ++d) EXPECT_EQ(plain.o[3 * OneRank::kDim + d], 0);

    with.hop(-1, true);  // sees no key at all
    for (int64_t i = 0; i < OneRank::kRows; ++i)
      EXPECT_EQ(with.lse[i], -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < with.o.size(); ++i) EXPECT_EQ(with.o[i], 0);
    with.hop(7, false);
    with.hop(0, false);  // the first that sees a key
    EXPECT_EQ(bytes_of(with.o, with.lse), bytes_of(plain.o, plain.lse));
    with.hop(7, false);
    with.hop(-1, false);
    EXPECT_EQ(bytes_of(with.o, with.lse), bytes_of(plain.o, plain.lse));
  }
  limit_isa(Isa::Avx512);
}

// The same keys twice: the same mean, and lse + log 2.
TEST(AttentionHop, TheSameKeysTwice) {
  OneRank once, twice;
  once.hop(0, true);
  twice.hop(0, true);
  twice.hop(0, false);
  for (int64_t i = 0; i < OneRank::kRows; ++i) EXPECT_NEAR(twice.lse[i], once.lse[i] + std::log(2.0), 1e-6);
  for (int64_t i = 0; i < once.o.size(); ++i) EXPECT_NEAR(twice.o[i], once.o[i], 1e-6);
}

// Scores far apart: the smaller part vanishes and nothing overflows, in either order.
TEST(AttentionHop, ScoresFarApart) {
  OneRank near;
  near.hop(0, true);
  for (const bool large_first : {false, true}) {
    OneRank both;
    const auto shift = [&](double by) {
      for (int64_t i = 0; i < both.k.size(); ++i) both.k.data()[i] = element<float>(near.k[i] + by);
    };
    for (int64_t i = 0; i < both.q.size(); ++i) both.q.data()[i] = 20.0f;
    shift(large_first ? 50 : -50);
    both.hop(0, true);
    shift(large_first ? -50 : 50);
    both.hop(0, false);
    for (int64_t i = 0; i < OneRank::kRows; ++i) EXPECT_GT(both.lse[i], 5000) << i;
    for (int64_t i = 0; i < both.o.size(); ++i) EXPECT_LE(std::abs(both.o[i]), 6) << i;
  }
}

// Keys with scores of -inf have no weight next to others, in whichever hop they come; alone they give NaN, as
// in one softmax.
TEST(AttentionHop, ScoresOfMinusInfinity) {
  for (const Isa set : instruction_sets()) {
    limit_isa(set);
    OneRank plain;
    for (int64_t i = 0; i < plain.q.size(); ++i) plain.q.data()[i] = 1;
    plain.hop(0, true);
    for (const bool infinite_first : {false, true}) {
      OneRank r;
      const auto hop = [&](bool infinite, bool first) {
        for (int64_t i = 0; i < r.k.size(); ++i) {
          r.q.data()[i] = 1;
          r.k.data()[i] = infinite ? -std::numeric_limits<float>::infinity() : plain.k.data()[i];
        }
        r.hop(0, first);
      };
      hop(infinite_first, true);
      hop(!infinite_first, false);
      EXPECT_EQ(bytes_of(r.o, r.lse), bytes_of(plain.o, plain.lse));
      hop(true, true);
      r.hop(7, false);  // sees nothing
      hop(true, false);
      for (int64_t i = 0; i < r.o.size(); ++i) EXPECT_TRUE(std::isnan(r.o[i])) << i;
    }
  }
  limit_isa(Isa::Avx512);
}

// A NaN that a query sees must not be treated as an invisible key.
TEST(AttentionHop, NanPropagates) {
  for (const Isa set : instruction_sets()) {
    limit_isa(set);
    for (const bool first : {true, false}) {
      OneRank r;
      if (!first) r.hop(0, true);
      for (int64_t i = 0; i < r.k.size(); ++i) r.k.data()[i] = std::numeric_limits<float>::quiet_NaN();
      r.hop(0, first);
      for (int64_t i = 0; i < OneRank::kRows; ++i) EXPECT_TRUE(std::isnan(r.lse[i])) << i;
      for (int64_t i = 0; i < r.o.size(); ++i) EXPECT_TRUE(std::isnan(r.o[i])) << i;
    }
  }
  limit_isa(Isa::Avx512);
}

}  // namespace
}  // namespace quintet::kernels::cpu::test
