// The only place that opens files. Every failure is a UserError that names the path, the operation and the
// system's reason ("cannot write '/data/run/metrics.jsonl': No space left on device; 12.0 KiB free, ...").
// Whole files are written atomically: they appear complete or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::base {

using Path = std::filesystem::path;

bool file_exists(const Path& path);       // regular file; follows links
bool directory_exists(const Path& path);  // folder; follows links
int64_t size_of_file(const Path& path);

std::string read_file(const Path& path);

// Writes a temporary file next to `path`, flushes it to disk and renames it to `path`. On failure, the old
// file is unchanged and the temporary one is removed. `path` must not exist, or must be a regular
// file.
void write_file_atomically(const Path& path, std::string_view contents);

// Creates the folder and its parents; no error if it exists.
void make_directories(const Path& path);

// Creates the folder if needed and checks, by creating and removing a file, that it is writable.
void require_writable_directory(const Path& path);

// Free bytes on the file system of `path` (or of its nearest existing parent).
int64_t free_bytes(const Path& path);

// Removes a file if it exists.
void remove_file(const Path& path);

// All regular files below `root`, sorted by path. `enter(folder)` decides whether to descend into a folder
// below the root; links to folders are not followed, so there are no cycles.
std::vector<Path> list_files(const Path& root, const std::function<bool(const Path&)>& enter = {});

// A read-only mapping of a whole file. An empty file gives an empty span.
class MappedFile {
 public:
  explicit MappedFile(const Path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// A large file written in pieces, which appears under its name at commit(). Without commit, nothing is left
// behind.
class AtomicFile {
 public:
  explicit AtomicFile(const Path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();

 private:
  void flush();
  Path path_, temporary_;
  int fd_ = -1;
  std::vector<std::byte> buffer_;
};

// Removes what killed processes have left in `folder` of files that AtomicFile or write_file_atomically was
// to write there. No other process may be writing them.
void remove_partial_files(const Path& folder, std::initializer_list<const char*> names);

// An append-only file. Each append hands all its bytes to the system before it returns, or throws.
class AppendFile {
 public:
  enum class Start { Empty, AtEnd };  // Empty: truncates the file
  AppendFile(const Path& path, Start start);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  void append(std::string_view text);  // all of it or, on failure (such as a full disk), nothing
  void sync();                         // flushes to disk
  void close();                        // throws on failure, unlike the destructor
  const Path& path() const { return path_; }

 private:
  Path path_;
  int fd_ = -1;
};

}  // namespace quintet::base
