// Causal attention with grouped KV heads, document masks and a sliding window: kernels of our own that serve
// everything, and cuDNN for what it has and does faster (the class Attention).
#pragma once

#include <memory>
#include <string>

#include "kernels/attention_geometry.h"
#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

struct AttentionShape : AttentionGeometry {
  bool deterministic = false;  // backward through cuDNN; our own kernels always are
  // For attention() and its kin: nothing is done where *needed is 0, or with needed_each for the sequences
  // where needed[sequence] is. Null: everything is done.
  const int32_t* needed = nullptr;
  bool needed_each = false;
  const uint64_t* dropout_key = nullptr;  // on the device
};

// o[rows of q, heads, value_dim] and lse[heads, rows of q] = log of the sum over visible keys of exp(score).
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               Stream stream);

// One part of the keys of a sequence after another: o and lse are the result over the keys seen before and
// those at hand. With o_before (stride o_stride) and lse_before null this is the first part. Each may be the
// memory of its result.
template <class T>
void attention_hop(const AttentionShape& shape, const T* q, const T* k, const T* v, const Stat<T>* o_before,
                   const Stat<T>* lse_before, Stat<T>* o, Stat<T>* lse, Stream stream);

// Overwrites dq, dk, dv from dout (stride o_stride), recomputing the scores from lse.
template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape);
template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace, Stream stream);

// The same for one part of the keys, with o and lse over all of them: dk and dv are the share of the rows at
// hand, dq is dq_before (of the same stride, null: zero; may be dq) and the share.
template <class T>
void attention_hop_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                            const T* o, const Stat<T>* lse, const Stat<T>* dq_before, Stat<T>* dq, T* dk,
                            T* dv, void* workspace, Stream stream);

// Attention through cuDNN: bf16 or f16, without dropout, head sizes that are multiples of 8 up to 256. Plans
// are built once per problem.
//
// Dense takes every sequence as one document: the documents are not read, and what stands in rows of padding
// is of no meaning. It serves what visible_part() (kernels/attention_part.h) finds: whole sequences, and the
// keys of one ring rank with the queries of another. Results are written for that part alone: rows of o, lse
// and dq that see nothing and rows of dk and dv that nobody sees are left as they are. Backward wants o and
// lse over all keys. (kernels/cuda/attention/hops.h makes hops of it.)
//
// Documents wants whole sequences. It turns the runs of equal documents into sequences of variable length,
// found on the device; batches with more runs than segments(), or whose documents do not rise within a
// sequence, are served by our own kernels in the same call (both are launched, one of them has nothing to
// do).
//
// Backward adds the parts of dq in an order of chance unless shape.deterministic is set. Then the library
// wants a score matrix in scratch, heads * seq_len^2 elements of 16 bits per sequence, so the work is cut
// into slices of sequences and KV groups that fit kWorkspaceBytes (or one KV group, when that is more: 0.8 GB
// for 4 query heads at 8192 rows). With Documents there is no such plan: our own kernels serve it, much
// slower.
enum class AttentionMasks : uint8_t { Dense, Documents };

class Attention {
 public:
  // What scratch is kept to where a smaller slice can do with it.
  static constexpr int64_t kWorkspaceBytes = 1 << 30;

  Attention();
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Whether a problem is of the kind that the library may have a plan for, and the scratch to plan for it
  // (ours included): functions of the shape alone.
  static bool suits(const AttentionShape& shape, AttentionMasks masks, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);
  // Most runs of documents in a batch.
  static int64_t segments(const AttentionShape& shape);

  // Builds the plan of a problem of this type that suits() for this much scratch; false when the library has
  // none, which why_not() explains. Before training, never inside a step.
  bool prepare(const AttentionShape& shape, AttentionMasks masks, bool backward, int64_t workspace_bytes,
               base::DType type = base::DType::BF16);
  const std::string& why_not() const;
  // Whether the library can have a backward pass that keeps the shape's promise of the same bits always.
  static bool has_gradients(const AttentionShape& shape, AttentionMasks masks);
  // How often a plan has been run so far.
  int64_t runs() const;

  // As attention() and attention_backward() above, of Bf16 or F16. The plan must have been prepared.
  template <class T>
  void forward(const AttentionShape& shape, AttentionMasks masks, const T* q, const T* k, const T* v, T* o,
               float* lse, void* workspace, int64_t workspace_bytes, Stream stream);
  template <class T>
  void backward(const AttentionShape& shape, AttentionMasks masks, const T* dout, const T* q, const T* k,
                const T* v, const T* o, const float* lse, T* dq, T* dk, T* dv, void* workspace,
                int64_t workspace_bytes, Stream stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quintet::kernels::cuda
