#include "tools/ledger.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/plural.h"
#include "base/printable.h"
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

namespace {

// Calls use(record) for every complete line.
template <class F>
void each_record(const base::Path& path, const F& use) {
  if (!base::file_exists(path)) return;
  const std::string text = base::read_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Json record = base::parse_ordered_json(std::string_view(text).substr(at, end - at));
    at = end + 1;
    if (!record.is_object()) break;  // cut off by a crash
    use(record);
  }
}

template <class T>
T value_of(const Json& record, const char* key, T otherwise) {
  try {
    return record.value(key, otherwise);
  } catch (const Json::exception&) {
    return otherwise;  // of another type
  }
}

}  // namespace

DataLedger::DataLedger(const base::Path& run_folder)
    : recipe_(recipe_in(run_folder)), folder_(run_folder), data_(train::load_data(recipe_)) {
  const train::RunFolder run(run_folder);
  require_fingerprints(mixture(), run);
  each_record(run.metrics(), [&](const Json& record) {
    const auto step = value_of(record, "step", int64_t{0});
    if (step != steps() + 1)
      base::fail_user("'{}' has step {} after step {}: records are missing", run.metrics().string(), step,
                      steps());
    recorded_.push_back({value_of(record, "tokens", int64_t{0}), value_of(record, "skipped", false)});
  });
  each_record(run.ledger(), [&](const Json& record) {
    hashes_[value_of(record, "step", int64_t{0})] = value_of(record, "tokens_hash", std::string());
  });
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
  const auto hash = hashes_.find(number);
  if (hash == hashes_.end()) return out;
  out.hash = hash->second;
  if (const std::string now = fmt::format("{:016x}", data_.train.hash_of_step(number - 1)); now != out.hash)
    base::fail_user(
        "the tokens of step {} have changed since the run: what its samples hold now has the hash {}, what "
        "the ranks loaded had {}. What the step was trained on cannot be told from other data",
        number, now, base::printable(out.hash));
  return out;
}

namespace {

// A number, where nothing follows it.
std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

int64_t require_number(const std::string& text, const char* what, int64_t limit, const std::string& set) {
  const std::optional<int64_t> number = number_of(text);
  if (!number)
    base::fail_user("'{}' is neither a number nor SET:NUMBER, such as code:17", base::printable(text));
  if (*number >= limit)
    base::fail_user("{} {} does not exist: '{}' has {}", what, *number, set, base::thousands(limit));
  return *number;
}

// The files of a stream that a text means, which is a path or the last part of one.
std::vector<int64_t> files_named(const data::StreamOptions& options, const std::string& text) {
  std::vector<int64_t> found;
  const base::Path path = std::filesystem::weakly_canonical(text);
  for (size_t i = 0; i < options.files.size(); ++i)
    if (options.files[i].string() == text || options.files[i].filename() == text ||
        std::filesystem::weakly_canonical(options.files[i]) == path)
      found.push_back(static_cast<int64_t>(i));
  return found;
}

}  // namespace

std::pair<int64_t, std::string> DataLedger::split_set(const std::string& text) const {
  std::vector<std::string> names;
  for (int64_t i = 0; i < mixture().sets(); ++i) {
    names.push_back(set_name(mixture(), i));
    if (text.starts_with(names.back() + ":")) return {i, text.substr(names.back().size() + 1)};
  }
  if (mixture().sets() == 1 && (mixture().set(0).is_streamed() || text.find(':') == std::string::npos))
    return {0, text};
  const size_t colon = text.find(':');
  base::fail_user("{}; the run has {}",
                  colon == std::string::npos
                      ? "name the set, as SET:NUMBER"
                      : fmt::format("there is no set '{}'", base::printable(text.substr(0, colon))),
                  fmt::join(names, ", "));
}

template <class F>
std::vector<LedgerRow> DataLedger::matching(int64_t set, const F& holds) const {
  std::vector<LedgerRow> rows;
  for (int64_t step = 0; step < steps(); ++step) {
    const int64_t sequences = data_.train.position(step + 1) - data_.train.position(step);
    std::optional<StepLedger> whole;
    for (int64_t g = 0; g < sequences; ++g) {
      const auto pick = data_.train.pick(step, g);
      if (pick->set != set || !holds(step, g, pick->sample)) continue;
      if (!whole) whole = this->step(step + 1);
      rows.push_back(whole->rows[static_cast<size_t>(g)]);
    }
  }
  return rows;
}

std::vector<LedgerRow> DataLedger::find_sample(const std::string& text) const {
  const auto [set, rest] = split_set(text);
  const data::MixtureSet& data = mixture().set(set);
  const int64_t number = require_number(
      rest, "sample", data.is_streamed() ? std::numeric_limits<int64_t>::max() : data.samples(),
      set_name(mixture(), set));
  return matching(set, [&](int64_t, int64_t, int64_t sample) { return sample == number; });
}

std::vector<LedgerRow> DataLedger::find_document(const std::string& text) const {
  const auto [set, rest] = split_set(text);
  const std::string name = set_name(mixture(), set);
  if (!mixture().set(set).is_streamed()) {
    const data::Dataset& dataset = mixture().dataset(set);
    const int64_t number = require_number(rest, "document", dataset.corpus().documents(), name);
    std::vector<bool> holds(static_cast<size_t>(dataset.size()), false);
    for (int64_t s = 0; s < dataset.size(); ++s)
      holds[static_cast<size_t>(s)] =
          std::ranges::any_of(dataset.parts(s), [&](const auto& p) { return p.document == number; });
    return matching(set,
                    [&](int64_t, int64_t, int64_t sample) { return holds[static_cast<size_t>(sample)]; });
  }
  const data::StreamOptions& options = mixture().set(set).streams()[0]->options();
  const size_t colon = rest.rfind(':');
  const auto record = colon == std::string::npos ? std::nullopt : number_of(rest.substr(colon + 1));
  if (!record)
    base::fail_user(
        "'{}' is streamed, and its documents are records of files: expected FILE:LINE, as --step lists them, "
        "such as {}:17",
        name, options.files[0].filename().string());
  const std::vector<int64_t> files = files_named(options, rest.substr(0, colon));
  if (files.size() != 1)
    base::fail_user("'{}' names {} of the {} of '{}', such as '{}'{}", base::printable(rest.substr(0, colon)),
                    files.empty() ? "none" : "several", base::counted(options.files.size(), "file"), name,
                    options.files[0].string(), files.empty() ? "" : ": give the whole path");
  return matching(set, [&](int64_t step, int64_t g, int64_t) {
    const data::MixtureSet::Found found = mixture().find(*data_.train.pick(step, g));
    return std::ranges::any_of(found.dataset->parts(found.index), [&](const data::SamplePart& part) {
      const data::StreamOrigin& origin = found.window->origins[static_cast<size_t>(part.document)];
      return origin.file == files[0] && origin.record == *record;
    });
  });
}

namespace {

std::string proof_text(const DataLedger& ledger, const StepLedger& step) {
  if (!step.hash.empty())
    return fmt::format("its tokens and labels have the hash of what the ranks loaded, {}", step.hash);
  return ledger.is_proven()
             ? "the data have the run's fingerprints, which cover all their bytes"
             : "the data have the run's sizes, and its bytes where the fingerprints sample them: "
               "a change of equal length elsewhere does not show";
}

}  // namespace

std::string to_text(const DataLedger& ledger, const StepLedger& step) {
  return fmt::format("step {} of {}: {}, {}, as its metrics have; {}{}\n", step.step, ledger.steps(),
                     base::counted(step.rows.size(), "sequence"), base::counted(step.labels, "label"),
                     proof_text(ledger, step),
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
                              {"tokens_hash", step.hash.empty() ? Json() : Json(step.hash)},
                              {"sequences", rows_json(ledger, step.rows)}},
                         2) +
         "\n";
}

std::string to_json(const DataLedger& ledger, const std::vector<LedgerRow>& rows) {
  return base::json_text(rows_json(ledger, rows), 2) + "\n";
}

}  // namespace quintet::tools
