// A new folder among the system's temporary files ($TMPDIR, else /tmp), removed with everything in it when
// the object is destroyed. Only its owner can read it.
#pragma once

#include <filesystem>

namespace quintet::base {

class ScratchFolder {
 public:
  ScratchFolder();  // UserError if it cannot be created
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Whether the path is a folder, not a link to one, that belongs to this user: others may create names where
// temporary files are.
bool is_own_folder(const std::filesystem::path& path);

}  // namespace quintet::base
