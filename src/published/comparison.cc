#include "published/comparison.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/parallel_for.h"
#include "compiler/pipeline_schedule.h"

namespace quintet::published {
namespace {

constexpr double kGib = 1024.0 * 1024 * 1024;

// Whether two rows can share a plan.
bool same_question(const ModelledRun& a, const ModelledRun& b) {
  const hardware::Cluster &x = a.assumptions.cluster, &y = b.assumptions.cluster;
  return a.recipe == b.recipe && a.assumptions.stack.name == b.assumptions.stack.name &&
         a.assumptions.matmul == b.assumptions.matmul && x.accelerator.name == y.accelerator.name &&
         x.outer.name == y.outer.name && x.ports_per_device == y.ports_per_device && x.domain == y.domain;
}

// Bytes that software without flash attention keeps in addition to the plan: per head and layer the weights,
// the dropout mask and the dropout output, 2 + 1 + 2 bytes per pair of tokens (arXiv 2205.05198), for every
// micro-batch in flight; with attention recomputed, for one layer at a time.
double kept_weights_bytes(const config::Recipe& r) {
  const double seq = static_cast<double>(r.data.seq_len), heads = static_cast<double>(r.model.heads);
  const double layer = 5 * heads / static_cast<double>(r.parallel.tp) * seq * seq *
                       static_cast<double>(r.batch.micro) / static_cast<double>(r.parallel.cp);
  if (r.memory.recompute != config::RecomputeKind::None) return layer;
  const double chunks = static_cast<double>(r.parallel.pp * std::max<int64_t>(1, r.parallel.chunks));
  double held = 1;
  if (r.parallel.pp > 1) {
    const schedule::InFlight flight = schedule::in_flight(compiler::pipeline_schedule(r));
    held = *std::max_element(flight.until_w.begin(), flight.until_w.end());
  }
  return layer * held * static_cast<double>(r.model.layers) / chunks;
}

// For the rank with the head.
double bytes_outside_plan(const ModelledRun& run, const plan::Report& report) {
  const config::Recipe& r = report.recipe;
  const double ranks = static_cast<double>(r.parallel.tp);
  const int64_t tokens = r.batch.micro * r.data.seq_len / r.parallel.cp;
  const double logits = static_cast<double>(tokens) * static_cast<double>(r.model.vocab) / ranks;
  // The first and the last stage each have a vocabulary table.
  const double table = static_cast<double>(r.model.vocab * r.model.embed);
  const double own = (static_cast<double>(report.parameters) - table) / static_cast<double>(r.parallel.pp);
  return run.logit_bytes * logits + run.parameter_bytes * (own + table) / ranks;
}

void predict(ComparedRun& row) {
  try {
    const plan::Report report = plan::make_plan(row.mapping.run->recipe, row.mapping.run->assumptions);
    row.time = report.time;
    row.predicted = report.time.tokens_per_s_per_device;
    const plan::RankMemory& most = report.memory.ranks[report.memory.most_loaded];
    double bytes = static_cast<double>(most.arena_bytes);
    if (report.assumptions.stack.unfused_attention) bytes += kept_weights_bytes(report.recipe);
    bytes = (bytes + bytes_outside_plan(*row.mapping.run, report)) * report.assumptions.stack.reserved +
            row.mapping.run->driver_bytes;
    row.predicted_memory = bytes / kGib;
    row.fits = report.memory.fits();
  } catch (const base::UserError& e) {
    row.mapping.run.reset();
    row.mapping.reason = e.what();
  }
}

std::vector<std::pair<std::string, ErrorSummary>> by(
    const std::vector<ComparedRun>& rows, const std::function<std::string(const ComparedRun&)>& key) {
  std::map<std::string, std::vector<double>> errors;
  for (const ComparedRun& row : rows)
    if (row.scored()) errors[key(row)].push_back(row.error());
  std::vector<std::pair<std::string, ErrorSummary>> out;
  for (auto& [name, list] : errors) out.emplace_back(name, summarise(std::move(list)));
  return out;
}

}  // namespace

double ComparedRun::error() const { return predicted / tokens_per_s - 1; }
double ComparedRun::memory_error() const { return predicted_memory / memory_gib - 1; }

double quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const size_t low = static_cast<size_t>(at);
  const double next = values[std::min(low + 1, values.size() - 1)];
  return values[low] + (next - values[low]) * (at - static_cast<double>(low));
}

ErrorSummary summarise(std::vector<double> errors) {
  ErrorSummary s;
  s.rows = errors.size();
  s.bias = quantile(errors, 0.5);
  for (double& e : errors) e = std::abs(e);
  s.median = quantile(errors, 0.5);
  s.p90 = quantile(errors, 0.9);
  return s;
}

PlanRequests ask(const std::vector<PublishedRun>& runs, const CompareOptions& options) {
  PlanRequests q;
  for (const PublishedRun& run : runs) {
    if (!options.collection.empty() && run.collection() != options.collection) continue;
    if (!options.id.empty() && run.id != options.id) continue;
    ComparedRun row{.published = run, .mapping = map_run(run)};
    if (row.mapping.run) {
      row.mapping.run->assumptions.workspace_bytes = options.workspace_bytes;
      row.mapping.run->assumptions.max_instructions = options.max_instructions;
      row.accelerator = row.mapping.run->assumptions.cluster.accelerator.name;
      row.stack = row.mapping.run->assumptions.stack.name;
      row.tokens_per_s = row.mapping.run->tokens_per_s;
      row.memory_gib = run.memory_gib.value_or(0);
      if (row.tokens_per_s == 0 && row.memory_gib == 0) {
        row.mapping.run.reset();
        row.mapping.reason = "the row states neither speed nor memory";
      }
    }
    q.rows.push_back(std::move(row));
  }
  q.asked_by.resize(q.rows.size());
  for (size_t i = 0; i < q.rows.size(); ++i) {
    q.asked_by[i] = i;
    if (!q.rows[i].mapping.run) continue;
    const auto same = std::find_if(q.distinct.begin(), q.distinct.end(), [&](size_t j) {
      return same_question(*q.rows[i].mapping.run, *q.rows[j].mapping.run);
    });
    if (same != q.distinct.end())
      q.asked_by[i] = *same;
    else
      q.distinct.push_back(i);
  }
  return q;
}

Comparison compare(const std::vector<PublishedRun>& runs, const CompareOptions& options) {
  PlanRequests q = ask(runs, options);
  Comparison report{.rows = std::move(q.rows)};
  const std::vector<size_t>&asked_by = q.asked_by, &distinct = q.distinct;
  std::mutex mutex;
  size_t done = 0;
  base::parallel_for(options.threads, distinct.size(), [&](size_t k) {
    predict(report.rows[distinct[k]]);
    const std::lock_guard lock(mutex);
    if (options.tick) options.tick(++done, distinct.size());
  });
  for (size_t i = 0; i < report.rows.size(); ++i) {
    if (asked_by[i] == i) continue;
    const ComparedRun& from = report.rows[asked_by[i]];
    ComparedRun& to = report.rows[i];
    to.time = from.time;
    to.predicted = from.predicted;
    to.predicted_memory = from.predicted_memory;
    to.fits = from.fits;
    if (!from.mapping.run) to.mapping = from.mapping;
  }

  std::vector<double> all, stated, memory;
  for (const ComparedRun& row : report.rows) {
    if (!row.mapping.run) ++report.unmodelled;
    if (row.memory_scored()) memory.push_back(row.memory_error());
    if (!row.scored()) continue;
    all.push_back(row.error());
    if (row.mapping.run->stated) stated.push_back(row.error());
  }
  report.all = summarise(std::move(all));
  report.stated = summarise(std::move(stated));
  report.memory = summarise(std::move(memory));
  report.by_source = by(report.rows, [](const ComparedRun& r) { return r.published.collection(); });
  report.by_accelerator = by(report.rows, [](const ComparedRun& r) { return r.accelerator; });
  report.by_stack = by(report.rows, [](const ComparedRun& r) { return r.stack; });
  return report;
}

}  // namespace quintet::published
