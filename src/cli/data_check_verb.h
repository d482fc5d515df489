// `quintet data check`.
#pragma once

#include "cli/verbs.h"

namespace quintet::cli {

Verb add_data_check(CLI::App& data);

}  // namespace quintet::cli
