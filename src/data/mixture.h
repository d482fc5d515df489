// What a run trains on: one set of samples, or several that a blend takes in turn. The global order of
// samples is a pure function of (seed, position); each set has its own order and its own epochs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/blend.h"
#include "data/dataset.h"
#include "data/sample_stream.h"
#include "data/sampler.h"

namespace quintet::data {

// A set: a dataset in a sampler's order, or streams of text. With P streams, sample P * i + p is sample i of
// stream p, and the run takes from them in turn.
class MixtureSet {
 public:
  using Streams = std::vector<std::shared_ptr<SampleStream>>;
  MixtureSet(std::string name, Dataset dataset, Sampler sampler);
  MixtureSet(std::string name, Streams streams);

  std::string name;  // empty for a single set

  struct Chosen {
    int64_t sample = 0, epoch = 0;  // epoch: 0 in a stream, whose epochs are those of its documents
  };
  // The sample at a place of the set's order; empty past the end of a sequential pass.
  std::optional<Chosen> at(int64_t index) const;

  struct Found {
    std::shared_ptr<const StreamWindow> window;  // of a stream; keeps the dataset alive
    const Dataset* dataset = nullptr;
    int64_t index = 0;  // in the dataset
  };
  // Of a stream: waits until the sample is tokenised.
  Found find(int64_t sample) const;

  bool is_streamed() const { return !streams_.empty(); }
  const Streams& streams() const { return streams_; }
  const Dataset& dataset() const { return *dataset_; }  // requires !is_streamed()
  // What is known before a run: nothing of a stream.
  int64_t samples() const { return dataset_ ? dataset_->size() : 0; }
  int64_t tokens() const { return dataset_ ? dataset_->corpus().tokens() : 0; }
  int64_t documents() const { return dataset_ ? dataset_->corpus().documents() : 0; }
  int64_t seq_len() const { return dataset_ ? dataset_->seq_len() : streams_[0]->options().seq_len; }
  uint64_t fingerprint() const;
  // Whether every byte is in it: not of streams, which are known by sizes and ends of their files.
  bool fingerprint_is_whole() const { return dataset_ && dataset_->corpus().fingerprint_is_whole(); }
  // Of a stream p: its samples among the first `count` of the set.
  int64_t taken_of_stream(int64_t p, int64_t count) const;

 private:
  std::optional<Dataset> dataset_;
  std::optional<Sampler> sampler_;
  Streams streams_;
};

class Mixture {
 public:
  Mixture(Dataset dataset, Sampler sampler);
  explicit Mixture(MixtureSet only);
  // Several sets of one sequence length, in the proportions of the blend.
  Mixture(std::vector<MixtureSet> sets, Blend blend);

  struct Pick {
    int64_t set = 0;
    int64_t sample = 0;  // of that set
    int64_t epoch = 0;   // of that set
  };
  // What the global order has at a position; empty past the end of a sequential pass. Does not allocate.
  std::optional<Pick> at(int64_t position) const;
  MixtureSet::Found find(const Pick& pick) const { return set(pick.set).find(pick.sample); }
  // Samples of a set among the first `positions`.
  int64_t taken(int64_t set, int64_t positions) const;
  int64_t most_taken(int64_t set, int64_t positions) const;  // or one more, at once (Blend::most_turns)

  int64_t sets() const { return static_cast<int64_t>(sets_.size()); }
  const MixtureSet& set(int64_t i) const { return sets_[static_cast<size_t>(i)]; }
  const Dataset& dataset(int64_t i) const { return set(i).dataset(); }
  double share(int64_t i) const { return blend_ ? blend_->share(i) : 1; }
  bool is_streamed() const;  // any of its sets

  int64_t seq_len() const { return sets_[0].seq_len(); }
  // Of all sets together that are not streamed.
  int64_t samples() const { return first_.back(); }
  int64_t tokens() const;
  int64_t documents() const;
  // The number of a pick among the samples of all sets, one set after another.
  int64_t number(const Pick& pick) const { return first_[static_cast<size_t>(pick.set)] + pick.sample; }

 private:
  std::vector<MixtureSet> sets_;
  std::optional<Blend> blend_;  // with more than one set
  std::vector<int64_t> first_ = {0};
};

}  // namespace quintet::data
