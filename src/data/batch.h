// Global batches, and the part of one that each data-parallel rank takes.
//
// Step s consumes positions [p, p + global) of the sampler's order; global may grow over the run
// (set_stages). Row i of a micro-batch is sequence
//   g = (micro_index * dp + dp_index) * micro + i
// of that batch, unless the batch is balanced (set_balanced). The global batch is therefore the same for
// every layout, and so is micro-batch m over all ranks for equal micro * dp. Ranks that are threads may share
// one Batches. Only the first use of a balanced step allocates.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/mixture.h"

namespace quintet::data {

struct BatchLayout {
  int64_t global = 0;        // sequences per step
  int64_t micro = 0;         // sequences per micro-batch
  int64_t accumulation = 1;  // micro-batches per step and data-parallel rank
  int64_t dp = 1;            // data-parallel ranks
};

// Buffers of micro * seq_len elements, one sequence after another; empty spans are not written.
struct MicroBatch {
  std::span<int32_t> ids;
  std::span<int32_t> labels;     // kIgnored where nothing is predicted
  std::span<int32_t> positions;  // within the document; within the sequence when documents are not separated
  std::span<int32_t> documents;  // index within the sequence: 0, 1, 2, ...
  // The sequence's position in the global order (the run's sample counter, low 31 bits), repeated for each
  // token. Keys dropout: the same in every layout, different in every epoch.
  std::span<int32_t> samples;
  // Multi-token prediction: ids and labels of the next row of the same document; 0 and kIgnored where there
  // is none. Need ids, labels and documents.
  std::span<int32_t> next_ids, next_labels;
  std::span<int32_t> token_types;  // of encoders: 0, documents have one part
  // Choices of experts to repeat, plus 1: those of all blocks for each token. 0: the router chooses.
  std::span<int32_t> routes;
  // Positions of every sequence whose ids and labels are read; elsewhere these rows are not specified. Next
  // ids and labels also need the position after each of theirs.
  Positions wanted = {};
};

// Identifies a label for a mask. `sequence` is g above; `sample` is Mixture::number; `position` is within the
// sequence.
struct LabelSite {
  int64_t step = 0, sequence = 0, sample = 0, position = 0;
};
// Returns whether a label counts. Must be a pure function: it is called again when labels are counted.
using LabelMask = std::function<bool(const LabelSite&)>;

// At the start of `step`, the run has consumed `position` samples. From there on, a step has `accumulation`
// micro-batches; 0: as the layout says.
struct BatchStart {
  int64_t step = 0;
  int64_t position = 0;
  int64_t accumulation = 0;
};

class Batches {
 public:
  // UserError unless all sizes are positive and global = micro * accumulation * dp. The mask can only remove
  // labels.
  Batches(Mixture mixture, BatchLayout layout, BatchStart start = {}, LabelMask mask = {});
  Batches(Dataset dataset, Sampler sampler, BatchLayout layout, BatchStart start = {}, LabelMask mask = {});

  // Stages of the batch size, by step; each begins at the position where the one before ends.
  void set_stages(std::vector<BatchStart> stages);

  // Sequences of a step go to ranks by the cost of their attention (balance.h).
  void set_balanced();

  // What MicroBatch::routes of a sample is, given its place in the global order and its ids (fill_routes).
  using Routes = std::function<void(int64_t place, std::span<const int32_t> ids, std::span<int32_t> out)>;
  void set_routes(Routes routes) { routes_ = std::move(routes); }

  const Mixture& mixture() const { return mixture_; }
  const BatchLayout& layout() const { return layout_; }
  int64_t micro_tokens() const { return layout_.micro * mixture_.seq_len(); }

  // Samples consumed before `step`; the state to checkpoint.
  int64_t position(int64_t step) const;
  // Micro-batches of a step.
  int64_t accumulation(int64_t step) const;
  // Steps of one pass over all samples; the last step is padded with dummy sequences (evaluation).
  int64_t steps_per_pass() const;

  // Fills one micro-batch and returns its number of valid labels at the wanted positions. Past the end of a
  // sequential pass, sequences are dummies: all ids 0, no valid labels.
  int64_t fill(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& out) const;

  // Tells the system which tokens a data-parallel rank will read in a step, so that slow disks work ahead.
  void will_read(int64_t step, int64_t dp_index, Positions wanted = {}) const;

  // Valid labels at these positions in one data-parallel rank's share of a step, without reading tokens.
  // Summed over dp_index and all positions, this is the count of the global batch.
  int64_t count_labels(int64_t step, int64_t dp_index, Positions wanted = {}) const {
    return count_labels(step, dp_index, accumulation(step), wanted);
  }
  // The same in the first `micro_batches` of its micro-batches.
  int64_t count_labels(int64_t step, int64_t dp_index, int64_t micro_batches, Positions wanted = {}) const;

  // A hash of the ids and labels that one micro-batch was filled with, at these positions. The sum over all
  // micro-batches, ranks and positions (mod 2^64) is a hash of the step that does not depend on the layout.
  // Either row may be empty: its part of the sum is then left out.
  uint64_t hash_of(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& filled,
                   Positions positions) const;
  // The same of a whole step, which is read for it.
  uint64_t hash_of_step(int64_t step) const;

  // The place (micro_index * dp + dp_index) * micro + i of row i of a micro-batch.
  int64_t place_of(int64_t micro_index, int64_t dp_index, int64_t i) const;
  // The sequence g of a step that is in a place: the place itself unless the batch is balanced.
  int64_t sequence_at(int64_t step, int64_t place) const;
  // The sample of sequence g of a step; empty for a dummy.
  std::optional<Mixture::Pick> pick(int64_t step, int64_t sequence) const;
  // Pairs of positions that attend to each other in one data-parallel rank's share of a step.
  int64_t visible_pairs(int64_t step, int64_t dp_index) const;

 private:
  struct Orders;  // of the last balanced steps
  int64_t count_sequence(int64_t step, int64_t sequence, Positions wanted) const;
  int64_t pairs_of(int64_t step, int64_t sequence) const;
  const BatchStart& stage_of(int64_t step) const;
  Mixture mixture_;
  BatchLayout layout_;
  std::vector<BatchStart> stages_;  // at least one
  LabelMask mask_;
  std::shared_ptr<Orders> orders_;  // set when balanced
  Routes routes_;
};

}  // namespace quintet::data
