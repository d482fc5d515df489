#include "base/scratch_folder.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/file_system.h"

namespace quintet::base {

ScratchFolder::ScratchFolder() {
  std::error_code unusable;  // $TMPDIR is not a folder
  Path parent = std::filesystem::temp_directory_path(unusable);
  if (unusable) parent = "/tmp";
  std::string name = (parent / "quintet-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail_writing("create a folder in", parent, errno);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

bool is_own_folder(const std::filesystem::path& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace quintet::base
