// Global batches, and the part of one that each data-parallel rank takes.
//
// Step s consumes positions [p, p + global) of the sampler's order; global may grow over the run
// (set_stages). Row i of a micro-batch is sequence
//   g = (micro_index * dp + dp_index) * micro + i
// of that batch. The global batch is therefore the same for every layout, and so is micro-batch m over all
// ranks for equal micro * dp. All member functions are const and allocate nothing, so ranks that are threads
// may share one Batches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/sampler.h"

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
};

// Identifies a label for a mask. `sequence` is g above; `sample` indexes the dataset; `position` is within
// the sequence.
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
  Batches(Dataset dataset, Sampler sampler, BatchLayout layout, BatchStart start = {}, LabelMask mask = {});

  // Stages of the batch size, by step; each begins at the position where the one before ends.
  void set_stages(std::vector<BatchStart> stages);

  const Dataset& dataset() const { return dataset_; }
  const BatchLayout& layout() const { return layout_; }
  int64_t micro_tokens() const { return layout_.micro * dataset_.seq_len(); }

  // Samples consumed before `step`; the state to checkpoint.
  int64_t position(int64_t step) const;
  // Micro-batches of a step.
  int64_t accumulation(int64_t step) const;
  // Steps of one pass over all samples; the last step is padded with dummy sequences (evaluation).
  int64_t steps_per_pass() const;

  // Fills one micro-batch and returns its number of valid labels. Past the end of a sequential pass,
  // sequences are dummies: all ids 0, no valid labels.
  int64_t fill(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& out) const;

  // Valid labels in one data-parallel rank's share of a step, without reading tokens. Summed over dp_index,
  // this is the count of the global batch.
  int64_t count_labels(int64_t step, int64_t dp_index) const {
    return count_labels(step, dp_index, accumulation(step));
  }
  // The same in the first `micro_batches` of its micro-batches.
  int64_t count_labels(int64_t step, int64_t dp_index, int64_t micro_batches) const;

  // The global sequence index g of row i of a micro-batch.
  int64_t sequence_of(int64_t micro_index, int64_t dp_index, int64_t i) const;
  // The dataset sample of sequence g of a step; empty for a dummy.
  std::optional<int64_t> sample_of(int64_t step, int64_t sequence) const;

 private:
  int64_t count_sequence(int64_t step, int64_t sequence) const;
  const BatchStart& stage_of(int64_t step) const;
  Dataset dataset_;
  Sampler sampler_;
  BatchLayout layout_;
  std::vector<BatchStart> stages_;  // at least one
  LabelMask mask_;
};

}  // namespace quintet::data
