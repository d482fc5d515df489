#include "search/bounds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "compiler/compile.h"
#include "compiler/pipeline_schedule.h"
#include "config/validate.h"
#include "hardware/cost.h"
#include "plan/time.h"
#include "schedule/simulate.h"
#include "search/state_costs.h"

namespace quintet::search {
namespace {

// Estimates before a schedule is chosen: the bubble of 1f1b, and the fraction of activations it holds.
constexpr double kBubble = 0.25, kHeld = 0.35;

// Estimated activations held by the most loaded rank, as a fraction of what all blocks keep per micro-batch.
double held_share(const config::Parallel& p, int64_t micro_batches) {
  const auto n = static_cast<double>(micro_batches), ranks = static_cast<double>(p.pp);
  const double filled = std::min(1.0, n / ranks);
  switch (config::traits_of(p.schedule).kind) {
    case config::PipelineSchedule::GPipe:
      return n / ranks;
    case config::PipelineSchedule::Interleaved:
      return filled * (1 + (ranks - 1) / (ranks * static_cast<double>(p.chunks)));
    case config::PipelineSchedule::VMin:
      return std::max(kHeld, 1 / ranks) * filled;
    case config::PipelineSchedule::VHalf:
      return std::max(0.5, 1 / ranks) * filled;
    default:
      return filled;
  }
}

// Time and memory of a virtual stage.
struct StageCosts {
  double f = 0, b = 0, w = 0;   // seconds on its rank; schedules that do not split have b + w in b
  double f_way = 0, b_way = 0;  // from the end of the previous (next) stage to when the following may start
  // Bytes per micro-batch: kept from F to B, from F to W, from B to W; and live within a single body.
  int64_t kept = 0, kept_for_w = 0, left_for_w = 0, passing = 0;
};

// `whole`: a schedule that splits the backward pass but runs part of it unsplit. Parameter gradients then
// fill the time in which communication leaves the rank idle, and those of the first block follow after
// everything the previous stage waits for.
StageCosts stage_costs(const BlockTables& t, size_t first, size_t last, bool splits, bool whole) {
  StageCosts c;
  const auto back_of = [&](size_t label) -> const Stretch& {
    return splits ? t.block(label).backward_b : t.block(label).backward;
  };
  for (size_t label = first; label <= last; ++label) {
    const BlockTable& b = t.block(label);
    c.f += label < last ? b.forward.to_next : b.forward.own;
    // The backward pass ends with the first block.
    const auto back = [&](const Stretch& stretch) { return label > first ? stretch.to_next : stretch.own; };
    c.b += whole ? std::min(back(b.backward_b), std::max(0.0, back(b.backward) - b.backward_w))
                 : back(back_of(label));
    if (splits) c.w += b.backward_w;
    const int64_t for_w = splits ? b.kept_for_w : 0;
    c.kept += b.kept_bytes - for_w;
    c.kept_for_w += for_w;
    if (splits) c.left_for_w += b.left_for_w;
    c.passing = std::max(c.passing, splits ? b.passing_split : b.passing_bytes);
  }
  c.f_way = std::max(0.0, c.f - t.block(first).forward.early - t.block(last).forward.late);
  const double late = std::max(back_of(first).late, whole ? t.block(first).backward.late : 0);
  c.b_way = std::max(0.0, c.b - back_of(last).early - late);
  return c;
}

size_t stage_index(int64_t rank, int64_t chunk, int64_t ranks, bool v_shape) {
  return static_cast<size_t>(v_shape && chunk == 1 ? 2 * ranks - 1 - rank : chunk * ranks + rank);
}

// Shortest path of the stages through a schedule that is not generated: every rank is idle until the first
// micro-batch reaches it and, after its last backward pass, until that one has reached the first stage.
double pipeline_seconds(const std::vector<StageCosts>& stages, int64_t ranks, int64_t micro_batches,
                        bool v_shape) {
  double fill = 0, drain = 0, most = 0;
  const auto n = static_cast<double>(micro_batches);
  for (int64_t r = 0; r < ranks; ++r) {
    double f = 0, b = 0, w = 0;
    for (int64_t c = 0; c < static_cast<int64_t>(stages.size()) / ranks; ++c) {
      const StageCosts& s = stages[stage_index(r, c, ranks, v_shape)];
      f += s.f, b += s.b, w += s.w;
    }
    // W may run last, while other ranks are still busy with B.
    const StageCosts& own = stages[static_cast<size_t>(r)];
    // Work that needs no other stage may start before the first micro-batch arrives.
    const double begun = fill - (own.f - own.f_way);
    most = std::max({most, begun + n * (f + b) - (own.b - own.b_way) + drain, begun + n * (f + b + w)});
    fill += own.f_way;
    drain += own.b_way;
  }
  return most;
}

// Bytes held by micro-batches in flight on a rank. Of every stretch (a chunk's F to B, F to W, B to W) a
// micro-batch holds a slot (program/slots.h); the most that they hold at once, whatever shares the bytes of
// the others.
struct InFlightBytes {
  int64_t bytes = 0;
  bool alone = true;  // at most one in flight: bytes are then shared by lifetime instead
};

InFlightBytes in_flight_bytes(const schedule::Schedule& s, int rank, const std::vector<StageCosts>& stages) {
  InFlightBytes out;
  int64_t held = 0, one = 0;
  int any = 0, most = 0;
  for (const schedule::Action& a : s.ranks[static_cast<size_t>(rank)]) {
    const StageCosts& stage = stages[static_cast<size_t>(s.stage_of(rank, a.chunk))];
    using schedule::Kind;
    if (a.kind == Kind::F) {
      held += stage.kept + stage.kept_for_w;
      most = std::max(most, ++any);
      one = std::max(one, stage.kept + stage.kept_for_w);
    }
    if (a.kind == Kind::B || a.kind == Kind::BW) held += stage.left_for_w;
    out.bytes = std::max(out.bytes, held);
    if (a.kind == Kind::B || a.kind == Kind::BW) held -= stage.kept;
    if (a.kind == Kind::W || a.kind == Kind::BW) held -= stage.kept_for_w + stage.left_for_w, --any;
  }
  out.alone = most <= s.chunks;
  // With one micro-batch in flight, a stretch may reuse the bytes of another that has ended.
  if (out.alone) out.bytes = one;
  return out;
}

template <class Test>
bool has_action(const schedule::Schedule& s, const Test& test) {
  return std::any_of(s.ranks.begin(), s.ranks.end(), [&](const std::vector<schedule::Action>& actions) {
    return std::any_of(actions.begin(), actions.end(), test);
  });
}

bool has_pairs(const schedule::Schedule& s) {
  return has_action(s, [](const schedule::Action& a) { return a.with_next; });
}

bool has_whole(const schedule::Schedule& s) {
  return has_action(s, [](const schedule::Action& a) { return a.kind == schedule::Kind::BW; });
}

// Everything its generator reads, besides the number of micro-batches.
std::string schedule_key(const config::Recipe& r) {
  const config::Parallel& p = r.parallel;
  return fmt::format("{} {} {} {}", p.schedule, p.pp, p.chunks, p.micro_group);
}

double scheduled_seconds(schedule::Schedule s, const std::vector<StageCosts>& stages) {
  // A program starts the two actions of a mixed pair separately, each as soon as possible.
  for (std::vector<schedule::Action>& actions : s.ranks)
    for (schedule::Action& a : actions) a.with_next = false;
  schedule::Costs costs;
  for (const StageCosts& stage : stages) {
    costs.f.push_back(stage.f_way);
    costs.b.push_back(stage.b_way);
    costs.w.push_back(stage.w);
  }
  return schedule::simulate(s, costs).makespan;
}

}  // namespace

Bounds::Bounds(const plan::Assumptions& a) : machine_(plan::machine_of(a)) {}

template <class Map, class Key, class Make>
static auto remembered(std::mutex& mutex, Map& map, const Key& key, const Make& make) {
  {
    const std::scoped_lock lock(mutex);
    if (const auto it = map.find(key); it != map.end()) return it->second;
  }
  auto made = make();
  const std::scoped_lock lock(mutex);
  return map.try_emplace(key, std::move(made)).first->second;
}

std::shared_ptr<const BlockTables> Bounds::tables(const config::Recipe& recipe) const {
  return remembered(mutex_, tables_, tables_key(recipe),
                    [&] { return std::make_shared<const BlockTables>(make_tables(recipe, machine_)); });
}

// Number of blocks per virtual stage, without the embedding and the head.
std::shared_ptr<const std::vector<int64_t>> Bounds::blocks_of_stages(const config::Recipe& r) const {
  const config::Parallel& p = r.parallel;
  if (p.pp == 1) return std::make_shared<const std::vector<int64_t>>(1, r.model.layers + r.model.mtp.layers);
  const std::string model = fmt::format("{} {}", r.batch.micro * p.dp(), recompute_key(r.memory));
  const auto work = remembered(mutex_, work_, model, [&] {
    return std::make_shared<const compiler::BlockWork>(compiler::block_work(r, compiler::training_graph(r)));
  });
  return remembered(
      mutex_, stages_,
      fmt::format("{} {} {} {}", model, r.batch.accumulation, schedule_key(r), fmt::join(p.stages, ",")),
      [&] { return std::make_shared<const std::vector<int64_t>>(compiler::blocks_per_stage(r, *work)); });
}

// A long schedule is periodic: a shorter one shows what it holds.
std::shared_ptr<const schedule::Schedule> Bounds::schedule_of(const config::Recipe& r) const {
  const config::Recipe shorter = compiler::with_few_micro_batches(r);
  return remembered(
      mutex_, schedules_, fmt::format("{} {}", schedule_key(r), shorter.batch.accumulation),
      [&] { return std::make_shared<const schedule::Schedule>(compiler::pipeline_schedule(shorter)); });
}

Bound Bounds::of_any_schedule(const config::Recipe& recipe) const {
  return bound(recipe, recipe.parallel.pp > 1 ? Effort::AnySchedule : Effort::ClosedForms);
}
Bound Bounds::quick(const config::Recipe& recipe) const { return bound(recipe, Effort::ClosedForms); }
Bound Bounds::exact(const config::Recipe& recipe) const { return bound(recipe, Effort::Schedule); }

Bound Bounds::bound(const config::Recipe& r, Effort effort) const {
  const config::Parallel& p = r.parallel;
  const std::shared_ptr<const BlockTables> t = tables(r);
  const StateCostModel state(r, machine_);
  std::vector<StateCosts> state_of;  // by kind of block
  for (const BlockTable& b : t->of_kind) state_of.push_back(state.of(b));

  Bound out;
  if (effort == Effort::AnySchedule) {
    // However blocks are assigned, at least one rank holds the mean or more.
    StateCosts all;
    double seconds = 0, kept = 0;
    for (const int kind : t->kind) {
      kept += static_cast<double>(t->of_kind[static_cast<size_t>(kind)].kept_bytes);
      const BlockTable& b = t->of_kind[static_cast<size_t>(kind)];
      seconds += b.forward.own + std::min(b.backward.own, b.backward_b.own + b.backward_w);
      all.add(state_of[static_cast<size_t>(kind)], false);
    }
    const auto ranks = static_cast<double>(p.pp);
    // A micro-batch runs forward through all blocks of a rank before it runs backward through any.
    out.bytes = static_cast<int64_t>((static_cast<double>(all.bytes) + kept) / ranks);
    all.update_bytes -= all.norm_bytes;
    out.seconds = std::max(static_cast<double>(r.batch.accumulation) * seconds + update_seconds(all),
                           state.stream_seconds(all)) /
                  ranks;
    // The pipeline fills and drains once per step; good schedules lose a quarter of that.
    const auto n = static_cast<double>(r.batch.accumulation);
    out.likely_bytes = std::max(out.bytes, static_cast<int64_t>(static_cast<double>(all.bytes) / ranks +
                                                                kHeld * std::min(1.0, n / ranks) * kept));
    const double bubble = kBubble * (ranks - 1) / n, busy = seconds / ranks;
    out.likely_seconds = out.seconds + bubble * n * busy + state.likely_exposed(all, seconds) / ranks;
    return with_runtime(out);
  }

  std::shared_ptr<const schedule::Schedule> schedule;
  const bool own_schedule = config::schedule_file(p.schedule).has_value();
  if (p.pp > 1 && (effort == Effort::Schedule || own_schedule)) schedule = schedule_of(r);
  const bool splits =
      own_schedule ? schedule->splits_backward : config::traits_of(p.schedule).splits_backward;
  const bool whole = splits && (!schedule || has_whole(*schedule));
  const bool v_shape = own_schedule ? schedule->placement == schedule::Placement::VShape
                                    : config::traits_of(p.schedule).v_shaped;

  const std::shared_ptr<const std::vector<int64_t>> sizes = blocks_of_stages(r);
  std::vector<StageCosts> stages;
  std::vector<size_t> begin = {0};  // first label of each stage, and one past the last
  for (size_t s = 0; s < sizes->size(); ++s) {
    const bool first = s == 0, last = s + 1 == sizes->size();
    begin.push_back(begin.back() + static_cast<size_t>((*sizes)[s]) + first + last);
    stages.push_back(stage_costs(*t, begin[s], begin[s + 1] - 1, splits, whole));
  }

  const int64_t compute_size = base::size_of(r.precision.compute),
                head = t->block(t->kind.size() - 1).kept_bytes;
  int64_t all_kept = 0;
  for (const StageCosts& s : stages) all_kept += s.kept + s.kept_for_w;
  const double held = held_share(p, r.batch.accumulation);
  double update = 0, stream_seconds = 0, exposed = 0, busiest = 0;
  for (int64_t rank = 0; rank < p.pp; ++rank) {
    StateCosts own;
    double busy = 0;
    int64_t kept = 0, passing = 0, gathered = 0, grad_block = 0;
    for (int64_t chunk = 0; chunk < p.chunks; ++chunk) {
      const size_t s = stage_index(rank, chunk, p.pp, v_shape);
      busy += stages[s].f + stages[s].b + stages[s].w;
      kept += stages[s].kept + stages[s].kept_for_w;
      passing = std::max(passing, stages[s].passing);
      for (size_t label = begin[s]; label < begin[s + 1]; ++label) {
        // The backward pass reads no embedding table, and a stage's last block is still gathered then.
        const bool again = label > 0 && label + 2 < t->kind.size() && label + 1 < begin[s + 1];
        own.add(state_of[static_cast<size_t>(t->kind[label])], again);
        gathered = std::max(gathered, state.gathered(t->block(label)) * compute_size);
        int64_t trained = 0;
        for (const GroupTable& g : t->block(label).groups) trained += g.trainable ? g.elements : 0;
        grad_block = std::max(grad_block, trained);
      }
    }
    const int64_t inner = p.pp == 1 ? state.gathered(t->block(t->kind.size() - 2)) * compute_size : gathered;
    const int64_t passes = gathered + (p.zero >= 2 ? 4 * grad_block : 0);
    int64_t least = 0, likely = 0;
    if (p.pp == 1) {
      least = std::max(kept + t->scratch_bytes, kept - head + inner);
      likely = kept + t->scratch_bytes + gathered + passes;
    } else if (schedule) {
      const InFlightBytes held = in_flight_bytes(*schedule, static_cast<int>(rank), stages);
      least = held.bytes;
      likely = held.bytes + passing + passes;
    } else {
      least = kept / p.chunks;
      likely = std::max(least, static_cast<int64_t>(held * static_cast<double>(all_kept)));
    }
    out.bytes = std::max(out.bytes, own.bytes + least);
    out.likely_bytes = std::max(out.likely_bytes, own.bytes + likely);
    busiest = std::max(busiest, busy);
    // A rank that finishes early computes its gradient norm while the others are busy.
    if (p.pp > 1) own.update_bytes -= own.norm_bytes;
    update = std::max(update, update_seconds(own));
    stream_seconds = std::max(stream_seconds, state.stream_seconds(own));
    exposed = std::max(exposed, state.likely_exposed(own, busy));
  }
  double compute = pipeline_seconds(stages, p.pp, r.batch.accumulation, v_shape), likely = compute;
  // Mixed pairs and whole backward passes overlap with their neighbours, so simulating one action after the
  // other gives no bound.
  const bool bounds =
      schedule && schedule->micro_batches == r.batch.accumulation && !has_pairs(*schedule) && !whole;
  if (bounds) {
    likely = compute = std::max(compute, scheduled_seconds(*schedule, stages));
  } else if (schedule) {
    // This schedule, or a shorter one, estimates the loss from filling and draining, but does not bound it.
    const auto few = static_cast<double>(schedule->micro_batches);
    likely = std::max(compute, scheduled_seconds(*schedule, stages) +
                                   (static_cast<double>(r.batch.accumulation) - few) * busiest);
  }
  out.seconds = std::max(compute + update, stream_seconds);
  out.likely_seconds = std::max(likely + update + exposed, stream_seconds);
  return with_runtime(out);
}

double Bounds::update_seconds(const StateCosts& costs) const {
  return hardware::memory_seconds(costs.update_bytes, machine_.cluster.accelerator, machine_.stack);
}

Bound Bounds::with_runtime(Bound b) const {
  b.bytes += machine_.cluster.accelerator.runtime_bytes;
  b.likely_bytes += machine_.cluster.accelerator.runtime_bytes;
  b.seconds += machine_.stack.step_seconds;
  b.likely_seconds += machine_.stack.step_seconds;
  return b;
}

}  // namespace quintet::search
