#include "base/scratch_folder.h"

#include <stdlib.h>

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

}  // namespace quintet::base
