// All files below a folder, and what was left out: base::list_files for callers that say what they skip.
#pragma once

#include <functional>
#include <vector>

#include "base/file.h"

namespace quintet::base {

struct FileWalk {
  std::vector<Path> files;  // regular files and links to them, sorted by path
  std::vector<Path>
      linked_folders;          // links to folders, which are not followed, so there are no cycles; sorted
  std::vector<Path> dangling;  // links to nothing; sorted
  std::vector<Path> special;   // pipes, sockets and devices; sorted
};

// `enter` as of list_files.
FileWalk walk_files(const Path& root, const std::function<bool(const Path&)>& enter = {});

}  // namespace quintet::base
