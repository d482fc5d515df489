// Blocks of a file that a thread writes in order, so that the disk works while the next ones are prepared.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>

namespace quintet::checkpoint {

class WriteQueue {
 public:
  using Write = std::function<void(int64_t position, std::span<const std::byte> bytes)>;
  explicit WriteQueue(Write write);
  ~WriteQueue();  // after the write in progress; those that have not begun are dropped
  WriteQueue(const WriteQueue&) = delete;
  WriteQueue& operator=(const WriteQueue&) = delete;

  // The bytes must stay as they are until they are written.
  void push(int64_t position, std::span<const std::byte> bytes);
  int64_t pushed() const { return pushed_; }
  // Returns when the first `count` blocks are written, and throws what a write threw.
  void wait(int64_t count);

 private:
  struct Block {
    int64_t position;
    std::span<const std::byte> bytes;
  };
  void run();

  const Write write_;
  int64_t pushed_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Block> blocks_;
  int64_t written_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace quintet::checkpoint
