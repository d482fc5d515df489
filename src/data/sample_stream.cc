#include "data/sample_stream.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/checksum.h"
#include "base/error.h"
#include "base/parallel_for.h"
#include "base/philox.h"
#include "base/plural.h"
#include "config/codes.h"
#include "data/sampler.h"

namespace quintet::data {
namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;  // tokenised at a time
constexpr int64_t kPieceRecords = 4096;
constexpr int64_t kWindowsAhead = 2;

uint64_t key_of(uint64_t seed, const char* purpose, int64_t counter) {
  const auto words = base::philox(base::stream_key(seed, purpose), static_cast<uint64_t>(counter));
  return (uint64_t{words[0]} << 32) | words[1];
}

bool is_validation(const std::string& text, double fraction) {
  if (fraction <= 0) return false;
  return static_cast<double>(base::hash_of(text).low >> 11) * 0x1p-53 < fraction;
}

std::string names_of(const std::vector<base::Path>& files) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(3, files.size()); ++i)
    out += (i > 0 ? ", " : "") + files[i].string();
  return files.size() > 3 ? out + fmt::format(" and {} more files", files.size() - 3) : out;
}

// The columns that are read of a Parquet file; none named: all.
std::vector<std::string> columns_of(const StreamOptions& options) {
  return options.chat ? std::vector<std::string>() : options.format.columns();
}

// The tokens of a record (none: it is no document, or not one of this split), and what is wrong with it.
using EncodedRecord = std::pair<chat::Encoded, std::string>;

EncodedRecord encode_chat(text::Record&& record, size_t file, const StreamOptions& o, bool held_out) {
  if (is_validation(record.bytes, o.validation_fraction) != held_out) return {};
  const ChatStream& chat = *o.chat;
  const ChatLine line{std::move(record.bytes), fmt::format("{}:{}", o.files[file].string(), record.number),
                      chat.formats[file], std::move(record.damage)};
  ChatResult result = std::move(encode_lines(*chat.tokenizer, {&line, 1}, chat.format, 1)[0]);
  if (!result.problem.empty()) return {chat::Encoded(), std::move(result.problem)};
  return {std::move(result.documents[0]), std::string()};
}

EncodedRecord encode_text(text::Record&& record, size_t file, const StreamOptions& o, bool held_out) {
  const int64_t number = record.number;
  text::Document document = text::document_of(std::move(record), o.format);
  if (document.outcome == text::Outcome::Damaged)
    return {chat::Encoded(), text::damage_text(o.files[file], number, document.text)};
  EncodedRecord out;
  if (document.outcome != text::Outcome::Document || document.text.empty() ||
      is_validation(document.text, o.validation_fraction) != held_out)
    return out;
  o.tokenizer->encode(document.text, out.first.ids);
  if (o.end && !out.first.ids.empty()) out.first.ids.push_back(*o.end);
  return out;
}

// The tokens of a record of o.files[file]. `held_out`: of validation's documents, instead of training's. A
// damaged record is a UserError unless such records are skipped.
EncodedRecord encode_record(text::Record&& record, int64_t file, const StreamOptions& o, bool held_out) {
  const auto f = static_cast<size_t>(file);
  EncodedRecord out = o.chat ? encode_chat(std::move(record), f, o, held_out)
                             : encode_text(std::move(record), f, o, held_out);
  if (!out.second.empty() && !o.skip_damaged)
    base::fail_user("{}; data.damaged = \"skip\" leaves such records out", out.second);
  return out;
}

// The ends of a file stand for its contents.
uint64_t file_sum(const base::Path& path, int64_t size) {
  if (size == 0) return 0;
  const base::MappedFile file(path);
  const size_t end = std::min<size_t>(file.bytes().size(), 4096);
  base::Checksum sum;
  sum.add(file.bytes().first(end));
  sum.add(file.bytes().last(end));
  return sum.value();
}

}  // namespace

std::string to_text(const StreamCursor& c) {
  return fmt::format("{} {} {} {} {} {}", c.window, c.epoch, c.at.file, c.at.record, c.at.offset,
                     c.skip_tokens);
}

StreamCursor parse_cursor(const std::string& text) {
  StreamCursor c;
  int64_t* const fields[] = {&c.window, &c.epoch, &c.at.file, &c.at.record, &c.at.offset, &c.skip_tokens};
  std::string_view rest = text;
  for (int64_t* field : fields) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), *field);
    if (error != std::errc() || *field < 0) base::fail_user("'{}' is not the place of a data stream", text);
    rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  }
  return c;
}

// Makes one window after another, from a cursor on.
class SampleStream::Producer {
 public:
  Producer(const StreamOptions& options, const StreamCursor& start)
      : o_(options),
        next_(start),
        epoch_(start.epoch),
        skip_(start.skip_tokens),
        ends_(options.chat ? options.chat->format.mask.end_of_turn : "") {
    start_epoch(start.at);
  }

  // Where the next window begins.
  const StreamCursor& cursor() const { return next_; }

  // The next window, or nothing when asked to stop.
  std::shared_ptr<const StreamWindow> make(const std::stop_token& stop) {
    const int64_t size = o_.window * o_.seq_len;
    std::vector<StreamOrigin> origins;
    CorpusBuilder corpus(names_of(o_.files), o_.tokenizer->vocab_size());
    // One token more than the window has inputs: the last label. It is the first input of the next window.
    int64_t left = size + 1;
    while (left > 0) {
      if (stop.stop_requested()) return nullptr;
      if (documents_.empty() && !read_more()) continue;
      if (documents_.empty()) continue;
      Held& d = documents_.front();
      const auto n = std::min<int64_t>(left, static_cast<int64_t>(d.tokens.ids.size()) - d.used);
      const auto part = [&](const auto& all) {
        return all.empty() ? std::span(all)
                           : std::span(all).subspan(static_cast<size_t>(d.used), static_cast<size_t>(n));
      };
      corpus.add_document(part(d.tokens.ids), part(d.tokens.trained));
      origins.push_back({d.epoch, d.file, d.record, d.used});
      left -= n;
      if (left == 0) {
        // The last token is used again.
        next_ = {next_.window + 1, d.epoch, d.at, d.used + n - 1};
        d.used += n - 1;
      } else {
        documents_.pop_front();
      }
    }
    Dataset dataset(corpus.finish(), o_.seq_len, o_.separate_documents, 0, o_.window);
    if (o_.fim) dataset.set_fill_in_the_middle(*o_.fim);
    dataset.set_masked_tokens(o_.masked);
    return std::make_shared<StreamWindow>(
        StreamWindow{std::move(dataset), std::move(origins), std::exchange(damaged_, 0)});
  }
  const std::string& first_damage() const { return first_damage_; }

 private:
  struct Held {
    chat::Encoded tokens;
    int64_t epoch = 0;
    text::Position at;
    int64_t file = 0, record = 0;  // see StreamOrigin
    int64_t used = 0;              // tokens
  };

  void start_epoch(const text::Position& at) {
    const Permutation order(key_of(o_.seed, "data.stream.files", epoch_), o_.files.size());
    std::vector<base::Path> files;
    listed_.clear();
    for (size_t i = 0; i < o_.files.size(); ++i) {
      listed_.push_back(static_cast<int64_t>(order(i)));
      files.push_back(o_.files[order(i)]);
    }
    reader_.emplace(std::move(files), columns_of(o_), at);
  }

  // Tokenises the next piece. False at the end of an epoch, which begins the next one.
  bool read_more() {
    struct Input {
      text::Record record;
      text::Position at;
      int64_t file = 0, number = 0;
    };
    std::vector<Input> inputs;
    int64_t bytes = 0;
    bool ended = false;
    while (bytes < kPieceBytes && static_cast<int64_t>(inputs.size()) < kPieceRecords) {
      Input& input = inputs.emplace_back();
      input.at = reader_->position();
      if (!reader_->next(input.record)) {
        inputs.pop_back();
        ended = true;
        break;
      }
      input.file = listed_[static_cast<size_t>(input.record.file)];
      input.number = input.record.number;
      if ((input.file + input.number) % o_.parts != o_.part) {
        inputs.pop_back();
        continue;
      }
      bytes += static_cast<int64_t>(input.record.bytes.size());
    }
    if (inputs.empty() && ended) {
      if (!any_)
        config::fail_coded(config::kDataHasLabels, "no text in '{}': {} read to the end{}",
                           names_of(o_.files), base::counted(o_.files.size(), "file was", "files were"),
                           o_.parts > 1 ? fmt::format(", and part {} of {} has no document: lower "
                                                      "data.stream_parts",
                                                      o_.part + 1, o_.parts)
                                        : "");
      any_ = false;
      ++epoch_;
      repeats_ = true;
      start_epoch({});
      return false;
    }
    std::vector<chat::Encoded> encoded(inputs.size());
    std::vector<std::string> damage(inputs.size());
    const size_t share = std::max<size_t>(1, inputs.size() / (static_cast<size_t>(o_.threads) * 4));
    base::parallel_for(o_.threads, (inputs.size() + share - 1) / share, [&](size_t part) {
      for (size_t i = part * share; i < std::min(inputs.size(), (part + 1) * share); ++i)
        std::tie(encoded[i], damage[i]) =
            encode_record(std::move(inputs[i].record), inputs[i].file, o_, false);
    });
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!damage[i].empty() && !repeats_ && damaged_++ == 0 && first_damage_.empty())
        first_damage_ = damage[i];
      chat::Encoded& tokens = encoded[i];
      if (tokens.ids.empty()) continue;
      any_ = true;
      ends_.add(tokens);
      tokens.text = std::string();
      const int64_t skip = std::exchange(skip_, 0);
      if (skip < static_cast<int64_t>(tokens.ids.size()))
        documents_.push_back(
            {std::move(tokens), epoch_, inputs[i].at, inputs[i].file, inputs[i].number, skip});
    }
    ends_.require_some();
    return true;
  }

  const StreamOptions& o_;
  StreamCursor next_;
  int64_t epoch_, skip_;
  bool any_ = false;  // tokens in this epoch
  std::optional<text::RecordReader> reader_;
  std::vector<int64_t> listed_;  // which of the files each of this epoch's is
  std::deque<Held> documents_;
  TurnEnds ends_;
  bool repeats_ = false;  // later epochs meet the same damaged records, which are counted once
  int64_t damaged_ = 0;
  std::string first_damage_;
};

SampleStream::SampleStream(StreamOptions options) : options_(std::move(options)) {
  QUINTET_CHECK(options_.window > 0 && options_.seq_len > 0 && options_.tokenizer && !options_.files.empty(),
                "a stream of {} files in windows of {} samples of {} tokens", options_.files.size(),
                options_.window, options_.seq_len);
  cursors_[0] = {};
}

SampleStream::~SampleStream() {
  {
    const std::lock_guard lock(mutex_);  // the thread does not miss it between a look and a wait
    thread_.request_stop();
  }
  changed_.notify_all();
}

void SampleStream::add_cursor(const StreamCursor& cursor) {
  const std::lock_guard lock(mutex_);
  cursors_[cursor.window] = cursor;
}

std::shared_ptr<const StreamWindow> SampleStream::held(int64_t window) const {
  const int64_t i = window - first_;
  return i >= 0 && i < static_cast<int64_t>(windows_.size()) ? windows_[static_cast<size_t>(i)] : nullptr;
}

int64_t SampleStream::sample_at(int64_t position) const {
  QUINTET_CHECK(position >= 0, "position {} of a stream", position);
  const int64_t window = position / options_.window;
  const Permutation order(key_of(options_.seed, "data.stream.window", window),
                          static_cast<uint64_t>(options_.window));
  return window * options_.window +
         static_cast<int64_t>(order(static_cast<uint64_t>(position % options_.window)));
}

SampleStream::Place SampleStream::find(int64_t sample) const {
  QUINTET_CHECK(sample >= 0, "sample {} of a stream", sample);
  const int64_t window = sample / options_.window;
  std::unique_lock lock(mutex_);
  newest_ = window * options_.window;
  std::shared_ptr<const StreamWindow> found = held(window);
  if (!found) {
    auto* self = const_cast<SampleStream*>(this);  // the thread starts with the first request
    const int64_t nearest = std::prev(cursors_.upper_bound(window))->first;
    if (!thread_.joinable()) {
      restart_ = window;
      self->thread_ = std::jthread([self](std::stop_token stop) { self->work(std::move(stop)); });
    } else if (window < first_ || nearest > first_ + static_cast<int64_t>(windows_.size())) {
      restart_ = window;
    }
    const auto mine = pending_.insert(window);
    changed_.notify_all();
    changed_.wait(lock, [&] { return failure_ || (found = held(window)); });
    pending_.erase(mine);
    if (!found) std::rethrow_exception(failure_);
  } else if (window + kWindowsAhead >= first_ + static_cast<int64_t>(windows_.size())) {
    changed_.notify_all();
  }
  return {std::move(found), sample % options_.window};
}

StreamCursor SampleStream::cursor(int64_t position) const {
  const std::lock_guard lock(mutex_);
  return std::prev(cursors_.upper_bound(position / options_.window))->second;
}

void SampleStream::work(std::stop_token stop) {
  try {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (restart_) {
        const StreamCursor from = std::prev(cursors_.upper_bound(*restart_))->second;
        restart_.reset();
        windows_.clear();
        first_ = from.window;
        producer_ = std::make_unique<Producer>(options_, from);
      }
      const int64_t next = first_ + static_cast<int64_t>(windows_.size());
      const auto is_wanted = [&] {
        return next <= newest_ / options_.window + kWindowsAhead ||
               (!pending_.empty() && next <= *pending_.rbegin());
      };
      if (!is_wanted()) {
        changed_.wait(lock, [&] { return stop.stop_requested() || restart_ || is_wanted(); });
        continue;
      }
      cursors_[next] = producer_->cursor();
      lock.unlock();
      auto made = producer_->make(stop);
      lock.lock();
      if (!made) return;
      if (restart_) continue;
      if (next >= made_) {
        made_ = next + 1;
        damaged_ += made->damaged;
        if (first_damage_.empty()) first_damage_ = producer_->first_damage();
      }
      windows_.push_back(std::move(made));
      const int64_t oldest =
          std::min(newest_, pending_.empty() ? newest_ : *pending_.begin() * options_.window);
      while (!windows_.empty() && (first_ + 1) * options_.window + options_.held <= oldest) {
        windows_.pop_front();
        ++first_;
      }
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

uint64_t SampleStream::fingerprint() const {
  const StreamOptions& o = options_;
  std::string facts = fmt::format("{} {} {} {} {} {} {}", o.seed, o.seq_len, o.window, o.validation_fraction,
                                  o.parts, o.end.value_or(-1), o.tokenizer_id);
  for (const std::string& field : columns_of(o)) facts += " " + field;
  if (o.chat) {
    const chat::MaskOptions& mask = o.chat->format.mask;
    facts += fmt::format(" chat {} {} {} {:x}", static_cast<int>(mask.loss), mask.end_of_turn,
                         mask.wall_seconds, o.chat->tokenizer->templates_hash());
  }
  for (const base::Path& file : o.files) {
    const int64_t size = base::size_of_file(file);
    facts += fmt::format("\n{} {} {:x}", size, file.filename().string(), file_sum(file, size));
  }
  return base::hash_of(facts).low;
}

std::pair<int64_t, std::string> SampleStream::damage() const {
  const std::lock_guard lock(mutex_);
  return {damaged_, first_damage_};
}

Corpus stream_validation(const StreamOptions& options, int64_t tokens) {
  CorpusBuilder corpus(names_of(options.files), options.tokenizer->vocab_size());
  text::RecordReader reader(options.files, columns_of(options));
  for (text::Record record; corpus.tokens() < tokens && reader.next(record);) {
    const int64_t file = record.file;
    chat::Encoded found = encode_record(std::move(record), file, options, true).first;
    if (found.ids.empty()) continue;
    found.ids.resize(std::min(found.ids.size(), static_cast<size_t>(tokens - corpus.tokens())));
    found.trained.resize(std::min(found.trained.size(), found.ids.size()));
    corpus.add_document(found.ids, found.trained);
  }
  if (corpus.tokens() < options.seq_len + 1)
    base::fail_user(
        "data.validation_fraction = {} holds out {} tokens of '{}', fewer than a sequence and its label "
        "({}): raise it, or give more data",
        options.validation_fraction, corpus.tokens(), names_of(options.files), options.seq_len + 1);
  return corpus.finish();
}

}  // namespace quintet::data
