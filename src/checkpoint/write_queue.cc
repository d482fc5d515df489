#include "checkpoint/write_queue.h"

#include <utility>

namespace quintet::checkpoint {

WriteQueue::WriteQueue(Write write) : write_(std::move(write)), thread_([this] { run(); }) {}

WriteQueue::~WriteQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WriteQueue::push(int64_t position, std::span<const std::byte> bytes) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) std::rethrow_exception(failure_);
    blocks_.push_back({position, bytes});
  }
  ++pushed_;
  changed_.notify_all();
}

void WriteQueue::wait(int64_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return written_ >= count || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void WriteQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return !blocks_.empty() || stop_; });
    if (stop_) return;
    const Block block = blocks_.front();
    blocks_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      write_(block.position, block.bytes);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) {
      failure_ = failure;
      changed_.notify_all();
      return;
    }
    ++written_;
    changed_.notify_all();
  }
}

}  // namespace quintet::checkpoint
