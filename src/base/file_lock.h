// A lock between processes, held by the kernel: it ends with the object, and with the process however that
// ends.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"

namespace quintet::base {

class FileLock {
 public:
  // Creates `path` and locks it; UserError when it is a file that no lock has written. Empty when another
  // process, or another lock of this one, holds it. A file system without locks (ENOLCK, ENOTSUP) gives a
  // lock without effect. `owner` is stored in the file, for messages of other processes.
  static std::optional<FileLock> acquire(const Path& path, const std::string& owner);
  // The `owner` of the lock that is held now; empty when it cannot be read.
  static std::string owner_of(const Path& path);

  ~FileLock();  // removes the file
  // Another text for owner_of().
  void describe(const std::string& owner) const;
  // Leaves it there at the end, unlocked, as a process that is killed does.
  void leave_file() { leaves_file_ = true; }
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  FileLock(Path path, int fd) : path_(std::move(path)), fd_(fd) {}
  Path path_;
  int fd_;
  bool leaves_file_ = false;
};

}  // namespace quintet::base
