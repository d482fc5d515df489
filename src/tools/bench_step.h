// `quintet bench step`: the speed of a recipe's step on this machine. Tokens are random and sequences full,
// so no data is needed and every token counts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"
#include "graph/graph.h"

namespace quintet::tools {

struct StepBenchOptions {
  int64_t steps = 20;         // timed, after the warm-up
  int64_t warmup = 5;         // at least 3: two steps measure memory, and a GPU captures its second
  double warmup_seconds = 0;  // minimum duration of the warm-up
  double peak_tflops = 0;     // of one device; 0: from the catalogue, by device name
  // Time per kind of instruction measured in isolation, for the floors; 0: no floors.
  double alone_seconds = 0;
  // Lengths in tokens of the documents to pack, repeated cyclically; a document is cut where a sequence ends.
  // Empty: one document per sequence. Needs data.pack.
  std::vector<int64_t> document_lengths = {};
  std::function<void(const std::string&)> log = {};
};

// For each token row: the index of its document in the sequence, and its position in the document.
struct PackedRows {
  std::vector<int32_t> documents, positions;
};
PackedRows pack_documents(const std::vector<int64_t>& lengths, int64_t sequences, int64_t seq_len);
// Parses positive integers separated by white space; `where` names the file in errors.
std::vector<int64_t> parse_document_lengths(const std::string& text, const std::string& where);

// Time of one class of instructions in one traced step of rank 0, and its lower bound: for GEMMs and
// attention the time in isolation, for everything else its bytes at copy speed.
struct OpClassTime {
  std::string name;
  int64_t instructions = 0;
  double seconds = 0;
  double alone_seconds = 0, floor_seconds = 0;
};

struct StepBench {
  std::string name, device, dtype;
  int64_t world = 1, parameters = 0, tokens_per_step = 0, steps = 0;
  double setup_seconds = 0;  // compile, allocate, tune, initialise weights
  double first_step_seconds = 0;
  double until_first_step_seconds = 0;  // from process start to the end of the first step
  double step_seconds = 0;              // median; ranks are synchronised
  double fastest_seconds = 0, slowest_seconds = 0;
  double tokens_per_s = 0;
  double model_flops = 0;    // per step, see model_flops_per_token
  double program_flops = 0;  // per step on all ranks, as computed by the program, including recompute
  double tflops = 0;         // model TFLOP/s per device
  double peak_tflops = 0;    // per device; 0: unknown
  std::string peak_source;
  double mfu = 0;
  int64_t planned_bytes = 0, measured_bytes = 0, extra_bytes = 0;  // of rank 0
  double loss = 0;                                                 // of the last step
  std::vector<double> first_losses;                                // of up to 20 steps, warm-up included
  double traced_seconds = 0;                                       // first start to last end
  std::vector<OpClassTime> classes;                                // longest first
  bool floors_wanted = false;
  double copy_bytes_per_s = 0;  // with floors; 0: no floors
  double floor_seconds = 0;     // sum over all classes
};

// graph::flops_of(), which for a trained model is this formula; `model` is the graph of `tokens` tokens.
// `visible`: pairs of queries and keys in packed documents, relative to one document per sequence.
double model_flops_per_token(const graph::Graph& model, int64_t tokens, double visible = 1);
inline constexpr const char* kModelFlopsFormula =
    "6 x weights in matmuls + 6 x layers x heads x (qk + v dims) x mean keys attended, per token";

// Ranks are threads of this process, or this process is one rank of an MPI job; empty on ranks other than 0.
std::optional<StepBench> bench_step(const config::Recipe& recipe, const StepBenchOptions& options);

std::string to_table(const StepBench& bench);
std::string to_json(const StepBench& bench);

}  // namespace quintet::tools
