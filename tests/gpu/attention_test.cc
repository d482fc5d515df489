// Attention at sizes of real models: bf16 through cuDNN and through our own kernels, against our own kernels
// in f64 (which op_test.cc holds against the CPU's), forward and gradients.
#include "kernels/cuda/attention.h"

#include <cmath>

#include "gpu/device.h"

namespace quintet::kernels::cuda::test {
namespace {

struct Problem {
  const char* name;
  int64_t sequences, seq_len, heads, kv_heads, head_dim, value_dim, window;
};
constexpr Problem kProblems[] = {
    {"llama 1b", 2, 1024, 32, 8, 64, 64, 0},  {"llama 8b", 1, 2048, 32, 8, 128, 128, 0},
    {"gpt 125m", 3, 512, 12, 12, 64, 64, 0},  {"window", 2, 768, 8, 2, 128, 128, 200},
    {"latent", 1, 1024, 8, 8, 192, 128, 0},   {"wide heads", 1, 512, 4, 1, 256, 256, 0},
    {"ragged rows", 2, 333, 4, 2, 64, 64, 0},
};

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

// Backward takes its own o and lse, as in training.
template <class T>
void run_plain(const AttentionShape& s, const Values& in, Results<T>& out) {
  Device<T> q(in.q), k(in.k), v(in.v), dout(in.dout);
  Device<uint8_t> workspace(attention_backward_workspace_bytes<T>(s));
  attention<T>(s, q.data(), k.data(), v.data(), out.o.data(), out.lse.data(), nullptr);
  attention_backward<T>(s, dout.data(), q.data(), k.data(), v.data(), out.o.data(), out.lse.data(),
                        out.dq.data(), out.dk.data(), out.dv.data(), workspace.data(), nullptr);
  require(cudaDeviceSynchronize());
}

void run_library(Attention& library, const AttentionShape& s, AttentionMasks masks, const Values& in,
                 Results<Bf16>& out) {
  Device<Bf16> q(in.q), k(in.k), v(in.v), dout(in.dout);
  ASSERT_TRUE(Attention::suits(s, base::DType::BF16));
  const int64_t forward = Attention::workspace_bytes(s, masks, false),
                backward = Attention::workspace_bytes(s, masks, true);
  ASSERT_TRUE(library.prepare(s, masks, false, forward)) << library.why_not();
  ASSERT_TRUE(library.prepare(s, masks, true, backward)) << library.why_not();
  Device<uint8_t> workspace(std::max(forward, backward));
  library.forward(s, masks, q.data(), k.data(), v.data(), out.o.data(), out.lse.data(), workspace.data(),
                  forward, nullptr);
  library.backward(s, masks, dout.data(), q.data(), k.data(), v.data(), out.o.data(), out.lse.data(),
                   out.dq.data(), out.dk.data(), out.dv.data(), workspace.data(), backward, nullptr);
  require(cudaDeviceSynchronize());
}

// Probabilities and their gradients are rounded to bf16 (2^-9 of each) before they are multiplied; the errors
// of a sum add up like a random walk, so a result is off by about 2^-9 of the root of the sum of its squared
// terms, which the root mean square of the results themselves bounds in size. 16 times that leaves nothing to
// chance, and a wrong mask or head is off by a whole root mean square.
void expect_similar(std::vector<double> got, const std::vector<double>& want, double rounding,
                    const char* what) {
  ASSERT_EQ(got.size(), want.size());
  double squares = 0;
  int64_t finite = 0;
  for (const double w : want)
    if (std::isfinite(w)) squares += w * w, ++finite;
  const double size = std::sqrt(squares / static_cast<double>(std::max<int64_t>(finite, 1)));
  int wrong = 0;
  for (size_t i = 0; i < got.size() && wrong < 4; ++i) {
    if (got[i] == want[i]) continue;
    const double bound = 16 * rounding * (std::abs(want[i]) + size);
    if (std::abs(got[i] - want[i]) <= bound) continue;
    ++wrong;
    ADD_FAILURE() << what << "[" << i << "] = " << got[i] << ", expected " << want[i] << ", allowed "
                  << bound;
  }
}
void expect_similar(Results<Bf16>& got, Results<double>& want, double rounding) {
  expect_similar(got.o.values(), want.o.values(), rounding, "o");
  expect_similar(got.lse.values(), want.lse.values(), 0x1p-16, "lse");
  expect_similar(got.dq.values(), want.dq.values(), rounding, "dq");
  expect_similar(got.dk.values(), want.dk.values(), rounding, "dk");
  expect_similar(got.dv.values(), want.dv.values(), rounding, "dv");
}

TEST(GpuAttention, OwnKernelsInBf16) {
  for (const Problem& p : kProblems) {
    SCOPED_TRACE(p.name);
    const AttentionShape s = shape_of(p);
    const Values in(s);
    Results<Bf16> got(s);
    Results<double> want(s);
    run_plain<Bf16>(s, in, got);
    run_plain<double>(s, in, want);
    expect_similar(got, want, 0x1p-9);
  }
}

TEST(GpuAttention, LibraryDense) {
  for (const bool deterministic : {false, true}) {
    Attention library;
    library.set_deterministic(deterministic);
    for (const Problem& p : kProblems) {
      SCOPED_TRACE(std::string(p.name) + (deterministic ? " deterministic" : ""));
      const AttentionShape s = shape_of(p);
      const Values in(s);
      Results<Bf16> got(s), again(s);
      Results<double> want(s);
      run_library(library, s, AttentionMasks::Dense, in, got);
      if (HasFatalFailure()) return;
      run_plain<double>(s, in, want);
      expect_similar(got, want, 0x1p-9);
      if (!deterministic) continue;
      run_library(library, s, AttentionMasks::Dense, in, again);
      EXPECT_EQ(got.dq.bits(), again.dq.bits());
      EXPECT_EQ(got.dk.bits(), again.dk.bits());
      EXPECT_EQ(got.dv.bits(), again.dv.bits());
    }
  }
}

// Less scratch than the whole problem wants: the same results slice by slice.
TEST(GpuAttention, LibraryInSlices) {
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
    expect_similar(got, want, 0x1p-9);
  }
  EXPECT_GE(served, 1);
}

// Documents of many lengths, padding at the end of a sequence; and batches that the library must leave to our
// own kernels: more documents than it has room for, documents that fall.
TEST(GpuAttention, LibraryDocuments) {
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
          if (kind == 3) d = static_cast<int32_t>(3 - t / (p.seq_len / 3 + 1));  // falling
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
      expect_similar(got, want, 0x1p-9);
    }
}

// What the scratch is planned by needs no device, and keeps to its bounds.
TEST(GpuAttention, ScratchIsBounded) {
  for (const Problem& p : kProblems) {
    const AttentionShape s = shape_of(p);
    for (const auto masks : {AttentionMasks::Dense, AttentionMasks::Documents})
      for (const bool backward : {false, true}) {
        const int64_t bytes = Attention::workspace_bytes(s, masks, backward);
        EXPECT_GT(bytes, 0) << p.name;
        EXPECT_LE(bytes, Attention::kWorkspaceBytes + (128 << 20)) << p.name;
      }
  }
  AttentionShape odd = shape_of(kProblems[0]);
  odd.head_dim = 60;
  EXPECT_FALSE(Attention::suits(odd, base::DType::BF16));
  AttentionShape cut = shape_of(kProblems[0]);
  cut.q_rows = cut.k_rows = {.seq_len = 1024, .sequences = 2, .ranks = 2, .first = 0, .count = 2};
  EXPECT_FALSE(Attention::suits(cut, base::DType::BF16));
  EXPECT_FALSE(Attention::suits(shape_of(kProblems[0]), base::DType::F32));
}

}  // namespace
}  // namespace quintet::kernels::cuda::test
