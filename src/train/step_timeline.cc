#include "train/step_timeline.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/json.h"
#include "train/gather_texts.h"

namespace quintet::train {
namespace {

// Gaps below this fraction of the step are not visible on a page.
constexpr int64_t kResolution = 1000;

struct Part {
  int64_t start, end;
  std::string what;
  int64_t micro;
};

std::string phase_of(const observe::TraceRecord& r, const program::Program& program) {
  if (r.category == observe::Category::Communication) return r.name;
  const auto body = r.args.find("body");
  if (body == r.args.end() || body->second < 0 || static_cast<size_t>(body->second) >= program.bodies.size())
    return r.name;
  return std::string(to_string(program.bodies[static_cast<size_t>(body->second)].kind));
}

bool is_shown(base::RankId rank, const layout::Layout& layout) {
  if (layout.mesh.world() <= kMaxTimelines) return true;
  return layout.mesh.is_first(rank, layout::without(layout.everything(), layout.pipeline));
}

}  // namespace

std::string timeline_json(const observe::RankTrace& trace, const program::Program& program, int64_t step,
                          int64_t origin_ns) {
  std::vector<observe::TraceRecord> records = trace.records();
  std::erase_if(records, [&](const observe::TraceRecord& r) {
    const auto at = r.args.find("step");
    return at == r.args.end() || at->second != step;
  });
  if (records.empty()) return {};
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  for (const observe::TraceRecord& r : records)
    begin = std::min(begin, r.start_ns), end = std::max(end, r.start_ns + r.dur_ns);
  const int64_t gap = (end - begin) / kResolution;

  nlohmann::ordered_json streams = nlohmann::ordered_json::array();
  for (const program::Stream& stream : program.streams) {
    std::vector<Part> parts;
    for (const observe::TraceRecord& r : records) {
      if (r.stream != stream.name) continue;
      const std::string what = phase_of(r, program);
      const int64_t micro = r.args.contains("micro_batch") ? r.args.at("micro_batch") : -1;
      const int64_t to = r.start_ns + r.dur_ns;
      if (!parts.empty() && parts.back().what == what && parts.back().micro == micro &&
          r.start_ns - parts.back().end <= gap)
        parts.back().end = std::max(parts.back().end, to);
      else
        parts.push_back({r.start_ns, to, what, micro});
    }
    nlohmann::ordered_json spans = nlohmann::ordered_json::array();
    for (const Part& p : parts) spans.push_back({p.start - begin, p.end - p.start, p.what, p.micro});
    streams.push_back({{"name", stream.name}, {"spans", std::move(spans)}});
  }
  return base::json_text(nlohmann::ordered_json{
      {"rank", trace.rank()}, {"begin_ns", begin - origin_ns}, {"streams", std::move(streams)}});
}

void write_timeline(const observe::RankTrace& trace, const Rank& rank, int64_t step, comm::World& world,
                    const base::Path& path) {
  int64_t origin = trace.events() > 0 ? -trace.first_ns() : std::numeric_limits<int64_t>::min();
  world.world().all_reduce(&origin, 1, base::DType::I64, comm::ReduceOp::Max);
  const compiler::Compiled& compiled = rank.compiled();
  const bool shown = trace.events() > 0 && is_shown(world.rank(), compiled.layout);
  const std::vector<std::string> all =
      gather_texts(world, shown ? timeline_json(trace, compiled.program, step, -origin) : std::string());
  if (world.rank().value != 0) return;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const std::string& one : all)
    if (!one.empty()) ranks.push_back(nlohmann::ordered_json::parse(one));
  if (ranks.empty()) return;
  const nlohmann::ordered_json timeline = {{"step", step}, {"ranks", std::move(ranks)}};
  base::write_file_atomically(path, base::json_text(timeline, 2) + "\n");
}

}  // namespace quintet::train
