#include "checkpoint/older.h"

#include <filesystem>

#include "base/error.h"
#include "checkpoint/reader.h"

namespace quintet::checkpoint {

std::optional<OlderCheckpoint> find_older(const base::Path& folder, int64_t verify_up_to) {
  const base::Path name = folder.filename();
  std::vector<Entry> entries =
      Store(folder.has_parent_path() ? folder.parent_path() : base::Path(".")).list();
  while (!entries.empty() && entries.back().folder.filename() != name) entries.pop_back();
  if (entries.empty()) return std::nullopt;
  for (entries.pop_back(); !entries.empty(); entries.pop_back()) {
    const Entry& entry = entries.back();
    if (!entry.complete) continue;
    try {
      Reader reader(entry.folder);
      const bool verified = reader.manifest().tensor_bytes() <= verify_up_to;
      if (verified)
        reader.verify();
      else
        reader.verify_headers();
      return OlderCheckpoint{.entry = entry, .verified = verified};
    } catch (const base::UserError&) {  // damaged, too
    }
  }
  return std::nullopt;
}

}  // namespace quintet::checkpoint
