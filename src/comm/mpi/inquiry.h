// Status queries between ranks that may be stuck. A rank answers while it waits inside a call; one that
// computes does not answer, which is informative too. Has its own communicator; any thread may call.
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
  // Collective over the world. close() frees the communicator.
  explicit Inquiry(const Recorder& recorder);
  void close();

  // Answers pending queries. Returns at once.
  void serve();
  // One line per rank, waiting about a second for those that do not answer.
  std::string ask(const std::vector<base::RankId>& ranks);

 private:
  void serve_locked();

  const Recorder& recorder_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::mutex mutex_;
  std::deque<std::string> answers_;  // sent asynchronously, so their addresses must not change
};

}  // namespace quintet::comm::mpi
