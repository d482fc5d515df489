#include "published/compare_terms.h"

#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/parallel_for.h"
#include "plan/sampled_steps.h"
#include "plan/time.h"

namespace quintet::published {
namespace {

// Seconds per step for every requested set; 0 for the others.
std::vector<double> seconds_of(const ModelledRun& run, const std::vector<hardware::Terms>& sets,
                               const std::vector<char>& wanted) {
  const compiler::CompileOptions options{.disabled = run.assumptions.disabled_passes};
  const auto compile = [&](const config::Recipe& r) {
    return compiler::compile_classes_unverified(r, options, 1);
  };
  compiler::Ranks ranks = compile(run.recipe);
  std::vector<double> seconds(sets.size(), 0);
  const std::vector<plan::Sample> list =
      plan::samples(run.recipe, plan::instructions(ranks), run.assumptions.max_instructions);
  for (const plan::Sample& sample : list) {
    if (list.size() > 1) ranks = compile(sample.recipe);
    compiler::expand(ranks, 1);
    for (size_t s = 0; s < sets.size(); ++s) {
      if (!wanted[s]) continue;
      plan::Assumptions a = run.assumptions;
      a.stack = sets[s].of(a.stack);
      a.cluster.accelerator = sets[s].of(a.cluster.accelerator);
      seconds[s] += sample.weight * (plan::simulate(a, ranks).end + a.stack.step_seconds);
    }
  }
  return seconds;
}

}  // namespace

TermsComparison compare_terms(const std::vector<PublishedRun>& runs, const std::vector<hardware::Terms>& sets,
                              const CompareOptions& options) {
  PlanRequests q = ask(runs, options);
  TermsComparison report{.rows = std::move(q.rows)};
  for (const hardware::Terms& set : sets) report.sets.push_back(set.name);
  std::vector<std::vector<double>> seconds(report.rows.size());
  // Rows that share a plan may be in different sets.
  std::vector<std::vector<char>> wanted(report.rows.size(), std::vector<char>(sets.size(), 0));
  for (size_t i = 0; i < report.rows.size(); ++i)
    for (size_t s = 0; s < sets.size(); ++s)
      if (sets[s].concerns(report.rows[i].published.id)) wanted[q.asked_by[i]][s] = 1;
  std::mutex mutex;
  size_t done = 0;
  base::parallel_for(options.threads, q.distinct.size(), [&](size_t k) {
    ComparedRun& row = report.rows[q.distinct[k]];
    try {
      // Terms do not affect rows that state only memory.
      if (row.tokens_per_s > 0)
        seconds[q.distinct[k]] = seconds_of(*row.mapping.run, sets, wanted[q.distinct[k]]);
    } catch (const base::UserError& e) {
      row.mapping = {.run = std::nullopt, .reason = e.what()};
    }
    const std::lock_guard lock(mutex);
    if (options.tick) options.tick(++done, q.distinct.size());
  });
  for (size_t i = 0; i < report.rows.size(); ++i) {
    report.seconds.push_back(seconds[q.asked_by[i]]);
    report.predicted.emplace_back();
    if (!report.rows[i].mapping.run) continue;
    const config::Recipe& r = report.rows[i].mapping.run->recipe;
    const double tokens =
        static_cast<double>(r.batch.global * r.data.seq_len) / static_cast<double>(r.parallel.world());
    for (const double s : report.seconds.back()) report.predicted.back().push_back(s > 0 ? tokens / s : 0);
  }
  return report;
}

std::string to_json(const TermsComparison& report) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const ComparedRun& row = report.rows[i];
    if (!row.mapping.run || report.seconds[i].empty()) continue;
    const auto matmul = row.mapping.run->assumptions.matmul;
    rows.push_back({{"id", row.published.id},
                    {"source", row.published.source},
                    {"model", row.published.model},
                    {"accelerator", row.accelerator},
                    {"stack", row.stack},
                    {"stated", row.mapping.run->stated},
                    {"arithmetic", to_string(matmul.value_or(hardware::Arithmetic::BF16))},
                    {"published_tokens_per_s_per_gpu", row.tokens_per_s},
                    {"seconds", report.seconds[i]},
                    {"predicted", report.predicted[i]}});
  }
  return base::json_text(Json{{"sets", report.sets}, {"rows", std::move(rows)}}, 2) + "\n";
}

}  // namespace quintet::published
