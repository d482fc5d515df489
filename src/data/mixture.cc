#include "data/mixture.h"

#include "base/error.h"

namespace quintet::data {

Mixture::Mixture(Dataset dataset, Sampler sampler) {
  QUINTET_CHECK(sampler.samples() == dataset.size(), "the sampler covers {} samples, the dataset has {}",
                sampler.samples(), dataset.size());
  sets_.push_back({"", std::move(dataset), std::move(sampler)});
  first_.push_back(sets_[0].dataset.size());
}

Mixture::Mixture(std::vector<MixtureSet> sets, Blend blend)
    : sets_(std::move(sets)), blend_(std::move(blend)) {
  QUINTET_CHECK(!sets_.empty() && blend_->sets() == this->sets(), "a blend of {} for {} sets", blend_->sets(),
                sets_.size());
  for (const MixtureSet& s : sets_) {
    QUINTET_CHECK(s.sampler.samples() == s.dataset.size() && s.dataset.seq_len() == seq_len(),
                  "set '{}' has {} samples of {}, its sampler {}", s.name, s.dataset.size(),
                  s.dataset.seq_len(), s.sampler.samples());
    first_.push_back(first_.back() + s.dataset.size());
  }
}

std::optional<Mixture::Pick> Mixture::at(int64_t position) const {
  const Blend::Turn turn = blend_ ? blend_->at(position) : Blend::Turn{0, position};
  const Sampler& sampler = set(turn.set).sampler;
  const auto sample = sampler.sample_at(turn.index);
  if (!sample) return std::nullopt;
  return Pick{turn.set, *sample, sampler.epoch_of(turn.index)};
}

int64_t Mixture::taken(int64_t set, int64_t positions) const {
  return blend_ ? blend_->turns(set, positions) : positions;
}

int64_t Mixture::samples() const { return first_.back(); }

int64_t Mixture::tokens() const {
  int64_t n = 0;
  for (const MixtureSet& s : sets_) n += s.dataset.corpus().tokens();
  return n;
}

int64_t Mixture::documents() const {
  int64_t n = 0;
  for (const MixtureSet& s : sets_) n += s.dataset.corpus().documents();
  return n;
}

}  // namespace quintet::data
