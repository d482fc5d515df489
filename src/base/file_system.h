// The system calls of a save, one method each, so that tests can make any of them fail or end the process
// there; and positioned reads. Every failure is a UserError as in base/file.h.
#pragma once

#include <memory>

#include "base/file.h"

namespace quintet::base {

// UserError: "cannot <operation> '<path>': <reason of the errno value>; <advice>".
[[noreturn]] void fail_writing(const char* operation, const Path& path, int error);

inline constexpr int64_t kDirectBytes = 4096;

// Memory that the disk reads and writes itself.
class DirectBuffer {
 public:
  explicit DirectBuffer(int64_t bytes);
  std::byte* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  int64_t size_;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  static FileSystem& real();

  // Opens a new, empty file for writing. An existing one loses this name and is not touched: under another
  // name it may be part of another checkpoint. Returns the descriptor.
  virtual int create(const Path& path);
  // From now on large writes to the file bypass the page cache (O_DIRECT), as long as addresses, positions
  // and sizes are multiples of kDirectBytes: the first write that is not ends it. A hint, without effect on
  // file systems that do not support it.
  virtual void bypass_cache(int file);
  // All of the bytes, at a position of the file. `path` is for messages, here and below.
  virtual void write(int file, const Path& path, int64_t position, std::span<const std::byte> bytes);
  virtual void sync(int file, const Path& path);
  virtual void close(int file, const Path& path);
  virtual void rename(const Path& from, const Path& to);  // replaces `to`
  // Gives a file a second name. False where that is not possible: other file systems, or too many names.
  virtual bool link(const Path& from, const Path& to);
  virtual void make_directory(const Path& path);  // no error if it exists; its parent must
  // The folder and its parents, where they do not exist; their names are on disk when it returns.
  void make_directories(const Path& path);
  virtual void sync_directory(const Path& path);
  virtual void remove_file(const Path& path);       // no error if it does not exist
  virtual void remove_directory(const Path& path);  // an empty one; no error if it does not exist
};

// A file that is being written. Closed by finish(), which also flushes it to disk, or without flushing by the
// destructor.
class OutputFile {
 public:
  OutputFile(FileSystem& files, Path path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void bypass_cache() { files_.bypass_cache(file_); }
  void write(int64_t position, std::span<const std::byte> bytes);
  void finish();

 private:
  FileSystem& files_;
  Path path_;
  int file_;
};

// Writes `path` through `path`.tmp: flushed, renamed, and the folder flushed.
void replace_file(FileSystem& files, const Path& path, std::string_view contents);

// Any thread may read.
class InputFile {
 public:
  // `direct`: for read_direct().
  explicit InputFile(const Path& path, bool direct = false);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  int64_t size() const { return size_; }
  const Path& path() const { return path_; }
  // All of the bytes at a position; a file that ends before them is a UserError.
  void read(int64_t position, std::span<std::byte> out) const;
  // The same through `buffer`, which must have room for `bytes` and 2 * kDirectBytes, and from the disk
  // itself, past the page cache, where that is possible. Returns the place in the buffer.
  std::span<const std::byte> read_direct(int64_t position, int64_t bytes, const DirectBuffer& buffer) const;
  // Whether the system has all of these bytes in its memory, as far as it tells: read() then needs no disk.
  bool is_cached(int64_t position, int64_t bytes) const;

 private:
  Path path_;
  int file_ = -1;
  int direct_ = -1;  // bypasses the page cache; -1: not possible
  int64_t size_ = 0;
};

// Asks the system to drop its copy of a file, so that the next read comes from the disk; for measurements.
void forget_cached(const Path& path);

// Entries of a folder by name, sorted; empty when it does not exist.
std::vector<Path> list_folder(const Path& folder);

}  // namespace quintet::base
