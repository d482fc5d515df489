#include "data/mixture.h"

#include <algorithm>

#include "base/checksum.h"
#include "base/error.h"

namespace quintet::data {

MixtureSet::MixtureSet(std::string given_name, Dataset dataset, Sampler sampler)
    : name(std::move(given_name)), dataset_(std::move(dataset)), sampler_(std::move(sampler)) {
  QUINTET_CHECK(sampler_->samples() == dataset_->size(), "set '{}' has {} samples, its sampler {}", name,
                dataset_->size(), sampler_->samples());
}

MixtureSet::MixtureSet(std::string given_name, Streams streams)
    : name(std::move(given_name)), streams_(std::move(streams)) {
  QUINTET_CHECK(!streams_.empty(), "set '{}' has no streams", name);
}

std::optional<MixtureSet::Chosen> MixtureSet::at(int64_t index) const {
  if (is_streamed()) {
    const auto parts = static_cast<int64_t>(streams_.size()), part = index % parts;
    return Chosen{streams_[static_cast<size_t>(part)]->sample_at(index / parts) * parts + part, 0};
  }
  const auto sample = sampler_->sample_at(index);
  if (!sample) return std::nullopt;
  return Chosen{*sample, sampler_->epoch_of(index)};
}

MixtureSet::Found MixtureSet::find(int64_t sample) const {
  if (!is_streamed()) return {nullptr, &*dataset_, sample};
  const auto parts = static_cast<int64_t>(streams_.size());
  SampleStream::Place place = streams_[static_cast<size_t>(sample % parts)]->find(sample / parts);
  const Dataset* dataset = &place.window->dataset;
  return {std::move(place.window), dataset, place.index};
}

uint64_t MixtureSet::fingerprint() const {
  return is_streamed() ? streams_[0]->fingerprint() : dataset_->corpus().fingerprint();
}

int64_t MixtureSet::taken_of_stream(int64_t p, int64_t count) const {
  const auto parts = static_cast<int64_t>(streams_.size());
  return (count + parts - 1 - p) / parts;
}

Mixture::Mixture(Dataset dataset, Sampler sampler)
    : Mixture(MixtureSet("", std::move(dataset), std::move(sampler))) {}

Mixture::Mixture(MixtureSet only) {
  sets_.push_back(std::move(only));
  first_.push_back(sets_[0].samples());
}

Mixture::Mixture(std::vector<MixtureSet> sets, Blend blend)
    : sets_(std::move(sets)), blend_(std::move(blend)) {
  QUINTET_CHECK(!sets_.empty() && blend_->sets() == this->sets(), "a blend of {} for {} sets", blend_->sets(),
                sets_.size());
  for (const MixtureSet& s : sets_) {
    QUINTET_CHECK(s.seq_len() == seq_len(), "set '{}' has samples of {}, the first one of {}", s.name,
                  s.seq_len(), seq_len());
    first_.push_back(first_.back() + s.samples());
  }
}

std::optional<Mixture::Pick> Mixture::at(int64_t position) const {
  const Blend::Turn turn = blend_ ? blend_->at(position) : Blend::Turn{0, position};
  const auto chosen = set(turn.set).at(turn.index);
  if (!chosen) return std::nullopt;
  return Pick{turn.set, chosen->sample, chosen->epoch};
}

int64_t Mixture::taken(int64_t set, int64_t positions) const {
  return blend_ ? blend_->turns(set, positions) : positions;
}

int64_t Mixture::most_taken(int64_t set, int64_t positions) const {
  return blend_ ? blend_->most_turns(set, positions) : positions;
}

bool Mixture::is_streamed() const { return std::ranges::any_of(sets_, &MixtureSet::is_streamed); }

int64_t Mixture::tokens() const {
  int64_t n = 0;
  for (const MixtureSet& s : sets_) n += s.tokens();
  return n;
}

int64_t Mixture::documents() const {
  int64_t n = 0;
  for (const MixtureSet& s : sets_) n += s.documents();
  return n;
}

}  // namespace quintet::data
