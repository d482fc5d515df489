// The only place that opens files. Every failure is a UserError that names the path, the operation and the
// system's reason ("cannot write '/data/run/metrics.jsonl': No space left on device; 12.0 KiB free, ...").
// Nothing is half written: a whole file appears under its name at once or not at all.
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

bool file_exists(const Path& path);       // a regular file, through links
bool directory_exists(const Path& path);  // a folder, through links
int64_t size_of_file(const Path& path);

std::string read_file(const Path& path);

// Writes a temporary file beside `path`, flushes it to the disk and renames it over `path`. On failure the
// old file is untouched and the temporary one is gone. `path` must not name something other than a regular
// file.
void write_file_atomically(const Path& path, std::string_view contents);

// Creates the folder and its parents; good when it is already there.
void make_directories(const Path& path);

// Creates the folder if needed and proves, by making and removing a file, that files can be written in it.
void require_writable_directory(const Path& path);

// Bytes that may still be written to the file system that holds `path` (or its nearest existing parent).
int64_t free_bytes(const Path& path);

// Removes a file if it is there.
void remove_file(const Path& path);

// All regular files below `root`, sorted by path. `enter(folder)` decides whether a folder below the root is
// searched; links to folders are never followed, so there are no cycles.
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

// A large file written in pieces that appears under its name only at commit(). Dropped without commit, it
// leaves nothing behind.
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

// A file that grows. Each append hands all its bytes to the system before it returns, or throws.
class AppendFile {
 public:
  enum class Start { Empty, AtEnd };  // Empty: what was there is dropped
  AppendFile(const Path& path, Start start);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&&) = delete;
  void append(std::string_view text);  // all of it, or, on a failure such as a full disk, none
  void sync();                         // to the disk, not only to the system
  void close();                        // reports a failure that the destructor would have to swallow
  const Path& path() const { return path_; }

 private:
  Path path_;
  int fd_ = -1;
};

}  // namespace quintet::base
