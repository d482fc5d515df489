// How attention deals with sequences that are cut over parallel.cp ranks: what each method sends, and which
// one "auto" takes.
//
// Elements that a rank sends per token row it holds, per layer and direction, when u of the cp ranks exchange
// rows for heads and the cp / u groups of them pass K and V on:
//
//   sent(u) = (q + o) (u - 1) / u + (k + v) (cp - 1) / u_kv
//
// q, k, v and o are widths on one tensor rank (heads / tp query heads; kv = max(kv_heads / tp, 1) KV heads)
// and u_kv = gcd(u, kv): KV heads are exchanged as far as there are enough of them and gathered beyond.
// gather and ring are u = 1, both (k + v) (cp - 1); ulysses is u = cp; ulysses+ring lies between.
#pragma once

#include "config/recipe.h"

namespace quintet::config {

// Ranks that exchange rows for heads under the recipe's method: 1 for gather and ring (and cp = 1), cp for
// ulysses, parallel.ulysses for ulysses+ring.
int64_t ulysses_ranks(const Parallel& parallel);

// Heads as attention sees them: with latent attention every head has K and V of its own. 0: a custom model
// without attention.
int64_t attention_heads(const Model& model);
int64_t attention_kv_heads(const Model& model);

// KV heads that a tensor rank holds: with more tensor ranks than KV heads one, shared by some of them.
int64_t kv_heads_per_rank(const Parallel& parallel, int64_t kv_heads);

// How many of the ulysses_ranks() have KV heads of their own; the others share them. u_kv above.
int64_t ulysses_kv_ranks(const Parallel& parallel, int64_t kv_heads);

// Whether u ranks can exchange rows for heads: u divides the heads of a tensor rank, and divides its KV heads
// or is a multiple of them, so that the query heads of a rank go with whole KV heads or with one.
bool heads_divide(const Parallel& parallel, const Model& model, int64_t u);

// sent(u) above. heads must divide by tp x u.
double context_elements_sent(const Parallel& parallel, const Model& model, int64_t u);

// The largest u with 1 < u < cp that divides cp and for which heads_divide(); 1 when there is none.
int64_t largest_ulysses(const Parallel& parallel, const Model& model);

// What "auto" becomes for cp > 1; never Auto. Without an exchange of heads it is ring, which holds less and
// hides its transfers behind compute, unless the chunks of seq_len / (2 cp) rows are below 512, too small to
// hide anything: then gather. ulysses is taken when heads_divide() by cp and it sends less, and ulysses+ring
// when they do not, but largest_ulysses() sends less.
ContextMethod choose_context_method(const Parallel& parallel, const Model& model, const Data& data);
// The numbers behind that choice, for people.
std::string why_context_method(const Parallel& parallel, const Model& model, const Data& data);

}  // namespace quintet::config
