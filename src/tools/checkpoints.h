// The texts of `quintet checkpoint`. Each takes a run folder, a folder of checkpoints or a checkpoint.
#pragma once

#include <string>

#include "checkpoint/store.h"

namespace quintet::tools {

std::string list_checkpoints(const base::Path& path, bool json);
std::string show_checkpoint(const base::Path& path, bool tensors, bool json);
// UserError that names the file unless every byte is as saved.
std::string verify_checkpoint(const base::Path& path, bool json);
// Also removes those that are set aside.
std::string prune_checkpoints(const base::Path& path, const checkpoint::Retention& retention, bool dry_run);

}  // namespace quintet::tools
