// NVIDIA GPUs without the vendor's headers: memory, streams, events and graphs that free themselves, failures
// as exceptions. Everything here concerns the device that is current for the calling thread (use_device).
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

// Devices that this process can use. With none, `reason` says why: no driver, no card, a driver too old.
int device_count(std::string* reason = nullptr);
// Cards of this machine, also those that this process is not shown; 0 where the driver does not tell.
int64_t cards_of_machine();
void use_device(int index);
std::string device_name(int index);
struct DeviceFacts {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int units = 0;             // multiprocessors
  int64_t memory_bytes = 0;
};
// Takes nothing of the device, unlike memory_info.
DeviceFacts device_facts(int index);
// Memory of device `index`, which becomes current: what is free now, and all there is.
struct MemoryInfo {
  int64_t free = 0, total = 0;
};
MemoryInfo memory_info(int index);
void synchronize_device();

// Device memory, aligned to 256 bytes and zero. UserError when there is not so much.
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

// Page-locked host memory, which copies run from and to beside everything else. Zero.
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
  // Nanoseconds from `earlier` to this one; both timed and done.
  int64_t since_ns(const Event& earlier) const;

 private:
  ::CUevent_st* handle_ = nullptr;
};

// What happened to a run of launches that was recorded instead of run; launched as a whole.
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

// A stream of its own: it does not wait for the default stream.
class Stream {
 public:
  Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;
  ~Stream();
  StreamHandle handle() const { return handle_; }
  void record(const Event& event) const;
  void wait(const Event& event) const;
  void synchronize() const;
  // Between any two kinds of memory; host memory must be pinned for the call to return at once.
  void copy(void* to, const void* from, int64_t bytes) const;
  void fill(void* to, unsigned char value, int64_t bytes) const;

  // Launches of this thread on this stream, and on streams that wait for it, are recorded until
  // end_capture(). By then all of them must have been waited for by this stream again.
  void begin_capture() const;
  Graph end_capture() const;
  // Gives up a capture that failed half way; nothing happens when there is none.
  void drop_capture() const noexcept;

 private:
  StreamHandle handle_ = nullptr;
};

// Copies that return when they are done.
void copy(void* to, const void* from, int64_t bytes);

}  // namespace quintet::device::cuda
