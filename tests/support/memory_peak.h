// Memory that a process makes resident at its peak, measured in a process of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace quintet::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kMeasuresMemory = false;  // they keep memory that was freed
#else
inline constexpr bool kMeasuresMemory = true;
#endif

// A line of /proc/self/status, in bytes.
inline int64_t status_bytes(const char* key) {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[256];
  int64_t kib = -1;
  while (file != nullptr && std::fgets(line, sizeof(line), file) != nullptr)
    if (std::strncmp(line, key, std::strlen(key)) == 0) kib = std::atoll(line + std::strlen(key) + 1);
  if (file != nullptr) std::fclose(file);
  return kib * 1024;
}

class PeakMeter {
 public:
  // What is resident from here on counts.
  void begin() {
    ::malloc_trim(0);  // what is free is not resident
    const int refs = ::open("/proc/self/clear_refs", O_WRONLY);
    is_reset_ = refs >= 0 && ::write(refs, "5", 1) == 1;  // VmHWM becomes VmRSS
    before_ = status_bytes("VmRSS");
  }
  // Bytes at the peak beside those at begin(); -1: the system does not say.
  int64_t peak() const { return is_reset_ ? status_bytes("VmHWM") - before_ : -1; }

 private:
  bool is_reset_ = false;
  int64_t before_ = 0;
};

// Runs `work` in a child process. It may call begin() after its preparations.
inline int64_t peak_of(const std::function<void(PeakMeter&)>& work) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    PeakMeter meter;
    meter.begin();
    int64_t peak = -1;
    try {
      work(meter);
      peak = meter.peak();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    ::_exit(::write(ends[1], &peak, sizeof(peak)) == sizeof(peak) ? 0 : 1);
  }
  ::close(ends[1]);
  int64_t peak = -1;
  EXPECT_EQ(::read(ends[0], &peak, sizeof(peak)), static_cast<ssize_t>(sizeof(peak)));
  ::close(ends[0]);
  int state = 0;
  ::waitpid(child, &state, 0);
  EXPECT_EQ(state, 0);
  return peak;
}

}  // namespace quintet::test
