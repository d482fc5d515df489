// Rules for the batch and for the data and tensor axes.
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "config/byte_size.h"
#include "config/nearest.h"
#include "config/resolve.h"
#include "config/rule.h"
#include "config/schema.h"

namespace quintet::config {
namespace {

void world_is_in_reach(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (world_in_reach(p)) return;
  const __int128 world = wide_world(p), others = world / p.dp_replicate;
  fail("parallel.dp_replicate",
       fmt::format("{} = {} ranks; the limit is {}", layout_text(p), world, kMaxWorld),
       fmt::format("{}", std::max<__int128>(1, kMaxWorld / others)));
}

void world_is_what_axes_make(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.ranks == 0 || !world_in_reach(p) || p.world() == p.ranks) return;
  fail("parallel.world", fmt::format("{} is not {} = {} ranks", p.ranks, layout_text(p), p.world()),
       fmt::format("{}, or -1 for one of the axes", p.world()));
}

void batch_arithmetic(const Recipe& r, const Fail& fail) {
  const Batch& b = r.batch;
  const Parallel& p = r.parallel;
  const int64_t dp = p.dp();
  const std::string dp_text =
      fmt::format("dp {} (dp_replicate {} x dp_shard {})", dp, p.dp_replicate, p.dp_shard);
  int64_t product = 0;
  if (__builtin_mul_overflow(b.micro * dp, b.accumulation, &product)) product = -1;
  if (product == b.global) return;
  // Only values that satisfy the whole equation, whichever of the three sizes were derived.
  std::vector<std::string> near;
  if (product > 0 && product <= static_cast<int64_t>(kMaxCount)) near.push_back(fmt::format("{}", product));
  const auto split = [&](const char* name, int64_t unit, int64_t other) {
    if (unit > b.global) return;
    if (b.global % unit == 0 && b.global / unit != other)
      near.push_back(fmt::format("{} {}", name, b.global / unit));
  };
  split("accumulation", b.micro * dp, b.accumulation);
  split("micro", b.accumulation * dp, b.micro);
  const int64_t unit = b.micro * dp, above = (b.global / unit + 1) * unit;
  if (b.global % unit != 0 && above != product)
    near.push_back(fmt::format("{} with accumulation {}", above, above / unit));
  const std::string text =
      b.global % dp != 0 ? fmt::format("{} is not a multiple of {}", b.global, dp_text)
                         : fmt::format("{} must be micro {} x accumulation {} x {}, which is {}", b.global,
                                       b.micro, b.accumulation, dp_text,
                                       product < 0 ? std::string("too large") : fmt::format("{}", product));
  fail("batch.global", text, fmt::format("{}", fmt::join(near, ", or ")));
}

void tp_divides_heads(const Recipe& r, const Fail& fail) {
  if (r.model.heads % r.parallel.tp != 0)
    fail("parallel.tp", fmt::format("{} does not divide model.heads {}", r.parallel.tp, r.model.heads),
         nearest_divisors(r.model.heads, r.parallel.tp));
}

void tp_fits_kv_heads(const Recipe& r, const Fail& fail) {
  const int64_t tp = r.parallel.tp, kv = r.model.kv_heads;
  if (tp % kv == 0 || kv % tp == 0) return;
  const std::string near = tp < kv ? nearest_divisors(kv, tp) : nearest_multiples(kv, tp);
  fail("parallel.tp", fmt::format("{} must divide model.kv_heads {} or be a multiple of it", tp, kv), near);
}

void tp_divides_ffn(const Recipe& r, const Fail& fail) {
  if (r.model.has_dense_block() && r.model.ffn % r.parallel.tp != 0)
    fail("parallel.tp", fmt::format("{} does not divide model.ffn {}", r.parallel.tp, r.model.ffn),
         nearest_divisors(r.model.ffn, r.parallel.tp));
}

void sequence_parallel_needs_tp(const Recipe& r, const Fail& fail) {
  if (r.parallel.tp == 1)
    idle(fail, "parallel.sequence_parallel", r.parallel.sequence_parallel, false,
         "with parallel.tp = 1: it shards token rows over tp");
}

// Sequence parallel shards token rows over the tensor ranks; so does the exchange with experts, always.
void token_rows_divide(const Recipe& r, const Fail& fail) {
  const int64_t micro = r.batch.micro, seq = r.data.seq_len, tp = r.parallel.tp, cp = r.parallel.cp;
  const bool experts = r.model.moe.experts > 0;
  if ((!r.parallel.sequence_parallel && !experts) || micro * seq % (tp * cp) == 0) return;
  if (cp > 1 && seq % (2 * cp) != 0) return;  // reported by another rule
  fail(r.parallel.sequence_parallel ? "parallel.sequence_parallel" : "parallel.tp",
       fmt::format("{} batch.micro {} x data.seq_len {}{} = {} token rows over parallel.tp {}, which does "
                   "not divide them",
                   r.parallel.sequence_parallel ? "shards" : "the expert exchange shards", micro, seq,
                   cp > 1 ? fmt::format(" / cp {}", cp) : "", micro * seq / cp, tp),
       fmt::format("data.seq_len {}{}", nearest_multiples(cp > 1 ? 2 * cp * tp : tp, seq),
                   experts ? "" : ", or sequence_parallel = false"));
}

void zero_needs_dp_shard(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero == 0 || p.dp_shard * p.cp > 1) return;
  fail("parallel.zero",
       fmt::format(
           "{} has no effect with parallel.dp_shard = 1 and parallel.cp = 1: there is nothing to shard over",
           p.zero),
       p.dp_replicate > 1 ? fmt::format("0, or dp_shard {} with dp_replicate 1", p.dp_replicate)
                          : "0, or dp_shard 2");
}

void reshard_needs_zero_3(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  using Kind = ReshardAfterForward::Kind;
  if (p.zero == 3 || p.reshard_after_forward.kind == Kind::Yes) return;
  const bool to_ranks = p.reshard_after_forward.kind == Kind::ToRanks;
  fail(
      "parallel.reshard_after_forward",
      fmt::format("{} has no effect with parallel.zero = {}: only zero 3 stores parameters in shards",
                  to_ranks ? fmt::format("{}", p.reshard_after_forward.ranks) : std::string("false"), p.zero),
      "true, or zero 3");
}

void reshard_ranks_divide(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero != 3 || p.reshard_after_forward.kind != ReshardAfterForward::Kind::ToRanks) return;
  const int64_t k = p.reshard_after_forward.ranks, n = p.dp_shard * p.cp;
  if (k > 1 && k < n && n % k == 0) return;
  std::string legal;
  for (int64_t d = 2; d <= n / 2; ++d)
    if (n % d == 0) legal += (legal.empty() ? "" : ", ") + fmt::format("{}", d);
  const std::string over = p.cp == 1 ? fmt::format("parallel.dp_shard {}", n)
                                     : fmt::format("parallel.dp_shard {} x cp {} = {}", p.dp_shard, p.cp, n);
  fail("parallel.reshard_after_forward",
       fmt::format("{} must divide {} and be greater than 1 and less than {}", k, over, n),
       legal.empty() ? "true" : legal + " or true");
}

void reshard_experts_needs_experts(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero != 3)
    idle(fail, "parallel.reshard_experts", p.reshard_experts, ReshardExperts::Same,
         fmt::format("with parallel.zero = {}: only zero 3 stores parameters in shards", p.zero));
  else if (r.model.moe.experts == 0)
    idle(fail, "parallel.reshard_experts", p.reshard_experts, ReshardExperts::Same,
         "on a model without experts");
}

void zero_replicas_need_both(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero == 0)
    idle(fail, "parallel.zero_replicas", p.zero_replicas, int64_t{0},
         "with parallel.zero = 0, which shards nothing");
  else if (p.dp_replicate == 1)
    idle(fail, "parallel.zero_replicas", p.zero_replicas, int64_t{0}, "with parallel.dp_replicate = 1");
}

void group_is_in_reach(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const Grouping& g = p.group;
  if (g.kind == Grouping::Kind::Auto) return;
  const bool blocks = g.kind == Grouping::Kind::Blocks;
  const std::string text = blocks ? fmt::format("{}", g.size) : fmt::format("\"{}\"", byte_size_text(g.size));
  if (p.dp() * p.cp == 1)
    return fail("parallel.group",
                text + " has no effect with one data rank, where nothing is gathered or reduced", "\"auto\"");
  if (blocks && r.model.family != Family::Custom && g.size > r.model.layers)
    fail("parallel.group",
         fmt::format("{} blocks are more than model.layers {}; a size has a unit, as in \"64MiB\"", g.size,
                     r.model.layers),
         fmt::format("{}", r.model.layers));
}

// Zero 3 alone gathers parameters for every pass.
void gathered_limits_need_zero_3(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const auto refuse = [&](const char* key, base::Bytes value, const std::string& why, const char* near) {
    if (value.value > 0)
      fail(key, fmt::format("\"{}\" has no effect {}", byte_size_text(value.value), why), near);
  };
  if (p.zero != 3) {
    const std::string why = fmt::format("with parallel.zero = {}, which keeps whole parameters", p.zero);
    refuse("parallel.gathered_limit", p.gathered_limit, why, "0, or zero 3");
    refuse("parallel.persist_below", p.persist_below, why, "0, or zero 3");
  }
}

void gathered_limit_frees(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const bool experts = p.reshard_experts == ReshardExperts::Never;
  const bool kept = p.reshard_after_forward.kind == ReshardAfterForward::Kind::No || experts;
  if (p.zero == 3 && p.gathered_limit.value > 0 && kept)
    fail("parallel.gathered_limit",
         fmt::format(
             "\"{}\" limits gathered parameters, but {} keeps them until the backward pass",
             byte_size_text(p.gathered_limit.value),
             experts ? "parallel.reshard_experts = \"never\"" : "parallel.reshard_after_forward = false"),
         experts ? "0, or reshard_experts \"always\"" : "0, or reshard_after_forward true");
}

void group_patterns_have_effect(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (!p.group_match.empty() && p.dp() * p.cp == 1)
    fail("parallel.group_match", "has no effect with one data rank, where nothing is gathered or reduced",
         "[]");
  for (const auto& [key, list] : {std::pair{"parallel.keep_match", &p.keep_match},
                                  std::pair{"parallel.persist_match", &p.persist_match}})
    if (!list->empty() && p.zero != 3)
      fail(key,
           fmt::format("has no effect with parallel.zero = {}: only zero 3 stores parameters in shards",
                       p.zero),
           "[], or zero 3");
  if (!p.keep_match.empty() && p.reshard_after_forward.kind == ReshardAfterForward::Kind::No &&
      p.reshard_experts != ReshardExperts::Always)
    fail("parallel.keep_match", "has no effect with parallel.reshard_after_forward = false, which keeps all",
         "[], or reshard_after_forward true");
  if (!p.keep_match.empty() && p.gathered_limit.value > 0)
    fail("parallel.keep_match",
         fmt::format("keeps parameters gathered, which parallel.gathered_limit \"{}\" does not allow",
                     byte_size_text(p.gathered_limit.value)),
         "[], or gathered_limit 0");
}

void tensor_patterns_have_effect(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  for (const auto& [key, list] :
       {std::pair{"parallel.tp_column", &p.tp_column}, std::pair{"parallel.tp_row", &p.tp_row},
        std::pair{"parallel.tp_replicate", &p.tp_replicate}}) {
    if (list->empty()) continue;
    if (p.tp == 1)
      fail(key, "has no effect with parallel.tp = 1, where no weight is divided", "[]");
    else if (r.precision.quantises())
      fail(key,
           fmt::format("needs linear layers in precision.compute, not precision.linear = \"{}\"",
                       name_of(r.precision.linear)),
           "[], or precision.linear \"compute\"");
  }
}

void prefetch_needs_zero(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero == 0 && p.prefetch > 1)
    fail("parallel.prefetch",
         fmt::format("{} has no effect with parallel.zero = 0, which gathers nothing", p.prefetch), "1");
}

void gradient_blocks_need_zero_2(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.zero < 2)
    idle(fail, "parallel.gradient_blocks", p.gradient_blocks, Parallel{}.gradient_blocks,
         fmt::format("with parallel.zero = {}, which keeps the gradients of all blocks", p.zero));
}

}  // namespace

std::vector<Rule> layout_rules() {
  return {
      {"the number of ranks is within the limit",
       {"parallel.pp", "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp", "parallel.tp"},
       world_is_in_reach},
      {"parallel.world is the product of the axes",
       {"parallel.world", "parallel.pp", "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp",
        "parallel.tp"},
       world_is_what_axes_make},
      {"batch.global = micro x accumulation x dp",
       {"batch.global", "batch.micro", "batch.accumulation", "parallel.dp_replicate", "parallel.dp_shard"},
       batch_arithmetic},
      {"parallel.tp divides model.heads", {"parallel.tp", "model.heads"}, tp_divides_heads},
      {"parallel.tp divides model.kv_heads or is a multiple of it",
       {"parallel.tp", "model.kv_heads"},
       tp_fits_kv_heads},
      {"parallel.tp divides model.ffn",
       {"parallel.tp", "model.ffn", "model.moe.experts", "model.moe.first_dense", "model.moe.every"},
       tp_divides_ffn},
      {"parallel.sequence_parallel requires parallel.tp > 1",
       {"parallel.tp", "parallel.sequence_parallel"},
       sequence_parallel_needs_tp},
      {"parallel.tp divides the token rows",
       {"parallel.tp", "parallel.cp", "parallel.sequence_parallel", "batch.micro", "data.seq_len",
        "model.moe.experts"},
       token_rows_divide},
      {"parallel.zero requires ranks to shard over",
       {"parallel.zero", "parallel.dp_shard", "parallel.cp"},
       zero_needs_dp_shard},
      {"parallel.reshard_after_forward requires parallel.zero = 3",
       {"parallel.zero", "parallel.reshard_after_forward"},
       reshard_needs_zero_3},
      {"parallel.reshard_after_forward divides dp_shard x cp",
       {"parallel.zero", "parallel.reshard_after_forward", "parallel.dp_shard", "parallel.cp"},
       reshard_ranks_divide},
      {"parallel.reshard_experts requires parallel.zero = 3 and experts",
       {"parallel.zero", "parallel.reshard_experts", "model.moe.experts"},
       reshard_experts_needs_experts},
      {"parallel.zero_replicas requires parallel.zero > 0 and parallel.dp_replicate > 1",
       {"parallel.zero", "parallel.zero_replicas", "parallel.dp_replicate"},
       zero_replicas_need_both},
      {"parallel.group joins blocks for data ranks",
       {"parallel.group", "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp", "model.layers",
        "model.family"},
       group_is_in_reach},
      {"limits on gathered parameters require parallel.zero = 3",
       {"parallel.zero", "parallel.gathered_limit", "parallel.persist_below"},
       gathered_limits_need_zero_3},
      {"parallel.gathered_limit requires parameters that are freed",
       {"parallel.zero", "parallel.gathered_limit", "parallel.reshard_after_forward",
        "parallel.reshard_experts"},
       gathered_limit_frees},
      {"patterns of parameter groups have an effect",
       {"parallel.group_match", "parallel.keep_match", "parallel.persist_match", "parallel.zero",
        "parallel.dp_replicate", "parallel.dp_shard", "parallel.cp", "parallel.reshard_after_forward",
        "parallel.reshard_experts", "parallel.gathered_limit"},
       group_patterns_have_effect},
      {"patterns of tensor parallelism have an effect",
       {"parallel.tp", "parallel.tp_column", "parallel.tp_row", "parallel.tp_replicate", "precision.linear"},
       tensor_patterns_have_effect},
      {"parallel.prefetch requires parallel.zero > 0",
       {"parallel.zero", "parallel.prefetch"},
       prefetch_needs_zero},
      {"parallel.gradient_blocks requires parallel.zero > 1",
       {"parallel.zero", "parallel.gradient_blocks"},
       gradient_blocks_need_zero_2},
  };
}

}  // namespace quintet::config
