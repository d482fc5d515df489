#include "base/file_system.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/text.h"

namespace quintet::base {
namespace {

// No larger than what one write() accepts.
constexpr size_t kMostWritten = size_t{1} << 30;
constexpr int64_t kFlushedEarly = int64_t{1} << 20;

// After EINVAL: whether the file bypassed the page cache, which this turns off.
bool end_bypass(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  return flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(file, F_SETFL, flags & ~O_DIRECT) == 0;
}

}  // namespace

// Huge pages: a transfer of 32 MiB is then a few long requests to the disk instead of thousands.
DirectBuffer::DirectBuffer(int64_t bytes)
    : data_(HugePages<std::byte>().allocate(static_cast<size_t>(bytes))), size_(bytes) {}

void DirectBuffer::Free::operator()(std::byte* data) const {
  ::operator delete(data, HugePages<std::byte>::kAlign);
}

FileSystem& FileSystem::real() {
  static FileSystem files;
  return files;
}

int FileSystem::create(const Path& path) {
  int file;
  do {
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_writing("replace", path, errno);
    file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  } while (file < 0 && errno == EINTR);
  if (file < 0) fail_writing("create", path, errno);
  return file;
}

void FileSystem::bypass_cache(int file) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags >= 0) ::fcntl(file, F_SETFL, flags | O_DIRECT);
}

void FileSystem::write(int file, const Path& path, int64_t position, std::span<const std::byte> bytes) {
  const int64_t begin = position, size = static_cast<int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file, bytes.data(), std::min(bytes.size(), kMostWritten), position);
    if (n < 0 && (errno == EINTR || (errno == EINVAL && end_bypass(file)))) continue;
    if (n <= 0) fail_writing("write", path, n == 0 ? EIO : errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    position += n;
  }
  // Starts writing now instead of at sync(). A hint: where a file system ignores it, sync() takes longer.
  if (size >= kFlushedEarly) ::sync_file_range(file, begin, size, SYNC_FILE_RANGE_WRITE);
}

void FileSystem::sync(int file, const Path& path) {
  if (::fsync(file) != 0) fail_writing("flush", path, errno);
}

void FileSystem::close(int file, const Path& path) {
  // Linux closes the descriptor even when it reports EINTR.
  if (::close(file) != 0 && errno != EINTR) fail_writing("close", path, errno);
}

void FileSystem::rename(const Path& from, const Path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_writing("rename into place", to, errno);
}

bool FileSystem::link(const Path& from, const Path& to) { return ::link(from.c_str(), to.c_str()) == 0; }

void FileSystem::make_directory(const Path& path) {
  if (::mkdir(path.c_str(), 0755) != 0 && (errno != EEXIST || !directory_exists(path)))
    fail_writing("create folder", path, errno);
}

void FileSystem::make_directories(const Path& path) {
  if (path.empty() || directory_exists(path)) return;
  const Path parent = path.has_filename() ? path.parent_path() : path.parent_path().parent_path();
  make_directories(parent);
  make_directory(path);
  sync_directory(parent.empty() ? Path(".") : parent);
}

void FileSystem::sync_directory(const Path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail_writing("open folder", path, errno);
  // File systems that cannot sync a folder return EINVAL.
  const int error = ::fsync(file) != 0 && errno != EINVAL ? errno : 0;
  ::close(file);
  if (error != 0) fail_writing("flush folder", path, error);
}

void FileSystem::remove_file(const Path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_writing("remove", path, errno);
}

void FileSystem::remove_directory(const Path& path) {
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) fail_writing("remove folder", path, errno);
}

OutputFile::OutputFile(FileSystem& files, Path path)
    : files_(files), path_(std::move(path)), file_(files_.create(path_)) {}

OutputFile::~OutputFile() {
  if (file_ >= 0) ::close(file_);
}

void OutputFile::write(int64_t position, std::span<const std::byte> bytes) {
  files_.write(file_, path_, position, bytes);
}

void OutputFile::finish() {
  files_.sync(file_, path_);
  files_.close(std::exchange(file_, -1), path_);
}

void replace_file(FileSystem& files, const Path& path, std::string_view contents) {
  Path temporary = path;
  temporary += ".tmp";
  OutputFile file(files, temporary);
  file.write(0, std::as_bytes(std::span(contents)));
  file.finish();
  files.rename(temporary, path);
  files.sync_directory(path.has_parent_path() ? path.parent_path() : Path("."));
}

InputFile::InputFile(const Path& path, bool direct) : path_(path) {
  do file_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  while (file_ < 0 && errno == EINTR);
  if (file_ < 0) fail_user("cannot open '{}': {}", path.string(), std::generic_category().message(errno));
  struct stat info;
  const bool known = ::fstat(file_, &info) == 0;
  if (!known || !S_ISREG(info.st_mode)) {
    ::close(std::exchange(file_, -1));
    fail_user("cannot read '{}': it is not a regular file", path.string());
  }
  size_ = info.st_size;
  if (direct) direct_ = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_DIRECT);
}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
  if (direct_ >= 0) ::close(direct_);
}

void InputFile::read(int64_t position, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(file_, out.data(), std::min(out.size(), kMostWritten), position);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_user("cannot read '{}': {}", path_.string(), std::generic_category().message(errno));
    if (n == 0)
      fail_user("'{}' is truncated: it ends at byte {}, and {} more are needed", path_.string(), position,
                out.size());
    out = out.subspan(static_cast<size_t>(n));
    position += n;
  }
}

std::span<const std::byte> InputFile::read_direct(int64_t position, int64_t bytes,
                                                  const DirectBuffer& buffer) const {
  QUINTET_CHECK(buffer.size() >= bytes + 2 * kDirectBytes, "a buffer of {} bytes to read {}", buffer.size(),
                bytes);
  const int64_t begin = position / kDirectBytes * kDirectBytes, before = position - begin,
                whole = (before + bytes + kDirectBytes - 1) / kDirectBytes * kDirectBytes;
  int64_t read = 0;
  while (direct_ >= 0 && read < before + bytes) {
    const ssize_t n = ::pread(direct_, buffer.data() + read, static_cast<size_t>(whole - read), begin + read);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || n % kDirectBytes != 0) {
      read += std::max<ssize_t>(n, 0);
      break;  // the end of the file, or not possible: the rest is read, or refused, below
    }
    read += n;
  }
  if (const int64_t rest = before + bytes - read; rest > 0)
    this->read(begin + read, {buffer.data() + read, static_cast<size_t>(rest)});
  return {buffer.data() + before, static_cast<size_t>(bytes)};
}

bool InputFile::is_cached(int64_t position, int64_t bytes) const {
  static const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t begin = position / page * page;
  const auto length = static_cast<size_t>(position + bytes - begin);
  if (bytes <= 0 || position + bytes > size_) return false;
  void* const memory = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file_, begin);
  if (memory == MAP_FAILED) return false;
  std::vector<unsigned char> pages((length + static_cast<size_t>(page) - 1) / static_cast<size_t>(page));
  const bool known = ::mincore(memory, length, pages.data()) == 0;
  ::munmap(memory, length);
  return known && std::all_of(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
}

void forget_cached(const Path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

std::vector<Path> list_folder(const Path& folder) {
  std::vector<Path> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error))
    names.push_back(entry->path().filename());
  if (error == std::errc::not_a_directory) fail_user("'{}' is not a folder", folder.string());
  if (error && error != std::errc::no_such_file_or_directory)
    fail_user("cannot list folder '{}': {}", folder.string(), error.message());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace quintet::base
