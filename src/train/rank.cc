#include "train/rank.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/row_order.h"
#include "base/split_float.h"
#include "optim/schedule.h"
#include "program/flat_ranges.h"  // graph::kFactorState
#include "program/fp8_ops.h"
#include "train/agreement.h"

namespace quintet::train {

using base::DType;
using layout::AtomList;
using layout::Segment;
namespace scalars = program::scalars;

namespace {

constexpr int64_t kReadAhead = 2;  // steps

// The input as the member of a micro-batch that the data fills; other inputs are left alone.
void set_rows(data::MicroBatch& batch, const exec::InputRows& input, size_t rows, int64_t route_columns) {
  using graph::InputKind;
  if (input.spec.kind == InputKind::Routes)
    batch.routes = {input.data, rows * static_cast<size_t>(route_columns)};
  const std::span<int32_t> span(input.data, rows);
  if (input.spec.kind == InputKind::Ids) batch.ids = span;
  if (input.spec.kind == InputKind::Labels) batch.labels = span;
  if (input.spec.kind == InputKind::Positions) batch.positions = span;
  if (input.spec.kind == InputKind::Documents) batch.documents = span;
  if (input.spec.kind == InputKind::Samples) batch.samples = span;
  if (input.spec.kind == InputKind::NextIds) batch.next_ids = span;
  if (input.spec.kind == InputKind::NextLabels) batch.next_labels = span;
  if (input.spec.kind == InputKind::TokenTypes) batch.token_types = span;
}

bool is_token(graph::InputKind kind) {
  using graph::InputKind;
  return kind == InputKind::Ids || kind == InputKind::Labels || kind == InputKind::NextIds ||
         kind == InputKind::NextLabels;
}

// Adds the position after each range.
void add_next(std::vector<data::PositionRange>& ranges, int64_t seq_len) {
  std::vector<data::PositionRange> wider;
  for (const data::PositionRange& range : ranges) {
    const int64_t end = std::min(range.begin + range.length + 1, seq_len);
    if (!wider.empty() && wider.back().begin + wider.back().length >= range.begin)
      wider.back().length = end - wider.back().begin;
    else
      wider.push_back({range.begin, end - range.begin});
  }
  ranges = std::move(wider);
}

}  // namespace

std::vector<exec::OpKernels> kernels_of(const compiler::ModelFn& model) {
  std::vector<exec::OpKernels> list;
  for (const compiler::OpPackage& p : model.packages())
    list.push_back({.op = p.op, .cpu = p.cpu, .cuda = p.cuda, .cuda_scratch = p.cuda_scratch});
  return list;
}

exec::Device device_of(const config::Recipe& recipe) {
  return recipe.run.device == config::DeviceKind::Cuda ? exec::Device::Cuda : exec::Device::Cpu;
}

Rank::Rank(const config::Recipe& recipe, comm::World& world, RankOptions options)
    : recipe_(recipe),
      ramp_(recipe_),
      world_(world),
      route_columns_(recipe_.model.moe.choices_in(recipe_.model.layers)),
      log_(options.log),
      spikes_(recipe_.run.skip_spike),
      schedule_end_(options.schedule_steps > 0 ? ramp_.after(options.schedule_steps) : ramp_.end()) {
  const config::Run& run = recipe.run;
  world.set_timeout(std::chrono::seconds(run.setup_timeout > 0 ? run.setup_timeout : run.timeout));
  const int threads = options.threads;
  const compiler::CompileOptions compile_options{
      .rank = world.rank(),
      .evaluate = options.evaluate,
      .infer = options.infer,
      .serving = options.serving,
      .model = options.model,
      .workspace_bytes = exec::workspace_of(device_of(recipe), threads, kernels_of(options.model)),
      .disabled = options.disabled_passes,
      .dump = {},
      .fit = options.fit};
  compiled_ = std::make_unique<compiler::Compiled>(compiler::compile(recipe, compile_options));
  QUINTET_CHECK(compiled_->program.world == world.size(), "the program is for {} ranks, the world has {}",
                compiled_->program.world, world.size());
  agree_on_program(recipe, compile_options, *compiled_, world, threads);
  executor_ = exec::make_executor(compiled_->program, world,
                                  {.device = device_of(recipe),
                                   .threads = threads,
                                   .poison = options.poison,
                                   .device_index = static_cast<int>(options.local_rank),
                                   .capture = options.capture,
                                   .tune = options.tune,
                                   .tuned = options.tuned,
                                   .tf32 = recipe.precision.tf32,
                                   .log = options.log,
                                   .kernels = kernels_of(options.model)});
  traffic_ = std::make_unique<TrafficLedger>(compiled_->program);
  const layout::Layout& layout = compiled_->layout;
  dp_index_ = layout.mesh.index(world.rank(), layout.samples);
  cp_index_ = layout.mesh.index(world.rank(), layout.context.atoms);
  const program::Program& p = compiled_->program;
  int64_t widest = 0;  // context ranks whose rows an input of tokens has
  for (const program::InputPlace& input : p.inputs)
    if (is_token(input.spec.kind)) widest = std::max<int64_t>(widest, input.spec.rows.ranks);
  takes_tokens_ = widest > 0;
  own_ = positions_of_ranks(1);
  loaded_ = positions_of_ranks(widest);
  if (takes(graph::InputKind::NextIds) || takes(graph::InputKind::NextLabels))
    add_next(loaded_, recipe.data.seq_len);
  create_replica_groups();
  if (options.draw) draw_weights([](const auto&, const auto&) { return true; });
  if (!options.infer && !options.serving) set_loss_scale(recipe.precision.first_loss_scale());
}

Rank::~Rank() = default;

void Rank::visit(const Wanted& wanted,
                 const std::function<void(const Piece&, const layout::GlobalIndex&)>& fn) const {
  const compiler::Compiled& c = *compiled_;
  for (const program::GroupSlot& slot : c.program.slots) {
    if (!wanted(slot)) continue;
    const layout::Group& g = c.groups[static_cast<size_t>(slot.group)];
    for (const Segment& s : g.segments) {
      const int64_t begin = std::max(s.offset, slot.first),
                    end = std::min(s.offset + s.count, slot.first + slot.count);
      if (begin >= end) continue;
      const auto range = [&](program::BufferId at, int64_t from, DType type) {
        const int64_t size = base::size_of(type);
        return exec::Range{at, from + (begin - slot.first) / slot.block * size,
                           (end - begin + slot.block - 1) / slot.block * size};
      };
      const bool split = slot.lower.valid();
      Piece piece{&s,
                  &g,
                  begin - s.offset,
                  end - begin,
                  range(slot.buffer, slot.offset_bytes, split ? DType::BF16 : slot.dtype),
                  slot.dtype,
                  slot.block};
      if (split) piece.lower = range(slot.lower, 0, DType::I16);
      fn(piece, layout::GlobalIndex(s, c.layout.mesh, world_.rank()));
    }
  }
}

exec::HostBytes Rank::read(const Piece& piece) const {
  if (!piece.lower) return read(piece.range);
  const exec::HostBytes upper = read(piece.range), lower = read(*piece.lower);
  auto joined = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(piece.bytes()));
  for (int64_t i = 0; i < piece.count; ++i)
    reinterpret_cast<float*>(joined.get())[i] =
        base::join_float(reinterpret_cast<const base::Bf16*>(upper.data())[i],
                         reinterpret_cast<const int16_t*>(lower.data())[i]);
  return exec::HostBytes(std::move(joined));
}

void Rank::write(const Piece& piece, const std::function<void(std::byte*)>& fill) {
  if (!piece.lower) return write(piece.range, fill);
  std::vector<float> whole(static_cast<size_t>(piece.count));
  fill(reinterpret_cast<std::byte*>(whole.data()));
  write(piece.range, [&](std::byte* to) {
    for (size_t i = 0; i < whole.size(); ++i)
      reinterpret_cast<base::Bf16*>(to)[i] = base::split_float(whole[i]).high;
  });
  write(*piece.lower, [&](std::byte* to) {
    for (size_t i = 0; i < whole.size(); ++i)
      reinterpret_cast<int16_t*>(to)[i] = base::split_float(whole[i]).low;
  });
}

void Rank::draw_weights(const WantedState& wanted) {
  // Averages begin as the weights that they average.
  for (const program::GroupSlot& slot : compiled_->program.slots)
    if (program::holds_weights(slot) || slot.role == graph::Role::Ema) draw_slot(slot, wanted);
  weights_changed();
}

void Rank::draw_slot(const program::GroupSlot& slot, const WantedState& wanted) {
  const auto only = [&](const program::GroupSlot& s) { return &s == &slot; };
  visit(only, [&](const Piece& piece, const layout::GlobalIndex& global) {
    const Segment& s = *piece.segment;
    if (!wanted(slot, s)) return;
    using Kind = exec::Draw::Kind;
    const exec::Draw numbers{.kind = s.init == graph::Init::Normal ? Kind::Normal
                                     : s.init == graph::Init::Ones ? Kind::Ones
                                                                   : Kind::Zeros,
                             .stddev = s.stddev,
                             .key = base::stream_key(static_cast<uint64_t>(recipe_.run.seed), s.name),
                             .box = global.local_sizes(),
                             .whole = global.global_sizes(),
                             .begin = global.begins(),
                             .first = piece.first};
    if (piece.lower)
      executor_->draw_split(piece.range, *piece.lower, numbers);
    else
      executor_->draw(piece.range, piece.dtype, numbers);
  });
}

void Rank::set_loss_scale(double scale) {
  loss_scale_ = scale;
  executor_->write(
      {compiled_->program.scalars,
       compiled_->program.scalar_slot(scalars::kLossScale) * program::kScalarBytes, sizeof(scale)},
      [&](std::byte* to) { std::memcpy(to, &scale, sizeof(scale)); });
}

void Rank::weights_changed() {
  const program::Program& p = compiled_->program;
  const auto own = [](const program::GroupSlot& s) {
    return exec::Range{s.buffer, s.offset_bytes, s.count * base::size_of(s.dtype)};
  };
  for (const program::GroupSlot& copy : p.slots) {
    if (copy.role != graph::Role::Weight || copy.keep != graph::Keep::Derived) continue;
    const program::GroupSlot* const master = p.find_slot(copy.group, "master");
    if (!master->lower.valid()) executor_->convert(own(*master), master->dtype, own(copy), copy.dtype);
  }
}

exec::LoadBatch Rank::load_of(int64_t step, const data::Batches& batches) {
  return [this, step, &batches](int micro, const auto& inputs) {
    const size_t rows = static_cast<size_t>(batches.micro_tokens());
    data::MicroBatch out;
    for (const exec::InputRows& input : inputs) set_rows(out, input, rows, route_columns_);
    out.wanted = loaded_;
    batches.fill(step, micro, dp_index_, out);
    for (const bool labels : {false, true}) {
      data::MicroBatch row;
      (labels ? row.labels : row.ids) = labels ? out.labels : out.ids;
      if (!(labels ? hashes_labels_ : hashes_ids_) || (row.ids.empty() && row.labels.empty())) continue;
      const uint64_t hash = batches.hash_of(step, micro, dp_index_, row, own_);
      const std::lock_guard lock(hashes_mutex_);
      hashes_[step][{micro, labels}] = hash;  // a program may load a row again
    }
  };
}

bool Rank::takes(graph::InputKind kind) const {
  return std::ranges::any_of(compiled_->program.inputs,
                             [&](const program::InputPlace& input) { return input.spec.kind == kind; });
}

// The positions of a sequence that `count` context ranks have, this one among them; none with all ranks.
std::vector<data::PositionRange> Rank::positions_of_ranks(int64_t count) const {
  const int64_t ranks = compiled_->layout.context.ranks;
  if (count == 0 || count == ranks) return {};
  const base::RowOrder order{.seq_len = recipe_.data.seq_len,
                             .sequences = 1,
                             .ranks = ranks,
                             .first = cp_index_ / count * count,
                             .count = count};
  std::vector<data::PositionRange> positions;
  for (int64_t i = 0; i < order.runs(); ++i)
    positions.push_back({order.run(0, i).position, order.run(0, i).length});
  return positions;
}

void Rank::hash_inputs() {
  // Tensor-parallel ranks load the same rows: the first rank that has them is the one.
  const std::array<int64_t, 4> mine = {dp_index_, cp_index_, takes(graph::InputKind::Ids),
                                       takes(graph::InputKind::Labels)};
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(world_.size()));
  world_.world().all_gather(mine.data(), all.data(), std::ssize(mine), DType::I64);
  const auto is_first = [&](size_t flag) {
    for (size_t at = 0; at < all.size(); at += mine.size())
      if (all[at] == mine[0] && all[at + 1] == mine[1] && all[at + flag] != 0)
        return at == mine.size() * static_cast<size_t>(world_.rank().value);
    return false;
  };
  hashes_ids_ = is_first(2);
  hashes_labels_ = is_first(3);
}

uint64_t Rank::take_input_hash(int64_t step) {
  const std::lock_guard lock(hashes_mutex_);
  uint64_t sum = 0;
  for (const auto& [row, hash] : hashes_[step]) sum += hash;
  hashes_.erase(hashes_.begin(), hashes_.upper_bound(step));
  return sum;
}

void Rank::start_step(int64_t step, const data::Batches& batches) {
  const exec::Inputs now{in_row_order(load_of(step, batches)), &batches, step};
  const exec::Inputs next{in_row_order(load_of(step + 1, batches)), &batches, step + 1};
  // The next step is loaded while this one runs; the disk works one step ahead of that.
  if (takes_tokens_ && step + kReadAhead < recipe_.run.steps)
    batches.will_read(step + kReadAhead, dp_index_, loaded_);
  start_step(step, now, &next, batches.count_labels(step, dp_index_, own_));
}

void Rank::start_step_from(int64_t step, const std::function<exec::LoadBatch(int64_t step)>& load_of,
                           int64_t valid_tokens) {
  const exec::Inputs now{in_row_order(load_of(step)), this, step};
  const exec::Inputs next{in_row_order(load_of(step + 1)), this, step + 1};
  start_step(step, now, &next, own_part(valid_tokens));
}

StepResult Rank::step_with(int64_t step, const exec::LoadBatch& load, int64_t valid_tokens) {
  start_step(step, {.load = in_row_order(load)}, nullptr, own_part(valid_tokens));
  return finish_step();
}

const program::Expanded& Rank::program_of(int64_t step) const {
  const int64_t accumulation = ramp_.at(step).accumulation;
  if (accumulation == recipe_.batch.accumulation) return compiled_->step;
  const std::vector<program::StepVariant>& variants = compiled_->program.variants;
  for (size_t i = 0; i < variants.size(); ++i)
    if (!variants[i].measures && variants[i].micro_batches == accumulation) return compiled_->variants[i];
  base::fail_internal("no program for a step of {} micro-batches", accumulation);
}

void Rank::set_step_scalars(int64_t step, int64_t micro_batches, int64_t own_labels) {
  exec::Executor& e = *executor_;
  e.set_scalar(scalars::kCount, static_cast<double>(own_labels));
  e.set_scalar(scalars::kLearningRate,
               optim::learning_rate(recipe_.optimizer, ramp_.after(step + 1), schedule_end_) *
                   optim::batch_factor(recipe_.optimizer.lr_scaling, ramp_.at(step).global));
  // A pipeline stage without blocks updates nothing and has no such scalar.
  if (compiled_->program.has_scalar(scalars::kDecayRatio))
    e.set_scalar(scalars::kDecayRatio,
                 optim::weight_decay_ratio(recipe_.optimizer, ramp_.after(step + 1), schedule_end_));
  if (compiled_->program.has_scalar(scalars::kStepShare))
    e.set_scalar(scalars::kStepShare,
                 static_cast<double>(micro_batches) / static_cast<double>(recipe_.batch.accumulation));
  if (spikes_.is_on()) {
    const SpikeGuard::Limits limits = spikes_.limits(step);
    e.set_scalar(scalars::kLossLimit, limits.loss);
    e.set_scalar(scalars::kNormLimit, limits.norm);
  }
  const auto key = base::philox(base::stream_key(static_cast<uint64_t>(recipe_.run.seed), "dropout"),
                                static_cast<uint64_t>(step));
  e.set_dropout_key(static_cast<int64_t>((uint64_t{key[0]} << 32) | key[1]));
}

void Rank::start_step(int64_t step, const exec::Inputs& inputs, const exec::Inputs* next,
                      int64_t own_labels) {
  set_step_scalars(step, ramp_.at(step).accumulation, own_labels);
  if (measures(step)) executor_->begin_measuring(measured_rounds_[ramp_.at(step).accumulation]);
  const program::Expanded& program = program_of(step);
  traffic_->ran(program);
  executor_->start(program, inputs, &program == &program_of(step + 1) ? next : nullptr);
  in_flight_.push_back(step);
}

bool Rank::step_was_abandoned() {
  if (!executor_->was_abandoned()) return false;
  traffic_->lost();
  in_flight_.pop_front();
  return true;
}

StepResult Rank::finish_step() {
  exec::Executor& e = *executor_;
  e.finish();
  if (std::exchange(sets_up_, false)) {
    world_.set_timeout(std::chrono::seconds(recipe_.run.timeout));
    if (!e.was_abandoned()) traffic_->require_planned(e);
  }
  const int64_t step = in_flight_.front();
  in_flight_.pop_front();
  if (measures(step)) e.end_measuring(measured_rounds_[ramp_.at(step).accumulation]++);
  const double count = e.scalar(scalars::kCount), scale = loss_scale_;
  loss_scale_ = e.scalar(scalars::kLossScale);
  StepResult result{.loss = e.scalar(scalars::kLoss) / std::max(count, 1.0),
                    .grad_norm = e.scalar(scalars::kNorm),
                    .lr = e.scalar(scalars::kLearningRate),
                    .loss_scale = scale,
                    .tokens = static_cast<int64_t>(count),
                    .skipped = e.scalar(scalars::kOk) == 0,
                    .skipped_in_row = static_cast<int64_t>(e.scalar(scalars::kSkippedInRow)),
                    .skipped_total = static_cast<int64_t>(e.scalar(scalars::kSkippedTotal))};
  if (recipe_.optimizer.weight_decay_ramp.kind != config::RampKind::Constant)
    result.decay_ratio = optim::weight_decay_ratio(recipe_.optimizer, ramp_.after(step + 1), schedule_end_);
  result.spike = result.skipped && std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (spikes_.is_on() && !result.skipped) spikes_.accept(step, result.loss, result.grad_norm);
  return result;
}

GradientNorm Rank::measure_gradient(int64_t step, const data::Batches& batches) {
  QUINTET_CHECK(in_flight_.empty(), "a gradient is measured while a step is in flight");
  const std::vector<program::StepVariant>& variants = compiled_->program.variants;
  size_t i = 0;
  while (i < variants.size() && !variants[i].measures) ++i;
  QUINTET_CHECK(i < variants.size(), "the program has no variant that measures gradients");
  const int micro_batches = variants[i].micro_batches;
  set_step_scalars(step, micro_batches, batches.count_labels(step, dp_index_, micro_batches, own_));
  exec::Executor& e = *executor_;
  traffic_->ran(compiled_->variants[i]);
  e.run(compiled_->variants[i], in_row_order(load_of(step, batches)));
  return {.squared = e.scalar(scalars::kSumSquares) / (loss_scale_ * loss_scale_),
          .tokens = static_cast<int64_t>(e.scalar(scalars::kCount))};
}

// With cp > 1, loads whole micro-batches into a staging buffer and copies to each input the rows of its span,
// in their order.
exec::LoadBatch Rank::in_row_order(const exec::LoadBatch& load) {
  const int64_t ranks = compiled_->layout.context.ranks;
  if (ranks == 1) return load;
  return [this, ranks, load](int micro, const std::vector<exec::InputRows>& inputs) {
    const int64_t seq_len = recipe_.data.seq_len;
    const base::RowOrder whole{.seq_len = seq_len, .sequences = recipe_.batch.micro};
    const auto of_one_rank = [](graph::InputSpec spec) {
      spec.rows = {};
      return spec;
    };
    std::vector<exec::InputRows> wanted;
    for (const exec::InputRows& input : inputs) {
      const auto [it, is_new] = whole_rows_.try_emplace(of_one_rank(input.spec));
      if (is_new) it->second.resize(static_cast<size_t>(whole.rows() * columns_of(input.spec)));
    }
    for (auto& [spec, rows] : whole_rows_) wanted.push_back({spec, rows.data()});
    load(micro, wanted);
    for (const exec::InputRows& input : inputs) {
      const int64_t count = input.spec.rows.ranks;
      const base::RowOrder order{.seq_len = seq_len,
                                 .sequences = whole.sequences,
                                 .ranks = ranks,
                                 .first = cp_index_ / count * count,
                                 .count = count};
      const int32_t* from = whole_rows_.at(of_one_rank(input.spec)).data();
      const int64_t columns = columns_of(input.spec);
      for (int64_t s = 0; s < order.sequences; ++s)
        for (int64_t i = 0; i < order.runs(); ++i) {
          const base::RowOrder::Run run = order.run(s, i);
          std::copy_n(from + (s * seq_len + run.position) * columns, run.length * columns,
                      input.data + run.row * columns);
        }
    }
  };
}

std::vector<Rank::Sum> Rank::step_sums() const {
  std::vector<Sum> list;
  const program::Program& p = compiled_->program;
  if (!p.sums.valid()) return list;
  const std::span<const double> values = executor_->sums();
  const double share = p.has_scalar(scalars::kStepShare) ? executor_->scalar(scalars::kStepShare) : 1;
  for (const program::SumPlace& s : p.step_sums)
    list.push_back({s.kind, s.block,
                    values.subspan(static_cast<size_t>(s.first), static_cast<size_t>(s.count)), s.scale,
                    share});
  return list;
}

std::vector<Rank::State> Rank::states() const {
  std::vector<State> list;
  for (const program::StatePlace& s : compiled_->program.states)
    list.push_back({s.name,
                    {s.place.buffer, s.place.offset_bytes, s.place.bytes()},
                    s.place.type.count(),
                    s.place.type.dtype});
  return list;
}

Rank::Evaluation Rank::evaluate(const data::Batches& batches, int64_t first, int64_t count) {
  exec::Executor& e = *executor_;
  // What evaluation draws (experts that drop random rows) does not depend on the step.
  e.set_dropout_key(
      static_cast<int64_t>(base::stream_key(static_cast<uint64_t>(recipe_.run.seed), "evaluation") >> 1));
  Evaluation total;
  for (int64_t batch = first; batch < first + count; ++batch) {
    // Before the run, so that its streams need not wait for the batch to read the count.
    e.set_scalar(scalars::kCount, static_cast<double>(batches.count_labels(batch, dp_index_, own_)));
    const size_t rows = static_cast<size_t>(batches.micro_tokens());
    const exec::LoadBatch load = [&](int, const auto& inputs) {
      data::MicroBatch out;
      for (const exec::InputRows& input : inputs) set_rows(out, input, rows, route_columns_);
      out.wanted = loaded_;
      batches.fill(batch, 0, dp_index_, out);
    };
    traffic_->ran(compiled_->evaluate);
    e.run(compiled_->evaluate, in_row_order(load));
    total.loss_sum += e.scalar(scalars::kLoss);
    total.tokens += static_cast<int64_t>(e.scalar(scalars::kCount));
  }
  return total;
}

AtomList Rank::replicated_over(const Piece& piece) const { return piece.group->replicas(*piece.segment); }

Rank::Copies Rank::copies(const Piece& piece) const {
  return layout::copies_of(*piece.group, *piece.segment, compiled_->layout, world_.rank());
}

comm::Communicator* Rank::replicas(const Piece& piece) const {
  if (!piece.group->shared_by.empty()) return nullptr;
  const AtomList atoms = replicated_over(piece);
  for (const ReplicaGroup& group : replica_groups_)
    if (group.shared_by.empty() && group.atoms == atoms) return group.comm.get();
  return nullptr;
}

std::map<std::string, double> Rank::scalar_states() const {
  const program::Program& p = compiled_->program;
  std::map<std::string, double> values;
  for (const program::ScalarDecl& s : p.scalar_table) {
    if (s.kind != program::ScalarKind::State) continue;
    const exec::HostBytes bytes = read({p.scalars, p.scalar_slot(s.name) * program::kScalarBytes, 8});
    double number = 0;
    int64_t integer = 0;
    std::memcpy(&number, bytes.data(), sizeof(number));
    std::memcpy(&integer, bytes.data(), sizeof(integer));
    values[s.name] = s.dtype == DType::I64 ? static_cast<double>(integer) : number;
  }
  return values;
}

std::vector<std::string> Rank::set_scalar_states(const std::map<std::string, double>& values) {
  const program::Program& p = compiled_->program;
  std::vector<std::string> unset;
  for (const program::ScalarDecl& s : p.scalar_table) {
    if (s.kind != program::ScalarKind::State) continue;
    const auto found = values.find(s.name);
    // Integers up to 2^53 are exact.
    if (found == values.end() || !(std::abs(found->second) <= 0x1p53)) {
      unset.push_back(s.name);
      continue;
    }
    write({p.scalars, p.scalar_slot(s.name) * program::kScalarBytes, 8}, [&](std::byte* to) {
      const auto integer = static_cast<int64_t>(found->second);
      std::memcpy(to, s.dtype == DType::I64 ? static_cast<const void*>(&integer) : &found->second, 8);
    });
    if (s.name == scalars::kLossScale) loss_scale_ = found->second;
  }
  return unset;
}

void Rank::create_replica_groups() {
  const layout::Mesh& mesh = compiled_->layout.mesh;
  std::set<AtomList> sets;
  std::set<std::vector<int>> shared;
  for (const layout::Group& g : compiled_->groups) {
    if (!g.shared_by.empty()) shared.insert(g.shared_by);
    for (const Segment& s : g.segments)
      if (AtomList atoms = g.replicas(s); mesh.size(atoms) > 1) sets.insert(std::move(atoms));
  }
  for (const AtomList& atoms : sets)
    replica_groups_.push_back(
        {.atoms = atoms,
         .shared_by = {},
         .name = "replicated over " + mesh.name(atoms),
         .comm = world_.create(mesh.group(world_.rank(), atoms), "replicas over " + mesh.name(atoms))});
  for (const std::vector<int>& stages : shared) {
    const std::vector<base::RankId> all = mesh.group(world_.rank(), compiled_->layout.pipeline);
    std::vector<base::RankId> members;
    for (const int s : stages) members.push_back(all[static_cast<size_t>(s)]);
    replica_groups_.push_back({.atoms = {},
                               .shared_by = stages,
                               .name = "shared by pipeline stages",
                               .comm = world_.create(members, "copies on pipeline stages")});
  }
}

void Rank::check_replicas() {
  const auto compare = [](uint64_t hash, comm::Communicator& comm, const std::string& what) {
    const int64_t mine = static_cast<int64_t>(hash);
    std::vector<int64_t> all(static_cast<size_t>(comm.size()));
    comm.all_gather(&mine, all.data(), 1, DType::I64);
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] != all[0])
        base::fail_internal(
            "the {} shared by ranks {} and {} differ: memory or a link corrupted them, or a step was applied "
            "on only one of them",
            what, comm.members()[0], comm.members()[i]);
  };
  for (const ReplicaGroup& group : replica_groups_) {
    base::Checksum hash;
    visit(program::holds_weights, [&](const Piece& piece, const layout::GlobalIndex&) {
      if (group.shared_by.empty() ? replicated_over(piece) == group.atoms
                                  : piece.group->shared_by == group.shared_by)
        hash.add({read(piece).data(), static_cast<size_t>(piece.bytes())});
    });
    compare(hash.value(), *group.comm, fmt::format("weights ({})", group.name));
  }
  if (compiled_->program.states.empty()) return;
  base::Checksum hash;
  for (const State& state : states())
    hash.add({read(state.range).data(), static_cast<size_t>(state.range.bytes)});
  std::set<std::string_view> kinds;
  for (const State& state : states())
    kinds.insert(state.name == graph::kAmaxState     ? "fp8 magnitudes"
                 : state.name == graph::kFactorState ? "averages of the optimizer"
                                                     : "router biases");
  compare(hash.value(), world_.world(), fmt::format("{}", fmt::join(kinds, " or ")));
}

}  // namespace quintet::train
