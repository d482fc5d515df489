// Global batches, and the part of one that a data-parallel place takes.
//
// Step s consumes positions [p, p + global) of the sampler's order. Sequence g of that batch goes to
//   g = (micro_index * dp + dp_index) * micro + i
// so the batch is the same whatever the split, only who computes which part differs; and so is micro-batch m
// of all places together, as long as micro * dp is the same. Everything here is const and allocates nothing,
// so ranks that are threads may share one Batches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "data/dataset.h"
#include "data/sampler.h"

namespace quintet::data {

struct BatchLayout {
  int64_t global = 0;        // sequences per step
  int64_t micro = 0;         // sequences per micro-batch
  int64_t accumulation = 1;  // micro-batches per step and data-parallel place
  int64_t dp = 1;            // data-parallel places
};

// Buffers of micro * seq_len elements, sequence after sequence; an empty span is not written.
struct MicroBatch {
  std::span<int32_t> ids;
  std::span<int32_t> labels;     // kIgnored where nothing is predicted
  std::span<int32_t> positions;  // within the document (or the sequence, when documents are not kept apart)
  std::span<int32_t> documents;  // within the sequence: 0, 1, 2, ...
  // The sequence's place in the global order (the run's sample counter, low 31 bits), repeated for each
  // token: what dropout is keyed by. Equal in every layout, different in every epoch.
  std::span<int32_t> samples;
};

// Of all sequences, each of seq_len tokens: documents in a MicroBatch::documents.
int64_t count_documents(std::span<const int32_t> documents, int64_t seq_len);

// A label's address, for masks. `sequence` is g above; `sample` is the dataset's; `position` is in the
// sequence.
struct LabelSite {
  int64_t step = 0, sequence = 0, sample = 0, position = 0;
};
// Says which labels count. Must be a pure function: it is asked again when labels are counted.
using LabelMask = std::function<bool(const LabelSite&)>;

// Where the count of consumed samples stands: at the start of `step`, `position` samples have been consumed.
struct BatchStart {
  int64_t step = 0;
  int64_t position = 0;
};

class Batches {
 public:
  // UserError unless global = micro * accumulation * dp and all are positive. The mask, if given, can only
  // remove labels.
  Batches(Dataset dataset, Sampler sampler, BatchLayout layout, BatchStart start = {}, LabelMask mask = {});

  const Dataset& dataset() const { return dataset_; }
  const BatchLayout& layout() const { return layout_; }
  int64_t micro_tokens() const { return layout_.micro * dataset_.seq_len(); }

  // Samples consumed before `step`: the state to save.
  int64_t position(int64_t step) const;
  // Steps that see every sample once, the last one filled up with dummies (evaluation).
  int64_t steps_per_pass() const;

  // Writes one micro-batch and returns its number of labels that count. Past the end of a sequential pass a
  // sequence is a dummy: ids 0, no label counts.
  int64_t fill(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& out) const;

  // Labels that count in the whole step of one data-parallel place, without reading tokens; the sum over
  // dp_index is the global batch's.
  int64_t count_labels(int64_t step, int64_t dp_index) const;

  // Sequence index g in the global batch of row i of a micro-batch.
  int64_t sequence_of(int64_t micro_index, int64_t dp_index, int64_t i) const;
  // The dataset's sample for sequence g of a step; empty for a dummy.
  std::optional<int64_t> sample_of(int64_t step, int64_t sequence) const;

 private:
  int64_t count_sequence(int64_t step, int64_t sequence) const;
  Dataset dataset_;
  Sampler sampler_;
  BatchLayout layout_;
  BatchStart start_;
  LabelMask mask_;
};

}  // namespace quintet::data
