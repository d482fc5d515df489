// `quintet bench step` and `quintet bench checkpoint`.
#pragma once

#include "cli/verbs.h"

namespace quintet::cli {

Verb add_bench_step(CLI::App& bench);
Verb add_bench_checkpoint(CLI::App& bench);

}  // namespace quintet::cli
