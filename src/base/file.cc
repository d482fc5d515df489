#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file_system.h"
#include "base/file_walk.h"
#include "base/output_path.h"
#include "base/text.h"

namespace quintet::base {
namespace {

// Advice for a system error, as a clause that follows the reason; empty when the reason is clear
// enough.
std::string advice(int error, const Path& path) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: {
      struct statvfs info;
      const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
      if (::statvfs(folder.c_str(), &info) != 0) return {};
      const auto bytes = static_cast<int64_t>(info.f_bavail * info.f_frsize);
      return fmt::format("; {} free in '{}': free some space or choose another folder", human_bytes(bytes),
                         folder.string());
    }
    case EROFS:
    case EACCES:
    case EPERM:
      return "; choose a writable folder, or change its permissions";
    case ENOTDIR:
      return "; part of the path is a file, not a folder";
    default:
      return {};
  }
}

// Advice about writing does not apply to reading.
[[noreturn]] void fail_reading(const char* operation, const Path& path, int error) {
  fail_user("cannot {} '{}': {}", operation, path.string(), std::generic_category().message(error));
}

int open_file(const Path& path, int flags, mode_t mode = 0) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  while (fd < 0 && errno == EINTR);
  return fd;
}

// Returns 0 or an errno value.
int write_all(int fd, const void* data, size_t size) {
  auto at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    if (n == 0) return EIO;
    at += n, size -= static_cast<size_t>(n);
  }
  return 0;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Path folder_of(const Path& path) { return path.has_parent_path() ? path.parent_path() : Path("."); }

// A name that no other writer on this machine uses.
Path temporary_name(const Path& path) {
  static std::atomic<uint64_t> counter{0};
  Path name = path;
  name += fmt::format(".{}.{}.partial", ::getpid(), counter.fetch_add(1));
  return name;
}

// Makes the rename itself survive a crash. File systems that cannot sync a folder return EINVAL, which is
// ignored.
void sync_folder(const Path& folder) {
  const Descriptor fd(open_file(folder, O_RDONLY | O_DIRECTORY));
  if (fd.get() < 0) fail_writing("open folder", folder, errno);
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_writing("flush folder", folder, errno);
}

}  // namespace

void fail_writing(const char* operation, const Path& path, int error) {
  fail_user("cannot {} '{}': {}{}", operation, path.string(), std::generic_category().message(error),
            advice(error, path));
}

bool file_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool directory_exists(const Path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

int64_t size_of_file(const Path& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) fail_reading("find the size of", path, error.value());
  return static_cast<int64_t>(size);
}

std::string read_file(const Path& path) {
  // Without O_NONBLOCK, opening a pipe waits for a writer that may never come.
  const Descriptor fd(open_file(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) fail_reading("open", path, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) fail_reading("read", path, errno);
  if (S_ISDIR(info.st_mode)) fail_reading("read", path, EISDIR);
  if (!S_ISREG(info.st_mode))
    fail_user("cannot read '{}': it is a {}, not a regular file; copy its contents to a file first",
              path.string(), S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) ? "pipe" : "device");
  // The size is only an initial guess: files in /proc report 0, and a file may grow while it is read.
  std::string text(static_cast<size_t>(std::max<off_t>(info.st_size, 0)) + 1, '\0');
  size_t size = 0;
  while (true) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_reading("read", path, errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
    if (size == text.size()) text.resize(2 * text.size() + 4096);
  }
  text.resize(size);
  return text;
}

std::string start_of_file(const Path& path, size_t bytes) {
  const Descriptor fd(open_file(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) fail_reading("open", path, errno);
  std::string text(bytes, '\0');
  size_t size = 0;
  while (size < bytes) {
    const ssize_t n = ::read(fd.get(), text.data() + size, bytes - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_reading("read", path, errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  text.resize(size);
  return text;
}

void write_file_atomically(const Path& path, std::string_view contents) {
  AtomicFile file(path);
  file.write(contents);
  file.commit();
}

void make_directories(const Path& path) {
  std::vector<Path> missing;
  for (Path p = path; !p.empty() && !directory_exists(p); p = p.parent_path()) missing.push_back(p);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_writing("create folder", path, error.value());
  if (!directory_exists(path)) fail_writing("create folder", path, ENOTDIR);
  for (const Path& folder : missing)  // their names outlive a crash
    FileSystem::real().sync_directory(folder.has_parent_path() ? folder.parent_path() : Path("."));
}

void require_writable_directory(const Path& path) {
  make_directories(path);
  const Path probe = temporary_name(path / "probe");
  {
    const Descriptor fd(open_file(probe, O_WRONLY | O_CREAT | O_EXCL, 0644));
    if (fd.get() < 0) fail_writing("write in folder", path, errno);
    if (const int error = write_all(fd.get(), "x", 1); error != 0) {
      ::unlink(probe.c_str());
      fail_writing("write in folder", path, error);
    }
  }
  if (::unlink(probe.c_str()) != 0) fail_writing("write in folder", path, errno);
}

int64_t free_bytes(const Path& path) {
  Path at = path;
  while (!at.empty() && !directory_exists(at)) at = at.has_relative_path() ? at.parent_path() : Path();
  if (at.empty()) at = ".";
  struct statvfs info;
  if (::statvfs(at.c_str(), &info) != 0) fail_reading("find the free space of", at, errno);
  constexpr int64_t kNotReported = INT64_MAX / 2;
  // /proc, /sys and some network file systems have no blocks; what writes there finds out.
  return info.f_blocks == 0 ? kNotReported : static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

void remove_file(const Path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_writing("remove", path, errno);
}

FileWalk walk_files(const Path& root, const std::function<bool(const Path&)>& enter) {
  namespace fs = std::filesystem;
  FileWalk walk;
  std::vector<Path> folders = {root};
  while (!folders.empty()) {
    const Path folder = std::move(folders.back());
    folders.pop_back();
    std::error_code error;
    fs::directory_iterator entry(folder, error);
    for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
      std::error_code ignored;  // vanished entries are skipped
      const bool is_link = entry->is_symlink(ignored);
      if (entry->is_directory(ignored)) {
        if (is_link)
          walk.linked_folders.push_back(entry->path());
        else if (!enter || enter(entry->path()))
          folders.push_back(entry->path());
      } else if (entry->is_regular_file(ignored)) {
        walk.files.push_back(entry->path());
      } else if (is_link && !fs::exists(entry->path(), ignored)) {
        walk.dangling.push_back(entry->path());
      } else if (entry->is_other(ignored)) {
        walk.special.push_back(entry->path());
      }
    }
    const bool vanished = folder != root && error == std::errc::no_such_file_or_directory;
    if (error && !vanished) fail_reading("list folder", folder, error.value());
  }
  for (auto* list : {&walk.files, &walk.linked_folders, &walk.dangling, &walk.special})
    std::sort(list->begin(), list->end());
  return walk;
}

std::vector<Path> list_files(const Path& root, const std::function<bool(const Path&)>& enter) {
  return walk_files(root, enter).files;
}

MappedFile::MappedFile(const Path& path) {
  const Descriptor fd(open_file(path, O_RDONLY | O_NONBLOCK));
  if (fd.get() < 0) fail_reading("open", path, errno);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) fail_reading("map", path, errno);
  if (S_ISDIR(info.st_mode)) fail_reading("map", path, EISDIR);
  if (!S_ISREG(info.st_mode)) fail_user("cannot map '{}': it is not a regular file", path.string());
  if (info.st_size == 0) return;
  void* data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) fail_reading("map", path, errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

AtomicFile::AtomicFile(const Path& path) : path_(path), temporary_(temporary_name(path)) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail_user("cannot write '{}': it exists and is not a regular file", path.string());
  fd_ = open_file(temporary_, O_WRONLY | O_CREAT | O_EXCL, 0644);
  if (fd_ < 0) fail_writing("write", path_, errno);
  buffer_.reserve(size_t{1} << 20);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  QUINTET_CHECK(fd_ >= 0, "write after commit of '{}'", path_.string());
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), buffer_.capacity() - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == buffer_.capacity()) flush();
  }
}

void AtomicFile::flush() {
  if (const int error = write_all(fd_, buffer_.data(), buffer_.size()); error != 0)
    fail_writing("write", path_, error);
  buffer_.clear();
}

void AtomicFile::commit() {
  QUINTET_CHECK(fd_ >= 0, "second commit of '{}'", path_.string());
  flush();
  if (::fsync(fd_) != 0) fail_writing("flush", path_, errno);
  // The descriptor stays open until the rename succeeds, so that the destructor still removes the temporary
  // file.
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_writing("rename into place", path_, errno);
  ::close(std::exchange(fd_, -1));
  sync_folder(folder_of(path_));
}

void remove_partial_files(const Path& folder, std::initializer_list<const char*> names) {
  for (const Path& file : list_folder(folder)) {
    const std::string name = file.filename().string();
    const auto is_of = [&](const char* whole) { return name.starts_with(std::string(whole) + "."); };
    if (name.ends_with(".partial") && std::ranges::any_of(names, is_of)) remove_file(folder / name);
  }
}

AppendFile::AppendFile(const Path& path, Start start) : path_(path) {
  // Without O_NONBLOCK, opening a pipe waits for a reader that may never come.
  fd_ = open_file(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | (start == Start::Empty ? O_TRUNC : 0),
                  0644);
  struct stat info;
  if ((fd_ < 0 && errno == ENXIO) || (fd_ >= 0 && ::fstat(fd_, &info) == 0 && S_ISFIFO(info.st_mode))) {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    fail_user("cannot write '{}': it is a pipe, not a regular file", path.string());
  }
  if (fd_ < 0) fail_writing("open for writing", path_, errno);
}

AppendFile::~AppendFile() {
  if (fd_ >= 0) ::close(fd_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

void AppendFile::append(std::string_view text) {
  QUINTET_CHECK(fd_ >= 0, "append to closed '{}'", path_.string());
  const off_t before = ::lseek(fd_, 0, SEEK_END);
  if (const int error = write_all(fd_, text.data(), text.size()); error != 0) {
    // A full disk may have accepted a part: undo it. What cannot be truncated (a device) stays.
    if (before >= 0 && ::ftruncate(fd_, before) != 0) errno = 0;
    fail_writing("write", path_, error);
  }
}

void AppendFile::sync() {
  QUINTET_CHECK(fd_ >= 0, "sync of closed '{}'", path_.string());
  if (::fsync(fd_) != 0 && errno != EINVAL) fail_writing("flush", path_, errno);
}

void AppendFile::close() {
  // Linux closes the descriptor even when it reports EINTR.
  if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) fail_writing("close", path_, errno);
}

}  // namespace quintet::base
