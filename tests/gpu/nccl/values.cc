#include "gpu/nccl/values.h"

#include <cuda_fp16.h>

#include <cmath>
#include <cstring>
#include <stdexcept>

namespace quintet::comm::testing {
namespace {

using base::DType;

uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

template <class T>
void put(Bytes& to, int64_t i, T value) {
  std::memcpy(to.data() + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T>
T take(const Bytes& from, int64_t i) {
  T value{};
  std::memcpy(&value, from.data() + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

void require(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error("not as expected: " + what);
}

Bytes values(DType dtype, int rank, int64_t count, uint64_t seed) {
  Bytes bytes(static_cast<size_t>(count * base::size_of(dtype)));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t h = mix(mix(seed * 64 + static_cast<uint64_t>(rank)) + static_cast<uint64_t>(i));
    const double x = (static_cast<double>(h % 2001) - 1000.0) / 64.0;
    switch (dtype) {
      case DType::F64:
        put(bytes, i, x / 3 + 0.0);
        break;
      case DType::F32:
        put(bytes, i, static_cast<float>(x / 3 + 0.0));
        break;
      case DType::BF16:
        put(bytes, i, base::Bf16(static_cast<float>(x)));
        break;
      case DType::F16:
        put(bytes, i, __float2half(static_cast<float>(x)));
        break;
      case DType::I64:
        put(bytes, i, h);
        break;
      case DType::I32:
        put(bytes, i, static_cast<uint32_t>(h));
        break;
      case DType::I16:
        put(bytes, i, static_cast<uint16_t>(h));
        break;
      case DType::U8:
        put(bytes, i, static_cast<uint8_t>(h));
        break;
    }
  }
  return bytes;
}

std::vector<double> decode(DType dtype, const Bytes& bytes) {
  std::vector<double> out(bytes.size() / static_cast<size_t>(base::size_of(dtype)));
  for (size_t k = 0; k < out.size(); ++k) {
    const auto i = static_cast<int64_t>(k);
    switch (dtype) {
      case DType::F64:
        out[k] = take<double>(bytes, i);
        break;
      case DType::F32:
        out[k] = take<float>(bytes, i);
        break;
      case DType::BF16:
        out[k] = static_cast<float>(take<base::Bf16>(bytes, i));
        break;
      case DType::F16:
        out[k] = __half2float(take<__half>(bytes, i));
        break;
      default:
        throw std::runtime_error("decode is for floats");
    }
  }
  return out;
}

bool is_float(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return std::ldexp(1.0, -53);
    case DType::F32:
      return std::ldexp(1.0, -24);
    case DType::F16:
      return std::ldexp(1.0, -11);
    case DType::BF16:
      return std::ldexp(1.0, -8);
    default:
      return 0;
  }
}

DeviceBytes::DeviceBytes(const Bytes& from) : size_(from.size()) {
  void* raw = nullptr;
  require(cudaMalloc(&raw, size_ + 1));
  data_ = static_cast<uint8_t*>(raw);
  set(from);
}

DeviceBytes::~DeviceBytes() { cudaFree(data_); }

void DeviceBytes::set(const Bytes& from) {
  expect(from.size() == size_, "the size of a copy");
  require(cudaMemcpy(data_, from.data(), size_, cudaMemcpyHostToDevice));
  // The copy uses the legacy stream, which the tests' own streams do not wait for.
  require(cudaDeviceSynchronize());
}

Bytes DeviceBytes::get() const {
  Bytes host(size_);
  require(cudaMemcpy(host.data(), data_, size_, cudaMemcpyDeviceToHost));
  return host;
}

bool finished(cudaStream_t stream) {
  const cudaError_t status = cudaStreamQuery(stream);
  if (status == cudaErrorNotReady) return false;
  require(status);
  return true;
}

void wait(cudaStream_t stream, const DeviceCommunicators& communicators, World& world) {
  wait_for_device([&] { return finished(stream); }, communicators, world);
}

int device_of(const World& world) {
  int count = 0;
  require(cudaGetDeviceCount(&count));
  const int device = world.rank().value % count;
  require(cudaSetDevice(device));
  return device;
}

}  // namespace quintet::comm::testing
