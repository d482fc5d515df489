#include "comm/nccl/operation.h"

#include "base/error.h"
#include "comm/nccl/failure.h"

namespace quintet::comm::nccl {
namespace {

using base::DType;
using Kind = Operation::Kind;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return ncclFloat64;
    case DType::F32:
      return ncclFloat32;
    case DType::BF16:
      return ncclBfloat16;
    case DType::F16:
      return ncclFloat16;
    case DType::I64:
      return ncclInt64;
    case DType::I32:
      return ncclInt32;
    case DType::U8:
    case DType::E4M3:  // moved, never reduced
    case DType::E5M2:
      return ncclUint8;
    case DType::I16:
      break;
  }
  base::fail_internal("NCCL has no type for {}", base::to_string(dtype));
}

const char* at(const void* base, int64_t bytes) { return static_cast<const char*>(base) + bytes; }
char* at(void* base, int64_t bytes) { return static_cast<char*>(base) + bytes; }

}  // namespace

ncclResult_t enqueue(const Operation& o, ncclComm_t comm, cudaStream_t stream) {
  const ncclDataType_t type = type_of(o.dtype);
  const ncclRedOp_t op = o.op == ReduceOp::Sum ? ncclSum : ncclMax;
  const auto count = static_cast<size_t>(o.count);
  switch (o.kind) {
    case Kind::AllReduce:
      return ncclAllReduce(o.from, o.to, count, type, op, comm, stream);
    case Kind::AllGather:
      return ncclAllGather(o.from, o.to, count, type, comm, stream);
    case Kind::ReduceScatter:
      return ncclReduceScatter(o.from, o.to, count, type, op, comm, stream);
    case Kind::Broadcast:
      return ncclBroadcast(o.from, o.to, count, type, o.peer, comm, stream);
    case Kind::Send:
      return ncclSend(o.from, count, type, o.peer, comm, stream);
    case Kind::Recv:
      return ncclRecv(o.to, count, type, o.peer, comm, stream);
    case Kind::Copy:
      break;
  }
  return ncclInternalError;
}

void enqueue_copy(const Operation& o, cudaStream_t stream) {
  if (o.from == o.to || o.count == 0) return;
  require(cudaMemcpyAsync(o.to, o.from, static_cast<size_t>(o.count * size_of(o.dtype)),
                          cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
}

std::vector<Operation> even_exchange(const void* send, void* recv, int64_t count_per_rank, DType dtype,
                                     int rank, int size) {
  std::vector<Operation> operations;
  operations.reserve(static_cast<size_t>(2 * size));
  const int64_t piece = count_per_rank * size_of(dtype);
  operations.push_back({.kind = Kind::Copy,
                        .from = at(send, rank * piece),
                        .to = at(recv, rank * piece),
                        .count = count_per_rank,
                        .dtype = dtype});
  for (int k = 1; k < size; ++k) {
    const int to = (rank + k) % size, from = (rank - k + size) % size;
    operations.push_back({.kind = Kind::Send,
                          .from = at(send, to * piece),
                          .count = count_per_rank,
                          .dtype = dtype,
                          .peer = to});
    operations.push_back({.kind = Kind::Recv,
                          .to = at(recv, from * piece),
                          .count = count_per_rank,
                          .dtype = dtype,
                          .peer = from});
  }
  return operations;
}

std::vector<Operation> uneven_exchange(const Exchange& x, DType dtype, int rank, int size) {
  std::vector<Operation> operations;
  operations.reserve(static_cast<size_t>(2 * size));
  const int64_t width = size_of(dtype);
  const auto source = [&](size_t j) { return at(x.send, x.send_offsets[j] * width); };
  const auto target = [&](size_t j) { return at(x.recv, x.recv_offsets[j] * width); };
  const auto me = static_cast<size_t>(rank);
  if (x.send_counts[me] > 0)
    operations.push_back({.kind = Kind::Copy,
                          .from = source(me),
                          .to = target(me),
                          .count = x.send_counts[me],
                          .dtype = dtype});
  // Empty pieces are skipped on both sides: the counts agree pair by pair.
  for (int k = 1; k < size; ++k) {
    const int to = (rank + k) % size, from = (rank - k + size) % size;
    const auto t = static_cast<size_t>(to), f = static_cast<size_t>(from);
    if (x.send_counts[t] > 0)
      operations.push_back(
          {.kind = Kind::Send, .from = source(t), .count = x.send_counts[t], .dtype = dtype, .peer = to});
    if (x.recv_counts[f] > 0)
      operations.push_back(
          {.kind = Kind::Recv, .to = target(f), .count = x.recv_counts[f], .dtype = dtype, .peer = from});
  }
  return operations;
}

}  // namespace quintet::comm::nccl
