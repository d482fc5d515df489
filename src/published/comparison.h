// Compares published runs with the planner: every row is predicted, every error counted, nothing silently
// dropped.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "published/published_run.h"

namespace quintet::published {

struct ComparedRun {
  PublishedRun published;
  Mapping mapping;  // without a run: the reason
  std::string accelerator, stack;
  double tokens_per_s = 0;      // published, per GPU; 0: none
  double predicted = 0;         // likewise
  double memory_gib = 0;        // published; 0: none
  double predicted_memory = 0;  // GiB on the most loaded rank, without the context
  plan::Time time;              // of the prediction
  bool fits = true;
  double error() const;         // predicted / published - 1
  double memory_error() const;  // likewise
  bool scored() const { return mapping.run && tokens_per_s > 0 && predicted > 0; }
  bool memory_scored() const { return mapping.run && memory_gib > 0 && predicted_memory > 0; }
};

struct ErrorSummary {
  size_t rows = 0;
  double median = 0, p90 = 0;  // of |error|
  double bias = 0;             // median of the signed error
};
// `errors` are signed errors.
ErrorSummary summarise(std::vector<double> errors);
// Linear interpolation between order statistics; `share` is between 0 and 1.
double quantile(std::vector<double> values, double share);

struct Comparison {
  std::vector<ComparedRun> rows;
  ErrorSummary all, stated, memory;
  size_t unmodelled = 0;
  std::vector<std::pair<std::string, ErrorSummary>> by_source, by_accelerator, by_stack;  // by name
};

struct CompareOptions {
  int threads = 2;
  std::string collection, id;                                          // restrict to these; empty: all
  std::function<int64_t(const program::Instr&)> workspace_bytes = {};  // see plan::Assumptions
  double max_instructions = 3e6;                                       // see plan::Assumptions
  std::function<void(size_t done, size_t of)> tick;  // called after each row, serialized, from any thread
};

// Rows before planning. Rows that need the same plan share it.
struct PlanRequests {
  std::vector<ComparedRun> rows;
  std::vector<size_t> distinct;  // rows that are planned
  std::vector<size_t> asked_by;  // by row: index of the distinct row with the same plan
};
PlanRequests ask(const std::vector<PublishedRun>& runs, const CompareOptions& options);

Comparison compare(const std::vector<PublishedRun>& runs, const CompareOptions& options);

std::string to_text(const Comparison& report);
std::string to_json(const Comparison& report);

}  // namespace quintet::published
