#include "base/clock.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

namespace quintet::base {

int64_t now_ns() {
  using std::chrono::nanoseconds;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// In /proc/self/stat, field 22 is the start time in ticks since boot. Fields are counted after the program
// name, field 2, which is in parentheses and may contain anything.
int64_t process_age_ns() {
  std::ifstream file("/proc/self/stat");
  std::string line, word;
  std::getline(file, line);
  std::istringstream words(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  for (int i = 3; i <= 22; ++i) words >> word;
  timespec now{};
  const int64_t ticks = sysconf(_SC_CLK_TCK);
  if (!words || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  const int64_t start = std::stoll(word) * (1'000'000'000 / ticks);
  return std::max<int64_t>(0, now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec - start);
}

int64_t wall_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace quintet::base
