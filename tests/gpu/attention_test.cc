// Attention at sizes of real models: bf16 through cuDNN and through the native kernels, against the native
// kernels in f64 (which op_test.cc compares with the CPU's), forward and gradients.
#include "kernels/cuda/attention/attention.h"

#include <cmath>

#include "gpu/device.h"
#include "gpu/similar.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cuda/attention/segments.cuh"
#include "kernels/cuda_scratch/attention.h"

namespace quintet::kernels::cuda::test {
namespace {

using tests::expect_similar;
using tests::root_mean_square;

struct Problem {
  const char* name;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim, window;
};
constexpr Problem kProblems[] = {
    {"llama 1b", 2, 1024, 32, 8, 64, 64, 0},  {"llama 8b", 1, 2048, 32, 8, 128, 128, 0},
    {"gpt 125m", 3, 512, 12, 12, 64, 64, 0},  {"window", 2, 768, 8, 2, 128, 128, 200},
    {"latent", 1, 1024, 8, 8, 192, 128, 0},   {"wide heads", 1, 512, 4, 1, 256, 256, 0},
    {"ragged rows", 2, 333, 4, 2, 64, 64, 0}, {"tiny", 3, 256, 4, 2, 32, 32, 0},
    {"tiny latent", 2, 256, 4, 4, 48, 32, 0}, {"heads of 96", 2, 384, 4, 2, 96, 96, 0},
};

// The same tiles and masks, with few of them.
Problem shortened(Problem p) {
  p.sequences = 1;
  p.seq_len = std::min<int64_t>(p.seq_len, 90);
  p.window = std::min<int64_t>(p.window, 40);
  p.heads /= p.kv_heads;
  p.kv_heads = 1;
  return p;
}

AttentionShape shape_of(const Problem& p) {
  AttentionShape s;
  s.q_rows = s.k_rows = {.seq_len = p.seq_len, .sequences = p.sequences};
  s.heads = p.heads;
  s.kv_heads = p.kv_heads;
  s.head_dim = p.head_dim;
  s.value_dim = p.value_dim;
  s.q_stride = s.dq_stride = p.heads * p.head_dim;
  s.k_stride = s.dk_stride = p.kv_heads * p.head_dim;
  s.v_stride = s.dv_stride = p.kv_heads * p.value_dim;
  s.o_stride = p.heads * p.value_dim;
  s.window = p.window;
  s.scale = 1 / std::sqrt(static_cast<double>(p.head_dim));
  return s;
}

template <class T>
struct Results {
  Device<T> o, dq, dk, dv;
  Device<Stat<T>> lse;
  explicit Results(const AttentionShape& s)
      : o(s.q_rows.rows() * s.o_stride),
        dq(s.q_rows.rows() * s.q_stride),
        dk(s.k_rows.rows() * s.k_stride),
        dv(s.k_rows.rows() * s.v_stride),
        lse(s.heads * s.q_rows.rows()) {}
};

struct Values {
  std::vector<double> q, k, v, dout;
  explicit Values(const AttentionShape& s)
      : q(random_values<Bf16>(s.q_rows.rows() * s.q_stride, 1)),
        k(random_values<Bf16>(s.k_rows.rows() * s.k_stride, 2)),
        v(random_values<Bf16>(s.k_rows.rows() * s.v_stride, 3)),
        dout(random_values<Bf16>(s.q_rows.rows() * s.o_stride, 4)) {}
};

// Backward uses its own o and lse, as in training.
template <class T>
void run_plain(const AttentionShape& s, const Values& in, Results<T>& out) {
  Device<T> q(in.q), k(in.k), v(in.v), dout(in.dout);
  Device<uint8_t> workspace(attention_backward_workspace_bytes<T>(s));
  attention<T>(s, q.data(), k.data(), v.data(), out.o.data(), out.lse.data(), nullptr);
  attention_backward<T>(s, dout.data(), q.data(), k.data(), v.data(), out.o.data(), out.lse.data(),
                        out.dq.data(), out.dk.data(), out.dv.data(), workspace.data(), nullptr);
  require(cudaDeviceSynchronize());
}

template <class T>
void run_library(Attention& library, const AttentionShape& s, AttentionMasks masks, const Values& in,
                 Results<T>& out) {
  constexpr base::DType type = base::DTypeOf<T>::value;
  Device<T> q(in.q), k(in.k), v(in.v), dout(in.dout);
  ASSERT_TRUE(Attention::suits(s, masks, type));
  const int64_t forward = Attention::workspace_bytes(s, masks, false),
                backward = Attention::workspace_bytes(s, masks, true);
  ASSERT_TRUE(library.prepare(s, masks, false, forward, type)) << library.why_not();
  ASSERT_TRUE(library.prepare(s, masks, true, backward, type)) << library.why_not();
  Device<uint8_t> workspace(std::max(forward, backward));
  library.forward(s, masks, q.data(), k.data(), v.data(), out.o.data(), out.lse.data(), workspace.data(),
                  forward, nullptr);
  library.backward(s, masks, dout.data(), q.data(), k.data(), v.data(), out.o.data(), out.lse.data(),
                   out.dq.data(), out.dk.data(), out.dv.data(), workspace.data(), backward, nullptr);
  require(cudaDeviceSynchronize());
}

// As accurate as 16 bits allow. The first queries of a sequence see only its first keys: terms of dv as large
// as dout, which may also cancel.
template <class T>
void expect_similar(Results<T>& got, Results<double>& want, double rounding, const AttentionShape& s,
                    const Values& in) {
  const double delta = tests::carried_error(s.scale, s.value_dim, in.dout, in.v);
  expect_similar(got.o.values(), want.o.values(), rounding, "o");
  expect_similar(got.lse.values(), want.lse.values(), 0x1p-16, "lse");
  expect_similar(got.dq.values(), want.dq.values(), rounding, "dq", delta * root_mean_square(in.k));
  expect_similar(got.dk.values(), want.dk.values(), rounding, "dk", delta * root_mean_square(in.q));
  expect_similar(got.dv.values(), want.dv.values(), rounding, "dv", root_mean_square(in.dout));
}

TEST(GpuAttention, NativeKernelsInBf16) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(p.name);
    const AttentionShape s = shape_of(under_racecheck() ? shortened(p) : p);
    const Values in(s);
    Results<Bf16> got(s);
    Results<double> want(s);
    run_plain<Bf16>(s, in, got);
    run_plain<double>(s, in, want);
    expect_similar(got, want, 0x1p-9, s, in);
  }
}

// The values are bf16 numbers, which f16 represents except for the smallest: their error is at most 2^-25.
TEST(GpuAttention, F16OfNativeKernelsAndCudnn) {
  Attention library;
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(p.name);
    const AttentionShape s = shape_of(p);
    const Values in(s);
    Results<F16> own(s), dense(s);
    Results<double> want(s);
    run_plain<F16>(s, in, own);
    run_plain<double>(s, in, want);
    expect_similar(own, want, 0x1p-12, s, in);
    run_library(library, s, AttentionMasks::Dense, in, dense);
    expect_similar(dense, want, 0x1p-11, s, in);
  }
}

TEST(GpuAttention, CudnnDense) {
  for (const bool deterministic : {false, true}) {
    Attention library;
    for (const Problem& p : kProblems) {
      SCOPED_TRACE(std::string(p.name) + (deterministic ? " deterministic" : ""));
      AttentionShape s = shape_of(p);
      s.deterministic = deterministic;
      const Values in(s);
      Results<Bf16> got(s), again(s);
      Results<double> want(s);
      run_library(library, s, AttentionMasks::Dense, in, got);
      if (HasFatalFailure()) return;
      run_plain<double>(s, in, want);
      expect_similar(got, want, 0x1p-9, s, in);
      if (!deterministic) continue;
      run_library(library, s, AttentionMasks::Dense, in, again);
      EXPECT_EQ(got.dq.bits(), again.dq.bits());
      EXPECT_EQ(got.dk.bits(), again.dk.bits());
      EXPECT_EQ(got.dv.bits(), again.dv.bits());
    }
  }
}

// Less scratch than the whole problem needs: the same results slice by slice.
TEST(GpuAttention, CudnnInSlices) {
  const AttentionShape s = shape_of({"slices", 4, 512, 16, 8, 64, 64, 0});
  const Values in(s);
  Results<double> want(s);
  run_plain<double>(s, in, want);
  Device<Bf16> q(in.q), k(in.k), v(in.v), dout(in.dout);
  const int64_t whole = Attention::workspace_bytes(s, AttentionMasks::Dense, true);
  int served = 0;
  for (const int64_t share : {1, 2, 4, 8}) {
    Attention library;
    Results<Bf16> got(s);
    if (!library.prepare(s, AttentionMasks::Dense, true, whole / share)) continue;
    ++served;
    ASSERT_TRUE(library.prepare(s, AttentionMasks::Dense, false, whole)) << library.why_not();
    Device<uint8_t> workspace(whole);
    library.forward(s, AttentionMasks::Dense, q.data(), k.data(), v.data(), got.o.data(), got.lse.data(),
                    workspace.data(), whole, nullptr);
    library.backward(s, AttentionMasks::Dense, dout.data(), q.data(), k.data(), v.data(), got.o.data(),
                     got.lse.data(), got.dq.data(), got.dk.data(), got.dv.data(), workspace.data(),
                     whole / share, nullptr);
    require(cudaDeviceSynchronize());
    expect_similar(got, want, 0x1p-9, s, in);
  }
  EXPECT_GE(served, 1);
}

// Documents of many lengths, padding at the end of a sequence; and batches that cuDNN must leave to the
// native kernels: too many documents, or decreasing ids.
TEST(GpuAttention, CudnnDocuments) {
  Attention library;
  for (const Problem& p : kProblems)
    for (const int kind : {0, 1, 2, 3}) {
      SCOPED_TRACE(std::string(p.name) + ", documents of kind " + std::to_string(kind));
      AttentionShape s = shape_of(p);
      std::vector<int32_t> documents;
      for (int64_t b = 0; b < p.sequences; ++b)
        for (int64_t t = 0; t < p.seq_len; ++t) {
          int32_t d = 0;                                               // one document
          if (kind == 1) d = static_cast<int32_t>((t * 3 + b) / 700);  // a few
          if (kind == 1 && t + 40 > p.seq_len) d = -1;
          if (kind == 2) d = static_cast<int32_t>(t / 3);                        // too many
          if (kind == 3) d = static_cast<int32_t>(3 - t / (p.seq_len / 3 + 1));  // decreasing
          documents.push_back(d);
        }
      auto on_device = integers(documents);
      s.documents = s.key_documents = on_device.data();
      const Values in(s);
      Results<Bf16> got(s);
      Results<double> want(s);
      run_library(library, s, AttentionMasks::Documents, in, got);
      if (HasFatalFailure()) return;
      run_plain<double>(s, in, want);
      expect_similar(got, want, 0x1p-9, s, in);
    }
}

// The native kernels in f64 against the CPU's, with every kind of mask, tiles of every size, and rows in the
// order of context ranks: whole, and a ring's hop.
TEST(GpuAttention, NativeKernelsMatchTheCpu) {
  struct Case {
    int64_t seq_len, heads, kv_heads, head_dim, value_dim, window, ranks;
    bool hop;
    double dropout;
  };
  const Case cases[] = {{70, 4, 2, 16, 24, 0, 1, false, 0.25}, {70, 2, 1, 200, 40, 33, 1, false, 0},
                        {40, 2, 2, 300, 260, 0, 1, false, 0},  {96, 4, 4, 8, 8, 50, 2, false, 0},
                        {80, 4, 1, 16, 16, 0, 2, true, 0.25},  {140, 2, 2, 20, 12, 30, 2, true, 0}};
  device::ThreadPool pool(1);
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << c.seq_len << " rows, heads of " << c.head_dim
                                    << (c.hop ? ", hop" : ""));
    constexpr int64_t kSequences = 2;
    cpu::AttentionShape host;
    host.q_rows = host.k_rows = {c.seq_len, kSequences, c.ranks, 0, c.hop ? 1 : c.ranks};
    if (c.hop) host.q_rows.first = 1;  // queries of rank 1, keys of rank 0
    host.heads = c.heads;
    host.kv_heads = c.kv_heads;
    host.head_dim = c.head_dim;
    host.value_dim = c.value_dim;
    host.q_stride = host.dq_stride = c.heads * c.head_dim;
    host.k_stride = host.dk_stride = c.kv_heads * c.head_dim;
    host.v_stride = host.dv_stride = c.kv_heads * c.value_dim;
    host.o_stride = c.heads * c.value_dim;
    host.window = c.window;
    host.scale = 0.3;
    host.dropout_p = c.dropout;
    host.dropout_key = 0x1234567890abcdefull;
    host.head_offset = 3;
    const int64_t whole = kSequences * c.seq_len, q_rows = host.q_rows.rows(), k_rows = host.k_rows.rows();
    std::vector<int32_t> documents, samples, positions;
    for (int64_t i = 0; i < whole; ++i) {
      documents.push_back(i % 31 == 30 ? -1 : static_cast<int32_t>(i / 29 % 2));
      samples.push_back(static_cast<int32_t>(i / 50));
      positions.push_back(static_cast<int32_t>(i % 50));
    }
    host.documents = host.key_documents = documents.data();
    host.samples = samples.data();
    host.positions = host.key_positions = positions.data();
    auto on_device = integers(documents), device_samples = integers(samples),
         device_positions = integers(positions);
    Device<uint64_t> key(1);
    require(cudaMemcpy(key.data(), &host.dropout_key, 8, cudaMemcpyHostToDevice));
    AttentionShape s;
    s.q_rows = host.q_rows;
    s.k_rows = host.k_rows;
    s.heads = host.heads;
    s.kv_heads = host.kv_heads;
    s.head_dim = host.head_dim;
    s.value_dim = host.value_dim;
    s.q_stride = s.dq_stride = host.q_stride;
    s.k_stride = s.dk_stride = host.k_stride;
    s.v_stride = s.dv_stride = host.v_stride;
    s.o_stride = host.o_stride;
    s.window = host.window;
    s.scale = host.scale;
    s.dropout_p = host.dropout_p;
    s.dropout_key = key.data();
    s.head_offset = host.head_offset;
    s.documents = s.key_documents = on_device.data();
    s.samples = device_samples.data();
    s.positions = s.key_positions = device_positions.data();

    const auto q = random_values<double>(q_rows * host.q_stride, 1),
               k = random_values<double>(k_rows * host.k_stride, 2),
               v = random_values<double>(k_rows * host.v_stride, 3),
               dout = random_values<double>(q_rows * host.o_stride, 4),
               o_before = random_values<double>(q_rows * host.o_stride, 5),
               lse_before = random_values<double>(host.heads * q_rows, 6),
               dq_before = random_values<double>(q_rows * host.q_stride, 7);
    std::vector<double> o(dout.size()), lse(lse_before.size()), dq(q.size()), dk(k.size()), dv(v.size());
    cpu::test::Buffer<double> workspace(std::max(cpu::attention_workspace_bytes<double>(host, 1),
                                                 cpu::attention_backward_workspace_bytes<double>(host, 1)) /
                                        8);
    Device<double> bq(q), bk(k), bv(v), bdout(dout), bo_before(o_before), blse_before(lse_before),
        bdq_before(dq_before), bo(q_rows * host.o_stride), blse(host.heads * q_rows),
        bdq(q_rows * host.q_stride), bdk(k_rows * host.k_stride), bdv(k_rows * host.v_stride);
    Device<uint8_t> scratch(attention_backward_workspace_bytes<double>(s));
    if (c.hop) {
      cpu::attention_hop<double>(host, q.data(), k.data(), v.data(), o_before.data(), lse_before.data(),
                                 o.data(), lse.data(), workspace.data(), pool);
      cpu::attention_hop_backward<double>(host, dout.data(), q.data(), k.data(), v.data(), o.data(),
                                          lse.data(), dq_before.data(), dq.data(), dk.data(), dv.data(),
                                          workspace.data(), pool);
      attention_hop<double>(s, bq.data(), bk.data(), bv.data(), bo_before.data(), blse_before.data(),
                            bo.data(), blse.data(), nullptr);
      attention_hop_backward<double>(s, bdout.data(), bq.data(), bk.data(), bv.data(), bo.data(), blse.data(),
                                     bdq_before.data(), bdq.data(), bdk.data(), bdv.data(), scratch.data(),
                                     nullptr);
    } else {
      cpu::attention<double>(host, q.data(), k.data(), v.data(), o.data(), lse.data(), workspace.data(),
                             pool);
      cpu::attention_backward<double>(host, dout.data(), q.data(), k.data(), v.data(), o.data(), lse.data(),
                                      dq.data(), dk.data(), dv.data(), workspace.data(), pool);
      attention<double>(s, bq.data(), bk.data(), bv.data(), bo.data(), blse.data(), nullptr);
      attention_backward<double>(s, bdout.data(), bq.data(), bk.data(), bv.data(), bo.data(), blse.data(),
                                 bdq.data(), bdk.data(), bdv.data(), scratch.data(), nullptr);
    }
    const auto size = [](size_t) {
      return 10.0;
    };  // scores are of order 10, and so are the errors of the exponents
    expect_close(bo, o, 1000, size, "o");
    expect_close(blse, lse, 1000, size, "lse");
    expect_close(bdq, dq, 1000, size, "dq");
    expect_close(bdk, dk, 1000, size, "dk");
    expect_close(bdv, dv, 1000, size, "dv");
  }
}

// The runs of documents, in token order; what cuDNN cannot handle is refused.
TEST(GpuAttention, SegmentsOfDocuments) {
  struct Case {
    std::vector<int32_t> documents;
    int64_t seq_len, most;
    std::vector<int32_t> starts, lengths;  // no lengths: refused
  };
  const Case cases[] = {{{0, 0, 1, 1, 1, 2, 0, 0, 0, 0, -1, -1}, 6, 5, {0, 2, 5, 6}, {2, 3, 1, 4}},
                        {{0, 0, 0, 0, 0, 0}, 3, 2, {0, 3}, {3, 3}},
                        {{-1, -1, -1, 4, 4, 4}, 3, 3, {3}, {3}},
                        {{0, 1, 2, 3}, 4, 3, {}, {}},    // too many
                        {{1, 1, 0, 0}, 4, 3, {}, {}},    // decreasing
                        {{0, -1, 0, 0}, 4, 3, {}, {}}};  // after padding
  for (const Case& c : cases) {
    const auto tokens = static_cast<int64_t>(c.documents.size());
    auto documents = integers(c.documents);
    Device<uint8_t> memory(segments_bytes(c.most));
    const Segments s = Segments::at(memory.data(), c.most);
    find_segments(documents.data(), tokens / c.seq_len, c.seq_len, {2, 3, 5, 7, 11}, s, nullptr);
    require(cudaDeviceSynchronize());
    const auto read = [](const int32_t* from, int64_t n) {
      std::vector<int32_t> host(static_cast<size_t>(n));
      require(cudaMemcpy(host.data(), from, host.size() * 4, cudaMemcpyDeviceToHost));
      return host;
    };
    std::vector<int32_t> lengths = c.lengths, starts = c.starts;
    lengths.resize(static_cast<size_t>(c.most), 0);
    starts.resize(static_cast<size_t>(c.most + 1), static_cast<int32_t>(tokens));
    EXPECT_EQ(read(s.refused, 1)[0], c.lengths.empty() ? 1 : 0);
    EXPECT_EQ(read(s.lengths, c.most), lengths);
    const std::pair<const int32_t*, int32_t> arrays[] = {
        {s.q, 2}, {s.k, 3}, {s.v, 5}, {s.o, 7}, {s.stats, 11}};
    for (const auto& [array, stride] : arrays) {
      std::vector<int32_t> want = starts;
      for (int32_t& w : want) w *= stride;
      EXPECT_EQ(read(array, c.most + 1), want);
    }
  }
}

// The size of the scratch needs no device, and respects its bounds.
TEST(GpuAttention, ScratchIsBounded) {
  for (const Problem& p : kProblems) {
    AttentionShape s = shape_of(p);
    for (const auto masks : {AttentionMasks::Dense, AttentionMasks::Documents})
      for (const bool backward : {false, true}) {
        s.deterministic = backward && masks == AttentionMasks::Dense;
        const int64_t bytes = Attention::workspace_bytes(s, masks, backward);
        EXPECT_GT(bytes, 0) << p.name;
        EXPECT_LE(bytes, Attention::kWorkspaceBytes + (128 << 20)) << p.name;
      }
  }
  AttentionShape odd = shape_of(kProblems[0]);
  odd.head_dim = 60;
  EXPECT_FALSE(Attention::suits(odd, AttentionMasks::Dense, base::DType::BF16));
  AttentionShape cut = shape_of(kProblems[0]);
  cut.q_rows = cut.k_rows = {.seq_len = 1024, .sequences = 2, .ranks = 2, .first = 0, .count = 2};
  EXPECT_FALSE(Attention::suits(cut, AttentionMasks::Dense, base::DType::BF16));
  EXPECT_FALSE(Attention::suits(shape_of(kProblems[0]), AttentionMasks::Dense, base::DType::F32));
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
