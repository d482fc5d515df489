#include "prepare/prepare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/error_codes.h"
#include "base/file_lock.h"
#include "base/file_system.h"
#include "base/json.h"
#include "base/output_path.h"
#include "base/parallel_for.h"
#include "base/plural.h"
#include "base/printable.h"
#include "data/block_checksums.h"
#include "data/megatron_index.h"
#include "data/text_source.h"
#include "prepare/duplicates.h"
#include "prepare/length_counts.h"
#include "prepare/shard.h"
#include "text/document.h"
#include "tokenizer/files.h"
#include "tokenizer/tokenizer.h"

namespace quintet::prepare {
namespace {

// Records that are encoded together, while the next ones are read: enough to occupy all threads, little
// enough to hold.
constexpr int64_t kBatchBytes = int64_t{32} << 20;
constexpr int64_t kBatchRecords = int64_t{1} << 17;

constexpr std::initializer_list<const char*> kTokenFiles = {"tokens.bin", "tokens.idx", "tokens.mask"};

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

struct Source {
  base::Path path;
  bool named = false;  // as a file, not found in a folder
  text::FileKind kind = text::FileKind::Text;
};

std::vector<Source> find_sources(const Options& options, const std::vector<std::string>& columns,
                                 data::Reading& reading) {
  const std::string out = std::filesystem::weakly_canonical(options.out).string() + "/";
  std::vector<Source> sources;
  std::set<std::string> seen;
  for (const std::string& input : options.inputs) {
    const bool named = base::file_exists(input);
    for (const base::Path& file : data::text_files(input, &reading)) {
      const std::string canonical = std::filesystem::weakly_canonical(file).string();
      if (!seen.insert(canonical).second) {
        ++reading.repeated;
        continue;
      }
      if (canonical.starts_with(out)) continue;
      if (named) text::require_fields(file, columns);
      sources.push_back({file, named, text::kind_of(file, columns)});
      data::note_plain_array(file, sources.back().kind, reading);
    }
  }
  if (sources.empty() && !seen.empty())
    base::fail_user("'{}', the folder that is written, contains all of the files to read: choose another one",
                    options.out.string());
  if (sources.empty()) base::fail_user("there are no files in '{}'", fmt::join(options.inputs, "', '"));
  return sources;
}

// Everything that the output depends on; a finished shard of another plan cannot be reused.
nlohmann::ordered_json plan_of(const Options& o, const std::vector<Source>& sources) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Source& source : sources) {
    const auto time = std::filesystem::last_write_time(source.path).time_since_epoch().count();
    files.push_back({source.path.string(), base::size_of_file(source.path), static_cast<int64_t>(time)});
    if (text::is_json(source.path)) files.back().push_back(static_cast<int>(source.kind));
  }
  return {{"version", 1},
          {"tokenizer", {o.tokenizer, tokenizer::fingerprint(o.tokenizer)}},
          {"field", o.field},
          {"template", o.text_template},
          {"where", o.where},
          {"end", o.end},
          {"min_tokens", o.min_tokens},
          {"max_tokens", o.max_tokens},
          {"exact", o.exact},
          {"near", o.near},
          {"skip_damaged", o.skip_damaged},
          {"shard_bytes", o.shard_bytes},
          {"files", files}};
}

std::string hash_of_plan(const nlohmann::ordered_json& plan) { return hex(base::hash_of(plan.dump()).low); }

struct Batch {
  std::vector<text::Record> records;
  text::Position end;
  std::vector<text::FinishedFile> finished;
  int64_t consumed = 0;
  bool ends_shard = false, ends_input = false;
};

class BatchReader {
 public:
  BatchReader(std::vector<base::Path> files, const text::DocumentFormat& format, text::Position start,
              int64_t shard_bytes)
      : reader_(std::move(files), format.columns(), start), shard_bytes_(shard_bytes) {}

  Batch next() {
    Batch batch;
    int64_t bytes = 0;
    while (bytes < kBatchBytes && static_cast<int64_t>(batch.records.size()) < kBatchRecords &&
           !batch.ends_shard) {
      text::Record& record = batch.records.emplace_back();
      if (!reader_.next(record)) {
        batch.records.pop_back();
        batch.ends_input = batch.ends_shard = true;
        break;
      }
      const auto size = static_cast<int64_t>(record.bytes.size());
      bytes += size;
      in_shard_ += size;
      batch.ends_shard = in_shard_ >= shard_bytes_;
    }
    if (batch.ends_shard) in_shard_ = 0;
    batch.end = reader_.position();
    batch.finished = reader_.take_finished();
    batch.consumed = reader_.consumed();
    return batch;
  }

 private:
  text::RecordReader reader_;
  int64_t shard_bytes_, in_shard_ = 0;
};

struct Encoded {
  text::Outcome outcome = text::Outcome::Document;
  bool empty = false;
  size_t bytes = 0;  // of text
  int64_t file = 0, number = 0;
  std::string why;  // damaged
  EncodedDocument document;
};

class Work {
 public:
  Work(const Options& options, const text::DocumentFormat& format, const std::vector<Source>& sources)
      : options_(options),
        sources_(sources),
        folder_(options.out / kWorkFolder),
        tokenizer_(tokenizer::load_tokenizer(options.tokenizer)),
        width_(data::megatron_width_for(tokenizer_->vocab_size())),
        format_(format) {
    if (!options.end.empty()) {
      end_ = tokenizer_->id(options.end);
      if (!end_)
        base::fail_user(
            "--end: the tokenizer has no token '{}'; 'quintet tokenizer show' lists its special tokens",
            base::printable(options.end));
    }
    for (const Source& source : sources) total_ += base::size_of_file(source.path);
  }

  // All shards; returns their records. Those that are finished are not made again.
  std::vector<ShardRecord> make_shards(int64_t& reused) {
    std::vector<ShardRecord> shards;
    while (auto done = finished_shard(folder_, static_cast<int64_t>(shards.size()))) {
      shards.push_back(*std::move(done));
      if (shards.back().last) break;
    }
    reused = static_cast<int64_t>(shards.size());
    if (!shards.empty() && shards.back().last) return shards;
    std::vector<base::Path> files;
    for (const Source& source : sources_) files.push_back(source.path);
    BatchReader reader(files, format_, shards.empty() ? text::Position() : shards.back().end,
                       options_.shard_bytes);
    Batch batch = reader.next();
    while (true) {
      shards.push_back(make_shard(static_cast<int64_t>(shards.size()),
                                  shards.empty() ? text::Position() : shards.back().end, reader, batch));
      if (shards.back().last) return shards;
    }
  }

  nlohmann::ordered_json join(const std::vector<ShardRecord>& shards, const nlohmann::ordered_json& plan) {
    const bool keys = options_.exact || options_.near > 0;
    const Shards documents(folder_, static_cast<int64_t>(shards.size()), width_, keys, options_.near > 0);
    const SortSpace space{folder_, options_.memory};
    report("joining", 0, documents.documents());
    DropList exact, near;
    if (keys)
      exact = find_exact(
          documents.documents(), [&](int64_t i) { return documents.key(i); }, space);
    if (options_.near > 0)
      near = find_near(
          documents.documents(), [&](int64_t i) { return documents.signature(i); }, options_.near, exact,
          space);
    Counts counts;
    for (const ShardRecord& shard : shards) counts.add(shard.counts);
    const auto skip_exact = exact.documents(), skip_near = near.documents();
    const int64_t kept = documents.documents() - static_cast<int64_t>(skip_exact.size() + skip_near.size());
    if (kept == 0)
      base::fail_user(
          "no document is left of {} in {}: {} empty, {} damaged, {} without a match for --where, {} too "
          "short, {} too long, {}",
          base::counted(counts.records, "record"), base::counted(sources_.size(), "file"), counts.empty,
          counts.damaged, counts.filtered, counts.too_short, counts.too_long,
          base::counted(counts.binary, "binary file"));
    LengthCounts lengths;
    base::AtomicFile bin(options_.out / "tokens.bin");
    documents.for_each(skip_exact, skip_near, [&](std::span<const std::byte> tokens, int32_t length) {
      bin.write(tokens);
      lengths.add(length);
      if (lengths.documents() % (1 << 16) == 0) report("joining", lengths.documents(), kept);
    });
    base::AtomicFile idx(options_.out / "tokens.idx");
    data::write_megatron_index(idx, width_, kept, [&](const std::function<void(int32_t)>& use) {
      documents.for_each(skip_exact, skip_near,
                         [&](std::span<const std::byte>, int32_t length) { use(length); });
    });
    // Earlier data (--overwrite) stay whole until the new ones are; without a manifest no mixture passes for
    // data.
    for (const char* name : {kManifest, "tokens.mask"}) base::remove_file(options_.out / name);
    bin.commit();
    idx.commit();
    return manifest(shards, counts, lengths, static_cast<int64_t>(skip_exact.size()),
                    static_cast<int64_t>(skip_near.size()), plan);
  }

 private:
  void report(std::string_view stage, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(stage, done, total);
  }

  // Encodes batches from `batch` on until the shard ends, and leaves the batch after them in `batch`.
  ShardRecord make_shard(int64_t number, const text::Position& begin, BatchReader& reader, Batch& batch) {
    ShardRecord record;
    record.begin = begin;
    ShardWriter writer(folder_, number, options_.exact || options_.near > 0, options_.near > 0);
    // While a batch is encoded, the next one is read and the one before is written.
    std::future<void> writing;
    while (true) {
      const Batch now = std::exchange(batch, Batch());
      auto ahead = now.ends_input ? std::future<Batch>()
                                  : std::async(std::launch::async, [&] { return reader.next(); });
      std::vector<Encoded> encoded = encode(now);
      if (writing.valid()) writing.get();
      writing = std::async(std::launch::async, [this, &record, &writer, encoded = std::move(encoded)] {
        for (const Encoded& e : encoded) take(e, record, writer);
      });
      record.finished.insert(record.finished.end(), now.finished.begin(), now.finished.end());
      record.end = now.end;
      record.last = now.ends_input;
      try {
        if (!now.ends_input) batch = ahead.get();
      } catch (...) {
        writing.get();  // a damaged record comes before what cannot be read after it
        throw;
      }
      report("reading", now.consumed, total_);
      if (now.ends_shard) break;
    }
    writing.get();
    writer.finish(record);
    return record;
  }

  std::vector<Encoded> encode(const Batch& batch) const {
    std::vector<Encoded> out(batch.records.size());
    // Neighbours go to one thread, whose cache then knows their words.
    const size_t share = std::max<size_t>(1, out.size() / (static_cast<size_t>(options_.threads) * 8));
    base::parallel_for(options_.threads, (out.size() + share - 1) / share, [&](size_t part) {
      for (size_t i = part * share; i < std::min(out.size(), (part + 1) * share); ++i)
        encode_one(batch.records[i], out[i]);
    });
    return out;
  }

  void encode_one(const text::Record& record, Encoded& e) const {
    e.file = record.file;
    e.number = record.number;
    text::Document document = text::document_of(text::Record(record), format_);
    e.outcome = document.outcome;
    if (e.outcome == text::Outcome::Damaged) e.why = std::move(document.text);
    if (e.outcome != text::Outcome::Document) return;
    e.bytes = document.text.size();
    e.empty = document.text.empty();
    if (e.empty) return;
    thread_local std::vector<int32_t> ids;
    ids.clear();
    tokenizer_->encode(document.text, ids);
    e.empty = ids.empty();
    if (e.empty) return;
    if (end_) ids.push_back(*end_);
    e.document.length = static_cast<int32_t>(ids.size());
    data::pack_tokens(ids, tokenizer_->vocab_size(), width_, e.document.tokens);
    if (options_.exact || options_.near > 0) e.document.key = base::hash_of(document.text);
    if (options_.near > 0) e.document.signature = minhash(document.text);
  }

  void take(const Encoded& e, ShardRecord& record, ShardWriter& writer) const {
    Counts& c = record.counts;
    ++c.records;
    const Source& source = sources_[static_cast<size_t>(e.file)];
    const int64_t tokens = e.document.length;
    if (e.outcome == text::Outcome::Binary) {
      if (source.named)
        base::fail_user("'{}' is not a text file: it contains NUL bytes", source.path.string());
      ++c.binary;
      record.binary_files.push_back(e.file);
    } else if (e.outcome == text::Outcome::Damaged) {
      const std::string message = text::damage_text(source.path, e.number, e.why);
      if (!options_.skip_damaged)
        base::fail_user("{}. --damaged skip leaves such records out and counts them", message);
      ++c.damaged;
      if (record.damage.size() < kDamageShown) record.damage.push_back(message);
    } else if (e.outcome == text::Outcome::Filtered) {
      ++c.filtered;
    } else if (e.empty) {
      ++c.empty;
    } else if (tokens < options_.min_tokens) {
      ++c.too_short;
    } else if (options_.max_tokens > 0 && tokens > options_.max_tokens) {
      ++c.too_long;
    } else {
      c.bytes += static_cast<int64_t>(e.bytes);
      c.tokens += tokens;
      writer.add(e.document);
    }
  }

  nlohmann::ordered_json sources_json(const std::vector<ShardRecord>& shards) const {
    std::set<int64_t> binary;
    std::vector<std::optional<uint64_t>> sums(sources_.size());
    for (const ShardRecord& shard : shards) {
      binary.insert(shard.binary_files.begin(), shard.binary_files.end());
      for (const text::FinishedFile& file : shard.finished)
        sums[static_cast<size_t>(file.file)] = file.checksum;
    }
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (binary.contains(static_cast<int64_t>(i))) continue;
      // Not known where an interruption fell into the file, and of Parquet files.
      if (!sums[i]) sums[i] = base::checksum_of(base::MappedFile(sources_[i].path).bytes());
      out.push_back({{"path", sources_[i].path.string()},
                     {"bytes", base::size_of_file(sources_[i].path)},
                     {"xxh3", hex(*sums[i])}});
    }
    return out;
  }

  nlohmann::ordered_json manifest(const std::vector<ShardRecord>& shards, const Counts& counts,
                                  const LengthCounts& lengths, int64_t exact, int64_t near,
                                  const nlohmann::ordered_json& plan) const {
    const auto text_or_null = [](const std::string& s) {
      return s.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(s);
    };
    std::vector<std::string> damage;
    for (const ShardRecord& shard : shards)
      for (const std::string& message : shard.damage)
        if (damage.size() < kDamageShown) damage.push_back(message);
    nlohmann::ordered_json near_json;
    if (options_.near > 0) {
      const Bands bands = bands_for(options_.near);
      near_json = {
          {"threshold", options_.near}, {"hashes", kHashes}, {"bands", bands.bands}, {"rows", bands.rows}};
    }
    return {
        {"format", "megatron"},
        {"tokenizer",
         {{"path", options_.tokenizer},
          {"type", tokenizer_->name()},
          {"vocab", tokenizer_->vocab_size()},
          {"xxh3", tokenizer::fingerprint(options_.tokenizer)},
          {"tokens", tokenizer::vocabulary_hash(*tokenizer_)}}},
        {"end_of_document", text_or_null(options_.end)},
        {"documents", lengths.documents()},
        {"tokens", lengths.tokens()},
        {"bytes_per_token", static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens)},
        {"records", counts.records},
        {"dropped",
         {{"empty", counts.empty},
          {"damaged", counts.damaged},
          {"binary_files", counts.binary},
          {"filtered", counts.filtered},
          {"too_short", counts.too_short},
          {"too_long", counts.too_long},
          {"exact_duplicates", exact},
          {"near_duplicates", near}}},
        {"field", options_.text_template.empty() ? text_or_null(options_.field) : nlohmann::ordered_json()},
        {"template", text_or_null(options_.text_template)},
        {"filters",
         {{"where", options_.where},
          {"min_tokens", options_.min_tokens},
          {"max_tokens", options_.max_tokens}}},
        {"deduplication", {{"exact", options_.exact || options_.near > 0}, {"near", near_json}}},
        {"lengths", lengths.json()},
        {"damage", damage},
        {"sources", sources_json(shards)},
        {"plan", hash_of_plan(plan)}};
  }

  const Options& options_;
  const std::vector<Source>& sources_;
  base::Path folder_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  data::TokenWidth width_;
  text::DocumentFormat format_;
  std::optional<int32_t> end_;
  int64_t total_ = 0;
};

// Removes what this tool has written into the folder, and leaves anything else alone.
void remove_work(const base::Path& folder) {
  std::error_code ignored;
  std::filesystem::remove_all(folder / kWorkFolder, ignored);
}
void check(const Options& o) {
  if (o.near != 0 && !(o.near >= 0.1 && o.near <= 1))
    base::fail_user("--similarity is {}; it must be between 0.1 and 1, and 0.8 is common", o.near);
  if (o.memory < (int64_t{1} << 20))
    base::fail_user("--memory is {} bytes; at least 1 MiB is needed", o.memory);
  if (o.shard_bytes < 1) base::fail_user("--shard is {} bytes; at least 1 is needed", o.shard_bytes);
  if (o.max_tokens > 0 && o.min_tokens > o.max_tokens)
    base::fail_user("--min-tokens {} is above --max-tokens {}", o.min_tokens, o.max_tokens);
  if (base::file_exists(o.out)) base::fail_user("--out: '{}' is a file; expected a folder", o.out.string());
}

// The text files among the inputs, where an option names fields: text has none. Refused if all are text,
// because the option would have no effect.
int64_t text_without_fields(const Options& o, const std::vector<Source>& sources, std::string& named) {
  const char* const option = !o.where.empty()             ? "--where"
                             : !o.text_template.empty()   ? "--template"
                             : o.field != Options{}.field ? "--field"
                                                          : nullptr;
  if (option == nullptr) return 0;
  named = option;
  const auto text = std::count_if(sources.begin(), sources.end(),
                                  [](const Source& source) { return source.kind == text::FileKind::Text; });
  if (text == static_cast<int64_t>(sources.size()))
    base::fail_user(
        "{} names fields of JSON (.jsonl, .json) and Parquet rows, but {} plain text, which has none: leave "
        "it out, or name the files .jsonl if each of their lines is a JSON object",
        option,
        sources.size() == 1 ? fmt::format("'{}' is", sources[0].path.string())
                            : fmt::format("all {} input files are", sources.size()));
  return text;
}

// Whether the same command can succeed later, and finished shards are worth keeping.
bool may_be_repeated(const base::UserError& e) { return e.code() == base::code_of_origin("base/file.cc"); }

text::DocumentFormat format_of(const Options& options) {
  text::DocumentFormat format;
  format.text = options.text_template.empty() ? text::Template::of_field(options.field)
                                              : text::Template(options.text_template);
  for (const std::string& where : options.where) format.where.emplace_back(where);
  return format;
}

Prepared prepare_into(const Options& options) {
  check(options);
  const text::DocumentFormat format = format_of(options);
  Prepared out;
  data::Reading reading;
  const std::vector<Source> sources = find_sources(options, format.columns(), reading);
  Work work(options, format, sources);
  out.files_kept_whole = text_without_fields(options, sources, out.kept_whole_option);
  out.skipped = reading.skipped();
  out.plain_arrays = reading.plain_arrays;
  const nlohmann::ordered_json plan = plan_of(options, sources);
  const std::string plan_text = base::json_text(plan, 2) + "\n";
  const base::Path folder = options.out / kWorkFolder, plan_file = folder / "plan.json",
                   manifest = options.out / kManifest;

  base::make_directories(options.out);
  const auto lock = base::FileLock::acquire(options.out / ".lock", "quintet prepare");
  if (!lock) base::fail_user("another 'quintet prepare' is writing to '{}'", options.out.string());
  base::remove_partial_files(options.out, {"tokens.bin", "tokens.idx", kManifest});
  const bool continues = base::file_exists(plan_file) && base::read_file(plan_file) == plan_text;
  if (options.overwrite && !continues) remove_work(options.out);
  if (!options.overwrite && !base::file_exists(manifest) && !base::file_exists(plan_file))
    for (const char* name : kTokenFiles) base::require_new_file("--out", options.out / name, false);
  if (!options.overwrite && base::file_exists(manifest)) {
    out.manifest = base::parse_ordered_json(base::read_file(manifest));
    const std::string now = hash_of_plan(plan);
    if (!out.manifest.is_object() || out.manifest.value("plan", "") != now)
      base::fail_user(
          "'{}' holds data that were prepared from other inputs or with other options; --overwrite "
          "replaces them",
          options.out.string());
    remove_work(options.out);
    out.was_complete = true;
    return out;
  }
  if (base::file_exists(plan_file) && !continues)
    base::fail_user(
        "'{}' holds shards of an interrupted run with other inputs or options; --overwrite starts again",
        folder.string());
  base::make_directories(folder);
  if (!base::file_exists(plan_file)) base::write_file_atomically(plan_file, plan_text);
  try {
    const std::vector<ShardRecord> shards = work.make_shards(out.shards_reused);
    out.shards = static_cast<int64_t>(shards.size());
    out.manifest = work.join(shards, plan);
  } catch (const base::UserError& e) {
    if (!may_be_repeated(e)) remove_work(options.out);  // another input or option makes other shards
    throw;
  }
  out.manifest["block_bytes"] = data::kChecksumBlock;
  out.manifest["block_xxh3"] = data::text_of_sums(
      data::block_sums(base::MappedFile(options.out / "tokens.bin").bytes(), options.threads));
  base::write_file_atomically(manifest, base::json_text(out.manifest, 2) + "\n");
  remove_work(options.out);
  return out;
}

}  // namespace

Prepared prepare(const Options& options) {
  const bool existed = base::file_exists(options.out) || base::directory_exists(options.out);
  try {
    return prepare_into(options);
  } catch (const base::UserError&) {
    std::error_code ignored;
    if (!existed && base::directory_exists(options.out))
      std::filesystem::remove(options.out, ignored);  // only if it is empty
    throw;
  }
}

}  // namespace quintet::prepare
