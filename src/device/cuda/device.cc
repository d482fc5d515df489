#include "device/cuda/device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "device/cuda/check.h"
#include "device/cuda/overlap.h"

namespace quintet::device::cuda {

int device_count(std::string* reason) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    count = 0;
    int driver = 0;  // CUDA reports a missing driver as one that is too old
    const bool none = cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0;
    if (reason != nullptr) *reason = none ? "no NVIDIA driver is installed" : cudaGetErrorString(status);
  } else if (count == 0 && reason != nullptr) {
    *reason = "the driver found no device";
  }
  return count;
}

int64_t machine_gpu_count() {
  std::error_code none;
  int64_t gpus = 0;
  for (std::filesystem::directory_iterator at("/proc/driver/nvidia/gpus", none), end; at != end;
       at.increment(none))
    ++gpus;
  return gpus;
}

void use_device(int index) { check(cudaSetDevice(index), "cudaSetDevice"); }

DeviceFacts device_facts(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return {properties.name, properties.major, properties.minor, properties.multiProcessorCount,
          static_cast<int64_t>(properties.totalGlobalMem)};
}

std::string device_name(int index) { return device_facts(index).name; }

MemoryInfo memory_info(int index) {
  use_device(index);
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

void synchronize_device() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

Memory::Memory(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* raw = nullptr;
  const cudaError_t status = cudaMalloc(&raw, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    base::fail_user(
        "cannot allocate {} on the GPU: {} of its {} are free; use a smaller batch.micro, "
        "memory.recompute = \"full\", or shard over more ranks",
        base::human_bytes(bytes), base::human_bytes(static_cast<int64_t>(free)),
        base::human_bytes(static_cast<int64_t>(total)));
  }
  check(status, "cudaMalloc");
  data_ = static_cast<std::byte*>(raw);
  check(cudaMemset(raw, 0, static_cast<size_t>(bytes)), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaMemset");
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr) cudaFree(data_);
}

Pinned::Pinned(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* raw = nullptr;
  check(cudaHostAlloc(&raw, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc");
  data_ = static_cast<std::byte*>(raw);
  std::fill_n(data_, bytes, std::byte{0});
}

Pinned::Pinned(Pinned&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Pinned& Pinned::operator=(Pinned&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Pinned::~Pinned() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Event::Event(bool timed) {
  check(cudaEventCreateWithFlags(&handle_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate");
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event::~Event() {
  if (handle_ != nullptr) cudaEventDestroy(handle_);
}

void Event::synchronize() const { check(cudaEventSynchronize(handle_), "a step on the GPU"); }

bool Event::done() const {
  const cudaError_t status = cudaEventQuery(handle_);
  if (status == cudaErrorNotReady) return cudaGetLastError(), false;
  check(status, "a step on the GPU");
  return true;
}

int64_t Event::since_ns(const Event& earlier) const {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.handle_, handle_), "cudaEventElapsedTime");
  return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
}

Graph::Graph(Graph&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Graph& Graph::operator=(Graph&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Graph::~Graph() {
  if (handle_ != nullptr) cudaGraphExecDestroy(handle_);
}

void Graph::launch(StreamHandle stream) const { check(cudaGraphLaunch(handle_, stream), "cudaGraphLaunch"); }

Stream::Stream() { check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreate"); }

Stream::Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Stream::~Stream() {
  if (handle_ != nullptr) cudaStreamDestroy(handle_);
}

void Stream::record(const Event& event) const {
  check(cudaEventRecord(event.handle(), handle_), "cudaEventRecord");
}

void Stream::wait(const Event& event) const {
  check(cudaStreamWaitEvent(handle_, event.handle(), 0), "cudaStreamWaitEvent");
}

void Stream::wait_outside(const Event& event) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(handle_, &status), "cudaStreamIsCapturing");
  const unsigned flags =
      status == cudaStreamCaptureStatusActive ? cudaEventWaitExternal : cudaEventWaitDefault;
  check(cudaStreamWaitEvent(handle_, event.handle(), flags), "cudaStreamWaitEvent");
}

void Stream::synchronize() const { check(cudaStreamSynchronize(handle_), "work on the GPU"); }

void Stream::copy(void* to, const void* from, int64_t bytes) const {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, handle_), "cudaMemcpyAsync");
}

void Stream::fill(void* to, unsigned char value, int64_t bytes) const {
  if (bytes == 0) return;
  check(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), handle_), "cudaMemsetAsync");
}

void Stream::begin_capture() const {
  check(cudaStreamBeginCapture(handle_, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
}

Graph Stream::end_capture() const {
  cudaGraph_t recorded = nullptr;
  check(cudaStreamEndCapture(handle_, &recorded), "cudaStreamEndCapture");
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> graph(recorded, cudaGraphDestroy);
  overlap_launches(graph.get());
  cudaGraphExec_t exec = nullptr;
  check(cudaGraphInstantiate(&exec, graph.get(), 0), "cudaGraphInstantiate");
  return Graph(exec);
}

void Stream::drop_capture() const noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(handle_, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(handle_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  cudaGetLastError();
}

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpy(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault), "cudaMemcpy");
}

}  // namespace quintet::device::cuda
