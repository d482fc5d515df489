// The training loop of one rank, as run.cc starts it in threads or processes.
#pragma once

#include <stdexcept>

#include "comm/communicator.h"
#include "train/loop.h"
#include "train/resume.h"
#include "train/run_data.h"
#include "train/run_header.h"

namespace quintet::train {

// What all ranks of this process share, prepared before any rank exists.
struct Prepared {
  config::Recipe recipe;
  Start start;
  RunData data;
  DataIdentity identity;
  std::optional<compiler::Fit> fit;
  int64_t begin_ns = 0;  // of the run
};

// An error that would be a user's before the first step: something has been written since.
class FailedRun : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

RunResult train_rank(const Prepared& prepared, const RunOptions& options, comm::World& world,
                     const HeaderFacts& facts, int64_t local_rank, int64_t ranks_here);

}  // namespace quintet::train
