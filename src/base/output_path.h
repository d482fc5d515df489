// Checks of output paths, made before the work whose result they receive.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/file.h"

namespace quintet::base {

// UserError, naming `option`, unless a file can be written at `path`: its folder exists and is writable, and
// `path` is free or a regular file. Leaves nothing behind.
void require_writable_file(const char* option, const Path& path);

// What stands at `path` where no file can be written: "a folder", "a pipe", "a socket", "a device" or "a link
// to nothing". Empty where there is nothing, a regular file, or a link to one.
std::string_view obstacle_at(const Path& path);

// In every page, chart and trace, near its start.
inline constexpr std::string_view kPageMark = "Made by Quintet";

// At most the first `bytes` of a file.
std::string start_of_file(const Path& path, size_t bytes);

// The same for a page or chart that is made again from what it shows: a file that exists must have the mark.
void require_page_file(const char* option, const Path& path);

// The same for a file that its reader may have edited: without `overwrite` it must not exist.
void require_new_file(const char* option, const Path& path, bool overwrite);

// UserError, naming two options, if both name the same file: the one that is written last would replace the
// other. Empty paths are options that are not given.
void require_distinct_files(std::initializer_list<std::pair<const char*, Path>> options);

// UserError, naming `option`, unless `path` is an existing folder in which files can be written.
void require_existing_folder(const char* option, const Path& path);

}  // namespace quintet::base
