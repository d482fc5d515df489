// The primitive operations that make up a call.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "comm/communicator.h"

namespace quintet::comm::nccl {

struct Operation {
  enum class Kind : uint8_t { Copy, AllReduce, AllGather, ReduceScatter, Broadcast, Send, Recv };
  Kind kind = Kind::Copy;
  const void* from = nullptr;
  void* to = nullptr;
  int64_t count = 0;  // elements, as NCCL counts them for this kind
  base::DType dtype = base::DType::U8;
  ReduceOp op = ReduceOp::Sum;
  int peer = -1;  // root of a broadcast, peer of a send or recv
};

// Enqueues anything except a Copy.
ncclResult_t enqueue(const Operation& operation, ncclComm_t comm, cudaStream_t stream);
// Enqueues a Copy, unless source and target are the same.
void enqueue_copy(const Operation& operation, cudaStream_t stream);

// The sends, the receives and the copy of the own piece that make up an exchange with even or uneven pieces.
std::vector<Operation> even_exchange(const void* send, void* recv, int64_t count_per_rank, base::DType dtype,
                                     int rank, int size);
std::vector<Operation> uneven_exchange(const Exchange& exchange, base::DType dtype, int rank, int size);

}  // namespace quintet::comm::nccl
