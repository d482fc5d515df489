// Checks of output paths, made before the work whose result they receive.
#pragma once

#include "base/file.h"

namespace quintet::base {

// UserError, naming `option`, unless a file can be written at `path`: its folder exists and is writable, and
// `path` is free or a regular file. Leaves nothing behind.
void require_writable_file(const char* option, const Path& path);

// The same for a page or chart that is made again from what it shows. A file that exists is replaced only if
// its name ends like one of this kind (".html"): a slip must not cost a recipe.
void require_page_file(const char* option, const Path& path, const char* ending);

// The same for a file that its reader may have edited: without `overwrite` it must not exist.
void require_new_file(const char* option, const Path& path, bool overwrite);

// UserError, naming `option`, unless `path` is an existing folder in which files can be written.
void require_existing_folder(const char* option, const Path& path);

}  // namespace quintet::base
