#include "data/batch.h"

#include <algorithm>

#include "base/error.h"

namespace quintet::data {
namespace {
std::span<int32_t> row(std::span<int32_t> buffer, int64_t i, int64_t seq_len) {
  return buffer.empty() ? buffer
                        : buffer.subspan(static_cast<size_t>(i * seq_len), static_cast<size_t>(seq_len));
}
}  // namespace

Batches::Batches(Dataset dataset, Sampler sampler, BatchLayout layout, BatchStart start, LabelMask mask)
    : dataset_(std::move(dataset)),
      sampler_(sampler),
      layout_(layout),
      stages_{start},
      mask_(std::move(mask)) {
  const auto [global, micro, accumulation, dp] = layout_;
  if (global <= 0 || micro <= 0 || accumulation <= 0 || dp <= 0)
    base::fail_user("batch sizes must be positive: global {}, micro {}, accumulation {}, data parallel {}",
                    global, micro, accumulation, dp);
  if (global != micro * accumulation * dp)
    base::fail_user("the global batch is {}, but micro {} x accumulation {} x data parallel {} = {}", global,
                    micro, accumulation, dp, micro * accumulation * dp);
  QUINTET_CHECK(sampler_.samples() == dataset_.size(), "the sampler covers {} samples, the dataset has {}",
                sampler_.samples(), dataset_.size());
}

void Batches::set_stages(std::vector<BatchStart> stages) {
  QUINTET_CHECK(!stages.empty(), "a run has at least one stage");
  for (size_t i = 0; i < stages.size(); ++i) {
    const int64_t n = stages[i].accumulation;
    QUINTET_CHECK(n >= 0 && n <= layout_.accumulation, "a stage of {} micro-batches, at most {}", n,
                  layout_.accumulation);
    if (i == 0) continue;
    const BatchStart& before = stages[i - 1];
    const int64_t each =
        (before.accumulation > 0 ? before.accumulation : layout_.accumulation) * layout_.micro * layout_.dp;
    QUINTET_CHECK(
        stages[i].step >= before.step &&
            stages[i].position == before.position + (stages[i].step - before.step) * each,
        "stage {} begins at step {} and sample {}, the one before at {} and {} with {} samples a step", i,
        stages[i].step, stages[i].position, before.step, before.position, each);
  }
  stages_ = std::move(stages);
}

const BatchStart& Batches::stage_of(int64_t step) const {
  QUINTET_CHECK(step >= stages_[0].step, "step {} is before the first step, {}", step, stages_[0].step);
  size_t i = stages_.size() - 1;
  while (stages_[i].step > step) --i;
  return stages_[i];
}

int64_t Batches::accumulation(int64_t step) const {
  const int64_t n = stage_of(step).accumulation;
  return n > 0 ? n : layout_.accumulation;
}

int64_t Batches::position(int64_t step) const {
  const BatchStart& stage = stage_of(step);
  return stage.position + (step - stage.step) * accumulation(step) * layout_.micro * layout_.dp;
}

int64_t Batches::steps_per_pass() const { return (dataset_.size() + layout_.global - 1) / layout_.global; }

int64_t Batches::sequence_of(int64_t micro_index, int64_t dp_index, int64_t i) const {
  QUINTET_CHECK(micro_index >= 0 && micro_index < layout_.accumulation, "micro-batch {} is not below {}",
                micro_index, layout_.accumulation);
  QUINTET_CHECK(dp_index >= 0 && dp_index < layout_.dp, "data-parallel rank {} is not below {}", dp_index,
                layout_.dp);
  return (micro_index * layout_.dp + dp_index) * layout_.micro + i;
}

std::optional<int64_t> Batches::sample_of(int64_t step, int64_t sequence) const {
  return sampler_.sample_at(position(step) + sequence);
}

int64_t Batches::fill(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& out) const {
  const int64_t seq_len = dataset_.seq_len();
  for (const auto& buffer : {out.ids, out.labels, out.positions, out.documents, out.samples})
    QUINTET_CHECK(buffer.empty() || static_cast<int64_t>(buffer.size()) == micro_tokens(),
                  "a buffer of {} elements for {} sequences of {} tokens", buffer.size(), layout_.micro,
                  seq_len);
  int64_t valid = 0;
  for (int64_t i = 0; i < layout_.micro; ++i) {
    const int64_t sequence = sequence_of(micro_index, dp_index, i);
    const SampleView view = {row(out.ids, i, seq_len), row(out.labels, i, seq_len),
                             row(out.positions, i, seq_len), row(out.documents, i, seq_len)};
    const auto identity = static_cast<int32_t>((position(step) + sequence) & 0x7fffffff);
    std::ranges::fill(row(out.samples, i, seq_len), identity);
    if (const auto sample = sample_of(step, sequence)) {
      dataset_.fill(*sample, view);
      if (mask_)
        for (size_t at = 0; at < view.labels.size(); ++at)
          if (!mask_({step, sequence, *sample, static_cast<int64_t>(at)})) view.labels[at] = kIgnored;
    } else {
      std::ranges::fill(view.tokens, 0);
      std::ranges::fill(view.labels, kIgnored);
      std::ranges::fill(view.documents, 0);
      for (size_t at = 0; at < view.positions.size(); ++at) view.positions[at] = static_cast<int32_t>(at);
    }
    valid += count_sequence(step, sequence);
  }
  return valid;
}

int64_t Batches::count_sequence(int64_t step, int64_t sequence) const {
  const auto sample = sample_of(step, sequence);
  if (!sample) return 0;
  if (!mask_) return dataset_.valid_labels(*sample);
  int64_t valid = 0;
  for (int64_t at = 0; at < dataset_.seq_len(); ++at)
    valid += dataset_.has_label(*sample, at) && mask_({step, sequence, *sample, at});
  return valid;
}

int64_t Batches::count_labels(int64_t step, int64_t dp_index, int64_t micro_batches) const {
  int64_t valid = 0;
  for (int64_t micro_index = 0; micro_index < micro_batches; ++micro_index)
    for (int64_t i = 0; i < layout_.micro; ++i)
      valid += count_sequence(step, sequence_of(micro_index, dp_index, i));
  return valid;
}

}  // namespace quintet::data
