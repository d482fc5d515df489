// How communication fails. Each message names the rank, the call, its sequence number and, as far as it can
// be known, what the other ranks were doing.
#pragma once

#include <stdexcept>

namespace quintet::comm {

class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Two members issued different calls at the same place of a communicator's sequence.
class MismatchError : public CommError {
 public:
  using CommError::CommError;
};

// A peer did not come within the timeout.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

// Another rank ended the job: a consequence, never the cause.
class AbortedError : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace quintet::comm
