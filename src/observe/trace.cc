#include "observe/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/output_path.h"

namespace quintet::observe {
namespace {

using Json = nlohmann::ordered_json;

// The unit of the format is microseconds.
double micros(int64_t ns) { return static_cast<double>(ns) / 1e3; }

Json name_event(const char* kind, int rank, int stream, const std::string& name) {
  return {{"ph", "M"}, {"name", kind}, {"pid", rank}, {"tid", stream}, {"args", {{"name", name}}}};
}

// As written by fragment(); of other traces, what is not communication counts as computation.
Category category_of(const std::string& word) {
  return word == to_string(Category::Communication) ? Category::Communication : Category::Compute;
}

}  // namespace

std::string_view to_string(Category category) {
  return category == Category::Communication ? "communication" : "compute";
}

RankTrace::RankTrace(int rank, std::string label) : rank_(rank), label_(std::move(label)) {
  if (label_.empty()) label_ = fmt::format("rank {}", rank);
}

int RankTrace::add_stream(std::string name, size_t expected) {
  streams_.push_back({std::move(name), {}});
  streams_.back().events.reserve(expected);
  return static_cast<int>(streams_.size()) - 1;
}

void RankTrace::add(int stream, std::string_view name, Category category, int64_t start_ns, int64_t dur_ns,
                    std::initializer_list<TraceArg> args) {
  QUINTET_CHECK(stream >= 0 && static_cast<size_t>(stream) < streams_.size(), "rank {} has no stream {}",
                rank_, stream);
  QUINTET_CHECK(args.size() <= kMaxArgs, "event '{1}' has {0} args; the limit is {2}", args.size(), name,
                kMaxArgs);
  QUINTET_CHECK(dur_ns >= 0, "event '{}' has a negative duration: {} ns", name, dur_ns);
  Event& event = streams_[static_cast<size_t>(stream)].events.emplace_back(
      Event{std::string(name), category, start_ns, dur_ns, {}, args.size()});
  std::copy(args.begin(), args.end(), event.args.begin());
}

int64_t RankTrace::first_ns() const {
  int64_t first = INT64_MAX;
  for (const Stream& stream : streams_)
    for (const Event& event : stream.events) first = std::min(first, event.start_ns);
  return first;
}

size_t RankTrace::events() const {
  size_t count = 0;
  for (const Stream& stream : streams_) count += stream.events.size();
  return count;
}

std::vector<TraceRecord> RankTrace::records() const {
  std::vector<TraceRecord> records;
  for (const Stream& stream : streams_)
    for (const Event& event : stream.events) {
      TraceRecord& r = records.emplace_back(TraceRecord{.rank = rank_,
                                                        .stream = stream.name,
                                                        .name = event.name,
                                                        .category = event.category,
                                                        .start_ns = event.start_ns,
                                                        .dur_ns = event.dur_ns,
                                                        .args = {}});
      for (size_t i = 0; i < event.arg_count; ++i)
        r.args[std::string(event.args[i].key)] = event.args[i].value;
    }
  return records;
}

std::string RankTrace::fragment(int64_t origin_ns) const {
  std::string out;
  const auto append = [&](const Json& event) {
    if (!out.empty()) out += ",\n";
    out += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  append(name_event("process_name", rank_, 0, label_));
  for (size_t tid = 0; tid < streams_.size(); ++tid)
    append(name_event("thread_name", rank_, static_cast<int>(tid), streams_[tid].name));
  for (size_t tid = 0; tid < streams_.size(); ++tid) {
    for (const Event& event : streams_[tid].events) {
      Json json = {{"ph", "X"},
                   {"name", event.name},
                   {"cat", to_string(event.category)},
                   {"pid", rank_},
                   {"tid", tid},
                   {"ts", micros(event.start_ns - origin_ns)},
                   {"dur", micros(event.dur_ns)}};
      for (size_t i = 0; i < event.arg_count; ++i)
        json["args"][std::string(event.args[i].key)] = event.args[i].value;
      append(json);
    }
  }
  return out;
}

// The list is written around the ranks' fragments, which may be too large to be one JSON value in memory.
void write_trace(const base::Path& path, std::span<const std::string> fragments) {
  base::AtomicFile file(path);
  file.write(
      fmt::format("{{\"otherData\":{{\"generator\":\"{}\"}},\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n",
                  base::kPageMark));
  bool first = true;
  for (const std::string& fragment : fragments) {
    if (fragment.empty()) continue;
    if (!first) file.write(std::string_view(",\n"));
    file.write(fragment);
    first = false;
  }
  file.write(std::string_view("\n]}\n"));
  file.commit();
}

void write_trace(const base::Path& path, std::span<const RankTrace> ranks) {
  int64_t origin = INT64_MAX;
  for (const RankTrace& rank : ranks) origin = std::min(origin, rank.first_ns());
  if (origin == INT64_MAX) origin = 0;
  std::vector<std::string> fragments;
  for (const RankTrace& rank : ranks) fragments.push_back(rank.fragment(origin));
  write_trace(path, fragments);
}

std::vector<TraceRecord> read_trace(const base::Path& path) {
  const std::string text = base::read_file(path);
  std::vector<TraceRecord> records;
  try {
    const auto json = nlohmann::json::parse(text);
    std::map<std::pair<int, int>, std::string> streams;
    for (const auto& event : json.at("traceEvents")) {
      const std::string kind = event.at("ph");
      const int pid = event.at("pid"), tid = event.at("tid");
      if (kind == "M" && event.at("name") == "thread_name") streams[{pid, tid}] = event.at("args").at("name");
      if (kind != "X") continue;
      // The double nearest to the decimal text is off by less than half a nanosecond.
      const auto nanos = [&](const char* key) { return std::llround(event.at(key).get<double>() * 1e3); };
      TraceRecord record{
          pid, streams[{pid, tid}], event.at("name"), category_of(event.at("cat")), nanos("ts"), nanos("dur"),
          {}};
      if (event.contains("args")) record.args = event.at("args").get<std::map<std::string, int64_t>>();
      records.push_back(std::move(record));
    }
  } catch (const nlohmann::json::exception& error) {
    base::fail_user("'{}' is not a Chrome trace: {}", path.string(), error.what());
  }
  return records;
}

}  // namespace quintet::observe
