// Rules for the pipeline: schedule, chunks and stages.
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text.h"
#include "config/resolve.h"
#include "config/rule.h"
#include "config/schedule_traits.h"
#include "config/unsupported.h"

namespace quintet::config {
namespace {

void schedule_is_known(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const auto known = pipeline_schedules();
  if (p.pp == 1 && !p.schedule.empty())
    return fail("parallel.schedule", fmt::format("\"{}\" has no effect with parallel.pp = 1", p.schedule),
                "leave it out");
  if (const auto file = schedule_file(p.schedule)) {
    if (file->empty()) fail("parallel.schedule", "\"file:\" has no path", "\"file:PATH\"");
  } else if (p.pp > 1 && std::find(known.begin(), known.end(), p.schedule) == known.end()) {
    std::string near(word_elsewhere("parallel.schedule", p.schedule));
    if (near.empty())
      near =
          base::nearest_word(p.schedule, std::vector<std::string>{known.begin(), known.end()}).value_or("");
    fail("parallel.schedule",
         fmt::format("\"{}\" is not a schedule; known: {}, or \"file:PATH\"", p.schedule,
                     fmt::join(known, ", ")),
         fmt::format("\"{}\"", near.empty() ? "1f1b" : near));
  }
}

void chunks_fit_schedule(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.pp == 1) {
    if (p.chunks != 1)
      fail("parallel.chunks", fmt::format("{} has no effect with parallel.pp = 1", p.chunks), "1");
    return;
  }
  const ScheduleTraits schedule = traits_of(p.schedule);
  if (schedule.kind == PipelineSchedule::File) return;  // the compiler compares the file with the recipe
  const bool interleaved = schedule.kind == PipelineSchedule::Interleaved;
  if (schedule.v_shaped && p.chunks != 2)
    fail("parallel.chunks", fmt::format("schedule \"{}\" requires 2 chunks, got {}", p.schedule, p.chunks),
         "2");
  if (!schedule.two_chunks() && p.chunks != 1)
    fail("parallel.chunks", fmt::format("schedule \"{}\" requires 1 chunk, got {}", p.schedule, p.chunks),
         "1, or parallel.schedule \"interleaved\"");
  if (interleaved && p.chunks == 1)
    fail("parallel.chunks", "schedule \"interleaved\" with 1 chunk is 1f1b",
         "2, or parallel.schedule \"1f1b\"");
}

void micro_group_fits(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  if (p.micro_group == 0) return;
  if (p.pp == 1 || traits_of(p.schedule).kind != PipelineSchedule::Interleaved)
    idle(fail, "parallel.micro_group", p.micro_group, int64_t{0},
         p.pp == 1 ? std::string("with parallel.pp = 1") : fmt::format("with schedule \"{}\"", p.schedule));
  else if (p.micro_group < p.pp)
    fail("parallel.micro_group",
         fmt::format(
             "{} is smaller than parallel.pp {}: the first stage would wait for the last at every chunk",
             p.micro_group, p.pp),
         std::to_string(p.pp));
}

void stages_fit_layers(const Recipe& r, const Fail& fail) {
  const Parallel& p = r.parallel;
  const int64_t places = p.pp * std::max<int64_t>(1, p.chunks);
  if (p.pp > 1 && places > r.model.layers)
    fail("parallel.pp",
         fmt::format("{} stages x {} chunks = {} virtual stages, more than the model's {} blocks", p.pp,
                     p.chunks, places, r.model.layers),
         std::to_string(std::max<int64_t>(1, r.model.layers / std::max<int64_t>(1, p.chunks))));
  if (p.stages.empty()) return;
  int64_t sum = 0;
  for (const int64_t n : p.stages) sum += n;
  if (p.pp == 1)
    fail("parallel.stages", "has no effect with parallel.pp = 1", "[]");
  else if (static_cast<int64_t>(p.stages.size()) != places ||
           (sum != r.model.layers && sum != r.model.layers + r.model.mtp.layers))
    fail("parallel.stages",
         fmt::format(
             "has {} entries with a sum of {}; {} stages x {} chunks need {} entries with a sum of the "
             "model's {} blocks{}",
             p.stages.size(), sum, p.pp, p.chunks, places, r.model.layers,
             r.model.mtp.layers > 0 ? fmt::format(", or {} with that of multi-token prediction",
                                                  r.model.layers + r.model.mtp.layers)
             : sum == r.model.layers + 1
                 ? ", of which none is for multi-token prediction (model.mtp.layers = 0)"
                 : ""),
         "leave it out to balance by cost");
}

}  // namespace

std::vector<Rule> pipeline_rules() {
  return {
      {"parallel.schedule is a known schedule", {"parallel.pp", "parallel.schedule"}, schedule_is_known},
      {"parallel.chunks matches parallel.schedule",
       {"parallel.pp", "parallel.schedule", "parallel.chunks"},
       chunks_fit_schedule},
      {"parallel.micro_group matches parallel.schedule",
       {"parallel.pp", "parallel.schedule", "parallel.micro_group"},
       micro_group_fits},
      {"pipeline stages fit model.layers",
       {"parallel.pp", "parallel.chunks", "parallel.stages", "model.layers", "model.mtp.layers"},
       stages_fit_layers},
  };
}

}  // namespace quintet::config
