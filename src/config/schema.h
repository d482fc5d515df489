// The single list of recipe keys: dotted name, field and limits of each value, in printing order.
// Parsing, printing, limit checks and spelling suggestions all iterate over it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "config/recipe.h"

namespace quintet::config {

// Limits of one number. Numbers must always be finite.
struct Limits {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool open_min = false;  // min itself is excluded
  bool open_max = false;  // max itself is excluded

  bool contains(double v) const {
    return std::isfinite(v) && (open_min ? v > min : v >= min) && (open_max ? v < max : v <= max);
  }
};

inline constexpr double kUnbounded = std::numeric_limits<double>::max();
// Large enough for any real run, small enough that products of two never overflow 63 bits.
inline constexpr double kMaxCount = 1 << 30;
inline constexpr double kMaxAxis = 1 << 16;
inline constexpr double kMaxSeed = 9007199254740992.0;  // 2^53

constexpr Limits count_from(int64_t min) { return {static_cast<double>(min), kMaxCount}; }
inline constexpr Limits kAxis{1, kMaxAxis};
inline constexpr Limits kPositive{0, kUnbounded, true};
inline constexpr Limits kNotNegative{0, kUnbounded};
inline constexpr Limits kBelowOne{0, 1, false, true};
inline constexpr Limits kShare{0, 1};

// Calls v(key, field) for words, switches and lists, and v(key, field, limits) for numbers. R is Recipe or
// const Recipe.
template <class R, class V>
void for_each_key(R& r, V&& v) {
  v("name", r.name);

  auto& m = r.model;
  v("model.preset", m.preset);
  v("model.hf", m.hf);
  v("model.family", m.family);
  v("model.layers", m.layers, count_from(1));
  v("model.embed", m.embed, count_from(1));
  v("model.ffn", m.ffn, count_from(1));
  v("model.heads", m.heads, count_from(1));
  v("model.kv_heads", m.kv_heads, count_from(1));
  v("model.head_dim", m.head_dim, count_from(1));
  v("model.vocab", m.vocab, count_from(1));
  v("model.tied", m.tied);
  v("model.rope_theta", m.rope_theta, kNotNegative);
  v("model.rotary_dim", m.rotary_dim, count_from(0));
  v("model.local_rope_theta", m.local_rope_theta, kNotNegative);
  v("model.no_rope_every", m.no_rope_every, count_from(0));
  v("model.norm_eps", m.norm_eps, kPositive);
  v("model.norms", m.norms);
  v("model.norm_offset", m.norm_offset, kNotNegative);
  v("model.sliding_window", m.sliding_window, count_from(0));
  v("model.full_attention_every", m.full_attention_every, count_from(0));
  v("model.full_attention_layers", m.full_attention_layers, count_from(0));
  v("model.qkv_bias", m.qkv_bias);
  v("model.out_bias", m.out_bias);
  v("model.qk_norm", m.qk_norm);
  v("model.qk_norm_over", m.qk_norm_over);
  v("model.qk_unit_norm", m.qk_unit_norm);
  v("model.clip_qkv", m.clip_qkv, kNotNegative);
  v("model.centered_norms", m.centered_norms);
  v("model.attention_sinks", m.attention_sinks);
  v("model.attention_chunk", m.attention_chunk, count_from(0));
  v("model.position_scale", m.position_scale, kNotNegative);
  v("model.position_floor", m.position_floor, count_from(1));
  v("model.activation", m.activation);
  v("model.activation_alpha", m.activation_alpha, kPositive);
  v("model.activation_limit", m.activation_limit, kPositive);
  v("model.embed_scale", m.embed_scale, kPositive);
  v("model.attention_scale", m.attention_scale, kNotNegative);
  v("model.attention_soft_cap", m.attention_soft_cap, kNotNegative);
  v("model.logit_soft_cap", m.logit_soft_cap, kNotNegative);
  v("model.parallel_blocks", m.parallel_blocks);
  v("model.gelu_tanh", m.gelu_tanh);
  v("model.max_positions", m.max_positions, count_from(0));
  v("model.token_types", m.token_types, count_from(0));
  v("model.dropout", m.dropout, kBelowOne);
  v("model.init", m.init);
  v("model.init_stddev", m.init_stddev, kPositive);
  auto& s = m.rope_scaling;
  v("model.rope_scaling.kind", s.kind);
  v("model.rope_scaling.factor", s.factor, Limits{1, kUnbounded});
  v("model.rope_scaling.original_positions", s.original_positions, count_from(0));
  v("model.rope_scaling.low_freq_factor", s.low_freq_factor, kPositive);
  v("model.rope_scaling.high_freq_factor", s.high_freq_factor, kPositive);
  v("model.rope_scaling.beta_fast", s.beta_fast, kPositive);
  v("model.rope_scaling.beta_slow", s.beta_slow, kPositive);
  v("model.rope_scaling.attention_factor", s.attention_factor, kNotNegative);
  v("model.rope_scaling.truncate", s.truncate);
  v("model.rope_scaling.short_factors", s.short_factors, kPositive);
  v("model.rope_scaling.long_factors", s.long_factors, kPositive);
  v("model.rope_scaling.positions", s.positions, count_from(0));
  auto& x = m.moe;
  v("model.moe.experts", x.experts, count_from(0));
  v("model.moe.top_k", x.top_k, count_from(0));
  v("model.moe.ffn", x.ffn, count_from(0));
  v("model.moe.latent", x.latent, count_from(0));
  v("model.moe.shared_ffn", x.shared_ffn, count_from(0));
  v("model.moe.shared_gate", x.shared_gate);
  v("model.moe.bias", x.bias);
  v("model.moe.scale_input", x.scale_input);
  v("model.moe.upcycle", x.upcycle);
  v("model.moe.upcycle_slices", x.upcycle_slices, count_from(1));
  v("model.moe.first_dense", x.first_dense, count_from(0));
  v("model.moe.every", x.every, count_from(1));
  v("model.moe.score", x.score);
  v("model.moe.order", x.order);
  v("model.moe.normalise", x.normalise);
  v("model.moe.scale", x.scale, kPositive);
  v("model.moe.groups", x.groups, count_from(1));
  v("model.moe.groups_kept", x.groups_kept, count_from(1));
  v("model.moe.jitter", x.jitter, kBelowOne);
  v("model.moe.balance_loss", x.balance_loss, kNotNegative);
  v("model.moe.balance_scope", x.balance_scope);
  v("model.moe.z_loss", x.z_loss, kNotNegative);
  v("model.moe.bias_rate", x.bias_rate, kNotNegative);
  v("model.moe.capacity_factor", x.capacity_factor, Limits{0, kMaxCount});
  v("model.moe.eval_capacity_factor", x.eval_capacity_factor, Limits{0, kMaxCount});
  v("model.moe.min_capacity", x.min_capacity, count_from(1));
  v("model.moe.drop", x.drop);
  v("model.moe.capacity_group", x.capacity_group, count_from(1));
  v("model.moe.pad", x.pad);
  v("model.moe.receive_bound", x.receive_bound, Limits{0, kMaxCount});
  v("model.moe.force_balance", x.force_balance);
  v("model.moe.balance.micro_batch", x.balance.micro_batch, kNotNegative);
  v("model.moe.balance.sequence", x.balance.sequence, kNotNegative);
  v("model.moe.balance.global", x.balance.global, kNotNegative);
  auto& a = m.mla;
  v("model.mla.kv_rank", a.kv_rank, count_from(0));
  v("model.mla.q_rank", a.q_rank, count_from(0));
  v("model.mla.nope_dim", a.nope_dim, count_from(0));
  v("model.mla.rope_dim", a.rope_dim, count_from(0));
  v("model.mla.v_dim", a.v_dim, count_from(0));
  v("model.mtp.layers", m.mtp.layers, count_from(0));
  v("model.mtp.loss", m.mtp.loss, kPositive);

  v("data.path", r.data.path);
  v("data.blend", r.data.blend);
  v("data.skip", r.data.skip);
  v("data.tokenizer", r.data.tokenizer);
  v("data.format", r.data.format);
  v("data.template", r.data.text_template);
  v("data.end", r.data.end);
  v("data.damaged", r.data.damaged);
  v("data.stream", r.data.stream);
  v("data.stream_window", r.data.stream_window, Limits{1, 1 << 20});
  v("data.stream_parts", r.data.stream_parts, Limits{1, 4096});
  v("data.seq_len", r.data.seq_len, count_from(1));
  v("data.validation_fraction", r.data.validation_fraction, kBelowOne);
  v("data.pack", r.data.pack);
  v("data.packing", r.data.packing);
  v("data.long_documents", r.data.long_documents);
  v("data.balance", r.data.balance);
  v("data.routes", r.data.routes);
  v("data.chat.template", r.data.chat.chat_template);
  v("data.chat.loss", r.data.chat.loss);
  v("data.chat.end_of_turn", r.data.chat.end_of_turn);
  v("data.chat.date", r.data.chat.date);
  v("data.fim.rate", r.data.fim.rate, kShare);
  v("data.fim.suffix_first", r.data.fim.suffix_first, kShare);
  v("data.fim.prefix", r.data.fim.prefix);
  v("data.fim.middle", r.data.fim.middle);
  v("data.fim.suffix", r.data.fim.suffix);
  v("data.mlm.rate", r.data.mlm.rate, kShare);
  v("data.mlm.random", r.data.mlm.random, kShare);
  v("data.mlm.keep", r.data.mlm.keep, kShare);
  v("data.mlm.mask", r.data.mlm.mask);
  v("data.curriculum.by", r.data.curriculum.by);
  v("data.curriculum.epochs", r.data.curriculum.epochs, count_from(1));

  v("batch.global", r.batch.global, count_from(1));
  v("batch.micro", r.batch.micro, count_from(1));
  v("batch.accumulation", r.batch.accumulation, count_from(1));
  v("batch.ramp", r.batch.ramp);

  auto& p = r.parallel;
  v("parallel.dp_replicate", p.dp_replicate, kAxis);
  v("parallel.dp_shard", p.dp_shard, kAxis);
  v("parallel.zero", p.zero, Limits{0, 3});
  v("parallel.zero_replicas", p.zero_replicas, Limits{0, 1});
  v("parallel.tp", p.tp, kAxis);
  v("parallel.sequence_parallel", p.sequence_parallel);
  v("parallel.tp_column", p.tp_column);
  v("parallel.tp_row", p.tp_row);
  v("parallel.tp_replicate", p.tp_replicate);
  v("parallel.reshard_after_forward", p.reshard_after_forward);
  v("parallel.reshard_experts", p.reshard_experts);
  v("parallel.group", p.group);
  v("parallel.group_match", p.group_match);
  v("parallel.keep_match", p.keep_match);
  v("parallel.persist_match", p.persist_match);
  v("parallel.prefetch", p.prefetch, Limits{0, 1024});
  v("parallel.gathered_limit", p.gathered_limit);
  v("parallel.persist_below", p.persist_below);
  v("parallel.gradient_blocks", p.gradient_blocks, Limits{1, 2});
  v("parallel.pp", p.pp, kAxis);
  v("parallel.schedule", p.schedule);
  v("parallel.chunks", p.chunks, Limits{0, 1024});
  v("parallel.stages", p.stages, count_from(0));
  v("parallel.micro_group", p.micro_group, count_from(0));
  v("parallel.cp", p.cp, kAxis);
  v("parallel.cp_method", p.cp_method);
  v("parallel.cp_method_windowed", p.cp_method_windowed);
  v("parallel.ulysses", p.ulysses, Limits{0, kMaxAxis});
  v("parallel.ep", p.ep, kAxis);
  v("parallel.etp", p.etp, kAxis);
  v("parallel.dims", p.dims);
  v("parallel.order", p.order);
  v("parallel.world", p.ranks, count_from(0));

  v("precision.compute", r.precision.compute);
  v("precision.master", r.precision.master);
  v("precision.moments", r.precision.moments);
  v("precision.moments_rounding", r.precision.moments_rounding);
  v("precision.gradients", r.precision.gradients);
  v("precision.reduce", r.precision.reduce);
  v("precision.tf32", r.precision.tf32);
  v("precision.loss_scale", r.precision.loss_scale);
  v("precision.loss_scale_window", r.precision.loss_scale_window, count_from(1));
  v("precision.loss_scale_start", r.precision.loss_scale_start, kPositive);
  v("precision.loss_scale_min", r.precision.loss_scale_min, kPositive);
  v("precision.loss_scale_hysteresis", r.precision.loss_scale_hysteresis, count_from(1));
  v("precision.linear", r.precision.linear);
  v("precision.fp8_match", r.precision.fp8_match);
  v("precision.fp8_head", r.precision.fp8_head);

  v("memory.recompute", r.memory.recompute);
  v("memory.recompute_ops", r.memory.recompute_ops);
  v("memory.recompute_layers", r.memory.recompute_layers);
  v("memory.recompute_every", r.memory.recompute_every, count_from(1));
  v("memory.recompute_chunk", r.memory.recompute_chunk, Limits{1, 256});
  v("memory.recompute_first", r.memory.recompute_first, count_from(0));
  v("memory.split_saved", r.memory.split_saved);
  v("memory.budget", r.memory.budget);

  auto& o = r.optimizer;
  v("optimizer.name", o.kind);
  v("optimizer.lr", o.lr, kPositive);
  v("optimizer.betas", o.betas, kBelowOne);
  v("optimizer.eps", o.eps, kPositive);
  v("optimizer.weight_decay", o.weight_decay, kNotNegative);
  v("optimizer.momentum", o.momentum, kBelowOne);
  v("optimizer.nesterov", o.nesterov);
  v("optimizer.trust", o.trust, kPositive);
  v("optimizer.ratio_limits", o.ratio_limits, kNotNegative);
  v("optimizer.clip_norm", o.clip_norm, kNotNegative);
  v("optimizer.clip", o.clip);
  v("optimizer.ema", o.ema, kBelowOne);
  v("optimizer.block_size", o.block_size, Limits{8, 4096});
  v("optimizer.groups", o.groups);
  v("optimizer.schedule.kind", o.schedule.kind);
  v("optimizer.schedule.warmup", o.schedule.warmup);
  v("optimizer.schedule.min_lr_ratio", o.schedule.min_lr_ratio, kShare);
  v("optimizer.schedule.decay", o.schedule.decay);
  v("optimizer.schedule.shape", o.schedule.shape);
  v("optimizer.lr_scaling.rule", o.lr_scaling.rule);
  v("optimizer.lr_scaling.batch", o.lr_scaling.batch, count_from(0));
  v("optimizer.weight_decay_ramp.kind", o.weight_decay_ramp.kind);
  v("optimizer.weight_decay_ramp.start_ratio", o.weight_decay_ramp.start_ratio, kNotNegative);
  v("optimizer.weight_decay_ramp.final_ratio", o.weight_decay_ramp.final_ratio, kNotNegative);
  v("optimizer.muon.momentum", o.muon.momentum, kBelowOne);
  v("optimizer.muon.nesterov", o.muon.nesterov);
  v("optimizer.muon.scale", o.muon.scale);
  v("optimizer.adafactor.decay", o.adafactor.decay, kPositive);
  v("optimizer.adafactor.eps1", o.adafactor.eps1, kPositive);
  v("optimizer.adafactor.clip", o.adafactor.clip, kPositive);
  v("optimizer.adafactor.relative", o.adafactor.relative);
  v("optimizer.adafactor.eps2", o.adafactor.eps2, kPositive);

  v("loss.chunk", r.loss.chunk, count_from(0));

  v("eval.every", r.eval.every, count_from(0));
  v("eval.batches", r.eval.batches, count_from(1));
  v("eval.sets", r.eval.sets);

  v("checkpoint.dir", r.checkpoint.dir);
  v("checkpoint.every", r.checkpoint.every);
  v("checkpoint.keep", r.checkpoint.keep, count_from(1));
  v("checkpoint.keep_every", r.checkpoint.keep_every, count_from(0));
  v("checkpoint.bandwidth", r.checkpoint.bandwidth);
  v("checkpoint.peer_every", r.checkpoint.peer_every, count_from(0));
  v("checkpoint.failures", r.checkpoint.failures, kPositive);

  v("run.steps", r.run.steps, count_from(1));
  v("run.seed", r.run.seed, Limits{0, kMaxSeed});
  v("run.device", r.run.device);
  v("run.backend", r.run.backend);
  v("run.deterministic", r.run.deterministic);
  v("run.threads", r.run.threads, Limits{0, 4096});
  v("run.max_skipped_steps", r.run.max_skipped_steps, count_from(0));
  v("run.check_replicas_every", r.run.check_replicas_every, count_from(0));
  v("run.timeout", r.run.timeout, Limits{1, 86400});
  v("run.setup_timeout", r.run.setup_timeout, Limits{0, 86400});
  v("run.dir", r.run.dir);
  v("run.log_every", r.run.log_every, count_from(1));
  v("run.noise_scale_every", r.run.noise_scale_every, count_from(0));
  v("run.noise_scale_batch", r.run.noise_scale_batch, count_from(0));
  v("run.skip_spike.window", r.run.skip_spike.window, Limits{0, 1 << 20});
  v("run.skip_spike.factor", r.run.skip_spike.factor, kPositive);
}

}  // namespace quintet::config
