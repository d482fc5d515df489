// Attention, whole and by hops of a ring, with the kernels that exec/decode/cuda_attention.h selects.
#include <algorithm>

#include "base/error.h"
#include "exec/cuda/dropout_key.h"
#include "exec/cuda/gradients.h"
#include "exec/cuda/libraries.h"
#include "exec/decode/cuda_attention.h"
#include "kernels/cuda/attention/hops.h"
#include "kernels/cuda/attention/sink.h"
#include "kernels/cuda/attention/tiled.h"
#include "kernels/cuda/support/timing.h"
#include "kernels/fastest.h"

namespace quintet::exec::cuda {
namespace {

namespace k = kernels::cuda;

k::AttentionShape bound_shape(const Bound& b) {
  k::AttentionShape s = attention_shape(*b.instr);
  static_cast<kernels::AttentionGeometry&>(s) = attention_rows(b);
  // A rule refuses the family that has it; a model of a program's own meets this.
  if (s.both_sides)
    base::fail_user("bidirectional attention runs only on CPUs so far: set run.device = \"cpu\"");
  if (s.dropout_p > 0) s.dropout_key = dropout_key(b, dropout_seed(*b.instr));
  return s;
}

k::TiledOptions tiled_options(const k::AttentionShape& s) { return {.soft_cap = s.soft_cap}; }

// Whether cuDNN has a plan; it is built in the first call, by prepare().
bool has_plan(const Bound& b, const k::AttentionShape& s) {
  const AttentionPlaces& places = *attention_places(*b.instr);
  if (!suits_library(*b.instr, s)) return false;
  const auto prepared = [&](auto&& library) {
    return library.prepare(s, kLibraryMasks, places.backward, b.instr->workspace_bytes,
                           b.in_type(places.q).dtype);
  };
  k::Attention& whole = b.libraries->attention();
  return by_hops(*b.instr, s) ? prepared(k::AttentionHops(whole)) : prepared(whole);
}

// Whether cuDNN runs it: where both can, the choice that was measured, or where there is none the one that
// was faster on an H200.
bool by_library(const Bound& b, const k::AttentionShape& s) {
  if (!suits_library(*b.instr, s)) return false;
  if (suits_tiles(*b.instr, s)) {
    const auto measured = b.libraries->attention_choices().find(problem_text(*b.instr, s));
    if (measured ? *measured == AttentionKernels::Own
                 : k::TiledAttention::leads(s, attention_places(*b.instr)->backward))
      return false;
  }
  return has_plan(b, s);
}

// Times both on random operands. The operands' memory holds nothing yet.
void choose(const Bound& b, const k::AttentionShape& s) {
  AttentionChoices& choices = b.libraries->attention_choices();
  const std::string problem = problem_text(*b.instr, s);
  if (choices.find(problem)) return;
  for (size_t i = 0; i < b.in.size(); ++i) {
    const base::DType type = b.in_type(i).dtype;
    if (type == base::DType::BF16 || type == base::DType::F16 || type == base::DType::F32)
      k::fill_noise(b.in[i], type, b.in_type(i).count(), b.stream);
  }
  // The default comes first: it stays unless the other is clearly faster.
  AttentionKernels order[] = {AttentionKernels::Library, AttentionKernels::Own};
  if (k::TiledAttention::leads(s, attention_places(*b.instr)->backward)) std::swap(order[0], order[1]);
  std::vector<double> times[2];
  const auto time = [&](size_t i, int repeats) {
    choices.set(problem, {order[i], 0, 0});
    return k::microseconds_of([&] { b.kernel->run(b, false); }, repeats, b.stream);
  };
  int repeats[2];
  for (size_t i = 0; i < 2; ++i) {
    time(i, 1);  // loads its code onto the GPU
    repeats[i] = std::clamp(static_cast<int>(2000 / std::max(time(i, 2), 1.0)), 1, 20);
  }
  const kernels::Fastest fastest = kernels::find_fastest(2, [&](size_t i) {
    times[i].push_back(time(i, repeats[i]));
    return times[i].back();
  });
  const auto median = [](std::vector<double>& of) {
    std::sort(of.begin(), of.end());
    return of[of.size() / 2];
  };
  const double best = median(times[fastest.index]), other = median(times[1 - fastest.index]);
  choices.set(problem, {order[fastest.index], best, other});
}

void prepare(Bound& b) {
  const k::AttentionShape s = attention_shape(*b.instr);
  if (has_plan(b, s)) {
    if (b.libraries->tunes() && suits_tiles(*b.instr, s)) choose(b, s);
  } else if (std::string remark = remark_on(*b.instr); !remark.empty()) {
    b.libraries->remarks().insert(std::move(remark));
  }
}

void attention(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention(b, s, [&]<class T>(T, auto* q, auto* key, auto* v, auto* o, auto* lse) {
    if constexpr (kIsHalf<T>) {
      const float* const none = nullptr;
      k::Attention& library = b.libraries->attention();
      const int64_t bytes = b.instr->workspace_bytes;
      if (by_library(b, s) && by_hops(*b.instr, s))
        return k::AttentionHops(library).forward<T, T>(s, kLibraryMasks, q, key, v, none, none, o, lse,
                                                       b.workspace, bytes, b.stream);
      if (by_library(b, s))
        return library.forward<T>(s, kLibraryMasks, q, key, v, o, lse, b.workspace, bytes, b.stream);
      if (suits_tiles(*b.instr, s))
        return k::TiledAttention::forward<T, T>(s, tiled_options(s), q, key, v, none, none, o, lse,
                                                b.workspace + kKeyBytes, b.stream);
    }
    k::attention<T>(s, q, key, v, o, lse, b.stream);
  });
}
void attention_hop(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_hop(b, [&]<class T>(T, auto... a) {
    if constexpr (kIsHalf<T>) {
      if (by_library(b, s))
        return k::AttentionHops(b.libraries->attention())
            .forward<T, float>(s, kLibraryMasks, a..., b.workspace, b.instr->workspace_bytes, b.stream);
      if (suits_tiles(*b.instr, s))
        return k::TiledAttention::forward<T, float>(s, tiled_options(s), a..., b.workspace + kKeyBytes,
                                                    b.stream);
    }
    k::attention_hop<T>(s, a..., b.stream);
  });
}

void attention_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_dx(
      b, s,
      [&]<class T>(T, auto* dout, auto* q, auto* key, auto* v, auto* o, auto* lse, auto* dq, auto* dk,
                   auto* dv) {
        if constexpr (kIsHalf<T>) {
          const float* const none = nullptr;
          k::Attention& library = b.libraries->attention();
          const int64_t bytes = b.instr->workspace_bytes;
          if (by_library(b, s) && by_hops(*b.instr, s))
            return k::AttentionHops(library).backward<T, T>(s, kLibraryMasks, dout, q, key, v, o, lse, none,
                                                            dq, dk, dv, b.workspace, bytes, b.stream);
          if (by_library(b, s))
            return library.backward<T>(s, kLibraryMasks, dout, q, key, v, o, lse, dq, dk, dv, b.workspace,
                                       bytes, b.stream);
          if (suits_tiles(*b.instr, s))
            return k::TiledAttention::backward<T, T>(s, tiled_options(s), dout, q, key, v, o, lse, none, dq,
                                                     dk, dv, b.workspace + kKeyBytes, b.stream);
        }
        k::attention_backward<T>(s, dout, q, key, v, o, lse, dq, dk, dv, b.workspace + kKeyBytes, b.stream);
      });
}
void attention_hop_dx(const Bound& b, bool) {
  const k::AttentionShape s = bound_shape(b);
  decode::attention_hop_dx(b, [&]<class T>(T, auto... a) {
    if constexpr (kIsHalf<T>) {
      if (by_library(b, s))
        return k::AttentionHops(b.libraries->attention())
            .backward<T, float>(s, kLibraryMasks, a..., b.workspace, b.instr->workspace_bytes, b.stream);
      if (suits_tiles(*b.instr, s))
        return k::TiledAttention::backward<T, float>(s, tiled_options(s), a..., b.workspace + kKeyBytes,
                                                     b.stream);
    }
    k::attention_hop_backward<T>(s, a..., b.workspace + kKeyBytes, b.stream);
  });
}

void attention_sink(const Bound& b, bool) {
  decode::attention_sink(b, [&]<class T>(T, auto... a) { k::attention_sink<T>(a..., b.stream); });
}
void attention_sink_dw(const Bound& b, bool accumulate) {
  decode::attention_sink_dw(b, accumulate,
                            [&]<class T>(T, auto... a) { k::attention_sink_dw<T>(a..., b.stream); });
}

}  // namespace

const std::vector<Kernel>& attention_kernels() {
  static const std::vector<Kernel> table = {
      {&graph::kAttention, attention, prepare},        {&graph::kAttentionDx, attention_dx, prepare},
      {&graph::kQkvAttention, attention, prepare},     {&graph::kQkvAttentionDx, attention_dx, prepare},
      {&graph::kAttentionHop, attention_hop, prepare}, {&graph::kAttentionHopDx, attention_hop_dx, prepare},
      {&graph::kAttentionSink, attention_sink},        {&graph::kAttentionSinkDw, attention_sink_dw}};
  return table;
}

}  // namespace quintet::exec::cuda
