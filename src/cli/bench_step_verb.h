// `quintet bench step`.
#pragma once

#include "cli/verbs.h"

namespace quintet::cli {

Verb add_bench_step(CLI::App& bench);

}  // namespace quintet::cli
