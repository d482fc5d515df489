#include "tools/ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "config/parse.h"
#include "train/run_folder.h"

namespace quintet::tools {
namespace {

using Json = nlohmann::ordered_json;

config::Recipe recipe_in(const base::Path& folder) {
  const train::RunFolder run(folder);
  if (!base::file_exists(run.recipe_file()) || !base::file_exists(run.facts()))
    base::fail_user("'{}' is not the folder of a run: it has no {}", folder.string(),
                    base::file_exists(run.recipe_file()) ? "run.json" : "recipe.toml");
  return config::load(run.recipe_file().string());
}

// The files of a set, for people.
std::string source_name(const data::MixtureSet& set) {
  if (!set.is_streamed()) return set.dataset().corpus().name();
  const auto& files = set.streams()[0]->options().files;
  return files[0].string() + (files.size() > 1 ? fmt::format(" and {} more files", files.size() - 1) : "");
}

void require_fingerprints(const data::Mixture& mixture, const train::RunFolder& run) {
  const Json facts = base::parse_ordered_json(base::read_file(run.facts()));
  const Json data = facts.is_object() ? facts.value("data", Json::object()) : Json::object();
  const Json sets = data.is_object() ? data.value("sets", Json::array()) : Json::array();
  if (!sets.is_array() || sets.empty())
    base::fail_user("'{}' has no fingerprints of the data: an older version wrote it", run.facts().string());
  if (static_cast<int64_t>(sets.size()) != mixture.sets())
    base::fail_user("'{}' lists {} sets of data, but the recipe has {}", run.facts().string(), sets.size(),
                    mixture.sets());
  for (int64_t i = 0; i < mixture.sets(); ++i) {
    const std::string now = checkpoint::sum_text(mixture.set(i).fingerprint());
    const Json& set = sets[static_cast<size_t>(i)];
    const std::string then = set.is_object() ? set.value("fingerprint", std::string()) : "";
    if (now != then)
      base::fail_user(
          "the data have changed since the run: '{}' has the fingerprint {}, {} then; what the run was "
          "trained on cannot be told from other data",
          source_name(mixture.set(i)), now, then);
  }
}

std::string set_name(const data::Mixture& mixture, int64_t set) {
  const std::string& name = mixture.set(set).name;
  return name.empty() ? "data" : name;
}

std::string parts_text(const LedgerRow& row) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < row.parts.size(); ++i) {
    const data::SamplePart& p = row.parts[i];
    texts.push_back(fmt::format("{}[{}..{})",
                                row.sources.empty() ? std::to_string(p.document) : row.sources[i], p.begin,
                                p.begin + p.tokens));
  }
  return fmt::format("{}", fmt::join(texts, " "));
}

constexpr const char* kLine = "{:>8} {:>8} {:>10} {:>5} {:>6}  {:<12} {:>10} {:>6} {:>7}  {}\n";

std::string table_of(const DataLedger& ledger, const std::vector<LedgerRow>& rows) {
  std::string out = fmt::format(fmt::runtime(kLine), "step", "sequence", "position", "rank", "micro", "set",
                                "sample", "epoch", "labels", "documents[tokens)");
  for (const LedgerRow& r : rows)
    out += fmt::format(fmt::runtime(kLine), r.step, r.sequence, r.position, r.rank, r.micro_batch,
                       set_name(ledger.mixture(), r.set), r.sample, r.epoch, r.labels, parts_text(r));
  return out;
}

Json rows_json(const DataLedger& ledger, const std::vector<LedgerRow>& rows) {
  Json list = Json::array();
  for (const LedgerRow& r : rows) {
    Json parts = Json::array();
    for (size_t i = 0; i < r.parts.size(); ++i) {
      const data::SamplePart& p = r.parts[i];
      parts.push_back({{"document", r.sources.empty() ? Json(p.document) : Json(r.sources[i])},
                       {"begin", p.begin},
                       {"tokens", p.tokens}});
    }
    list.push_back({{"step", r.step},
                    {"sequence", r.sequence},
                    {"position", r.position},
                    {"rank", r.rank},
                    {"micro_batch", r.micro_batch},
                    {"set", set_name(ledger.mixture(), r.set)},
                    {"source", source_name(ledger.mixture().set(r.set))},
                    {"sample", r.sample},
                    {"epoch", r.epoch},
                    {"labels", r.labels},
                    {"parts", std::move(parts)}});
  }
  return list;
}

}  // namespace

DataLedger::DataLedger(const base::Path& run_folder)
    : recipe_(recipe_in(run_folder)), folder_(run_folder), data_(train::load_data(recipe_)) {
  const train::RunFolder run(run_folder);
  require_fingerprints(mixture(), run);
  if (!base::file_exists(run.metrics())) return;
  const std::string text = base::read_file(run.metrics());
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Json record = base::parse_ordered_json(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (!record.is_object()) break;  // cut off by a crash
    const auto step = record.value("step", int64_t{0});
    if (step != steps() + 1)
      base::fail_user("'{}' has step {} after step {}: records are missing", run.metrics().string(), step,
                      steps());
    recorded_.push_back({record.value("tokens", int64_t{0}), record.value("skipped", false)});
  }
}

bool DataLedger::is_proven() const {
  for (int64_t i = 0; i < mixture().sets(); ++i)
    if (!mixture().set(i).fingerprint_is_whole()) return false;
  return true;
}

LedgerRow DataLedger::row(int64_t step, int64_t sequence) const {
  const auto pick = data_.train.pick(step, sequence);
  const data::MixtureSet::Found found = mixture().find(*pick);
  LedgerRow row{.step = step + 1,
                .sequence = sequence,
                .position = data_.train.position(step) + sequence,
                .set = pick->set,
                .sample = pick->sample,
                .epoch = pick->epoch,
                .labels = found.dataset->valid_labels(found.index, data_.train.position(step) + sequence),
                .parts = found.dataset->parts(found.index)};
  if (!found.window) return row;
  // Documents of a stream are records of its files.
  const auto& files = mixture().set(pick->set).streams()[0]->options().files;
  for (data::SamplePart& part : row.parts) {
    const data::StreamOrigin& origin = found.window->origins[static_cast<size_t>(part.document)];
    row.sources.push_back(
        fmt::format("{}:{}", files[static_cast<size_t>(origin.file)].string(), origin.record));
    part.begin += origin.begin;
    if (row.sources.size() == 1) row.epoch = origin.epoch;
  }
  return row;
}

StepLedger DataLedger::step(int64_t number) const {
  if (number < 1 || number > steps())
    base::fail_user("step {} is not one of the {} that the run in '{}' has done", number, steps(),
                    folder_.string());
  const data::BatchLayout& layout = data_.train.layout();
  StepLedger out{.step = number, .was_skipped = recorded_[static_cast<size_t>(number - 1)].skipped};
  for (int64_t m = 0; m < data_.train.accumulation(number - 1); ++m)
    for (int64_t rank = 0; rank < layout.dp; ++rank)
      for (int64_t i = 0; i < layout.micro; ++i) {
        const int64_t sequence = data_.train.sequence_at(number - 1, data_.train.place_of(m, rank, i));
        LedgerRow& r = out.rows.emplace_back(row(number - 1, sequence));
        r.rank = rank, r.micro_batch = m;
        out.labels += r.labels;
      }
  std::ranges::sort(out.rows, {}, &LedgerRow::sequence);
  if (const int64_t recorded = recorded_[static_cast<size_t>(number - 1)].tokens; recorded != out.labels)
    base::fail_user(
        "step {} was trained on {} labels, but its samples have {}: the run was continued with other "
        "settings, or its files do not belong together",
        number, base::thousands(recorded), base::thousands(out.labels));
  return out;
}

DataLedger::Wanted DataLedger::parse_wanted(const std::string& text, bool is_document) {
  Wanted wanted;
  const size_t colon = text.rfind(':');
  const std::string number = colon == std::string::npos ? text : text.substr(colon + 1);
  if (colon != std::string::npos) wanted.set = text.substr(0, colon);
  int64_t value = -1;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc{} || end != number.data() + number.size() || value < 0)
    base::fail_user("'{}' is neither a number nor SET:NUMBER, such as code:17", text);
  (is_document ? wanted.document : wanted.sample) = value;
  return wanted;
}

std::vector<LedgerRow> DataLedger::find(const Wanted& wanted) const {
  int64_t set = wanted.set.empty() && mixture().sets() == 1 ? 0 : -1;
  std::vector<std::string> names;
  for (int64_t i = 0; i < mixture().sets(); ++i) {
    names.push_back(set_name(mixture(), i));
    if (names.back() == wanted.set) set = i;
  }
  if (set < 0)
    base::fail_user(
        "{}; the run has {}",
        wanted.set.empty() ? "name the set, as SET:NUMBER" : fmt::format("there is no set '{}'", wanted.set),
        fmt::join(names, ", "));
  if (mixture().set(set).is_streamed()) return find_streamed(set, wanted);
  const data::Dataset& dataset = mixture().dataset(set);
  const int64_t limit = wanted.sample ? dataset.size() : dataset.corpus().documents();
  const int64_t number = wanted.sample ? *wanted.sample : *wanted.document;
  if (number >= limit)
    base::fail_user("{} {} does not exist: '{}' has {}", wanted.sample ? "sample" : "document", number,
                    names[static_cast<size_t>(set)], base::thousands(limit));
  std::vector<bool> holds(static_cast<size_t>(dataset.size()), false);
  for (int64_t s = 0; s < dataset.size(); ++s)
    holds[static_cast<size_t>(s)] =
        wanted.sample
            ? s == number
            : std::ranges::any_of(dataset.parts(s), [&](const auto& p) { return p.document == number; });
  std::vector<LedgerRow> rows;
  for (int64_t step = 0; step < steps(); ++step) {
    const int64_t sequences = data_.train.position(step + 1) - data_.train.position(step);
    for (int64_t g = 0; g < sequences; ++g) {
      const auto pick = data_.train.pick(step, g);
      if (pick->set != set || !holds[static_cast<size_t>(pick->sample)]) continue;
      const StepLedger whole = this->step(step + 1);
      rows.push_back(whole.rows[static_cast<size_t>(g)]);
    }
  }
  return rows;
}

std::vector<LedgerRow> DataLedger::find_streamed(int64_t set, const Wanted& wanted) const {
  if (!wanted.sample)
    base::fail_user(
        "'{}' is streamed, and its documents have no numbers: --step lists them as FILE:LINE, and --find "
        "takes a sample",
        set_name(mixture(), set));
  std::vector<LedgerRow> rows;
  for (int64_t step = 0; step < steps(); ++step) {
    const int64_t sequences = data_.train.position(step + 1) - data_.train.position(step);
    for (int64_t g = 0; g < sequences; ++g)
      if (const auto pick = data_.train.pick(step, g); pick->set == set && pick->sample == *wanted.sample)
        rows.push_back(this->step(step + 1).rows[static_cast<size_t>(g)]);
  }
  return rows;
}

std::string to_text(const DataLedger& ledger, const StepLedger& step) {
  return fmt::format("step {} of {}: {}, {}, as its metrics have; {}{}\n", step.step, ledger.steps(),
                     base::counted(step.rows.size(), "sequence"), base::counted(step.labels, "label"),
                     ledger.is_proven()
                         ? "the data have the run's fingerprints, which are of all their bytes"
                         : "the data have the run's sizes, and its bytes where the fingerprints sample them: "
                           "a change of equal length elsewhere does not show",
                     step.was_skipped ? "\nthe step was skipped: these samples changed no weights" : "") +
         table_of(ledger, step.rows);
}

std::string to_text(const DataLedger& ledger, const std::vector<LedgerRow>& rows) {
  if (rows.empty()) return fmt::format("in none of the {} steps of the run\n", ledger.steps());
  return table_of(ledger, rows);
}

std::string to_json(const DataLedger& ledger, const StepLedger& step) {
  return base::json_text(Json{{"step", step.step},
                              {"labels", step.labels},
                              {"skipped", step.was_skipped},
                              {"fingerprints", ledger.is_proven() ? "of all bytes" : "of samples"},
                              {"sequences", rows_json(ledger, step.rows)}},
                         2) +
         "\n";
}

std::string to_json(const DataLedger& ledger, const std::vector<LedgerRow>& rows) {
  return base::json_text(rows_json(ledger, rows), 2) + "\n";
}

}  // namespace quintet::tools
