// "What are you doing?" between ranks that may be stuck. A rank answers while it waits inside a call; one
// that computes does not answer, and that is an answer too. Has its own communicator; any thread may call.
#pragma once

#include <mpi.h>

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "comm/recorder.h"

namespace quintet::comm::mpi {

class Inquiry {
 public:
  // Collective over the world. The communicator is freed by close().
  explicit Inquiry(const Recorder& recorder);
  void close();

  // Answers what others have asked. Returns at once.
  void serve();
  // One line for each of the ranks, waiting about a second for those that are silent.
  std::string ask(const std::vector<base::RankId>& ranks);

 private:
  void serve_locked();

  const Recorder& recorder_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::mutex mutex_;
  std::deque<std::string> answers_;  // sent without waiting, so they stay where they are
};

}  // namespace quintet::comm::mpi
