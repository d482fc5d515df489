#include "train/loop_trace.h"

#include <charconv>
#include <limits>

#include "base/error.h"
#include "train/gather_texts.h"

namespace quintet::train {

namespace {

constexpr std::string_view kPrefix = "steps=";

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

}  // namespace

TraceRange parse_trace_range(std::string_view text) {
  if (text.starts_with(kPrefix)) {
    const std::string_view range = text.substr(kPrefix.size());
    const size_t dash = range.find('-');
    const auto first = parse_count(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_count(range.substr(dash + 1));
    if (first && last && *first <= *last) return {*first, *last};
  }
  base::fail_user("--trace '{}' is invalid: expected steps=FIRST-LAST with 1-based steps, such as steps=5-6",
                  text);
}

observe::RankTrace make_trace(const Rank& rank, base::RankId id, int64_t steps) {
  const program::Program& program = rank.compiled().program;
  std::vector<int64_t> events(program.streams.size());
  for (const program::Issue& issue : rank.compiled().step.issues)
    ++events[program::instr_of(program, issue).stream.index()];
  observe::RankTrace trace(id.value);
  for (size_t s = 0; s < program.streams.size(); ++s)
    trace.add_stream(program.streams[s].name, static_cast<size_t>(events[s] * steps));
  return trace;
}

void write_gathered_trace(const observe::RankTrace& trace, comm::World& world, const base::Path& path) {
  comm::Communicator& comm = world.world();
  int64_t origin = trace.events() > 0 ? -trace.first_ns() : std::numeric_limits<int64_t>::min();
  comm.all_reduce(&origin, 1, base::DType::I64, comm::ReduceOp::Max);
  const std::vector<std::string> fragments = gather_texts(world, trace.fragment(-origin));
  if (world.rank().value == 0) observe::write_trace(path, fragments);
}

}  // namespace quintet::train
