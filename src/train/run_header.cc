#include "train/run_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "config/axis_order.h"
#include "config/batch_ramp.h"
#include "config/layer_ranges.h"
#include "config/length.h"
#include "config/names.h"
#include "config/quantised.h"
#include "optim/schedule.h"
#include "program/allocate.h"
#include "program/fp8_ops.h"
#include "program/ledger.h"
#include "schedule/simulate.h"
#include "train/expert_plan.h"
#include "train/run_header_axes.h"

namespace quintet::train {

using base::thousands;
using config::name_of;
using config::Recipe;

namespace {

class Header {
 public:
  Header(const Recipe& recipe, const RunData& data, const Rank& rank, const HeaderFacts& facts)
      : r_(recipe),
        data_(data),
        compiled_(rank.compiled()),
        program_(compiled_.program),
        ledger_(program::make_ledger(program_, compiled_.step)),
        facts_(facts) {}

  std::vector<std::string> short_lines() {
    model();
    short_corpus();
    short_batch();
    ranks();
    short_training();
    line("memory", "{} per rank{}", base::human_bytes(program_.arena_bytes),
         is_bound()           ? ", whatever the routing"
         : r_.parallel.pp > 1 ? " on the first stage"
                              : "");
    copies();
    line("start-up", "compiled and verified in {}; -v shows every setting",
         base::human_duration(facts_.compile_ns));
    disabled();
    return std::move(lines_);
  }

  std::vector<std::string> lines() {
    model();
    corpus();
    batch();
    loss();
    ranks();
    pipeline();
    data_parallel();
    tensor_parallel();
    for (const auto& axis : {context_lines(r_, compiled_), expert_lines(r_, compiled_)})
      for (const HeaderLine& l : axis) line(l.label, "{}", l.text);
    precision();
    optimizer();
    guards();
    recompute();
    memory();
    program_line();
    return std::move(lines_);
  }

 private:
  template <class... Args>
  void line(std::string_view label, fmt::format_string<Args...> text, Args&&... args) {
    lines_.push_back(fmt::format("{:<13}{}", label, fmt::format(text, std::forward<Args>(args)...)));
  }

  void model() {
    int64_t all = 0, frozen = 0, frozen_tensors = 0, tensors = 0;
    for (const graph::Param& p : compiled_.logical.params()) {
      const int64_t count = compiled_.logical.type(p.value).count();
      all += count;
      ++tensors;
      if (p.trainable) continue;
      frozen += count;
      ++frozen_tensors;
    }
    line("model", "{}, {} parameters in {} tensors",
         r_.model.preset.empty() ? std::string(name_of(r_.model.family)) : r_.model.preset, thousands(all),
         tensors);
    if (frozen_tensors > 0)
      line("frozen", "{} of {} ({}): no gradients, optimizer state or reduction", thousands(frozen),
           counted(all, "parameter"), counted(frozen_tensors, "tensor"));
  }

  // What is tokenized during the run; empty if all data are tokenized before it.
  std::string stream_text() const {
    const data::Mixture& train = data_.train.mixture();
    int64_t files = 0;
    for (int64_t i = 0; i < train.sets(); ++i)
      if (train.set(i).is_streamed())
        files += static_cast<int64_t>(train.set(i).streams()[0]->options().files.size());
    if (files == 0) return "";
    return fmt::format("{} streamed, shuffled in windows of {}{}", counted(files, "file"),
                       counted(r_.data.stream_window, "sequence"),
                       r_.data.stream_parts > 1 ? fmt::format(", in {} parts", r_.data.stream_parts) : "");
  }

  void corpus() {
    const data::Mixture& train = data_.train.mixture();
    std::string text = stream_text();
    if (train.samples() > 0)
      text += fmt::format("{}{} in {}: {} of {} tokens", text.empty() ? "" : "; ",
                          counted(train.tokens(), "token"), counted(train.documents(), "document"),
                          counted(train.samples(), "sequence"), r_.data.seq_len);
    int64_t held_out = 0;
    for (const EvalData& eval : data_.evals) held_out += eval.batches.mixture().samples();
    if (held_out > 0) text += fmt::format(" for training, {} for validation", thousands(held_out));
    line("data", "{}", text);
    sets();
    if (!data_.reading.empty()) line("read", "{}", data_.reading);
    pack();
    if (const config::Fim& fim = r_.data.fim; fim.rate > 0)
      line("fim", "{:g} % of the documents fill in the middle, {:g} % of those suffix first", 100 * fim.rate,
           100 * fim.suffix_first);
    if (r_.model.family == config::Family::Bert) {
      const config::Mlm& m = r_.data.mlm;
      line("mlm", "{:g} % of the tokens are predicted: {:g} % of them masked, {:g} % random, {:g} % kept",
           100 * m.rate, 100 * (1 - m.random - m.keep), 100 * m.random, 100 * m.keep);
    }
    if (const config::Curriculum& c = r_.data.curriculum; !c.by.empty())
      line("curriculum", "{} in ascending order of {}, then shuffled", counted(c.epochs, "epoch"), c.by);
    if (r_.eval.every > 0) {
      std::vector<std::string> parts;
      for (const EvalData& eval : data_.evals)
        parts.push_back(fmt::format("{}{}", counted(eval.sequences_read(r_), "sequence"),
                                    data_.evals.size() > 1 ? " of " + eval.name : ""));
      line("eval", "every {} on {}", counted(r_.eval.every, "step"), fmt::join(parts, ", "));
    }
  }

  // What the run takes from each set of a blend.
  void sets() {
    const data::Mixture& train = data_.train.mixture();
    const int64_t sequences = config::BatchRamp(r_).end().sequences;
    for (int64_t i = 0; i < train.sets(); ++i) {
      const data::MixtureSet& set = train.set(i);
      if (set.name.empty()) return;
      const int64_t taken = train.most_taken(i, sequences);
      if (set.is_streamed()) {
        line(i == 0 ? "blend" : "", "{}: {:.4g} % of the sequences, {} of {}, streamed", set.name,
             100 * train.share(i), thousands(taken), thousands(sequences));
        continue;
      }
      line(i == 0 ? "blend" : "", "{}: {:.4g} % of the sequences, {} of {}, {:.2f} epochs of {}", set.name,
           100 * train.share(i), thousands(taken), thousands(sequences),
           static_cast<double>(taken) / static_cast<double>(set.samples()), counted(set.tokens(), "token"));
    }
  }

  void pack() {
    const data::Mixture& train = data_.train.mixture();
    if (r_.data.packing == config::Packing::Streaming) {
      line("pack", "{}",
           r_.data.pack ? "attention does not cross document boundaries"
                        : "off: the documents of a sequence are read as continuous text");
    } else {
      int64_t used = 0, cut = 0, dropped = 0, lost = 0, untrained = 0, without = 0;
      for (int64_t i = 0; i < train.sets(); ++i) {
        const data::BestFit& plan = *train.dataset(i).best_fit();
        used += plan.used(), cut += plan.cut(), dropped += plan.dropped(), lost += plan.dropped_labels();
        untrained += plan.untrained() - plan.lost(), without += plan.lost();
      }
      std::string text = fmt::format(
          "best fit: {:.2f} % of the positions used",
          100 * static_cast<double>(used) / static_cast<double>(train.samples() * r_.data.seq_len));
      if (cut > 0)
        text += fmt::format("; {} longer than a sequence and {}", counted(cut, "document"),
                            r_.data.long_documents == config::LongDocuments::Split ? "split" : "truncated");
      if (dropped > 0) text += fmt::format("; {} dropped", counted(dropped, "longer document"));
      if (lost > 0) text += fmt::format(", {} lost", counted(lost, "label"));
      if (without > 0)
        text += fmt::format("; {} left out, which truncation leaves without a trained token",
                            counted(without, "document"));
      if (untrained > 0)
        text += fmt::format("; {} without a trained token left out",
                            counted(untrained, "document or part", "documents or parts"));
      line("pack", "{}", text);
    }
    if (r_.data.balance && r_.parallel.dp() > 1) line("", "{}", balance_text());
  }

  // The largest cost of attention of a data rank over the mean, in the first steps.
  std::string balance_text() const {
    const int64_t steps = std::min<int64_t>(4, r_.run.steps), dp = r_.parallel.dp();
    double worst = 0;
    for (int64_t step = 0; step < steps; ++step) {
      int64_t most = 0, sum = 0;
      for (int64_t rank = 0; rank < dp; ++rank) {
        const int64_t pairs = data_.train.visible_pairs(step, rank);
        most = std::max(most, pairs), sum += pairs;
      }
      worst =
          std::max(worst, static_cast<double>(most * dp) / static_cast<double>(std::max<int64_t>(1, sum)));
    }
    return fmt::format(
        "balanced over data ranks: the busiest has {:.2f} x the mean attention cost, in the first {}", worst,
        counted(steps, "step"));
  }

  void short_corpus() {
    const data::Mixture& train = data_.train.mixture();
    std::string text = stream_text();
    if (train.samples() > 0)
      text += fmt::format("{}{} in {}", text.empty() ? "" : "; ", counted(train.tokens(), "token"),
                          counted(train.documents(), "document"));
    line("data", "{}{}", text,
         r_.data.validation_fraction > 0
             ? fmt::format(", {:g} % for validation", 100 * r_.data.validation_fraction)
             : "");
    sets();
    if (r_.data.packing == config::Packing::BestFit) pack();
    if (!data_.reading.empty()) line("read", "{}", data_.reading);
  }

  void short_batch() {
    const int64_t tokens = r_.batch.global * r_.data.seq_len;
    line("step", "{} x {} = {} tokens, {} micro-batch{} per rank", counted(r_.batch.global, "sequence"),
         counted(r_.data.seq_len, "token"), thousands(tokens), r_.batch.accumulation,
         r_.batch.accumulation == 1 ? "" : "es");
    line("run", "{}, {} tokens{}", counted(r_.run.steps, "step"),
         base::human_count(static_cast<double>(config::BatchRamp(r_).end().tokens)),
         r_.eval.every > 0 ? fmt::format(", evaluated every {}",
                                         r_.eval.every == 1 ? "step" : counted(r_.eval.every, "step"))
                           : "");
  }

  void short_training() {
    const config::Optimizer& o = r_.optimizer;
    line("training", "{}, lr {:g} {}, compute in {}", name_of(o.kind), o.lr, name_of(o.schedule.kind),
         name_of(r_.precision.compute));
    const config::LrScaling& scaling = o.lr_scaling;
    if (scaling.rule != config::LrScalingRule::None)
      line("", "lr is multiplied by {}sequences per step / {}{}",
           scaling.rule == config::LrScalingRule::Sqrt ? "sqrt(" : "", scaling.batch,
           scaling.rule == config::LrScalingRule::Sqrt ? ")" : "");
    const config::RunPoint end = config::BatchRamp(r_).end();
    const config::Schedule& s = o.schedule;
    const bool decays = s.kind == config::ScheduleKind::Linear || s.kind == config::ScheduleKind::Cosine;
    const bool warms = end.in(s.warmup.unit) < s.warmup.value;
    if (warms || (decays && end.in(s.decay.unit) < s.warmup.value + s.decay.value))
      line("", "the {}, {}, ends after the run, which ends at lr {:.3g}", warms ? "warm-up" : "decay",
           config::length_text(warms ? s.warmup : s.decay), optim::learning_rate(o, end, end));
  }

  void batch() {
    line("batch", "{} = {} micro x {} accumulation x {} data ranks; {} per step, {}",
         counted(r_.batch.global, "sequence"), r_.batch.micro, r_.batch.accumulation, r_.parallel.dp(),
         counted(r_.batch.global * r_.data.seq_len, "token"), counted(r_.run.steps, "step"));
    if (!r_.batch.ramp.empty()) line("", "ramp: {}", config::ramp_text(r_));
  }

  void loss() {
    const int64_t rows = r_.batch.micro * r_.data.seq_len / r_.parallel.cp, chunk = r_.loss.chunk;
    const std::string all = counted(rows, "token row");
    line("loss", "{}",
         chunk > 0 && chunk < rows ? fmt::format("logits computed {} of {} at a time", thousands(chunk), all)
                                   : fmt::format("logits of all {} computed at once", all));
  }

  void ranks() {
    const config::Parallel& p = r_.parallel;
    std::string factors;
    const auto factor = [&](const char* axis, int64_t n) {
      if (n > 1) factors += fmt::format("{}{} {}", factors.empty() ? " = " : " x ", axis, n);
    };
    factor("pp", p.pp);
    factor("dp_replicate", p.dp_replicate);
    factor("dp_shard", p.dp_shard);
    factor("cp", p.cp);
    factor("tp", p.tp);
    if (p.order != config::Parallel{}.order)
      factors += fmt::format(", order {}", config::axis_order_words(p.order));
    line("ranks", "{}{}, {}, {}", p.world(), factors, facts_.backend,
         facts_.device.empty() ? counted(facts_.threads, "core") + " each" : facts_.device);
    for (const config::NcclVariable& v : facts_.nccl)
      line("nccl", "{}={}{}", v.name, v.value, v.problem.empty() ? "" : ": " + v.problem);
  }

  // The blocks of each virtual stage in model order: "0-2 | 3-5".
  std::string stage_blocks() const {
    const layout::Stages& stages = compiled_.pipeline.stages;
    std::vector<std::string> parts;
    for (int s = 0; s < stages.count(); ++s) {
      int first = -1, last = -1;
      for (int label = 1; label + 1 < compiled_.logical.num_blocks; ++label)
        if (stages.of_block[static_cast<size_t>(label)] == s) {
          last = label - 1;
          if (first < 0) first = last;
        }
      parts.push_back(first < 0       ? "none"
                      : first == last ? std::to_string(first)
                                      : fmt::format("{}-{}", first, last));
    }
    return fmt::format("{}", fmt::join(parts, " | "));
  }

  void pipeline() {
    if (!compiled_.pipeline.schedule) return;
    const schedule::Schedule& s = *compiled_.pipeline.schedule;
    const double bubble = schedule::simulate(s, schedule::Costs::uniform(s, 1, 1, 1)).bubble_rate();
    const std::vector<int> held = schedule::in_flight(s).until_w;
    const int most = *std::max_element(held.begin(), held.end());
    line("pp", "pp {} stages x {}, {}: blocks {}, {}, bubble {:.1f} % with equal stages, up to {} in flight",
         s.stages, counted(s.chunks, "chunk"), s.name, stage_blocks(),
         counted(s.micro_batches, "micro-batch", "micro-batches"), 100 * bubble,
         s.chunks == 1 ? counted(most, "micro-batch", "micro-batches")
                       : counted(most, "chunk") + " of micro-batches");
  }

  // Collectives per step whose group spans exactly ranks of the given axes.
  int64_t count(program::CollectiveKind kind, const layout::AtomList& atoms) const {
    int64_t n = 0;
    for (const program::LedgerRow& row : ledger_.rows)
      if (row.kind == kind && program_.comms[row.comm.index()].atoms == atoms) n += row.collectives;
    return n;
  }

  std::string counts(const layout::AtomList& atoms) const {
    std::vector<std::string> parts;
    for (const auto& [kind, word] : {std::pair{program::CollectiveKind::AllGather, "all-gather"},
                                     {program::CollectiveKind::ReduceScatter, "reduce-scatter"},
                                     {program::CollectiveKind::AllReduce, "all-reduce"},
                                     {program::CollectiveKind::AllToAll, "all-to-all"},
                                     {program::CollectiveKind::Exchange, "exchange"}})
      if (const int64_t n = count(kind, atoms); n > 0) parts.push_back(counted(n, word));
    return parts.empty() ? "no collectives" : fmt::format("{}", fmt::join(parts, ", "));
  }

  void data_parallel() {
    const config::Parallel& p = r_.parallel;
    const layout::Layout& layout = compiled_.layout;
    if (p.dp_replicate > 1)
      line("dp_replicate", "{} copies of the state: {} per step", p.dp_replicate,
           counts(p.dp_shard * p.cp > 1 && p.zero > 0 ? layout.replicate : layout.data()));
    const int64_t shards = p.dp_shard * p.cp;
    if (shards <= 1) return;
    const char* label = p.dp_shard > 1 ? "dp_shard" : "zero";
    static constexpr const char* kWhat[] = {"nothing", "optimizer state", "optimizer state and gradients",
                                            "parameters, gradients and optimizer state"};
    if (p.zero == 0) {
      if (p.dp_replicate == 1)
        line(label, "zero 0: full state on each of {} data ranks: {} per step{}", shards,
             counts(layout.data()), expert_state(layout.data(), layout.expert.all));
      return;
    }
    std::string text = fmt::format("zero {}: {} in {} shards: {} per step{}", p.zero,
                                   kWhat[static_cast<size_t>(p.zero)], shards, counts(layout.dense.shard),
                                   expert_state(layout.dense.shard, layout.expert.shard));
    const bool is_grouped = p.group.kind != config::Grouping::Kind::Auto;
    if (p.zero == 3) {
      using Kind = config::ReshardAfterForward::Kind;
      if (p.reshard_after_forward.kind == Kind::No)
        text += "; gathered parameters kept for the backward pass";
      if (p.reshard_after_forward.kind == Kind::ToRanks)
        text += fmt::format("; kept in {} shards for the backward pass: {}", p.reshard_after_forward.ranks,
                            counts(layout.dense.reshard));
      // The first group has no predecessor to overlap its gather with.
      const int64_t ahead = std::min(p.prefetch, static_cast<int64_t>(program_.slots.back().group));
      text += ahead > 0 ? fmt::format("; prefetch {} ahead", counted(ahead, is_grouped ? "group" : "block"))
                        : "; no prefetch";
    }
    if (is_grouped)
      text +=
          fmt::format("; {} of parameters", counted(static_cast<int64_t>(compiled_.groups.size()), "group"));
    if (p.zero_replicas > 0)
      text += fmt::format("; the optimizer state in {} shards, over replicas too", shards * p.dp_replicate);
    line(label, "{}", text);
  }

  // Experts have their own mesh: over how many ranks their state is sharded or reduced, if that differs.
  std::string expert_state(const layout::AtomList& dense, const layout::AtomList& expert) const {
    if (!expert_plan(compiled_) || expert == dense) return "";
    const int ranks = compiled_.layout.mesh.size(expert);
    return ranks == 1 ? std::string("; expert state on one rank each")
                      : fmt::format("; expert state over {} ranks: {}", ranks, counts(expert));
  }

  void tensor_parallel() {
    const config::Parallel& p = r_.parallel;
    if (p.tp <= 1) return;
    // One block stands for all. Not the first, which also reduces the embedding's partial sum. In a pipeline,
    // a block of this rank.
    const layout::Stages& stages = compiled_.pipeline.stages;
    const int block =
        compiled_.logical.num_blocks > 3 && stages.rank_of_block(2) == stages.rank_of_block(0) ? 2 : 1;
    const layout::AtomList tensor = compiled_.layout.mesh.axis(layout::Axis::Tp);
    const BlockTraffic t =
        block_traffic(program_, block, [&](const program::Instr& i, const layout::AtomList& atoms) {
          return i.collective.kind != program::CollectiveKind::AllToAllV && is_inside(atoms, tensor);
        });
    line("tp", "tp {}{}: {} per block per micro-batch ({} forward, {} backward)", p.tp,
         p.sequence_parallel ? " with sequence parallel" : "", counted(t.forward + t.backward, "collective"),
         t.forward, t.backward);
  }

  void precision() {
    const config::Precision& p = r_.precision;
    line("precision", "compute {}, master weights {}, moments {}, gradients {}, reduction {}",
         name_of(p.compute),
         p.split_master() ? "f32 (split: bf16 weight and 16-bit remainder)" : name_of(p.master),
         name_of(p.moments), name_of(p.gradients), name_of(p.reduce));
    if (p.tf32) line("", "f32 matmuls in tf32");
    if (p.quantises()) {
      const auto linears = std::count_if(
          compiled_.logical.nodes().begin(), compiled_.logical.nodes().end(),
          [](const graph::Node& n) { return graph::is_code_linear(*n.op) && n.phase == graph::Phase::F; });
      const int64_t block = config::code_block(p.linear);
      line("", "{} in {}: {}{}", counted(linears, "linear layer"), name_of(p.linear),
           block > 0 ? fmt::format("a scale for each block of {} values", block)
                     : fmt::format("{} scales", compiled_.logical.scales.size()),
           p.compute == base::DType::BF16 ? "" : fmt::format(", emulated in {}", name_of(p.compute)));
    }
    if (p.loss_scale.dynamic)
      line("", "loss scale {:g} initially, doubled after {} good steps", p.loss_scale_start,
           p.loss_scale_window);
    else if (p.loss_scale.value != 1)
      line("", "loss scale {:g}", p.loss_scale.value);
  }

  void optimizer() {
    const config::Optimizer& o = r_.optimizer;
    std::string text = fmt::format("{}, lr {:g} {}", name_of(o.kind), o.lr, name_of(o.schedule.kind));
    if (o.schedule.min_lr_ratio > 0) text += fmt::format(" to {:g}", o.lr * o.schedule.min_lr_ratio);
    if (o.schedule.warmup.value > 0)
      text += fmt::format(" after {} of warm-up", config::length_text(o.schedule.warmup));
    if (o.schedule.kind == config::ScheduleKind::Wsd)
      text += fmt::format(", {} decay over the last {}", name_of(o.schedule.shape),
                          config::length_text(o.schedule.decay));
    if (o.weight_decay > 0) text += fmt::format(", weight decay {:g}", o.weight_decay);
    if (o.momentum > 0) text += fmt::format(", momentum {:g}", o.momentum);
    const char* const norm = o.clip == config::ClipKind::Inf ? "largest gradient" : "gradient norm";
    text += o.clip_norm > 0 ? fmt::format(", {} clipped at {:g}", norm, o.clip_norm) : ", no clipping";
    line("optimizer", "{}", text);
    for (size_t g = 0; g < o.groups.size(); ++g)
      if (o.groups[g].update) group(static_cast<int>(g));
  }

  // What a group of parameters has of its own.
  void group(int index) {
    const config::ParamGroup& g = r_.optimizer.groups[static_cast<size_t>(index)];
    int64_t count = 0, tensors = 0;
    for (const graph::Param& p : compiled_.logical.params())
      if (p.group == index) ++tensors, count += compiled_.logical.type(p.value).count();
    std::string text;
    if (g.kind) text += fmt::format(", {}", name_of(*g.kind));
    if (g.lr) text += fmt::format(", lr {:g}", *g.lr);
    if (g.weight_decay) text += fmt::format(", weight decay {:g}", *g.weight_decay);
    line("group", "{}: {} in {}{}", g.match, counted(count, "parameter"), counted(tensors, "tensor"),
         text.empty() ? ", as all" : text);
  }

  void guards() {
    std::string text = fmt::format(
        "stop after {} in a row", counted(std::max<int64_t>(1, r_.run.max_skipped_steps),
                                          r_.run.skip_spike.window > 0 ? "skipped step" : "non-finite step"));
    if (r_.run.check_replicas_every > 0 && r_.parallel.world() > 1)
      text += fmt::format("; replicas compared every {}", counted(r_.run.check_replicas_every, "step"));
    if (const config::SkipSpike& s = r_.run.skip_spike; s.window > 0)
      text += fmt::format("; steps skipped above mean + {:g} deviations of loss or gradient norm over {}",
                          s.factor, counted(s.window, "step"));
    line("guards", "{}", text);
    if (r_.run.noise_scale_every > 0)
      line("noise", "gradient noise scale every {}, from {} and the whole batch",
           counted(r_.run.noise_scale_every, "step"), counted(r_.run.noise_scale_batch, "sequence"));
  }

  // "blocks 0-3: norm, linear; block 5: all; the others nothing"
  std::string recompute_layers() const {
    std::string text;
    size_t named = 0;
    for (const config::RecomputeLayers& entry : r_.memory.recompute_layers) {
      text += fmt::format("{}block{} {}: {}", text.empty() ? "" : "; ", entry.layers.size() == 1 ? "" : "s",
                          config::layer_ranges_text(entry.layers),
                          entry.ops.empty() ? std::string("ops that are cheap to compute and large to keep")
                                            : fmt::format("{}", fmt::join(entry.ops, ", ")));
      named += entry.layers.size();
    }
    if (static_cast<int64_t>(named) < r_.model.layers) text += "; the others nothing";
    return text;
  }

  void recompute() {
    const config::Memory& m = r_.memory;
    using Kind = config::RecomputeKind;
    if (compiled_.fit && m.recompute == Kind::Fit) line("recompute", "fit: {}", compiled_.fit->text);
    if (m.recompute == Kind::Selective)
      line("recompute", "selective: {}",
           !m.recompute_layers.empty() ? recompute_layers()
           : m.recompute_ops.empty()   ? std::string("ops that are cheap to compute and large to keep")
                                       : fmt::format("{}", fmt::join(m.recompute_ops, ", ")));
    if (m.recompute == Kind::Full)
      line("recompute", "full: {}",
           m.recompute_first > 0
               ? fmt::format("the first {} of every stage", counted(m.recompute_first, "block"))
           : m.recompute_chunk > 1  ? fmt::format("chunks of {}, whose first one's input is kept",
                                                  counted(m.recompute_chunk, "block"))
           : m.recompute_every == 1 ? std::string("every block")
                                    : fmt::format("one block in {}", m.recompute_every));
  }

  // Whether sizes depend on the routing, so that the program plans for the maximum.
  bool is_bound() const {
    const std::optional<ExpertPlan> plan = expert_plan(compiled_);
    return plan && plan->is_bound();
  }

  void memory() {
    const program::Peak peak = program::peak_of(program_);
    std::vector<std::string> parts;
    for (int c = 0; c < program::kNumMemoryClasses; ++c)
      if (const int64_t bytes = peak.by_class[static_cast<size_t>(c)]; bytes > 0)
        parts.push_back(
            fmt::format("{} {}", to_string(static_cast<program::MemoryClass>(c)), base::human_bytes(bytes)));
    // A pipeline slot reserves space for a whole micro-batch, even when it is unused at the peak.
    if (const int64_t idle = program_.arena_bytes - peak.live_bytes; idle * 50 > program_.arena_bytes)
      parts.push_back(fmt::format("{} idle in {}", base::human_bytes(idle),
                                  program_.frame_bytes.empty() ? "gaps" : "slots and gaps"));
    line("memory", "{} planned on rank 0{}: {}", base::human_bytes(program_.arena_bytes),
         is_bound() ? ", for any routing" : "", fmt::join(parts, ", "));
    copies();
  }

  void copies() {
    if (facts_.copies_bytes > 0)
      line("host memory",
           "{} in addition, on rank 0, for the copies of its state that checkpoint.* keys ask for",
           base::human_bytes(facts_.copies_bytes));
  }

  void program_line() {
    const char* up_to = is_bound() ? "up to " : "";
    line("program", "{} per step on {}, {}{:.3g} GFLOP and {}{} sent per rank; compiled and verified in {}",
         counted(static_cast<int64_t>(compiled_.step.issues.size()), "instruction"),
         counted(static_cast<int64_t>(program_.streams.size()), "stream"), up_to, ledger_.flops / 1e9, up_to,
         base::human_bytes(static_cast<int64_t>(ledger_.sent_bytes())),
         base::human_duration(facts_.compile_ns));
    disabled();
  }

  void disabled() {
    if (!facts_.disabled_passes.empty())
      line("debug", "passes disabled, slower or larger than usual: {}", facts_.disabled_passes);
  }

  const Recipe& r_;
  const RunData& data_;
  const compiler::Compiled& compiled_;
  const program::Program& program_;
  const program::Ledger ledger_;
  const HeaderFacts& facts_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> short_header_lines(const Recipe& recipe, const RunData& data, const Rank& rank,
                                            const HeaderFacts& facts) {
  return Header(recipe, data, rank, facts).short_lines();
}

std::vector<std::string> header_lines(const Recipe& recipe, const RunData& data, const Rank& rank,
                                      const HeaderFacts& facts) {
  return Header(recipe, data, rank, facts).lines();
}

}  // namespace quintet::train
