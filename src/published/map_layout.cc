// Mesh, batch, pipeline and recompute of a published row.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "config/schedule_traits.h"
#include "published/map_run.h"

namespace quintet::published {
namespace {

std::optional<int64_t> leading_number(std::string_view text) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || stop == text.data()) return std::nullopt;
  return value;
}

// "ZeRO-1 group8" -> 8, "(local batch 32)" -> 32.
std::optional<int64_t> number_after(std::string_view text, std::string_view word) {
  const size_t at = text.find(word);
  if (at == std::string_view::npos) return std::nullopt;
  size_t from = at + word.size();
  while (from < text.size() && text[from] == ' ') ++from;
  return leading_number(text.substr(from));
}

void shard(const PublishedRun& row, const Source& source, int64_t dp, config::Parallel& p) {
  p.zero = source.zero;
  p.dp_shard = dp;
  const std::string_view f = row.fsdp;
  if (contains(f, "ZeRO-1"))
    p.zero = 1;
  else if (contains(f, "ZeRO-2"))
    p.zero = 2;
  else if (contains(f, "ZeRO-3") || contains(f, "yes"))
    p.zero = 3;
  else if (leading_number(f).value_or(0) > 0)
    p.zero = source.numbers_are_zero_3 ? 3 : 1;
  if (p.zero == 3 && p.pp > 1 && source.pipelines_gather_once) p.zero = 1;
  if (contains(f, "SHARD_GRAD_OP"))
    p.reshard_after_forward.kind = config::ReshardAfterForward::Kind::No;  // gathered once, for both passes
  int64_t group = number_after(f, "group").value_or(0);
  if (contains(f, "HSDP")) group = 8;
  if (group > 1 && group < dp && dp % group == 0) {
    p.dp_shard = group;
    p.dp_replicate = dp / group;
  }
  if (p.zero == 0) {
    p.dp_replicate = dp;
    p.dp_shard = 1;
  }
  if (p.dp_shard * p.cp == 1) p.zero = 0;
  if (p.zero != 3) p.reshard_after_forward = {};
  // The terms of other software were fitted with reductions that the next block waits for.
  if (p.zero >= 2) p.gradient_blocks = 1;
}

// As Megatron does: equal numbers of blocks; where that does not divide evenly, the embedding and the head
// count as one block each.
std::vector<int64_t> even_split(int64_t layers, int64_t places) {
  if (places > layers) return {};
  std::vector<int64_t> stages(static_cast<size_t>(places), layers / places);
  if (layers % places == 0) return stages;
  const int64_t with_ends = layers + 2;
  std::fill(stages.begin(), stages.end(), with_ends / places);
  int64_t rest = with_ends % places;
  for (size_t s = 0; rest > 0; ++s, --rest) ++stages[s];
  --stages.front();
  --stages.back();
  return stages;
}

void pipeline(const PublishedRun& row, const Source& source, config::Recipe& r, Notes& notes) {
  config::Parallel& p = r.parallel;
  if (p.pp == 1) return;
  const std::string_view s = row.schedule;
  int64_t chunks = row.vpp.value_or(0);
  if (contains(s, "DualPipe")) {
    p.schedule = "dualpipev";
    chunks = 2;
    notes.note("DualPipe as DualPipeV");
  } else if (contains(s, "ZB-V")) {
    p.schedule = "zb-v";
    chunks = 2;
  } else if (contains(s, "ZB-2p")) {
    p.schedule = "zb-h2";
    chunks = 1;
  } else if (contains(s, "ZB")) {
    p.schedule = "zb-h1";
    chunks = 1;
  } else if (contains(s, "interleaved") || contains(s, "1F1B-I") || chunks > 1) {
    p.schedule = "interleaved";
    if (chunks < 2 && source.collection.empty()) {
      chunks = std::max<int64_t>(2, r.model.layers / p.pp);
      notes.missing(fmt::format("chunks not stated: one block per chunk, {} per rank", chunks));
    }
    if (chunks < 2) chunks = 2;
  } else {
    p.schedule = "1f1b";
    chunks = 1;
    if (s.empty()) {
      // The largest number that divides evenly.
      for (int64_t c = source.chunks; c > 1 && chunks == 1 && !row.vpp; --c)
        if (r.model.layers % (p.pp * c) == 0 && r.batch.accumulation % p.pp == 0) chunks = c;
      if (chunks > 1) p.schedule = "interleaved";
      notes.missing(fmt::format("schedule not stated: {} chunks per rank", chunks));
    }
  }
  const auto kind = [&] { return config::traits_of(p.schedule).kind; };
  using config::PipelineSchedule;
  if (kind() == PipelineSchedule::Interleaved && r.batch.accumulation % p.pp != 0) {
    p.schedule = "1f1b";
    chunks = 1;
    notes.missing("interleaving with micro-batches that are not a multiple of the stages: 1F1B");
  }
  const int64_t most = r.model.layers / p.pp;
  if (chunks > most) {
    if (most < 1) throw Unmodelled(fmt::format("{} stages for {} blocks", p.pp, r.model.layers));
    notes.note(fmt::format("{} chunks per rank exceed the {} blocks: {}", chunks, r.model.layers,
                           std::max<int64_t>(most, 1)));
    chunks = most;
    if (kind() == PipelineSchedule::Interleaved && chunks == 1) p.schedule = "1f1b";
    if (kind() == PipelineSchedule::ZbV || kind() == PipelineSchedule::DualPipeV)
      p.schedule = "zb-h2", chunks = 1;
  }
  p.chunks = chunks;
  if (source.split == Split::Even && r.model.moe.first_dense == 0)
    p.stages = even_split(r.model.layers, p.pp * p.chunks);
}

}  // namespace

void map_layout(const PublishedRun& row, const Source& source, config::Recipe& r, Notes& notes) {
  if (!row.gpus) throw Unmodelled("the row does not state the number of GPUs");
  if (!row.tp && !row.pp && !row.dp) throw Unmodelled("the row does not state the layout");
  config::Parallel& p = r.parallel;
  p.tp = row.tp.value_or(1);
  p.pp = row.pp.value_or(1);
  p.cp = row.cp.value_or(1);
  const int64_t inner = p.tp * p.pp * p.cp;
  if (*row.gpus % inner != 0)
    throw Unmodelled(
        fmt::format("tp {} x pp {} x cp {} does not divide {} GPUs", p.tp, p.pp, p.cp, *row.gpus));
  const int64_t dp = *row.gpus / inner;
  if (row.dp && *row.dp != dp)
    throw Unmodelled(fmt::format("dp {} x tp {} x pp {} x cp {} does not equal the row's {} GPUs", *row.dp,
                                 p.tp, p.pp, p.cp, *row.gpus));
  shard(row, source, dp, p);
  p.sequence_parallel = p.tp > 1 && contains(row.sp, "yes");
  if (p.cp > 1) p.cp_method = source.context;
  if (r.model.moe.experts > 0) {
    p.ep = row.ep.value_or(1);
    const bool folded = contains(row.source, "Folding") || !source.experts_span_tensor;
    p.etp = folded || p.tp == 1 ? 1 : p.tp;
    if (p.ep == 1 && p.tp > 1) p.etp = p.tp;
    if (dp * p.cp * p.tp % (p.ep * p.etp) != 0) p.etp = 1;
  }

  auto global = leading_number(row.global_batch);
  if (contains(row.global_batch, "token")) global.reset();
  if (!global && row.global_batch.empty() && !row.tokens_per_s && row.memory_gib) {
    // For memory, one micro-batch per rank (in a pipeline: as many as it holds) is as good as many.
    global = leading_number(row.micro_batch).value_or(1) * dp * p.pp;
    notes.missing(fmt::format("global batch not stated: {}", *global));
  }
  if (!global) throw Unmodelled("the row does not state the global batch in sequences");
  r.batch.global = *global;
  if (const auto local = number_after(row.micro_batch, "local batch")) {
    r.batch.micro = p.pp > 1 ? 1 : *local;
  } else if (const auto micro = leading_number(row.micro_batch)) {
    r.batch.micro = *micro;
  } else if (source.micro > 0) {
    r.batch.micro = std::min(source.micro, std::max<int64_t>(1, *global / dp));
    notes.missing(fmt::format("micro-batch not stated: {}", r.batch.micro));
  } else {
    throw Unmodelled("the row does not state the micro-batch");
  }
  if (*global % (r.batch.micro * dp) != 0)
    throw Unmodelled(fmt::format("a global batch of {} is not a multiple of micro-batch {} x dp {}", *global,
                                 r.batch.micro, dp));
  r.batch.accumulation = *global / (r.batch.micro * dp);
  pipeline(row, source, r, notes);
}

void map_recompute(const PublishedRun& row, const Source& source, config::Recipe& r, Notes& notes) {
  std::string_view words = row.recompute;
  if (words.empty()) {
    words = source.recompute;
    notes.note(fmt::format("recompute not stated: {}", words));
  }
  config::Memory& m = r.memory;
  if (words.empty() || contains(words, "none")) return;
  if (contains(words, "full")) {
    m.recompute = config::RecomputeKind::Full;
  } else if (contains(words, "per-op")) {
    // torchtitan saves every other matmul, so half of them are recomputed.
    m.recompute = config::RecomputeKind::Full;
    m.recompute_every = 2;
    notes.note("selective per op as full recompute of half the blocks: as many matmuls recomputed");
  } else if (contains(words, "act")) {
    m.recompute = config::RecomputeKind::Selective;
    m.recompute_ops = {"activation"};
  } else if (source.selective_by_block) {
    m.recompute = config::RecomputeKind::Full;
    m.recompute_every = 2;
    notes.note("selective: every other block");
  } else {
    m.recompute = config::RecomputeKind::Selective;
    m.recompute_ops = {"attention"};
  }
  if (m.recompute_every > r.model.layers) m.recompute_every = 1;
}

}  // namespace quintet::published
