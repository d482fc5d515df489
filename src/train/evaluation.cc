#include "train/evaluation.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace quintet::train {

std::optional<EvaluationOfSets> evaluate_sets(Rank& rank, const RunData& data, const config::Recipe& recipe,
                                              const std::function<bool()>& stop) {
  EvaluationOfSets all;
  double sum = 0;
  const auto mean = [](double loss_sum, int64_t tokens) {
    return loss_sum / std::max(1.0, static_cast<double>(tokens));
  };
  for (const EvalData& set : data.evals) {
    Rank::Evaluation one;
    const int64_t batches = set.batches_read(recipe);
    for (int64_t batch = 0; batch < batches; ++batch) {
      if (stop && stop()) return std::nullopt;
      const Rank::Evaluation e = rank.evaluate(set.batches, batch, 1);
      one.loss_sum += e.loss_sum, one.tokens += e.tokens;
    }
    sum += one.loss_sum, all.tokens += one.tokens;
    if (data.evals.size() == 1) continue;
    const double loss = mean(one.loss_sum, one.tokens);
    all.record.set("eval_loss." + set.name, loss);
    all.lines.push_back(
        fmt::format("  {}: loss {:.4f} over {} tokens", set.name, loss, base::thousands(one.tokens)));
  }
  all.loss = mean(sum, all.tokens);
  all.record.set("eval_loss", all.loss).set("eval_tokens", all.tokens);
  return all;
}

}  // namespace quintet::train
