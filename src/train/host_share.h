// Text that one process of a host tokenises for all of them. The first process writes every corpus that it
// made to a file in memory (/dev/shm), the others map it; all of them give the same answers as processes that
// read for themselves, which they do where a file is missing.
#pragma once

#include <cstdint>
#include <functional>

#include "base/file.h"
#include "data/corpus.h"

namespace quintet::train {

class HostShare {
 public:
  enum class Role { First, Other };
  // `folder` is the same for all processes of the host, and new.
  HostShare(base::Path folder, Role role) : folder_(std::move(folder)), role_(role) {}

  // Calls are numbered: the n-th of every process is for the same corpus. `read` is not called where another
  // process has done the work.
  data::Corpus through(const std::function<data::Corpus()>& read);
  // Removes the files; those that are mapped stay readable.
  void remove() const;

  int64_t mapped() const { return mapped_; }  // corpora that were not read here

 private:
  base::Path folder_;
  Role role_;
  int64_t next_ = 0, mapped_ = 0;
};

// One file: sizes, offsets, flags, tokens. `name` as in Corpus.
void write_shared_corpus(const data::Corpus& corpus, const base::Path& path);
data::Corpus map_shared_corpus(const base::Path& path);  // UserError for a file that is not complete

}  // namespace quintet::train
