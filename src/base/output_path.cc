#include "base/output_path.h"

#include <filesystem>

#include "base/error.h"

namespace quintet::base {

void require_writable_file(const char* option, const Path& path) {
  if (path.empty()) fail_user("{} is empty; it must name a file", option);
  const Path folder = path.has_parent_path() ? path.parent_path() : Path(".");
  if (!path.has_filename() || directory_exists(path))
    fail_user("{} {}: it must name a file, not a folder", option, path.string());
  if (!directory_exists(folder))
    fail_user("{} {}: the folder '{}' does not exist; create it first", option, path.string(),
              folder.string());
  AtomicFile probe(path);  // never committed
}

std::string_view obstacle_at(const Path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  switch (fs::status(path, error).type()) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::not_found:
      return fs::is_symlink(fs::symlink_status(path, error)) ? "a link to nothing" : "";
    default:
      return {};
  }
}

void require_page_file(const char* option, const Path& path) {
  require_writable_file(option, path);
  if (!file_exists(path)) return;
  constexpr size_t kStart = 4096;
  if (start_of_file(path, kStart).find(kPageMark) == std::string::npos)
    fail_user("{} {}: the file exists and was not made by Quintet; choose another name, or remove it", option,
              path.string());
}

void require_new_file(const char* option, const Path& path, bool overwrite) {
  require_writable_file(option, path);
  if (!overwrite && file_exists(path))
    fail_user("{} {}: the file exists; choose another name, or replace it with --overwrite", option,
              path.string());
}

void require_distinct_files(std::initializer_list<std::pair<const char*, Path>> options) {
  const auto place = [](const Path& path) { return std::filesystem::absolute(path).lexically_normal(); };
  for (auto first = options.begin(); first != options.end(); ++first)
    for (auto second = first + 1; second != options.end(); ++second)
      if (!first->second.empty() && !second->second.empty() && place(first->second) == place(second->second))
        fail_user("{} and {} are both {}: name two files", first->first, second->first,
                  first->second.string());
}

void require_existing_folder(const char* option, const Path& path) {
  if (path.empty()) fail_user("{} is empty; it must name a folder", option);
  if (!directory_exists(path)) fail_user("{} {}: there is no such folder", option, path.string());
  require_writable_directory(path);
}

}  // namespace quintet::base
