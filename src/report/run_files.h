// A run folder as a report sees it. Every file but recipe.toml may be missing: a run that is still going, or
// was killed, has no summary.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "report/figures.h"

namespace quintet::report {

struct RunFiles {
  // One column per key of metrics.jsonl, NaN where a step lacks it or is not finite.
  struct Metrics {
    std::vector<double> step;
    std::map<std::string, std::vector<double>> columns;
    std::vector<double> skipped;  // steps
    const std::vector<double>* column(const std::string& name) const;
  };
  struct RankMemory {
    int64_t planned = 0, measured = 0;
    std::vector<std::pair<std::string, int64_t>> by_class;  // at the planned peak, gaps included
    friend bool operator==(const RankMemory&, const RankMemory&) = default;
  };
  struct Traffic {
    std::string group, call, link;
    int64_t members = 0, calls = 0;
    double sent_bytes = 0, seconds = 0, waiting = 0, bandwidth = 0, bus_bandwidth = 0;
    int64_t longest_wait_rank = 0;
  };
  struct RankTimeline {
    int64_t rank = 0;
    double begin = 0;  // seconds
    struct Stream {
      std::string name;
      struct Part {
        double start, seconds;  // start relative to `begin`
        std::string what;
        int64_t micro;
      };
      std::vector<Part> parts;
    };
    std::vector<Stream> streams;
  };

  base::Path folder;
  std::string name, recipe;  // recipe: the text of recipe.toml
  Metrics metrics;

  // run.json; empty strings and zeros when it is missing.
  std::string version, command, working_folder, host, machine, device, backend, started, model;
  int64_t threads = 0, parameters = 0, steps = 0, ranks = 1;
  std::vector<std::pair<std::string, std::string>> data;  // label, text
  std::vector<MeshAxis> mesh;

  // summary.json; `ended` is empty when it is missing.
  std::string ended, ended_at;
  double seconds = 0, tokens = 0, tokens_per_s = 0;
  bool memory_is_bound = false;
  std::vector<RankMemory> memory;  // by rank
  std::vector<Traffic> traffic;

  // timeline.json
  int64_t traced_step = 0;
  std::vector<RankTimeline> timelines;
};

// UserError when the folder is not a run folder or a file of it cannot be understood. An incomplete last line
// of metrics.jsonl is ignored: the run may be writing it.
RunFiles read_run(const base::Path& folder);

}  // namespace quintet::report
