// Causal attention with grouped KV heads, document masks and a sliding window: native kernels that handle
// every case, and cuDNN where it applies and is faster (class Attention).
#pragma once

#include <memory>
#include <string>

#include "kernels/attention_geometry.h"
#include "kernels/cuda/support/types.h"

namespace quintet::kernels::cuda {

struct AttentionShape : AttentionGeometry {
  bool deterministic = false;  // the same bits in every run, also where that is slower
  // For attention() and its variants: nothing is done where *needed is 0, or with needed_each for the
  // sequences where needed[sequence] is 0. Null: everything is done.
  const int32_t* needed = nullptr;
  bool needed_each = false;
  const uint64_t* dropout_key = nullptr;  // on the device
};

// o[rows of q, heads, value_dim] and lse[heads, rows of q] = log of the sum over visible keys of exp(score).
template <class T>
void attention(const AttentionShape& shape, const T* q, const T* k, const T* v, T* o, Stat<T>* lse,
               Stream stream);

// Attention over the keys of a sequence part by part: o and lse are the result over all earlier keys and the
// given ones. With o_before (stride o_stride) and lse_before null this is the first part. Each may alias its
// result.
template <class T>
void attention_hop(const AttentionShape& shape, const T* q, const T* k, const T* v, const Stat<T>* o_before,
                   const Stat<T>* lse_before, Stat<T>* o, Stat<T>* lse, Stream stream);

// Overwrites dq, dk, dv from dout (stride o_stride), recomputing the scores from lse.
template <class T>
int64_t attention_backward_workspace_bytes(const AttentionShape& shape);
template <class T>
void attention_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                        const T* o, const Stat<T>* lse, T* dq, T* dk, T* dv, void* workspace, Stream stream);

// The same for one part of the keys, with o and lse over all of them: dk and dv cover the given rows, dq is
// dq_before (of the same stride, null: zero; may be dq) plus this part's contribution.
template <class T>
void attention_hop_backward(const AttentionShape& shape, const T* dout, const T* q, const T* k, const T* v,
                            const T* o, const Stat<T>* lse, const Stat<T>* dq_before, Stat<T>* dq, T* dk,
                            T* dv, void* workspace, Stream stream);

// Attention through cuDNN: bf16 or f16, without dropout, head sizes that are multiples of 8 up to 256. Plans
// are built once per problem.
//
// Dense treats every sequence as one document: the documents are not read, and the contents of padding rows
// are undefined. It handles what visible_part() (kernels/attention_part.h) finds: whole sequences, and the
// keys of one ring rank with the queries of another. Results are written for that part alone: rows of o, lse
// and dq that see nothing and rows of dk and dv that no query sees are unchanged. Backward needs o and lse
// over all keys. (kernels/cuda/attention/hops.h builds hops from it.)
//
// Documents needs whole sequences. It turns the runs of equal documents into sequences of variable length,
// found on the device; batches with more runs than segments(), or whose documents are not non-decreasing
// within a sequence, are handled by the native kernels in the same call (both are launched, one of them
// returns at once).
//
// Backward adds the parts of dq in a random order unless shape.deterministic is set. In that case cuDNN needs
// a score matrix in scratch, heads * seq_len^2 elements of 16 bits per sequence, so the work is split into
// slices of sequences and KV groups that fit kWorkspaceBytes (or one KV group, when that is more: 0.8 GB for
// 4 query heads at 8192 rows). With Documents cuDNN has no such plan: the native kernels run, much slower.
enum class AttentionMasks : uint8_t { Dense, Documents };

class Attention {
 public:
  // Limit of the scratch where a smaller slice can keep to it.
  static constexpr int64_t kWorkspaceBytes = 1 << 30;

  Attention();
  ~Attention();
  Attention(const Attention&) = delete;
  Attention& operator=(const Attention&) = delete;

  // Whether cuDNN may have a plan for such a problem, and the scratch to plan for it (Quintet's part
  // included): functions of the shape alone.
  static bool suits(const AttentionShape& shape, AttentionMasks masks, base::DType type);
  static int64_t workspace_bytes(const AttentionShape& shape, AttentionMasks masks, bool backward);
  // Maximum number of document runs in a batch.
  static int64_t segments(const AttentionShape& shape);

  // Builds the plan of a problem that suits(), for this type and this much scratch; false when cuDNN has
  // none, for the reason in why_not(). Before training, never inside a step.
  bool prepare(const AttentionShape& shape, AttentionMasks masks, bool backward, int64_t workspace_bytes,
               base::DType type = base::DType::BF16);
  const std::string& why_not() const;
  // The GPU and cuDNN's version: the conditions of a measured choice.
  static std::string conditions();
  // Whether cuDNN can have a backward pass that is deterministic when the shape asks for it.
  static bool has_gradients(const AttentionShape& shape, AttentionMasks masks);
  // Number of plan executions so far.
  int64_t runs() const;

  // As attention() and attention_backward() above, for Bf16 or F16. The plan must have been prepared.
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
