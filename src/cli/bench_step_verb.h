// `quintet bench step`, `quintet bench checkpoint`, `quintet bench comm` and `quintet bench generate`.
#pragma once

#include "cli/verbs.h"

namespace quintet::cli {

Verb add_bench_step(CLI::App& bench);
Verb add_bench_checkpoint(CLI::App& bench);
Verb add_bench_comm(CLI::App& bench);
Verb add_bench_generate(CLI::App& bench);

}  // namespace quintet::cli
