#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace quintet::base {
namespace {

// How the file begins: what does not is somebody else's.
constexpr std::string_view kMark = "quintet lock: ";

[[noreturn]] void fail_lock(const Path& path, int error) {
  fail_user("cannot lock '{}': {}", path.string(), std::generic_category().message(error));
}

// Whether `path` still names the open file: the last holder removes it when it is done.
bool is_current(int fd, const Path& path) {
  struct stat open_file, named;
  return ::fstat(fd, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

}  // namespace

std::optional<FileLock> FileLock::acquire(const Path& path, const std::string& owner) {
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) fail_lock(path, errno);
    if (struct stat info; ::fstat(fd, &info) == 0 && !S_ISREG(info.st_mode)) {
      ::close(fd);
      fail_user("cannot lock '{}': it is not a regular file; move it away, or choose another folder",
                path.string());
    }
    FileLock lock(path, fd);
    int error = 0;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0 && (error = errno) == EINTR) error = 0;
    if (error == EWOULDBLOCK) {
      ::close(std::exchange(lock.fd_, -1));
      return std::nullopt;
    }
    if (error != 0 && error != ENOLCK && error != ENOTSUP) {
      ::close(std::exchange(lock.fd_, -1));
      fail_lock(path, error);
    }
    if (!is_current(fd, path)) {
      ::close(std::exchange(lock.fd_, -1));
      continue;
    }
    struct stat info;
    std::array<char, kMark.size()> start = {};
    if (::fstat(fd, &info) == 0 && info.st_size > 0 &&
        (::pread(fd, start.data(), start.size(), 0) != static_cast<ssize_t>(start.size()) ||
         std::string_view(start.data(), start.size()) != kMark)) {
      ::close(std::exchange(lock.fd_, -1));
      fail_user(
          "cannot lock '{}': the file exists and is not a lock of Quintet; move it away, or choose another "
          "folder",
          path.string());
    }
    lock.describe(owner);
    return lock;
  }
}

// A full disk must not prevent the lock, nor a kill leave it without a text.
void FileLock::describe(const std::string& owner) const {
  const std::string text = std::string(kMark) + owner;
  const ssize_t written = ::pwrite(fd_, text.data(), text.size(), 0);
  if (::ftruncate(fd_, std::max<ssize_t>(0, written)) != 0) errno = 0;
}

std::string FileLock::owner_of(const Path& path) {
  try {
    const std::string text = read_file(path);
    return text.starts_with(kMark) ? text.substr(kMark.size()) : std::string();
  } catch (const UserError&) {
    return {};
  }
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  if (!leaves_file_)
    ::unlink(path_.c_str());  // while it is locked, so that no other process can have locked this file
  ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), leaves_file_(other.leaves_file_) {}

}  // namespace quintet::base
