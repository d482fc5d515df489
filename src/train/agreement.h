// Checks that all ranks of a job run the same recipe and the programs that rank 0 has verified together.
#pragma once

#include <exception>

#include "comm/communicator.h"
#include "compiler/compile.h"
#include "config/recipe.h"

namespace quintet::train {

// Collective over the world; `mine` is what this rank compiled with these options. Rank 0 compiles and
// verifies one program per class of ranks (compiler::compile_classes) on `threads` threads and sends the
// hashes of the recipe and of every class; every rank compares its own two, 32 bytes. Where a rank differs,
// it and rank 0 bisect to the first line in which they do, and rank 0 throws a UserError that names the
// recipe's key or the program's instruction. Keys that belong to a host (run.threads) may differ.
void agree_on_program(const config::Recipe& recipe, const compiler::CompileOptions& options,
                      const compiler::Compiled& mine, comm::World& world, int threads);

// What the ranks compare: of the recipe, and of every class in the order of pipeline ranks. The latter is
// rank 0's part; `mine` is its own program, which represents the first class.
base::Hash recipe_hash(const config::Recipe& recipe);
std::vector<base::Hash> verified_classes(const config::Recipe& recipe,
                                         const compiler::CompileOptions& options,
                                         const compiler::Compiled& mine, int threads);
// What a rank receives in order to compare.
int64_t agreement_bytes(int64_t classes);

// Collective check that no rank failed. Otherwise the lowest failing rank throws, which ends the job; the
// others wait for that, so that one message is printed instead of one per rank.
void agree(comm::World& world, const std::exception_ptr& failure);

}  // namespace quintet::train
