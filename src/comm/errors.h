// Communication failures. Each message names the rank, the call, its sequence number and, as far as known,
// what the other ranks were doing.
#pragma once

#include <stdexcept>

namespace quintet::comm {

class CommError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Two members issued different calls at the same position of a communicator's sequence.
class MismatchError : public CommError {
 public:
  using CommError::CommError;
};

// A peer did not arrive within the timeout.
class TimeoutError : public CommError {
 public:
  using CommError::CommError;
};

// Another rank ended the job: always a consequence, never the cause.
class AbortedError : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace quintet::comm
