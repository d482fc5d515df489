// `quintet bench generate`: decoding speed compared with its floor, the time to read the weights and the
// cache once per step.
#pragma once

#include <string>

#include "generate/source.h"

namespace quintet::tools {

struct GenerateBenchOptions {
  int64_t batch = 1, prompt_tokens = 1024, new_tokens = 256;
  generate::SourceOptions source;
  bool capture = true;  // Cuda: entries are replayed as graphs
};

struct GenerateBench {
  std::string name, device, dtype;
  int64_t tp = 1, batch = 0, prompt_tokens = 0, new_tokens = 0;
  double setup_seconds = 0;    // compile, allocate, load or draw the weights
  double load_seconds = 0;     // of which loading
  int64_t loaded_bytes = 0;    // read from files by this rank
  double prefill_seconds = 0;  // of all prompts together, one after another
  double prefill_tokens_per_s = 0;
  double step_seconds = 0;  // median, without the first steps, which capture
  double fastest_seconds = 0, slowest_seconds = 0;
  double tokens_per_s = 0;  // batch / step_seconds
  // Of one rank, at the mean context length.
  int64_t weight_bytes = 0, cache_bytes = 0;
  double read_bytes_per_s = 0;  // measured on this device
  double floor_seconds = 0;
  double achieved_bytes_per_s = 0;
  int64_t planned_bytes = 0, measured_bytes = 0;  // memory of rank 0, cache included
};

GenerateBench bench_generate(const base::Path& path, const GenerateBenchOptions& options);
std::string to_table(const GenerateBench& bench);
std::string to_json(const GenerateBench& bench);

}  // namespace quintet::tools
