// Shared by the NCCL tests: device memory, values that every rank can compute for every other, and a wait.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/device_communicator.h"

namespace quintet::comm::testing {

using Bytes = std::vector<uint8_t>;

inline constexpr base::DType kTypes[] = {base::DType::F64, base::DType::F32, base::DType::BF16,
                                         base::DType::F16, base::DType::I64, base::DType::I32,
                                         base::DType::U8};

void require(cudaError_t status);
void expect(bool condition, const std::string& what);  // throws std::runtime_error

// `count` elements that depend on all arguments. Floats are small and have no negative zero; integers use all
// their bits, so that sums wrap.
Bytes values(base::DType dtype, int rank, int64_t count, uint64_t seed);
std::vector<double> decode(base::DType dtype, const Bytes& bytes);
bool is_float(base::DType dtype);
double unit_roundoff(base::DType dtype);

// A copy of host bytes on the device.
class DeviceBytes {
 public:
  explicit DeviceBytes(const Bytes& from);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void set(const Bytes& from);
  Bytes get() const;
  uint8_t* data() const { return data_; }
  uint8_t* at(int64_t element, base::DType dtype) const { return data_ + element * base::size_of(dtype); }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class Stream {
 public:
  Stream() { require(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

bool finished(cudaStream_t stream);  // everything enqueued so far is done
void wait(cudaStream_t stream, const DeviceCommunicators& communicators, World& world);

// The GPU of a rank: its index modulo the number of GPUs.
int device_of(const World& world);

// The modes of the program, each collective over the world.
void check_collectives(World& world);
void check_groups(World& world);   // creation in one order, several times, all kinds of groups
void check_grouped(World& world);  // GroupedCalls over communicators and streams
void check_graph(World& world);    // replays equal plain calls
void check_alone(World& world);    // a group of one
void fail_to_join(World& world);
void fail_at_first_call(World& world);
void fail_at_later_call(World& world);
void fail_in_graph(World& world);
void abort_a_call(World& world);
void unwind(World& world);
void fail_to_agree(World& world);
void lose_a_peer(World& world);

}  // namespace quintet::comm::testing
