// `quintet data ledger`: which samples shaped which step of a run. The order of samples is a pure function of
// the recipe and its seed, so it is computed again. The data must still have the fingerprints that the run
// wrote down, and a step the number of labels that its metrics have and the hash of ids and labels that the
// ranks computed as they loaded them (ledger.jsonl).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "config/recipe.h"
#include "data/dataset.h"
#include "train/run_data.h"

namespace quintet::tools {

// A sequence of a step.
struct LedgerRow {
  int64_t step = 0;                   // 1-based
  int64_t sequence = 0;               // of the step
  int64_t position = 0;               // in the global order: sequences that the run had consumed before
  int64_t rank = 0, micro_batch = 0;  // data rank, and its micro-batch
  int64_t set = 0, sample = 0, epoch = 0;
  int64_t labels = 0;
  std::vector<data::SamplePart> parts;
  std::vector<std::string> sources;  // of a stream: FILE:LINE of each part
};

struct StepLedger {
  int64_t step = 0, labels = 0;
  bool was_skipped = false;  // the step changed no weights
  std::string hash;          // of all ids and labels, as the run recorded it; empty: it did not
  std::vector<LedgerRow> rows;
};

class DataLedger {
 public:
  // Loads the run's data. UserError when they are not those that the run was trained on.
  explicit DataLedger(const base::Path& run_folder);

  const config::Recipe& recipe() const { return recipe_; }
  const data::Mixture& mixture() const { return data_.train.mixture(); }
  int64_t steps() const { return static_cast<int64_t>(recorded_.size()); }  // that the run has done

  // Whether any change of the data since the run would have been noticed. Fingerprints of streams, and of
  // token files of more than 256 MiB, cover a sample of the bytes only.
  bool is_proven() const;

  // UserError unless the run has done the step, its metrics have as many labels, and the ids and labels have
  // the hash that was recorded.
  StepLedger step(int64_t number) const;

  // All sequences of the run so far that hold a sample ("17", "code:17" with several sets).
  std::vector<LedgerRow> find_sample(const std::string& text) const;
  // The same for any part of a document: a number as well, or, of a stream, a record: "FILE:LINE",
  // "code:FILE:LINE", where FILE is a path or the last part of one.
  std::vector<LedgerRow> find_document(const std::string& text) const;

 private:
  struct Recorded {
    int64_t tokens = 0;
    bool skipped = false;
  };
  // A set, and the rest of the text that names it.
  std::pair<int64_t, std::string> split_set(const std::string& text) const;
  LedgerRow row(int64_t step, int64_t sequence) const;
  // The sequences of a set that `holds` accepts.
  template <class F>
  std::vector<LedgerRow> matching(int64_t set, const F& holds) const;
  config::Recipe recipe_;
  base::Path folder_;
  train::RunData data_;
  std::vector<Recorded> recorded_;
  std::map<int64_t, std::string> hashes_;  // by step, 1-based
};

std::string to_text(const DataLedger& ledger, const StepLedger& step);
std::string to_text(const DataLedger& ledger, const std::vector<LedgerRow>& rows);
std::string to_json(const DataLedger& ledger, const StepLedger& step);
std::string to_json(const DataLedger& ledger, const std::vector<LedgerRow>& rows);

}  // namespace quintet::tools
