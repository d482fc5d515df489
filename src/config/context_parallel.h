// Context parallelism: attention over sequences that are sharded over parallel.cp ranks. The traffic of each
// method, and the choice of "auto".
//
// Let u of the cp ranks exchange sequence for heads, and let the cp / u groups of them exchange K and V.
// Elements that a rank sends per token row it holds, per layer and direction:
//
//   sent(u) = (q + o) (u - 1) / u + (k + v) (cp - 1) / u_kv
//
// q, k, v and o are widths on one tensor rank (heads / tp query heads; kv = max(kv_heads / tp, 1) KV heads),
// and u_kv = gcd(u, kv): KV heads are exchanged as far as there are enough of them and gathered otherwise.
// gather and ring are u = 1, both (k + v) (cp - 1); ulysses is u = cp; ulysses+ring is in between.
#pragma once

#include "config/recipe.h"

namespace quintet::config {

// Ranks that exchange sequence for heads with a method, by default the recipe's: 1 for gather and ring (and
// cp = 1), cp for ulysses, parallel.ulysses for ulysses+ring.
int64_t ulysses_ranks(const Parallel& parallel, ContextMethod method);
inline int64_t ulysses_ranks(const Parallel& parallel) { return ulysses_ranks(parallel, parallel.cp_method); }

// The method of blocks with a sliding window: parallel.cp_method_windowed, which follows cp_method.
ContextMethod windowed_method(const Parallel& parallel);

// Heads as seen by attention: with latent attention, every head has its own K and V. 0: a custom model with
// no attention.
int64_t attention_heads(const Model& model);
int64_t attention_kv_heads(const Model& model);

// KV heads per tensor rank: 1 when there are more tensor ranks than KV heads, shared by some of them.
int64_t kv_heads_per_rank(const Parallel& parallel, int64_t kv_heads);

// How many of the ulysses_ranks() have KV heads of their own; the others share them. u_kv above.
int64_t ulysses_kv_ranks(const Parallel& parallel, int64_t kv_heads, ContextMethod method);

// Whether u ranks can exchange sequence for heads: u divides the heads of a tensor rank, and it divides its
// KV heads or is a multiple of them, so that a rank's query heads use whole KV heads or a single one.
bool heads_divide(const Parallel& parallel, const Model& model, int64_t u);

// sent(u) above. Requires heads divisible by tp x u.
double context_elements_sent(const Parallel& parallel, const Model& model, int64_t u);

// The largest u with 1 < u < cp that divides cp and satisfies heads_divide(); 1 when there is none.
int64_t largest_ulysses(const Parallel& parallel, const Model& model);

// The method that "auto" resolves to for cp > 1; never Auto. ulysses if heads_divide() by cp and it sends
// less; ulysses+ring if they do not divide but largest_ulysses() sends less. Otherwise ring, which needs less
// memory and overlaps its transfers with compute, unless chunks of seq_len / (2 cp) rows are shorter than
// 512, too short to hide anything: then gather.
ContextMethod choose_context_method(const Parallel& parallel, const Model& model, const Data& data);
// The numbers that led to the choice, as text.
std::string why_context_method(const Parallel& parallel, const Model& model, const Data& data);

}  // namespace quintet::config
