#include "compiler/stage_balance.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "compiler/pipeline_schedule.h"
#include "graph/op.h"
#include "passes/recompute.h"
#include "schedule/simulate.h"

namespace quintet::compiler {
namespace {

// FLOPs that an accelerator computes while it moves a byte.
constexpr double kFlopsPerByte = 200;
// A split must be better by this to be preferred.
constexpr double kBetter = 1 - 1e-6;
// Few micro-batches can make a split faster that gives one rank much more than the others, which then holds
// much more too: the work of any rank, relative to that of the busiest one in the split to begin with.
constexpr double kMostWork = 1.05;
// Actions that are simulated to compare splits: a few milliseconds. A search balances thousands of layouts,
// so splits of long pipelines are compared in part, those that relieve the busiest rank first.
constexpr int64_t kSimulated = 40'000;

// Sums over the first labels, from which those of any stage follow.
class StageWork {
 public:
  explicit StageWork(const BlockWork& work) : labels_(work.f.size()) {
    for (const std::vector<double>* of : {&work.f, &work.b, &work.w}) {
      std::vector<double>& sum = sums_.emplace_back(1, 0.0);
      for (const double x : *of) sum.push_back(sum.back() + x);
    }
  }
  size_t layers() const { return labels_ - 2; }

  // Of blocks [first, last) of the model, with the embedding and the head where they belong.
  double of(size_t phase, size_t first, size_t last) const {
    const size_t begin = first == 0 ? 0 : first + 1, end = last == layers() ? labels_ : last + 1;
    return sums_[phase][end] - sums_[phase][begin];
  }
  double all(size_t first, size_t last) const {
    return of(0, first, last) + of(1, first, last) + of(2, first, last);
  }

  schedule::Costs costs(const std::vector<int64_t>& sizes) const {
    schedule::Costs c;
    size_t first = 0;
    for (const int64_t n : sizes) {
      const size_t last = first + static_cast<size_t>(n);
      c.f.push_back(of(0, first, last));
      c.b.push_back(of(1, first, last));
      c.w.push_back(of(2, first, last));
      first = last;
    }
    return c;
  }

 private:
  size_t labels_;
  std::vector<std::vector<double>> sums_;  // by phase
};

// Per micro-batch, by rank.
std::vector<double> work_of_ranks(const schedule::Schedule& schedule, const schedule::Costs& costs) {
  std::vector<double> of(static_cast<size_t>(schedule.stages), 0);
  for (int s = 0; s < schedule.virtual_stages(); ++s) {
    const auto i = static_cast<size_t>(s);
    of[static_cast<size_t>(schedule.home_of(s).rank)] += costs.f[i] + costs.b[i] + costs.w[i];
  }
  return of;
}

double busiest(const schedule::Schedule& schedule, const schedule::Costs& costs) {
  return std::ranges::max(work_of_ranks(schedule, costs));
}

// Virtual stages, those of the ranks with the most work first.
std::vector<size_t> by_work_of_rank(const schedule::Schedule& schedule, const schedule::Costs& costs) {
  const std::vector<double> of = work_of_ranks(schedule, costs);
  std::vector<size_t> stages(static_cast<size_t>(schedule.virtual_stages()));
  std::iota(stages.begin(), stages.end(), size_t{0});
  std::ranges::stable_sort(stages, std::greater(), [&](size_t s) {
    return of[static_cast<size_t>(schedule.home_of(static_cast<int>(s)).rank)];
  });
  return stages;
}

double time_of(const schedule::Schedule& schedule, const schedule::Costs& costs, int64_t micro_batches) {
  return schedule::simulate(schedule, costs).makespan +
         static_cast<double>(micro_batches - schedule.micro_batches) * busiest(schedule, costs);
}

std::vector<int64_t> cheapest_worst_stage(const StageWork& work, size_t stages) {
  const size_t layers = work.layers();
  // worst[s][l]: the least possible work of the most expensive of the first s stages when they hold l layers.
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> worst(stages + 1, std::vector<double>(layers + 1, never));
  std::vector<std::vector<size_t>> from(stages + 1, std::vector<size_t>(layers + 1, 0));
  worst[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s)
    for (size_t l = s; l + (stages - s) <= layers; ++l)
      for (size_t k = s - 1; k < l; ++k) {
        const double all = std::max(worst[s - 1][k], work.all(k, l));
        if (all <= worst[s][l]) worst[s][l] = all, from[s][l] = k;  // ties: the last k
      }
  QUINTET_CHECK(worst[stages][layers] < never, "{} layers do not fill {} stages", layers, stages);
  std::vector<int64_t> sizes(stages);
  for (size_t s = stages, l = layers; s > 0; --s) {
    sizes[s - 1] = static_cast<int64_t>(l - from[s][l]);
    l = from[s][l];
  }
  return sizes;
}

}  // namespace

BlockWork block_work(const config::Recipe& recipe, const graph::Graph& graph) {
  const config::Memory& memory = recipe.memory;
  const bool known = memory.recompute != config::RecomputeKind::Fit && memory.recompute_first == 0;
  const passes::Marks recomputed = known ? passes::chosen(graph, memory) : passes::Marks();
  const auto labels = static_cast<size_t>(graph.num_blocks);
  BlockWork out{std::vector<double>(labels, 0), std::vector<double>(labels, 0),
                std::vector<double>(labels, 0)};
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const graph::Node& node = graph.nodes()[i];
    if (node.op->cost == nullptr) continue;
    const graph::Cost cost =
        node.op->cost(graph::input_types(graph, node), graph::output_types(graph, node), node.attrs);
    const double work = std::max(cost.flops, kFlopsPerByte * cost.bytes);
    const auto label = static_cast<size_t>(node.block);
    (node.phase == graph::Phase::F ? out.f : node.phase == graph::Phase::B ? out.b : out.w)[label] += work;
    if (!recomputed.empty() && recomputed[i]) out.b[label] += work;
  }
  return out;
}

std::vector<int64_t> blocks_per_stage(const config::Recipe& recipe, const BlockWork& work) {
  if (std::vector<int64_t> stages = recipe.parallel.stages; !stages.empty()) {
    const auto blocks = static_cast<int64_t>(work.f.size()) - 2;
    stages.back() += blocks - std::accumulate(stages.begin(), stages.end(), int64_t{0});
    return stages;
  }
  return balance_stages(work, pipeline_schedule(with_few_micro_batches(recipe)), recipe.batch.accumulation);
}

double scheduled_work(const BlockWork& work, const std::vector<int64_t>& sizes,
                      const schedule::Schedule& schedule, int64_t micro_batches) {
  return time_of(schedule, StageWork(work).costs(sizes), micro_batches);
}

std::vector<int64_t> balance_stages(const BlockWork& block_work, const schedule::Schedule& schedule,
                                    int64_t micro_batches) {
  const StageWork work(block_work);
  std::vector<int64_t> sizes = cheapest_worst_stage(work, static_cast<size_t>(schedule.virtual_stages()));
  double least = time_of(schedule, work.costs(sizes), micro_batches);
  const double most = kMostWork * busiest(schedule, work.costs(sizes));
  int64_t actions = 0;
  for (const auto& list : schedule.ranks) actions += static_cast<int64_t>(list.size());
  int64_t left = kSimulated / actions;  // simulations
  for (bool again = true; again;) {
    again = false;
    std::vector<int64_t> best;
    for (const size_t from : by_work_of_rank(schedule, work.costs(sizes)))
      for (size_t to = 0; to < sizes.size(); ++to) {
        if (from == to || sizes[from] == 1) continue;
        std::vector<int64_t> moved = sizes;
        --moved[from], ++moved[to];
        const schedule::Costs costs = work.costs(moved);
        if (busiest(schedule, costs) > most) continue;
        if (left-- <= 0) continue;
        const double time = time_of(schedule, costs, micro_batches);
        if (time < least * kBetter) least = time, best = std::move(moved), again = true;
      }
    if (again) sizes = std::move(best);
  }
  return sizes;
}

}  // namespace quintet::compiler
