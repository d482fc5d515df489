// NVIDIA GPUs without the vendor's headers: RAII for memory, streams, events and graphs, failures as
// exceptions. Everything here applies to the calling thread's current device (use_device).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct CUstream_st;
struct CUevent_st;
struct CUgraphExec_st;

namespace quintet::device::cuda {

using StreamHandle = ::CUstream_st*;

// Devices available to this process. If there are none, `reason` says why: no driver, no GPU, an old driver.
int device_count(std::string* reason = nullptr);
// GPUs in this machine, including those hidden from this process; 0 if the driver does not report it.
int64_t machine_gpu_count();
void use_device(int index);
std::string device_name(int index);
struct DeviceFacts {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int units = 0;             // multiprocessors
  int64_t memory_bytes = 0;
};
// Allocates nothing on the device, unlike memory_info.
DeviceFacts device_facts(int index);
// Memory of device `index`, which becomes current: free and total bytes.
struct MemoryInfo {
  int64_t free = 0, total = 0;
};
MemoryInfo memory_info(int index);
void synchronize_device();

// Device memory, zeroed and aligned to 256 bytes. Throws UserError if there is not enough.
class Memory {
 public:
  Memory() = default;
  explicit Memory(int64_t bytes);
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  ~Memory();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// Page-locked host memory, for asynchronous copies. Zeroed.
class Pinned {
 public:
  Pinned() = default;
  explicit Pinned(int64_t bytes);
  Pinned(Pinned&& other) noexcept;
  Pinned& operator=(Pinned&& other) noexcept;
  ~Pinned();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

class Event {
 public:
  explicit Event(bool timed = false);
  Event(Event&& other) noexcept;
  Event& operator=(Event&&) = delete;
  ~Event();
  ::CUevent_st* handle() const { return handle_; }
  void synchronize() const;
  bool done() const;
  // Nanoseconds from `earlier` to this event; both must be timed and complete.
  int64_t since_ns(const Event& earlier) const;

 private:
  ::CUevent_st* handle_ = nullptr;
};

// A sequence of launches that was captured instead of run; launched as a whole.
class Graph {
 public:
  Graph() = default;
  explicit Graph(::CUgraphExec_st* handle) : handle_(handle) {}
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  explicit operator bool() const { return handle_ != nullptr; }
  void launch(StreamHandle stream) const;

 private:
  ::CUgraphExec_st* handle_ = nullptr;
};

// A non-blocking stream: it does not synchronize with the default stream.
class Stream {
 public:
  Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  StreamHandle handle() const { return handle_; }
  void record(const Event& event) const;
  void wait(const Event& event) const;
  // The same for an event that is recorded outside: a graph that is being captured waits for the event as it
  // is when the graph is launched.
  void wait_outside(const Event& event) const;
  void synchronize() const;
  // Between any two kinds of memory; asynchronous only if host memory is pinned.
  void copy(void* to, const void* from, int64_t bytes) const;
  void fill(void* to, unsigned char value, int64_t bytes) const;

  // Captures this thread's launches on this stream, and on streams that wait for it, until end_capture(). By
  // then this stream must have waited for all of them.
  void begin_capture() const;
  Graph end_capture() const;
  // Abandons a capture that failed midway; no-op if there is none.
  void drop_capture() const noexcept;

 private:
  StreamHandle handle_ = nullptr;
};

// Synchronous copies.
void copy(void* to, const void* from, int64_t bytes);

}  // namespace quintet::device::cuda
