// Samples of raw text that is tokenised while the run goes on, by a thread of its own.
//
// The order is a pure function of (seed, files): epoch after epoch, the files of each in an order of its own,
// their documents one after another, form one endless stream of tokens. Sample i is tokens [i*seq_len,
// (i+1)*seq_len] of it, as in a Dataset. Samples are shuffled within windows of `window` samples: position p
// of the run is sample w*window + permutation_w(p - w*window) with w = p / window. A window is made when it
// is asked for or about to be, and needs no more memory than its tokens.
//
// Any position can be asked for at any time. What is behind the windows that are held is made again from the
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
#include "data/dataset.h"
#include "text/document.h"
#include "tokenizer/tokenizer.h"

namespace quintet::data {

struct StreamOptions {
  std::vector<base::Path> files;
  text::DocumentFormat format;
  std::shared_ptr<const tokenizer::Tokenizer> tokenizer;
  std::optional<int32_t> end;  // token after each document
  int64_t seq_len = 0;
  bool separate_documents = false;
  int64_t window = 1024;           // samples
  int64_t held = 2048;             // samples before the newest request that stay, at least
  double validation_fraction = 0;  // documents that are left out, by a hash of their text
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

class SampleStream {
 public:
  explicit SampleStream(StreamOptions options);
  ~SampleStream();
  SampleStream(const SampleStream&) = delete;
  SampleStream& operator=(const SampleStream&) = delete;

  struct Place {
    std::shared_ptr<const Dataset> window;
    int64_t index = 0;  // of the sample in it
  };
  // Waits until the window is made. A damaged record, or files without any text, is a UserError here.
  Place at(int64_t position) const;

  // The cursor from which a run that has consumed `position` samples continues, and its use there. It saves
  // work and changes nothing else.
  StreamCursor cursor(int64_t position) const;
  void add_cursor(const StreamCursor& cursor);

  const StreamOptions& options() const { return options_; }
  // Of the names and sizes of the files, in order, and of the options that the order depends on.
  uint64_t fingerprint() const;

  // Documents that training leaves out, from the start of the first epoch's files as listed, up to `tokens`
  // tokens: a corpus in memory. Empty when the fraction is 0; a UserError when there are none.
  std::optional<Corpus> validation(int64_t tokens) const;

 private:
  class Producer;
  void work(std::stop_token stop);
  std::shared_ptr<const Dataset> find(int64_t window) const;  // under mutex_

  const StreamOptions options_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t newest_ = 0;              // position that was asked for
  mutable std::multiset<int64_t> pending_;  // windows that are waited for
  mutable std::optional<int64_t> restart_;  // window to begin again at
  std::deque<std::shared_ptr<const Dataset>> windows_;
  int64_t first_ = 0;                        // window of windows_[0]
  std::map<int64_t, StreamCursor> cursors_;  // of every window that was begun
  std::exception_ptr failure_;
  std::unique_ptr<Producer> producer_;  // of the thread
  std::jthread thread_;
};

}  // namespace quintet::data
