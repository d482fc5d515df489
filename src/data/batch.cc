#include "data/batch.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "base/error.h"
#include "data/balance.h"

namespace quintet::data {
namespace {
std::span<int32_t> row(std::span<int32_t> buffer, int64_t i, int64_t seq_len) {
  return buffer.empty() ? buffer
                        : buffer.subspan(static_cast<size_t>(i * seq_len), static_cast<size_t>(seq_len));
}

// Of one sequence.
void fill_next(const SampleView& view, std::span<int32_t> ids, std::span<int32_t> labels) {
  if (ids.empty() && labels.empty()) return;
  const size_t rows = view.tokens.size();
  QUINTET_CHECK(view.labels.size() == rows && view.documents.size() == rows,
                "next rows need ids, labels and documents");
  for (size_t at = 0; at < rows; ++at) {
    const bool has_next = at + 1 < rows && view.documents[at + 1] == view.documents[at];
    if (!ids.empty()) ids[at] = has_next ? view.tokens[at + 1] : 0;
    if (!labels.empty()) labels[at] = has_next ? view.labels[at + 1] : kIgnored;
  }
}
}  // namespace

// The step in flight, the next one whose inputs are read ahead, and one more while ranks change over.
struct Batches::Orders {
  struct One {
    int64_t step = -1;
    std::vector<int32_t> order;
  };
  std::mutex mutex;
  std::array<One, 4> last;
  size_t next = 0;
};

Batches::Batches(Dataset dataset, Sampler sampler, BatchLayout layout, BatchStart start, LabelMask mask)
    : Batches(Mixture(std::move(dataset), std::move(sampler)), layout, start, std::move(mask)) {}

Batches::Batches(Mixture mixture, BatchLayout layout, BatchStart start, LabelMask mask)
    : mixture_(std::move(mixture)), layout_(layout), stages_{start}, mask_(std::move(mask)) {
  const auto [global, micro, accumulation, dp] = layout_;
  if (global <= 0 || micro <= 0 || accumulation <= 0 || dp <= 0)
    base::fail_user("batch sizes must be positive: global {}, micro {}, accumulation {}, data parallel {}",
                    global, micro, accumulation, dp);
  if (global != micro * accumulation * dp)
    base::fail_user("the global batch is {}, but micro {} x accumulation {} x data parallel {} = {}", global,
                    micro, accumulation, dp, micro * accumulation * dp);
}

void Batches::set_balanced() { orders_ = std::make_shared<Orders>(); }

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

int64_t Batches::steps_per_pass() const { return (mixture_.samples() + layout_.global - 1) / layout_.global; }

int64_t Batches::place_of(int64_t micro_index, int64_t dp_index, int64_t i) const {
  QUINTET_CHECK(micro_index >= 0 && micro_index < layout_.accumulation, "micro-batch {} is not below {}",
                micro_index, layout_.accumulation);
  QUINTET_CHECK(dp_index >= 0 && dp_index < layout_.dp, "data-parallel rank {} is not below {}", dp_index,
                layout_.dp);
  return (micro_index * layout_.dp + dp_index) * layout_.micro + i;
}

int64_t Batches::sequence_at(int64_t step, int64_t place) const {
  if (!orders_) return place;
  const std::lock_guard lock(orders_->mutex);
  for (const Orders::One& one : orders_->last)
    if (one.step == step) return one.order[static_cast<size_t>(place)];
  std::vector<int64_t> costs(static_cast<size_t>(accumulation(step) * layout_.micro * layout_.dp));
  for (size_t g = 0; g < costs.size(); ++g) costs[g] = pairs_of(step, static_cast<int64_t>(g));
  Orders::One& one = orders_->last[orders_->next++ % orders_->last.size()];
  one = {step, balanced_order(costs, layout_.micro, layout_.dp)};
  return one.order[static_cast<size_t>(place)];
}

std::optional<Mixture::Pick> Batches::pick(int64_t step, int64_t sequence) const {
  return mixture_.at(position(step) + sequence);
}

int64_t Batches::fill(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& out) const {
  const int64_t seq_len = mixture_.seq_len();
  for (const auto& buffer : {out.ids, out.labels, out.positions, out.documents, out.samples, out.next_ids,
                             out.next_labels, out.token_types})
    QUINTET_CHECK(buffer.empty() || static_cast<int64_t>(buffer.size()) == micro_tokens(),
                  "a buffer of {} elements for {} sequences of {} tokens", buffer.size(), layout_.micro,
                  seq_len);
  std::ranges::fill(out.token_types, 0);
  std::ranges::fill(out.routes, 0);
  const int64_t choices = static_cast<int64_t>(out.routes.size()) / layout_.micro;  // of a sequence
  QUINTET_CHECK(choices % seq_len == 0, "a buffer of {} choices for {} sequences of {} tokens",
                out.routes.size(), layout_.micro, seq_len);
  int64_t valid = 0;
  for (int64_t i = 0; i < layout_.micro; ++i) {
    const int64_t sequence = sequence_at(step, place_of(micro_index, dp_index, i)),
                  place = position(step) + sequence;
    const SampleView view = {row(out.ids, i, seq_len), row(out.labels, i, seq_len),
                             row(out.positions, i, seq_len), row(out.documents, i, seq_len)};
    std::ranges::fill(row(out.samples, i, seq_len), static_cast<int32_t>(place & 0x7fffffff));
    if (const auto pick = mixture_.at(place)) {
      const MixtureSet::Found found = mixture_.find(*pick);
      found.dataset->fill(found.index, view, place, out.wanted);
      if (mask_)
        for (size_t at = 0; at < view.labels.size(); ++at)
          if (!mask_({step, sequence, mixture_.number(*pick), static_cast<int64_t>(at)}))
            view.labels[at] = kIgnored;
    } else {
      std::ranges::fill(view.tokens, 0);
      std::ranges::fill(view.labels, kIgnored);
      std::ranges::fill(view.documents, 0);
      for (size_t at = 0; at < view.positions.size(); ++at) view.positions[at] = static_cast<int32_t>(at);
    }
    fill_next(view, row(out.next_ids, i, seq_len), row(out.next_labels, i, seq_len));
    if (routes_ && !out.routes.empty()) {
      std::vector<int32_t> ids;  // of the whole sequence
      if (out.wanted.empty()) ids.assign(view.tokens.begin(), view.tokens.end());
      if (const auto pick = mixture_.at(place); ids.empty() && pick) {  // a pipeline stage that reads no ids
        ids.resize(static_cast<size_t>(seq_len));
        const MixtureSet::Found found = mixture_.find(*pick);
        found.dataset->fill(found.index, {ids, {}, {}, {}}, place);
      }
      if (!ids.empty()) routes_(place, ids, row(out.routes, i, choices));
    }
    valid += count_sequence(step, sequence, out.wanted);
  }
  return valid;
}

namespace {

// A bijection whose bits look random (splitmix64's).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The sum of a hash of (key, position, value) over positions [begin, end) of a row.
uint64_t sum_of_row(std::span<const int32_t> row, uint64_t key, int64_t begin, int64_t end) {
  uint64_t sum = 0;
  for (auto at = static_cast<size_t>(begin); at < static_cast<size_t>(end); ++at)
    sum += mixed(key ^ (uint64_t{at} << 32 | static_cast<uint32_t>(row[at])));
  return sum;
}

}  // namespace

uint64_t Batches::hash_of(int64_t step, int64_t micro_index, int64_t dp_index, const MicroBatch& filled,
                          Positions positions) const {
  const int64_t seq_len = mixture_.seq_len();
  const PositionRange all{0, seq_len};
  if (positions.empty()) positions = std::span(&all, 1);
  uint64_t sum = 0;
  for (int64_t i = 0; i < layout_.micro; ++i) {
    const auto place =
        static_cast<uint64_t>(position(step) + sequence_at(step, place_of(micro_index, dp_index, i)));
    for (const bool labels : {false, true}) {
      const std::span<const int32_t> values = row(labels ? filled.labels : filled.ids, i, seq_len);
      if (values.empty()) continue;
      const uint64_t key = mixed(2 * place + (labels ? 1 : 0) + 0x9E3779B97F4A7C15u);
      for (const PositionRange& range : positions)
        sum += sum_of_row(values, key, range.begin, range.begin + range.length);
    }
  }
  return sum;
}

uint64_t Batches::hash_of_step(int64_t step) const {
  std::vector<int32_t> ids(static_cast<size_t>(micro_tokens())), labels(ids.size());
  const MicroBatch buffers = {.ids = ids, .labels = labels};
  uint64_t sum = 0;
  for (int64_t m = 0; m < accumulation(step); ++m)
    for (int64_t rank = 0; rank < layout_.dp; ++rank) {
      fill(step, m, rank, buffers);
      sum += hash_of(step, m, rank, buffers, {});
    }
  return sum;
}

void Batches::will_read(int64_t step, int64_t dp_index, Positions wanted) const {
  for (int64_t m = 0; m < accumulation(step); ++m)
    for (int64_t i = 0; i < layout_.micro; ++i)
      if (const auto chosen = pick(step, sequence_at(step, place_of(m, dp_index, i)));
          chosen && !mixture_.set(chosen->set).is_streamed())
        mixture_.dataset(chosen->set).will_read(chosen->sample, wanted);
}

int64_t Batches::count_sequence(int64_t step, int64_t sequence, Positions wanted) const {
  const auto chosen = pick(step, sequence);
  if (!chosen) return 0;
  const MixtureSet::Found found = mixture_.find(*chosen);
  const int64_t place = position(step) + sequence;
  if (!mask_) return found.dataset->valid_labels(found.index, place, wanted);
  const PositionRange all{0, mixture_.seq_len()};
  if (wanted.empty()) wanted = std::span(&all, 1);
  int64_t valid = 0;
  for (const PositionRange& range : wanted)
    for (int64_t at = range.begin; at < range.begin + range.length; ++at)
      valid += found.dataset->has_label(found.index, at, place) &&
               mask_({step, sequence, mixture_.number(*chosen), at});
  return valid;
}

int64_t Batches::pairs_of(int64_t step, int64_t sequence) const {
  const auto chosen = pick(step, sequence);
  if (!chosen) return 0;
  const MixtureSet::Found found = mixture_.find(*chosen);
  return found.dataset->visible_pairs(found.index);
}

int64_t Batches::visible_pairs(int64_t step, int64_t dp_index) const {
  int64_t pairs = 0;
  for (int64_t m = 0; m < accumulation(step); ++m)
    for (int64_t i = 0; i < layout_.micro; ++i)
      pairs += pairs_of(step, sequence_at(step, place_of(m, dp_index, i)));
  return pairs;
}

int64_t Batches::count_labels(int64_t step, int64_t dp_index, int64_t micro_batches, Positions wanted) const {
  int64_t valid = 0;
  for (int64_t micro_index = 0; micro_index < micro_batches; ++micro_index)
    for (int64_t i = 0; i < layout_.micro; ++i)
      valid += count_sequence(step, sequence_at(step, place_of(micro_index, dp_index, i)), wanted);
  return valid;
}

}  // namespace quintet::data
