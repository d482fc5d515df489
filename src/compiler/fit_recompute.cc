#include "compiler/fit_recompute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/text.h"
#include "compiler/compile.h"
#include "graph/op.h"
#include "program/allocate.h"

namespace quintet::compiler {
namespace {

// Attempts to reduce a fitted policy by one step, per pipeline rank.
constexpr int kMaxSpareTries = 48;
// Plans tried to find the smallest memory, per pipeline rank, when recomputing everything does not fit.
constexpr size_t kMaxFrugalTries = 64;
// Ranks of a pipeline stage that are planned to find the one with the largest program.
constexpr int kMaxSampledRanks = 4;

graph::Cost cost_of(const graph::Graph& graph, const graph::Node& node) {
  if (node.op->cost == nullptr) return {};
  return node.op->cost(graph::input_types(graph, node), graph::output_types(graph, node), node.attrs);
}

int64_t nanos_of(const graph::Graph& graph, const graph::Node& node, const RoughRates& rates) {
  if (node.op->dims == nullptr) {  // a change of placement
    // Gathers are repeated for the backward pass anyway; a recomputed op adds the reduction of its partial
    // results, or an exchange inside it.
    if (node.op == &graph::kAllGather || node.op == &graph::kSlice) return 0;
    int64_t bytes = 0;
    for (const graph::ValueId v : node.outputs) bytes += graph.type(v).bytes();
    return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) / rates.sent_bytes_per_nano));
  }
  const graph::Cost cost = cost_of(graph, node);
  return static_cast<int64_t>(
      std::ceil(std::max(cost.flops / rates.flops_per_nano, cost.bytes / rates.bytes_per_nano)));
}

// Micro-batches that a pipeline rank holds at the same time, by chunk.
std::vector<int64_t> slots_by_chunk(const Pipeline& pipeline, int rank) {
  if (!pipeline.schedule) return {1};
  std::vector<int64_t> live(static_cast<size_t>(pipeline.schedule->chunks), 0), most = live;
  for (const schedule::Action& a : pipeline.schedule->ranks[static_cast<size_t>(rank)]) {
    int64_t& n = live[static_cast<size_t>(a.chunk)];
    if (a.kind == schedule::Kind::F)
      most[static_cast<size_t>(a.chunk)] = std::max(most[static_cast<size_t>(a.chunk)], ++n);
    if (a.kind == schedule::Kind::BW || a.kind == schedule::Kind::W) --n;
  }
  return most;
}

// Fits one pipeline rank.
class RankFit {
 public:
  RankFit(const config::Recipe& recipe, const CompileOptions& options, const Compiled& nothing,
          const passes::Prices& prices, int pipeline_rank)
      : recipe_(recipe), options_(options), logical_(nothing.logical), budget_(recipe.memory.budget.value) {
    const layout::Stages& stages = nothing.pipeline.stages;
    const std::vector<int64_t> slots = slots_by_chunk(nothing.pipeline, pipeline_rank);
    for (int label = 1; label + 1 < logical_.num_blocks; ++label) {
      if (stages.rank_of_block(label) != pipeline_rank) continue;
      blocks_.push_back(passes::recompute_levels(logical_, label, prices));
      weight_.push_back(slots[static_cast<size_t>(stages.chunk_of_block(label))]);
    }
    find_largest_rank(nothing.layout, pipeline_rank);
  }

  // If nothing fits, planned() exceeds the budget.
  void run() {
    levels_.assign(blocks_.size(), 0);
    if (planned(levels_) <= budget_) return;
    levels_ = most_frugal();
    if (planned(levels_) > budget_) return;
    const std::vector<Step> steps = sorted_steps(levels_);
    size_t too_few = 0, enough = steps.size();
    while (enough - too_few > 1) {
      const size_t middle = too_few + (enough - too_few) / 2;
      (planned(after(steps, middle)) <= budget_ ? enough : too_few) = middle;
    }
    levels_ = after(steps, enough);
    spare();
  }

  int64_t planned() { return planned(levels_); }
  base::RankId rank() const { return rank_; }

  void mark(passes::Marks& marks) const { mark(levels_, marks); }
  int64_t nanos() const { return nanos(levels_); }

  Compiled compile_with(const std::vector<size_t>& levels, base::RankId rank) const {
    Fit trial{.marks = passes::Marks(logical_.nodes().size(), 0)};
    mark(levels, trial.marks);
    CompileOptions options = options_;
    options.rank = rank;
    options.dump = {};
    options.fit = std::move(trial);
    return compile_unverified(recipe_, options);
  }
  Compiled compiled() const { return compile_with(levels_, rank_); }

 private:
  // A step from one level of a block to the next, and its value in bytes per nanosecond.
  struct Step {
    size_t block, level;
    double worth;
  };

  const passes::Level& at(const std::vector<size_t>& levels, size_t block) const {
    return blocks_[block][levels[block]];
  }

  int64_t nanos(const std::vector<size_t>& levels) const {
    int64_t sum = 0;
    for (size_t b = 0; b < blocks_.size(); ++b) sum += at(levels, b).nanos;
    return sum;
  }

  void mark(const std::vector<size_t>& levels, passes::Marks& marks) const {
    for (size_t b = 0; b < blocks_.size(); ++b)
      for (const size_t node : at(levels, b).nodes) marks[node] = 1;
  }

  int64_t planned(const std::vector<size_t>& levels) {
    const auto found = tried_.find(levels);
    if (found != tried_.end()) return found->second;
    return tried_[levels] = compile_with(levels, rank_).program.arena_bytes;
  }

  void find_largest_rank(const layout::Layout& layout, int pipeline_rank) {
    std::vector<base::RankId> ranks;
    for (int r = 0; r < static_cast<int>(recipe_.parallel.world()); ++r)
      if (layout.mesh.index(base::RankId(r), layout.pipeline) == pipeline_rank) ranks.emplace_back(r);
    const auto count = static_cast<int64_t>(ranks.size());
    const int64_t samples = std::min<int64_t>(count, kMaxSampledRanks);
    const std::vector<size_t> nothing(blocks_.size(), 0);
    int64_t largest = -1;
    for (int64_t i = 0; i < samples; ++i) {
      const base::RankId rank =
          ranks[static_cast<size_t>(samples == 1 ? 0 : i * (count - 1) / (samples - 1))];
      const int64_t bytes = compile_with(nothing, rank).program.arena_bytes;
      if (bytes > largest) largest = bytes, rank_ = rank;
    }
    tried_[nothing] = largest;
  }

  // The steps up to the given levels.
  std::vector<Step> sorted_steps(const std::vector<size_t>& levels) const {
    std::vector<Step> steps;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      double worth = std::numeric_limits<double>::infinity();
      for (size_t l = 1; l <= levels[b]; ++l) {
        const int64_t bytes = (blocks_[b][l - 1].kept_bytes - blocks_[b][l].kept_bytes) * weight_[b];
        const int64_t nanos = blocks_[b][l].nanos - blocks_[b][l - 1].nanos;
        // Never more than the previous step, which must come first; rounding could break this.
        worth = std::min(worth, static_cast<double>(bytes) / static_cast<double>(nanos));
        steps.push_back({b, l, worth});
      }
    }
    std::sort(steps.begin(), steps.end(), [](const Step& x, const Step& y) {
      return std::tuple(-x.worth, x.level, x.block) < std::tuple(-y.worth, y.level, y.block);
    });
    return steps;
  }

  std::vector<size_t> after(const std::vector<Step>& steps, size_t count) const {
    std::vector<size_t> levels(blocks_.size(), 0);
    for (size_t i = 0; i < count; ++i)
      levels[steps[i].block] = std::max(levels[steps[i].block], steps[i].level);
    return levels;
  }

  // Every block at its last level, if that fits. Otherwise the smallest plan found from there: a recomputed
  // block holds all its values at once in its backward pass, so a lower level may need less, above all in the
  // last blocks, whose values are needed again immediately. First all blocks together, then one at a time
  // from the last.
  std::vector<size_t> most_frugal() {
    std::vector<size_t> best;
    size_t highest = 0;
    for (const std::vector<passes::Level>& b : blocks_) best.push_back(b.size() - 1);
    if (planned(best) <= budget_) return best;
    const size_t limit = tried_.size() + kMaxFrugalTries;
    const auto take_if_less = [&](std::vector<size_t> levels) {
      if (tried_.size() >= limit || planned(levels) >= planned(best)) return false;
      best = std::move(levels);
      return true;
    };
    for (const size_t l : best) highest = std::max(highest, l);
    const std::vector<size_t> top = best;
    for (size_t cap = highest; cap-- > 0;) {
      std::vector<size_t> alike = top;
      for (size_t& l : alike) l = std::min(l, cap);
      take_if_less(std::move(alike));
    }
    for (bool again = true; again;) {
      again = false;
      for (size_t b = blocks_.size(); b-- > 0;)
        for (size_t l = 0; l < blocks_[b].size(); ++l) {
          std::vector<size_t> other = best;
          other[b] = l;
          again |= take_if_less(std::move(other));
        }
    }
    return best;
  }

  // Removes recompute that is not needed: a block recomputes less, alone or while another recomputes more, if
  // that saves time and still fits. Among identical blocks at the same level, the last is tried for less
  // recompute and the first for more.
  void spare() {
    int tries = 0;
    for (bool again = true; again;) {
      again = false;
      struct Move {
        int64_t gain;
        std::vector<size_t> levels;
      };
      std::vector<Move> moves;
      const auto offer = [&](std::vector<size_t> levels) {
        const int64_t gain = nanos(levels_) - nanos(levels);
        if (gain > 0) moves.push_back({gain, std::move(levels)});
      };
      const auto alike = [&](size_t x, size_t y) {
        return levels_[x] == levels_[y] && blocks_[x].back().nanos == blocks_[y].back().nanos &&
               blocks_[x].back().kept_bytes == blocks_[y].back().kept_bytes;
      };
      const auto one_of_its_kind = [&](size_t b, size_t begin, size_t end) {
        for (size_t other = begin; other < end; ++other)
          if (alike(other, b)) return false;
        return true;
      };
      for (size_t b = 0; b < blocks_.size(); ++b) {
        if (levels_[b] == 0 || !one_of_its_kind(b, b + 1, blocks_.size())) continue;
        for (size_t down = 1; down <= levels_[b]; ++down) {
          std::vector<size_t> less = levels_;
          less[b] -= down;
          offer(less);
          for (size_t a = 0; a < blocks_.size(); ++a) {
            if (a == b || !one_of_its_kind(a, 0, a)) continue;
            for (size_t up = 1; levels_[a] + up < blocks_[a].size(); ++up) {
              std::vector<size_t> traded = less;
              traded[a] += up;
              offer(std::move(traded));
            }
          }
        }
      }
      // Small gains first: they are more likely to fit, and each is a base for the next.
      std::stable_sort(moves.begin(), moves.end(),
                       [](const Move& x, const Move& y) { return x.gain < y.gain; });
      for (Move& move : moves) {
        if (++tries > kMaxSpareTries) return;
        if (planned(move.levels) > budget_) continue;
        levels_ = std::move(move.levels);
        again = true;
        break;
      }
    }
  }

  const config::Recipe& recipe_;
  const CompileOptions& options_;
  const graph::Graph& logical_;  // before recompute
  const int64_t budget_;
  base::RankId rank_;
  std::vector<std::vector<passes::Level>> blocks_;
  std::vector<int64_t> weight_;  // by block: micro-batches in flight
  std::vector<size_t> levels_;   // by block: the chosen level
  std::map<std::vector<size_t>, int64_t> tried_;
};

[[noreturn]] void refuse(const RankFit& worst, const Compiled& c, int64_t budget) {
  const program::Peak peak = program::peak_of(c.program);
  std::vector<std::pair<int64_t, int>> classes;
  for (int i = 0; i < program::kNumMemoryClasses; ++i)
    if (peak.by_class[static_cast<size_t>(i)] > 0)
      classes.emplace_back(peak.by_class[static_cast<size_t>(i)], i);
  std::sort(classes.rbegin(), classes.rend());
  std::vector<std::string> parts;
  for (size_t i = 0; i < std::min<size_t>(3, classes.size()); ++i)
    parts.push_back(fmt::format("{} {}",
                                program::to_string(static_cast<program::MemoryClass>(classes[i].second)),
                                base::human_bytes(classes[i].first)));
  base::fail_user(
      "memory.budget {} ({} bytes) is too small: rank {} needs {} even with as much recompute as possible, "
      "mostly {}; nearest: memory.budget = {}, a smaller batch.micro, or a higher parallel.zero",
      base::human_bytes(budget), budget, worst.rank(), base::human_bytes(c.program.arena_bytes),
      fmt::join(parts, ", "), c.program.arena_bytes);
}

std::string with_and(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

// "12 of 32 blocks recompute norm and activation, 4 norm": blocks grouped by what they recompute, largest
// group first.
std::string describe(const graph::Graph& graph, const passes::Marks& marks) {
  std::map<int, std::vector<std::string>> words_of_block;
  for (size_t i = 0; i < marks.size(); ++i) {
    if (!marks[i]) continue;
    const graph::Node& n = graph.nodes()[i];
    const std::string_view word = passes::word_of(*n.op);
    std::string text(word.empty() ? n.op->name : word);
    std::vector<std::string>& words = words_of_block[n.block];
    if (std::find(words.begin(), words.end(), text) == words.end()) words.push_back(std::move(text));
  }
  if (words_of_block.empty()) return "nothing is recomputed";
  std::map<std::vector<std::string>, int64_t> count;
  for (auto& [block, words] : words_of_block) ++count[words];
  std::vector<std::pair<int64_t, std::string>> groups;
  for (const auto& [words, n] : count) groups.emplace_back(n, with_and(words));
  std::sort(groups.rbegin(), groups.rend());
  std::string text;
  for (const auto& [n, words] : groups)
    text += text.empty() ? fmt::format("{} of {} block{} recompute {}", n, graph.num_blocks - 2,
                                       graph.num_blocks == 3 ? "" : "s", words)
                         : fmt::format("; {} {}", n, words);
  return text;
}

double extra_flops(const graph::Graph& graph, const passes::Marks& marks) {
  double all = 0, extra = 0;
  for (size_t i = 0; i < marks.size(); ++i) {
    const double flops = cost_of(graph, graph.nodes()[i]).flops;
    all += flops;
    if (marks[i]) extra += flops;
  }
  return extra / std::max(1.0, all);
}

}  // namespace

passes::Prices rough_prices(const Compiled& c, const RoughRates& rates) {
  passes::Prices prices;
  for (const graph::Value& v : c.logical.values()) prices.bytes.push_back(v.type.bytes());
  prices.nanos.assign(c.logical.nodes().size(), 0);
  const graph::Graph& local = c.local.graph;
  for (size_t i = 0; i < local.values().size(); ++i)
    if (const graph::ValueId v = c.local.origin[i]; v.valid())
      prices.bytes[v.index()] = std::min(prices.bytes[v.index()], local.values()[i].type.bytes());
  // Local nodes are in model order; nodes inside an op's expansion have no origin and belong to the op of the
  // next result.
  int64_t inside = 0;
  for (const graph::Node& n : local.nodes()) {
    if (n.phase != graph::Phase::F) continue;
    inside += nanos_of(local, n, rates);
    const graph::ValueId v = n.outputs.empty() ? graph::ValueId() : c.local.origin[n.outputs[0].index()];
    if (!v.valid()) continue;
    if (const graph::NodeId p = c.logical.value(v).producer; p.valid()) prices.nanos[p.index()] += inside;
    inside = 0;
  }
  return prices;
}

Fit fit_recompute(const config::Recipe& recipe, const CompileOptions& options) {
  CompileOptions first = options;
  first.dump = {};
  // The marks of a graph that is not built yet: none, regardless of its size.
  first.fit = Fit{};
  first.disabled.insert(OptionalPass::Pack);
  const Compiled nothing = compile_unverified(recipe, first);
  const passes::Prices prices = rough_prices(nothing);

  Fit fit{.marks = passes::Marks(nothing.logical.nodes().size(), 0), .budget = recipe.memory.budget.value};
  std::vector<RankFit> ranks;
  for (int r = 0; r < static_cast<int>(recipe.parallel.pp); ++r) {
    RankFit& rank = ranks.emplace_back(recipe, options, nothing, prices, r);
    rank.run();
    rank.mark(fit.marks);
    fit.planned.push_back(rank.planned());
    fit.nanos = std::max(fit.nanos, rank.nanos());
  }
  const auto most = std::max_element(fit.planned.begin(), fit.planned.end());
  const RankFit& worst = ranks[static_cast<size_t>(most - fit.planned.begin())];
  if (*most > fit.budget) refuse(worst, worst.compiled(), fit.budget);
  fit.text = fmt::format("{}, +{:.1f} % FLOPs, planned {} of {}", describe(nothing.logical, fit.marks),
                         100 * extra_flops(nothing.logical, fit.marks), base::human_bytes(*most),
                         base::human_bytes(fit.budget));
  return fit;
}

}  // namespace quintet::compiler
