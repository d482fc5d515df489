#include "prepare/prepare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
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
#include "data/npy_file.h"
#include "prepare/duplicates.h"
#include "prepare/encoder.h"
#include "prepare/length_counts.h"
#include "prepare/shard.h"
#include "tokenizer/files.h"
#include "tokenizer/tokenizer.h"

namespace quintet::prepare {
namespace {

// Records that are encoded together, while the next ones are read: enough to occupy all threads, little
// enough to hold.
constexpr int64_t kBatchBytes = int64_t{32} << 20;
constexpr int64_t kBatchRecords = int64_t{1} << 17;

constexpr std::initializer_list<const char*> kTokenFiles = {"tokens.bin", "tokens.idx", "tokens.mask",
                                                            "columns.jsonl"};

std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

// Everything that the output depends on; a finished shard of another plan cannot be reused.
nlohmann::ordered_json plan_of(const Options& o, const Encoder& encoder) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const Source& source : encoder.sources()) {
    const auto time = std::filesystem::last_write_time(source.path).time_since_epoch().count();
    files.push_back({source.path.string(), base::size_of_file(source.path), static_cast<int64_t>(time)});
    if (text::is_json(source.path)) files.back().push_back(static_cast<int>(source.kind));
  }
  nlohmann::ordered_json plan = {{"version", 1},
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
  if (!o.columns.empty()) plan["columns"] = o.columns;
  encoder.add_to_plan(plan);
  return plan;
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
  BatchReader(std::vector<base::Path> files, const Encoder& encoder, text::Position start,
              int64_t shard_bytes)
      : reader_(std::move(files), encoder.fields(), start), shard_bytes_(shard_bytes) {}

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

// Of a field whose numbers get a file of its name.
bool is_column_name(std::string_view field) {
  return !field.empty() && field.front() != '.' && std::ranges::all_of(field, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  });
}

// A record of a batch, and what becomes of it.
struct Encoded {
  text::Outcome outcome = text::Outcome::Document;
  int64_t file = 0, number = 0;
  std::string why;  // damaged
  Counts counts;
  StoredRecord stored;  // without documents: none is kept
};

ShardParts parts_of(const Options& options, const Encoder& encoder) {
  return {.keys = options.exact || options.near > 0,
          .signatures = options.near > 0,
          .flags = encoder.has_flags(),
          .columns = encoder.has_columns(),
          .numbers = options.columns.size()};
}

std::string column_file(const std::string& field) { return field + ".npy"; }

// The numbers of earlier documents do not belong to the new ones.
void remove_columns(const base::Path& folder) {
  if (!base::file_exists(folder / kManifest)) return;
  const auto earlier = base::parse_json(base::read_file(folder / kManifest));
  if (!earlier.is_object() || !earlier.contains("columns") || !earlier["columns"].is_array()) return;
  for (const auto& name : earlier["columns"])
    if (name.is_string() && is_column_name(name.get<std::string>()))
      base::remove_file(folder / column_file(name.get<std::string>()));
}

class Work {
 public:
  Work(const Options& options, const Encoder& encoder)
      : options_(options),
        encoder_(encoder),
        folder_(options.out / kWorkFolder),
        width_(data::megatron_width_for(encoder.tokenizer().vocab_size())),
        parts_(parts_of(options, encoder)) {
    for (const Source& source : encoder.sources()) total_ += base::size_of_file(source.path);
  }

  // All shards; returns their records. Those that are finished are not made again.
  std::vector<ShardRecord> make_shards(int64_t& reused) {
    std::vector<ShardRecord> shards;
    while (auto done = finished_shard(folder_, static_cast<int64_t>(shards.size()))) {
      before_.add(done->counts);
      shards.push_back(*std::move(done));
      if (shards.back().last) break;
    }
    reused = static_cast<int64_t>(shards.size());
    if (!shards.empty() && shards.back().last) return shards;
    std::vector<base::Path> files;
    for (const Source& source : encoder_.sources()) files.push_back(source.path);
    BatchReader reader(files, encoder_, shards.empty() ? text::Position() : shards.back().end,
                       options_.shard_bytes);
    Batch batch = reader.next();
    while (true) {
      shards.push_back(make_shard(static_cast<int64_t>(shards.size()),
                                  shards.empty() ? text::Position() : shards.back().end, reader, batch));
      if (shards.back().last) return shards;
    }
  }

  nlohmann::ordered_json join(const std::vector<ShardRecord>& shards, const nlohmann::ordered_json& plan) {
    const Shards records(folder_, static_cast<int64_t>(shards.size()), width_, parts_);
    const SortSpace space{folder_, options_.memory};
    report(Stage::Joining, 0, records.records());
    DropList exact, near;
    if (parts_.keys)
      exact = find_exact(
          records.records(), [&](int64_t i) { return records.key(i); }, space);
    if (parts_.signatures)
      near = find_near(
          records.records(), [&](int64_t i) { return records.signature(i); }, options_.near, exact, space);
    Counts counts;
    for (const ShardRecord& shard : shards) counts.add(shard.counts);
    const auto skip_exact = exact.documents(), skip_near = near.documents();
    const int64_t kept = records.records() - static_cast<int64_t>(skip_exact.size() + skip_near.size());
    if (kept == 0) refuse_nothing(shards, counts);
    Joined joined(options_, encoder_);
    int64_t done = 0;
    records.for_each(skip_exact, skip_near, [&](const RecordView& record) {
      joined.add(record);
      if (++done % (1 << 16) == 0) report(Stage::Joining, done, kept);
    });
    base::AtomicFile idx(options_.out / "tokens.idx");
    data::write_megatron_index(idx, width_, joined.lengths.documents(),
                               [&](const std::function<void(int32_t)>& use) {
                                 records.for_each(skip_exact, skip_near, [&](const RecordView& record) {
                                   for (const int32_t length : record.lengths) use(length);
                                 });
                               });
    for (size_t i = 0; i < options_.columns.size(); ++i) {
      base::AtomicFile* const npy = joined.file(column_file(options_.columns[i]));
      npy->write(data::npy_header(joined.lengths.documents()));
      records.for_each(skip_exact, skip_near, [&](const RecordView& record) {
        for (size_t d = 0; d < record.lengths.size(); ++d)
          npy->write(std::as_bytes(record.numbers.subspan(i, 1)));
      });
    }
    // Earlier data (--overwrite) stay whole until the new ones are; without a manifest no mixture passes for
    // data.
    remove_columns(options_.out);
    for (const char* name : {kManifest, "tokens.mask", "columns.jsonl"})
      base::remove_file(options_.out / name);
    for (auto& file : joined.files) file->commit();
    idx.commit();
    return manifest(shards, counts, joined, static_cast<int64_t>(skip_exact.size()),
                    static_cast<int64_t>(skip_near.size()), plan);
  }

 private:
  // The files of the folder that grow with its documents.
  struct Joined {
    Joined(const Options& options, const Encoder& encoder)
        : options(options),
          bin(file("tokens.bin")),
          mask(encoder.has_flags() ? file("tokens.mask") : nullptr),
          columns(encoder.has_columns() ? file("columns.jsonl") : nullptr) {}
    base::AtomicFile* file(const std::string& name) {
      return files.emplace_back(std::make_unique<base::AtomicFile>(options.out / name)).get();
    }
    void add(const RecordView& record) {
      bin->write(record.tokens);
      blocks.add(record.tokens);
      for (const int32_t length : record.lengths) lengths.add(length);
      if (columns) columns->write(record.columns);
      if (!mask) return;
      mask->write(std::as_bytes(record.trained));
      mask_sum.add(std::as_bytes(record.trained));
      trained += std::count(record.trained.begin(), record.trained.end(), 1);
    }
    const Options& options;
    std::vector<std::unique_ptr<base::AtomicFile>> files;
    base::AtomicFile *bin, *mask, *columns;
    LengthCounts lengths;
    data::BlockSummer blocks;
    base::Checksum mask_sum;
    int64_t trained = 0;
  };

  void refuse_nothing(const std::vector<ShardRecord>& shards, const Counts& counts) const {
    std::string first;
    for (const ShardRecord& shard : shards)
      if (first.empty() && !shard.damage.empty()) first = "; the first that is damaged: " + shard.damage[0];
    encoder_.refuse(fmt::format(
        "no {} is left of {} in {}: {} empty, {} damaged, {} without a match for --where, {} too short, {} "
        "too long, {}{}",
        encoder_.noun(), base::counted(counts.records, "record"),
        base::counted(encoder_.sources().size(), "file"), counts.empty, counts.damaged, counts.filtered,
        counts.too_short, counts.too_long, base::counted(counts.binary, "binary file"), first));
  }

  void report(Stage stage, int64_t done, int64_t total) const {
    if (options_.progress) options_.progress(stage, done, total);
  }

  // Encodes batches from `batch` on until the shard ends, and leaves the batch after them in `batch`.
  ShardRecord make_shard(int64_t number, const text::Position& begin, BatchReader& reader, Batch& batch) {
    ShardRecord record;
    record.begin = begin;
    ShardWriter writer(folder_, number, parts_);
    // While a batch is encoded, the next one is read and the one before is written.
    std::future<void> writing;
    while (true) {
      const Batch now = std::exchange(batch, Batch());
      auto ahead = now.ends_input ? std::future<Batch>()
                                  : std::async(std::launch::async, [&] { return reader.next(); });
      std::vector<Encoded> encoded = encode(now);
      if (writing.valid()) writing.get();
      check(record);
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
      report(Stage::Reading, now.consumed, total_);
      if (now.ends_shard) break;
    }
    writing.get();
    check(record);
    writer.finish(record);
    before_.add(record.counts);
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

  void check(const ShardRecord& shard) const {
    Counts so_far = before_;
    so_far.add(shard.counts);
    encoder_.check(so_far);
  }

  void encode_one(const text::Record& record, Encoded& e) const {
    e.file = record.file;
    e.number = record.number;
    EncodedRecord encoded;
    encoder_.encode(record, encoded);
    e.outcome = encoded.outcome;
    e.why = std::move(encoded.why);
    e.counts = {.records = 1,
                .damaged = e.outcome == text::Outcome::Damaged,
                .binary = e.outcome == text::Outcome::Binary,
                .filtered = e.outcome == text::Outcome::Filtered};
    if (e.outcome != text::Outcome::Document) return;
    e.counts.empty = encoded.documents.empty();
    drop_by_length(encoded, e.counts);
    if (encoded.documents.empty()) return;
    StoredRecord& stored = e.stored;
    std::string text;
    for (EncodedDocument& document : encoded.documents) {
      e.counts.turns += document.turns, e.counts.ended += document.ended;
      e.counts.straddling += document.straddling;
      text = text.empty() ? std::move(document.text) : text + document.text;
      stored.columns += document.columns;
      stored.lengths.push_back(static_cast<int32_t>(document.ids.size()));
      e.counts.tokens += stored.lengths.back();
      data::pack_tokens(document.ids, encoder_.tokenizer().vocab_size(), width_, stored.tokens);
      stored.trained.insert(stored.trained.end(), document.trained.begin(), document.trained.end());
    }
    e.counts.bytes = std::ssize(text);
    stored.numbers = std::move(encoded.numbers);
    if (parts_.signatures) stored.signature = minhash(text);
    if (!parts_.keys) return;
    // The same text with other flags or columns is another example.
    if (parts_.flags)
      text.append(1, '\0')
          .append(stored.columns)
          .append(1, '\0')
          .append(stored.trained.begin(), stored.trained.end());
    stored.key = base::hash_of(text);
  }

  // Leaves the documents of a record that are neither too short nor too long.
  void drop_by_length(EncodedRecord& record, Counts& counts) const {
    const auto short_of = [&](const EncodedDocument& d) { return std::ssize(d.ids) < options_.min_tokens; };
    const auto beyond = [&](const EncodedDocument& d) {
      return options_.max_tokens > 0 && std::ssize(d.ids) > options_.max_tokens;
    };
    if (record.together) {
      const bool too_short = std::ranges::any_of(record.documents, short_of),
                 too_long = std::ranges::any_of(record.documents, beyond);
      counts.too_short += too_short && !too_long, counts.too_long += too_long;
      if (too_short || too_long) record.documents.clear();
      return;
    }
    counts.too_short += static_cast<int64_t>(std::erase_if(record.documents, short_of));
    counts.too_long += static_cast<int64_t>(std::erase_if(record.documents, beyond));
  }

  void take(const Encoded& e, ShardRecord& record, ShardWriter& writer) const {
    record.counts.add(e.counts);
    const Source& source = encoder_.sources()[static_cast<size_t>(e.file)];
    if (e.outcome == text::Outcome::Binary) {
      if (source.named)
        base::fail_user("'{}' is not a text file: it contains NUL bytes", source.path.string());
      record.binary_files.push_back(e.file);
    } else if (e.outcome == text::Outcome::Damaged) {
      const std::string message = text::damage_text(source.path, e.number, e.why);
      if (!options_.skip_damaged)
        encoder_.refuse(message + ". --damaged skip leaves such records out and counts them");
      if (record.damage.size() < kDamageShown) record.damage.push_back(message);
    } else if (!e.stored.lengths.empty()) {
      writer.add(e.stored);
    }
  }

  nlohmann::ordered_json sources_json(const std::vector<ShardRecord>& shards) const {
    const std::vector<Source>& sources = encoder_.sources();
    std::set<int64_t> binary;
    std::vector<std::optional<uint64_t>> sums(sources.size());
    for (const ShardRecord& shard : shards) {
      binary.insert(shard.binary_files.begin(), shard.binary_files.end());
      for (const text::FinishedFile& file : shard.finished)
        sums[static_cast<size_t>(file.file)] = file.checksum;
    }
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (size_t i = 0; i < sources.size(); ++i) {
      if (binary.contains(static_cast<int64_t>(i))) continue;
      // Not known where an interruption fell into the file, and of Parquet files.
      if (!sums[i]) sums[i] = base::checksum_of(base::MappedFile(sources[i].path).bytes());
      out.push_back({{"path", sources[i].path.string()},
                     {"bytes", base::size_of_file(sources[i].path)},
                     {"xxh3", hex(*sums[i])}});
    }
    return out;
  }

  nlohmann::ordered_json manifest(const std::vector<ShardRecord>& shards, const Counts& counts,
                                  Joined& joined, int64_t exact, int64_t near,
                                  const nlohmann::ordered_json& plan) const {
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
    const tokenizer::Tokenizer& tokenizer = encoder_.tokenizer();
    nlohmann::ordered_json m = {{"format", "megatron"},
                                {"tokenizer",
                                 {{"path", options_.tokenizer},
                                  {"type", to_string(tokenizer.kind())},
                                  {"vocab", tokenizer.vocab_size()},
                                  {"xxh3", tokenizer::fingerprint(options_.tokenizer)},
                                  {"tokens", tokenizer::vocabulary_hash(tokenizer)}}}};
    encoder_.add_to_manifest(m, counts);
    m["documents"] = joined.lengths.documents();
    m["tokens"] = joined.lengths.tokens();
    if (joined.mask) m["trained_tokens"] = joined.trained;
    m["bytes_per_token"] = static_cast<double>(counts.bytes) / static_cast<double>(counts.tokens);
    m["records"] = counts.records;
    m["dropped"] = {{"empty", counts.empty},         {"damaged", counts.damaged},
                    {"binary_files", counts.binary}, {"filtered", counts.filtered},
                    {"too_short", counts.too_short}, {"too_long", counts.too_long},
                    {"exact_duplicates", exact},     {"near_duplicates", near}};
    m["filters"] = {
        {"where", options_.where}, {"min_tokens", options_.min_tokens}, {"max_tokens", options_.max_tokens}};
    m["deduplication"] = {{"exact", parts_.keys}, {"near", near_json}};
    if (!options_.columns.empty()) m["columns"] = options_.columns;
    m["lengths"] = joined.lengths.json();
    m["damage"] = damage;
    m["sources"] = sources_json(shards);
    m["plan"] = hash_of_plan(plan);
    m["block_bytes"] = data::kChecksumBlock;
    m["block_xxh3"] = data::text_of_sums(joined.blocks.finish());
    if (joined.mask) m["mask_xxh3"] = hex(joined.mask_sum.value());
    return m;
  }

  const Options& options_;
  const Encoder& encoder_;
  base::Path folder_;
  data::TokenWidth width_;
  ShardParts parts_;
  int64_t total_ = 0;
  Counts before_;  // of the shards that are finished
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
  for (const std::string& name : o.columns)
    if (!is_column_name(name) || std::ranges::count(o.columns, name) > 1)
      base::fail_user(
          "--column '{}': expected names of different fields, of letters, digits, '_', '-' and '.'",
          base::printable(name));
  if (base::file_exists(o.out)) base::fail_user("--out: '{}' is a file; expected a folder", o.out.string());
}

// The text files among the inputs, where an option names fields: text has none. Refused if all are text,
// because the option would have no effect.
int64_t text_without_fields(const Options& o, const std::vector<Source>& sources, std::string& named) {
  const char* const option = !o.columns.empty()           ? "--column"
                             : !o.where.empty()           ? "--where"
                             : !o.text_template.empty()   ? "--template"
                             : o.field != Options{}.field ? "--field"
                                                          : nullptr;
  if (option == nullptr) return 0;
  named = option;
  const auto text = std::count_if(sources.begin(), sources.end(),
                                  [](const Source& source) { return source.kind == text::FileKind::Text; });
  if (text > 0 && !o.columns.empty())
    base::fail_user("--column '{}': plain text has no fields, and {} of the input {} plain text",
                    o.columns[0], base::counted(text, "file"), text == 1 ? "is" : "are");
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

// The files of prepared data in a folder that is something else would make both unreadable: a checkpoint
// has a manifest.json too.
void require_no_other_use(const base::Path& folder) {
  constexpr std::pair<const char*, const char*> kMarks[] = {{"run.json", "a run"},
                                                            {"metrics.jsonl", "a run"},
                                                            {"latest", "checkpoints"},
                                                            {"config.json", "a Hugging Face model"},
                                                            {"dataset_info.json", "a Hugging Face dataset"}};
  for (const auto& [file, what] : kMarks)
    if (base::file_exists(folder / file))
      base::fail_user("--out: '{}' is the folder of {} (it has {}); name another one", folder.string(), what,
                      file);
}

Prepared prepare_into(const Options& options) {
  check(options);
  require_no_other_use(options.out);
  const std::unique_ptr<Encoder> encoder =
      options.chat ? make_chat_encoder(options) : make_text_encoder(options);
  const data::Reading& reading = encoder->reading();
  Work work(options, *encoder);
  Prepared out;
  out.files_kept_whole = text_without_fields(options, encoder->sources(), out.kept_whole_option);
  out.skipped = reading.skipped();
  out.plain_arrays = reading.plain_arrays;
  const nlohmann::ordered_json plan = plan_of(options, *encoder);
  const std::string plan_text = base::json_text(plan, 2) + "\n";
  const base::Path folder = options.out / kWorkFolder, plan_file = folder / "plan.json",
                   manifest = options.out / kManifest;

  base::make_directories(options.out);
  const auto lock = base::FileLock::acquire(options.out / ".lock", "quintet prepare");
  if (!lock) base::fail_user("another 'quintet prepare' is writing to '{}'", options.out.string());
  base::remove_partial_files(options.out,
                             {"tokens.bin", "tokens.idx", "tokens.mask", "columns.jsonl", kManifest});
  for (const std::string& column : options.columns)
    base::remove_partial_files(options.out, {(column + ".npy").c_str()});
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
  encoder->begin(folder);
  try {
    const std::vector<ShardRecord> shards = work.make_shards(out.shards_reused);
    out.shards = static_cast<int64_t>(shards.size());
    out.manifest = work.join(shards, plan);
  } catch (const base::UserError& e) {
    if (!may_be_repeated(e)) remove_work(options.out);  // another input or option makes other shards
    throw;
  }
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
