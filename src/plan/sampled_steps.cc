#include "plan/sampled_steps.h"

#include <algorithm>

#include "config/schedule_traits.h"

namespace quintet::plan {

std::vector<Sample> samples(const config::Recipe& recipe, double instructions, double limit) {
  const config::Parallel& p = recipe.parallel;
  const int64_t all = recipe.batch.accumulation;
  // A pipeline repeats with a period of as many micro-batches as it has ranks, or as an interleaved group
  // has. After four periods it has been in steady state for at least one. What is left is spread over the
  // groups of an interleaved schedule: with as many groups, the largest is as large as in the whole step.
  const int64_t round = p.micro_group > 0 ? p.micro_group : p.pp, left = all % round;
  const bool spreads = config::traits_of(p.schedule).kind == config::PipelineSchedule::Interleaved;
  const int64_t least = p.pp == 1 ? 3 : std::max<int64_t>(4, spreads ? left : 0) * round + left;
  if (instructions <= limit || all <= least + 2 * round || config::schedule_file(p.schedule))
    return {{recipe, 1}};
  const auto with = [&](int64_t n) {
    config::Recipe few = recipe;
    few.batch.accumulation = n;
    few.batch.ramp.clear();
    few.run.noise_scale_every = 0;
    few.batch.global = n * recipe.batch.micro * p.dp();
    return few;
  };
  // f(all) = f(b) + (all - b) / (b - a) (f(b) - f(a))
  const double rounds = static_cast<double>(all - least - round) / static_cast<double>(round);
  return {{with(least + round), 1 + rounds}, {with(least), -rounds}};
}

double instructions(const compiler::Ranks& ranks) {
  double sum = 0;
  for (const compiler::RankProgram& r : ranks.program)
    for (const program::Call& call : r.program.calls)
      sum += static_cast<double>(r.program.bodies[static_cast<size_t>(call.body)].instrs.size());
  return sum;
}

}  // namespace quintet::plan
