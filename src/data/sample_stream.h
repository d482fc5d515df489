// Samples of raw text that is tokenized during the run, by a background thread.
//
// The order is a pure function of (seed, files): epoch after epoch, the files of each in an order of its own,
// their documents one after another, form one endless stream of tokens. Sample i is tokens [i*seq_len,
// (i+1)*seq_len] of it, as in a Dataset. Samples are shuffled within windows of `window` samples: position p
// of the run is sample w*window + permutation_w(p - w*window) with w = p / window. A window is made when it
// is asked for or about to be, and needs no more memory than its tokens.
//
// With several parts, a stream has every document of one part only, and a set of the run takes its samples
// from all of them in turn (data/mixture.h): a rank tokenises the parts that it trains on.
//
// Any position can be asked for at any time. What precedes the windows that are held is made again from the
// nearest cursor, which a checkpoint keeps, so that a run continues without reading what it has seen.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "data/chat_source.h"
#include "data/dataset.h"
#include "text/document.h"
#include "tokenizer/tokenizer.h"

namespace quintet::data {

// Records that are conversations, of which the template's text is the document.
struct ChatStream {
  std::shared_ptr<const chat::ChatTokenizer> tokenizer;
  ChatFormat format;                  // not split_turns
  std::vector<chat::Format> formats;  // of each file
};

struct StreamOptions {
  std::vector<base::Path> files;
  std::optional<ChatStream> chat = {};  // instead of `format` and `end`
  text::DocumentFormat format;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::optional<int32_t> end;  // token after each document
  int64_t seq_len = 0;
  bool separate_documents = false;
  int64_t window = 1024;           // samples
  int64_t held = 2048;             // samples before the newest request that stay, at least
  double validation_fraction = 0;  // documents that are left out, by a hash of their text, or record
  int64_t part = 0, parts = 1;     // record r of file f is in part (f + r) % parts
  bool skip_damaged = false;       // else a damaged record is a UserError
  std::string tokenizer_id;        // identifies the tokenizer's file, for the fingerprint
  std::optional<FillInTheMiddle> fim = {};
  MaskedTokens masked = {};
  uint64_t seed = 0;
  int threads = 1;  // that tokenise
};

// Where in the raw files a window begins.
struct StreamCursor {
  int64_t window = 0, epoch = 0;
  text::Position at;        // `file` counts in the order of the epoch
  int64_t skip_tokens = 0;  // of the document there that the window before has
  friend bool operator==(const StreamCursor&, const StreamCursor&) = default;
};
std::string to_text(const StreamCursor& cursor);
StreamCursor parse_cursor(const std::string& text);  // UserError

// Where a document of a window comes from.
struct StreamOrigin {
  int64_t epoch = 0;
  int64_t file = 0;    // of StreamOptions::files
  int64_t record = 0;  // 1-based line or row
  int64_t begin = 0;   // its first token in the window, counted in the document
};

struct StreamWindow {
  Dataset dataset;
  std::vector<StreamOrigin> origins;  // of each document of its corpus
  int64_t damaged = 0;                // records left out while it was made
};

class SampleStream {
 public:
  explicit SampleStream(StreamOptions options);
  ~SampleStream();
  SampleStream(const SampleStream&) = delete;
  SampleStream& operator=(const SampleStream&) = delete;

  // The sample at a position of the run: a pure function.
  int64_t sample_at(int64_t position) const;

  struct Place {
    std::shared_ptr<const StreamWindow> window;
    int64_t index = 0;  // of the sample in it
  };
  // Waits until the sample's window is made. A damaged record, or files without any text, is a UserError
  // here.
  Place find(int64_t sample) const;

  // The cursor from which a run that has consumed `position` samples continues, and its use there. It saves
  // work and changes nothing else.
  StreamCursor cursor(int64_t position) const;
  void add_cursor(const StreamCursor& cursor);

  const StreamOptions& options() const { return options_; }
  // Of the files in order (name, size, both ends), and of the options that the order depends on.
  uint64_t fingerprint() const;
  // Records that were left out so far, and what is wrong with the first.
  std::pair<int64_t, std::string> damage() const;

 private:
  class Producer;
  void work(std::stop_token stop);
  std::shared_ptr<const StreamWindow> held(int64_t window) const;  // under mutex_

  const StreamOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t newest_ = 0;              // position that was asked for
  mutable std::multiset<int64_t> pending_;  // windows that are waited for
  mutable std::optional<int64_t> restart_;  // window to begin again at
  std::deque<std::shared_ptr<const StreamWindow>> windows_;
  int64_t first_ = 0;                        // window of windows_[0]
  std::map<int64_t, StreamCursor> cursors_;  // of every window that was begun
  int64_t made_ = 0, damaged_ = 0;           // windows that were ever made; damaged records in them
  std::string first_damage_;
  std::exception_ptr failure_;
  std::unique_ptr<Producer> producer_;  // of the thread
  std::jthread thread_;
};

// Documents that training leaves out, from the start of the files as listed, up to `tokens` tokens: a corpus
// in memory. UserError when they are fewer than a sample.
Corpus stream_validation(const StreamOptions& options, int64_t tokens);

}  // namespace quintet::data
