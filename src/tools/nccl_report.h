// `quintet doctor --nccl`: NCCL's variables as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "config/nccl_variables.h"

namespace quintet::tools {

// `file` is where they were read; empty: the environment.
std::string nccl_text(const std::vector<config::NcclVariable>& list, const std::string& file);
std::string nccl_json(const std::vector<config::NcclVariable>& list);

}  // namespace quintet::tools
