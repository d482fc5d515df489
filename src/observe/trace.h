// The trace format of both the executor and the simulator: Chrome trace JSON (chrome://tracing, Perfetto). A
// process is a rank, a thread is a stream, and each operation is a complete event.
//
// Events are kept in memory and written once. In a multi-process run each rank renders a fragment; one
// process gathers the fragments and writes the file.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace quintet::observe {

// Keys must outlive the trace (string literals): "bytes", "block", "micro_batch", "step", "flops".
struct TraceArg {
  std::string_view key;
  int64_t value = 0;
};

// What an event spends its time on; viewers colour and filter by it.
enum class Category : uint8_t { Compute, Communication };
std::string_view to_string(Category category);

// An event as read from a trace, for tools and tests.
struct TraceRecord {
  int rank = 0;
  std::string stream, name;
  Category category = Category::Compute;
  int64_t start_ns = 0, dur_ns = 0;
  std::map<std::string, int64_t> args;
};

class RankTrace {
 public:
  explicit RankTrace(int rank,
                     std::string label = {});  // such as "rank 3 (dp 1, tp 1)"; "rank <n>" when empty

  // Registers a stream and reserves space for `expected` events. Add all streams before the first event.
  int add_stream(std::string name, size_t expected = 1024);

  // Different streams may record concurrently from different threads; a single stream may not. At most
  // kMaxArgs args.
  static constexpr size_t kMaxArgs = 6;
  void add(int stream, std::string_view name, Category category, int64_t start_ns, int64_t dur_ns,
           std::initializer_list<TraceArg> args = {});

  int rank() const { return rank_; }
  std::vector<TraceRecord> records() const;  // by stream, in recording order
  int64_t first_ns() const;                  // earliest start; INT64_MAX when there are no events
  size_t events() const;

  // The events as comma-separated JSON objects, with times relative to `origin_ns`.
  std::string fragment(int64_t origin_ns) const;

 private:
  struct Event {
    std::string name;
    Category category;
    int64_t start_ns, dur_ns;
    std::array<TraceArg, kMaxArgs> args;
    size_t arg_count;
  };
  struct Stream {
    std::string name;
    std::vector<Event> events;
  };
  int rank_;
  std::string label_;
  std::vector<Stream> streams_;
};

// Writes the file atomically from the fragments of all ranks; empty fragments are allowed.
void write_trace(const base::Path& path, std::span<const std::string> fragments);
// The same for ranks of one process; time 0 is the earliest event of all ranks.
void write_trace(const base::Path& path, std::span<const RankTrace> ranks);

// Reads a trace file in file order: by rank, by stream, in recording order.
std::vector<TraceRecord> read_trace(const base::Path& path);

}  // namespace quintet::observe
