// Attention through cuDNN's graph API. Every tensor is [sequences, heads, rows, width] with strides that
// match Quintet's [tokens, heads, width]: nothing is transposed, and a part of the rows of every sequence is
// a tensor too.
//
// A problem is split into slices of sequences and KV groups that all run the same plan, one after another.
// The largest slice whose plan fits the scratch is used: usually the whole problem.
#include <cudnn_frontend.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "kernels/attention_part.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/segments.cuh"
#include "kernels/cuda/elementwise/pointwise.h"
#include "kernels/cuda/support/launch.cuh"
#include "kernels/cuda_scratch/attention.h"

namespace quintet::kernels::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

enum Uid : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kStats,
  kDout,
  kDq,
  kDk,
  kDv,
  kLengthsQ,
  kLengthsK,
  kOffsetsQ,
  kOffsetsK,
  kOffsetsV,
  kOffsetsO,
  kOffsetsStats
};

void check_dnn(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS) fail(std::string(what) + ": " + cudnnGetErrorString(status));
}

struct Slice {
  int64_t sequences = 0, groups = 0;  // in one execution of the plan
};

struct Plan {
  std::unique_ptr<fe::graph::Graph> graph;
  Slice slice;
  int64_t workspace_bytes = 0;
};

AttentionPart part_of(const AttentionShape& s) {
  const std::optional<AttentionPart> part = visible_part(s);
  if (!part.has_value())
    fail("attention: cuDNN cannot express the visible part of these rows as one rectangle or triangle");
  return *part;
}

std::string problem_of(const AttentionShape& s, AttentionMasks masks, bool backward, base::DType type) {
  const AttentionPart part = part_of(s);
  std::ostringstream out;
  out << base::to_string(type) << (backward ? " backward " : " forward ")
      << (masks == AttentionMasks::Dense ? "dense " : "documents ")
      << (backward && s.deterministic ? "deterministic " : "") << (part.causal ? "" : "unmasked ")
      << s.q_rows.sequences << " x " << part.q.count << '/' << part.q.pitch << " by " << part.k.count << '/'
      << part.k.pitch << " rows, heads " << s.heads << ' ' << s.kv_heads << ' ' << s.head_dim << ' '
      << s.value_dim << ", strides " << s.q_stride << ' ' << s.k_stride << ' ' << s.v_stride << ' '
      << s.o_stride << ' ' << s.dq_stride << ' ' << s.dk_stride << ' ' << s.dv_stride << ", window "
      << s.window << ", scale " << s.scale;
  return out.str();
}

// The graph of one slice.
class Builder {
 public:
  Builder(const AttentionShape& s, AttentionMasks masks, base::DType type, const Slice& slice)
      : shape_(s), part_(part_of(s)), ragged_(masks == AttentionMasks::Documents), slice_(slice) {
    graph_ = std::make_unique<fe::graph::Graph>();
    graph_->set_io_data_type(type == base::DType::F16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    heads_ = slice.groups * (s.heads / s.kv_heads);
    batch_ = ragged_ ? Attention::segments(s) : slice.sequences;
    if (ragged_) {
      lengths_q_ = index(kLengthsQ, "lengths_q", batch_);
      lengths_k_ = index(kLengthsK, "lengths_k", batch_);
    }
  }

  std::unique_ptr<fe::graph::Graph> forward() {
    auto options = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    common(options);
    auto [o, stats] = graph_->sdpa(query(kQ, "q", shape_.q_stride, shape_.head_dim, kOffsetsQ),
                                   key(kK, "k", shape_.k_stride, shape_.head_dim, kOffsetsK),
                                   key(kV, "v", shape_.v_stride, shape_.value_dim, kOffsetsV), options);
    result(o, kO, heads_, part_.q, shape_.o_stride, shape_.value_dim, kOffsetsO);
    stats->set_output(true).set_uid(kStats).set_data_type(fe::DataType_t::FLOAT);
    stats->set_dim({batch_, heads_, part_.q.count, 1});
    if (ragged_) {
      stats->set_stride(packed_stats()).set_ragged_offset(offsets(kOffsetsStats));
    } else {  // directly into lse[heads, tokens]
      stats->set_stride({part_.q.pitch, shape_.q_rows.rows(), 1, 1});
    }
    return std::move(graph_);
  }

  std::unique_ptr<fe::graph::Graph> backward() {
    auto options = fe::graph::SDPA_backward_attributes().set_name("attention_backward");
    options.set_deterministic_algorithm(shape_.deterministic);
    common(options);
    if (ragged_) {
      options.set_max_total_seq_len_q(shape_.q_rows.rows());
      options.set_max_total_seq_len_kv(shape_.k_rows.rows());
    }
    Tensor stats = graph_->tensor(Tensor_attributes()
                                      .set_name("stats")
                                      .set_uid(kStats)
                                      .set_data_type(fe::DataType_t::FLOAT)
                                      .set_dim({batch_, heads_, part_.q.count, 1})
                                      .set_stride(packed_stats()));
    if (ragged_) stats->set_ragged_offset(offsets(kOffsetsStats));
    auto [dq, dk, dv] = graph_->sdpa_backward(
        query(kQ, "q", shape_.q_stride, shape_.head_dim, kOffsetsQ),
        key(kK, "k", shape_.k_stride, shape_.head_dim, kOffsetsK),
        key(kV, "v", shape_.v_stride, shape_.value_dim, kOffsetsV),
        query(kO, "o", shape_.o_stride, shape_.value_dim, kOffsetsO),
        query(kDout, "dout", shape_.o_stride, shape_.value_dim, kOffsetsO), stats, options);
    result(dq, kDq, heads_, part_.q, shape_.dq_stride, shape_.head_dim, kOffsetsQ);
    result(dk, kDk, slice_.groups, part_.k, shape_.dk_stride, shape_.head_dim, kOffsetsK);
    result(dv, kDv, slice_.groups, part_.k, shape_.dv_stride, shape_.value_dim, kOffsetsV);
    return std::move(graph_);
  }

 private:
  template <class Options>
  void common(Options& options) {
    options.set_attn_scale(static_cast<float>(shape_.scale));
    if (part_.causal)
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
    if (shape_.window > 0 && shape_.window < shape_.q_rows.seq_len)
      options.set_diagonal_band_left_bound(static_cast<int>(shape_.window));
    if (ragged_) options.set_padding_mask(true).set_seq_len_q(lengths_q_).set_seq_len_kv(lengths_k_);
  }
  Tensor index(Uid uid, const char* name, int64_t count) {
    return graph_->tensor(Tensor_attributes()
                              .set_name(name)
                              .set_uid(uid)
                              .set_data_type(fe::DataType_t::INT32)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1}));
  }
  const Tensor& offsets(Uid uid) {
    Tensor& t = offsets_[uid];
    if (t == nullptr) t = index(uid, "offsets", batch_ + 1);
    return t;
  }
  // Documents: the sums are stored as [tokens, all heads]; otherwise packed for the slice.
  std::vector<int64_t> packed_stats() const {
    const int64_t rows = part_.q.count;
    if (ragged_) return {shape_.heads * rows, 1, shape_.heads, 1};
    return {heads_ * rows, rows, 1, 1};
  }
  Tensor operand(Uid uid, const char* name, int64_t heads, const AttentionPart::Rows& rows, int64_t stride,
                 int64_t width, Uid offset) {
    Tensor t = graph_->tensor(Tensor_attributes().set_name(name));
    place(t, uid, heads, rows, stride, width, offset);
    return t;
  }
  Tensor query(Uid uid, const char* name, int64_t stride, int64_t width, Uid offset) {
    return operand(uid, name, heads_, part_.q, stride, width, offset);
  }
  Tensor key(Uid uid, const char* name, int64_t stride, int64_t width, Uid offset) {
    return operand(uid, name, slice_.groups, part_.k, stride, width, offset);
  }
  void result(const Tensor& t, Uid uid, int64_t heads, const AttentionPart::Rows& rows, int64_t stride,
              int64_t width, Uid offset) {
    t->set_output(true);
    place(t, uid, heads, rows, stride, width, offset);
  }
  void place(const Tensor& t, Uid uid, int64_t heads, const AttentionPart::Rows& rows, int64_t stride,
             int64_t width, Uid offset) {
    t->set_uid(uid)
        .set_dim({batch_, heads, rows.count, width})
        .set_stride({stride * rows.pitch, width, stride, 1});
    if (ragged_) t->set_ragged_offset(offsets(offset));
  }

  const AttentionShape& shape_;
  AttentionPart part_;
  bool ragged_;
  Slice slice_;
  int64_t heads_ = 0, batch_ = 0;
  std::unique_ptr<fe::graph::Graph> graph_;
  Tensor lengths_q_, lengths_k_;
  std::map<int64_t, Tensor> offsets_;
};

// From the whole problem down to one sequence, then to one KV group.
std::vector<Slice> slices_of(const AttentionShape& s, AttentionMasks masks) {
  std::vector<Slice> list;
  int64_t sequences = s.q_rows.sequences, groups = s.kv_heads;
  const auto smaller = [](int64_t n) {  // the next smaller divisor
    for (int64_t d = n - 1; d > 1; --d)
      if (n % d == 0) return d;
    return int64_t{1};
  };
  list.push_back({sequences, groups});
  while (masks == AttentionMasks::Dense && sequences > 1)
    list.push_back({sequences = smaller(sequences), groups});
  while (groups > 1) list.push_back({sequences, groups = smaller(groups)});
  return list;
}

}  // namespace

struct Attention::State {
  cudnnHandle_t handle = nullptr;
  std::string why_not;
  int64_t runs = 0;
  std::map<std::string, Plan> plans;

  const Plan& plan(const AttentionShape& s, AttentionMasks masks, bool backward, base::DType type) const {
    const auto at = plans.find(problem_of(s, masks, backward, type));
    if (at == plans.end() || at->second.graph == nullptr)
      fail("attention: no plan was prepared for " + problem_of(s, masks, backward, type));
    return at->second;
  }

  // Null when cuDNN has no plan for the slice within the scratch.
  std::unique_ptr<fe::graph::Graph> build(const AttentionShape& s, AttentionMasks masks, base::DType type,
                                          bool backward, const Slice& slice, int64_t bytes, int64_t& used) {
    Builder builder(s, masks, type, slice);
    auto graph = backward ? builder.backward() : builder.forward();
    const auto good = [&](fe::error_t status) {
      if (status.is_bad()) why_not = status.get_message();
      return status.is_good();
    };
    if (!good(graph->validate()) || !good(graph->build_operation_graph(handle)) ||
        !good(graph->create_execution_plans({fe::HeurMode_t::A})))
      return nullptr;
    graph->deselect_workspace_greater_than(bytes);
    if (!good(graph->check_support()) || !good(graph->build_plans(fe::BuildPlanPolicy_t::HEURISTICS_CHOICE)))
      return nullptr;
    if (!good(graph->get_workspace_size(used))) return nullptr;
    if (used <= bytes) return graph;
    why_not = "its plan needs " + std::to_string(used) + " bytes of scratch, got " + std::to_string(bytes);
    return nullptr;
  }

  void execute(const Plan& plan, std::unordered_map<int64_t, void*>& operands, void* workspace,
               Stream stream) {
    ++runs;
    check_dnn(cudnnSetStream(handle, stream), "attention");
    fe::error_t status = plan.graph->execute(handle, operands, workspace);
    if (status.is_bad()) fail("attention: " + status.get_message());
  }
};

std::string Attention::conditions() {
  int device = 0;
  cudaDeviceProp properties;
  check(cudaGetDevice(&device), "attention");
  check(cudaGetDeviceProperties(&properties, device), "attention");
  return std::string(properties.name) + ", cuDNN " + std::to_string(cudnnGetVersion()) + ", attention";
}

Attention::Attention() : state_(std::make_unique<State>()) {
  check_dnn(cudnnCreate(&state_->handle), "attention");
}
Attention::~Attention() {
  state_->plans.clear();
  if (state_->handle != nullptr) cudnnDestroy(state_->handle);
}

const std::string& Attention::why_not() const { return state_->why_not; }
int64_t Attention::runs() const { return state_->runs; }

bool Attention::prepare(const AttentionShape& s, AttentionMasks masks, bool backward, int64_t workspace_bytes,
                        base::DType type) {
  state_->why_not.clear();
  if (!suits(s, masks, type)) {
    state_->why_not = "cuDNN does not support such a problem";
    return false;
  }
  if (backward && !has_gradients(s, masks)) {
    state_->why_not = "cuDNN has no deterministic backward pass for packed documents";
    return false;
  }
  const std::string key = problem_of(s, masks, backward, type);
  const auto known = state_->plans.find(key);
  if (known != state_->plans.end()) return known->second.graph != nullptr;
  const int64_t bytes = workspace_bytes - attention_own_bytes(s, masks, backward);
  Plan plan;
  for (const Slice& slice : slices_of(s, masks)) {
    // A plan that cannot fit is refused without building it.
    if (backward && s.deterministic &&
        attention_library_bytes(s, masks, true, slice.sequences, slice.groups * (s.heads / s.kv_heads)) >
            2 * bytes)
      continue;
    plan.slice = slice;
    plan.graph = state_->build(s, masks, type, backward, slice, bytes, plan.workspace_bytes);
    if (plan.graph != nullptr) break;
  }
  const bool found = plan.graph != nullptr;
  state_->plans.emplace(key, std::move(plan));
  return found;
}

namespace {

SegmentStrides strides_of(const AttentionShape& s) {
  return {s.q_stride, s.k_stride, s.v_stride, s.o_stride, s.heads};
}
void add_segments(const Segments& g, std::unordered_map<int64_t, void*>& operands) {
  operands[kLengthsQ] = operands[kLengthsK] = g.lengths;
  operands[kOffsetsQ] = g.q;
  operands[kOffsetsK] = g.k;
  operands[kOffsetsV] = g.v;
  operands[kOffsetsO] = g.o;
  operands[kOffsetsStats] = g.stats;
}
template <class T>
void* at(T* base, int64_t offset) {
  return const_cast<std::remove_const_t<T>*>(base) + offset;
}
template <class T>
uint16_t* raw(T* base) {
  static_assert(sizeof(T) == 2);
  return reinterpret_cast<uint16_t*>(base);
}

}  // namespace

template <class T>
void Attention::forward(const AttentionShape& s, AttentionMasks masks, const T* q, const T* k, const T* v,
                        T* o, float* lse, void* workspace, int64_t workspace_bytes, Stream stream) {
  const Plan& plan = state_->plan(s, masks, false, base::DTypeOf<T>::value);
  const AttentionPart part = part_of(s);
  const int64_t own = attention_own_bytes(s, masks, false), group = s.heads / s.kv_heads;
  if (own + plan.workspace_bytes > workspace_bytes)
    fail("attention: the scratch is smaller than the prepared plan needs");
  auto* const memory = static_cast<std::byte*>(workspace);
  const bool dense = masks == AttentionMasks::Dense;
  Segments segments;
  float* stats = lse;
  if (!dense) {
    segments = Segments::at(memory, Attention::segments(s));
    stats = reinterpret_cast<float*>(memory + aligned(segments_bytes(segments.most)));
    find_segments(s.documents, s.q_rows.sequences, s.q_rows.seq_len, strides_of(s), segments, stream);
  }
  for (int64_t b = 0; b < s.q_rows.sequences; b += plan.slice.sequences)
    for (int64_t g = 0; g < s.kv_heads; g += plan.slice.groups) {
      const int64_t h = g * group, row = b * part.q.pitch + part.q.first,
                    key_row = b * part.k.pitch + part.k.first;
      std::unordered_map<int64_t, void*> operands = {
          {kQ, at(q, row * s.q_stride + h * s.head_dim)},
          {kK, at(k, key_row * s.k_stride + g * s.head_dim)},
          {kV, at(v, key_row * s.v_stride + g * s.value_dim)},
          {kO, at(o, row * s.o_stride + h * s.value_dim)},
          {kStats, dense ? at(stats, h * s.q_rows.rows() + row) : at(stats, h)}};
      if (!dense) add_segments(segments, operands);
      state_->execute(plan, operands, memory + own, stream);
    }
  if (dense) return;
  finish_forward(s.documents, s.q_rows.rows(), s.heads, stats, segments.refused, lse, raw(o), s.o_stride,
                 s.heads * s.value_dim, stream);
  AttentionShape rest = s;
  rest.needed = segments.refused;
  attention<T>(rest, q, k, v, o, lse, stream);
}

template <class T>
void Attention::backward(const AttentionShape& s, AttentionMasks masks, const T* dout, const T* q, const T* k,
                         const T* v, const T* o, const float* lse, T* dq, T* dk, T* dv, void* workspace,
                         int64_t workspace_bytes, Stream stream) {
  const Plan& plan = state_->plan(s, masks, true, base::DTypeOf<T>::value);
  const AttentionPart part = part_of(s);
  const int64_t own = attention_own_bytes(s, masks, true), group = s.heads / s.kv_heads;
  if (own + plan.workspace_bytes > workspace_bytes)
    fail("attention: the scratch is smaller than the prepared plan needs");
  auto* const memory = static_cast<std::byte*>(workspace);
  const bool dense = masks == AttentionMasks::Dense;
  const int64_t slice_heads = plan.slice.groups * group, rows = part.q.count;
  Segments segments;
  float* stats = reinterpret_cast<float*>(memory);
  void* plain = nullptr;
  if (dense) {
    // cuDNN reads its sums packed by slice: [slice of sequences][slice of heads][sequence][head][row].
    for (int64_t b = 0; b < s.q_rows.sequences; b += plan.slice.sequences)
      for (int64_t h = 0; h < s.heads; h += slice_heads)
        pack_stats(lse + h * s.q_rows.rows() + b * part.q.pitch + part.q.first, s.q_rows.rows(), part.q.pitch,
                   slice_heads, plan.slice.sequences, rows,
                   stats + b * s.heads * rows + h * plan.slice.sequences * rows, stream);
  } else {
    segments = Segments::at(memory, Attention::segments(s));
    stats = reinterpret_cast<float*>(memory + aligned(segments_bytes(segments.most)));
    plain = reinterpret_cast<std::byte*>(stats) + aligned(s.q_rows.rows() * s.heads * int64_t{sizeof(float)});
    find_segments(s.documents, s.q_rows.sequences, s.q_rows.seq_len, strides_of(s), segments, stream);
    begin_backward(s.q_rows.rows(), s.heads, lse, stats, stream);
  }
  for (int64_t b = 0; b < s.q_rows.sequences; b += plan.slice.sequences)
    for (int64_t g = 0; g < s.kv_heads; g += plan.slice.groups) {
      const int64_t h = g * group, row = b * part.q.pitch + part.q.first,
                    key_row = b * part.k.pitch + part.k.first;
      const int64_t dense_stats = b * s.heads * rows + h * plan.slice.sequences * rows;
      std::unordered_map<int64_t, void*> operands = {{kQ, at(q, row * s.q_stride + h * s.head_dim)},
                                                     {kK, at(k, key_row * s.k_stride + g * s.head_dim)},
                                                     {kV, at(v, key_row * s.v_stride + g * s.value_dim)},
                                                     {kO, at(o, row * s.o_stride + h * s.value_dim)},
                                                     {kDout, at(dout, row * s.o_stride + h * s.value_dim)},
                                                     {kDq, at(dq, row * s.dq_stride + h * s.head_dim)},
                                                     {kDk, at(dk, key_row * s.dk_stride + g * s.head_dim)},
                                                     {kDv, at(dv, key_row * s.dv_stride + g * s.value_dim)},
                                                     {kStats, at(stats, dense ? dense_stats : h)}};
      if (!dense) add_segments(segments, operands);
      state_->execute(plan, operands, memory + own, stream);
    }
  if (dense) return;
  finish_backward(s.documents, s.q_rows.rows(), segments.refused,
                  {raw(dq), s.dq_stride, s.heads * s.head_dim},
                  {raw(dk), s.dk_stride, s.kv_heads * s.head_dim},
                  {raw(dv), s.dv_stride, s.kv_heads * s.value_dim}, stream);
  AttentionShape rest = s;
  rest.needed = segments.refused;
  attention_backward<T>(rest, dout, q, k, v, o, lse, dq, dk, dv, plain, stream);
}

#define INSTANTIATE(T)                                                                                      \
  template void Attention::forward(const AttentionShape&, AttentionMasks, const T*, const T*, const T*, T*, \
                                   float*, void*, int64_t, Stream);                                         \
  template void Attention::backward(const AttentionShape&, AttentionMasks, const T*, const T*, const T*,    \
                                    const T*, const T*, const float*, T*, T*, T*, void*, int64_t, Stream);
INSTANTIATE(Bf16)
INSTANTIATE(F16)
#undef INSTANTIATE

}  // namespace quintet::kernels::cuda
