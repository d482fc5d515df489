// The state of a run that is not a tensor, as the object "run" of a checkpoint's manifest
// (docs/formats/checkpoint.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "train/noise_scale.h"
#include "train/run_folder.h"
#include "train/spike_guard.h"

namespace quintet::train {

// The data of a run, independent of where it is stored.
struct DataIdentity {
  int64_t tokens = 0, documents = 0, samples = 0;  // samples: of the training split
  std::string fingerprint;                         // of the tokens
  friend bool operator==(const DataIdentity&, const DataIdentity&) = default;
};

struct RunState {
  int64_t step = 0;            // finished
  int64_t sequences = 0;       // consumed: the position in the global order of samples
  int64_t schedule_steps = 0;  // the length of the run for learning-rate schedules
  std::map<std::string, double> scalars;
  std::deque<SpikeGuard::Accepted> spikes;
  NoiseScale::Sums noise;
  Summary summary;  // without `end` and `ranks`
  int64_t timed_tokens = 0;
  double timed_seconds = 0;
  bool evaluation_due = false;  // after `step`: a signal has ended the run in the middle of it
  DataIdentity data;
  std::vector<std::string> streams;  // train::stream_places
  std::string tokenizer;             // tokenizer::vocabulary_hash; empty in checkpoints of older versions
  std::string recipe;                // resolved, TOML
  std::string program;               // hash of rank 0's class
  std::string version;               // of Quintet
  checkpoint::Json environment = checkpoint::Json::object();  // train/run_facts.h; what saved it, for people
  std::string algorithms;                                     // tuned GEMM algorithms, on GPUs
};

checkpoint::Json to_json(const RunState& state);
// UserError when something is missing, or is not a value that a run can have. `source` is for messages.
RunState parse_run_state(const checkpoint::Json& json, const std::string& source);

}  // namespace quintet::train
