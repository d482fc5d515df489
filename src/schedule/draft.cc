#include "schedule/draft.h"

#include "base/error.h"

namespace quintet::schedule {

Schedule blank(std::string name, int p, int chunks, int m, Placement placement) {
  if (p < 1 || chunks < 1 || m < 1)
    base::fail_user("schedule {} needs at least 1 stage, 1 chunk and 1 micro-batch; got {}, {} and {}", name,
                    p, chunks, m);
  Schedule s;
  s.name = std::move(name);
  s.stages = p;
  s.chunks = chunks;
  s.micro_batches = m;
  s.placement = placement;
  s.ranks.resize(p);
  return s;
}

void keep_micro_batches(Schedule& schedule, int m) {
  for (std::vector<Action>& actions : schedule.ranks) {
    for (size_t i = 0; i + 1 < actions.size(); ++i)
      QUINTET_CHECK(!actions[i].with_next || actions[i + 1].micro <= actions[i].micro,
                    "{} would lose its mixed partner", to_text(actions[i]));
    std::erase_if(actions, [m](const Action& action) { return action.micro >= m; });
  }
  schedule.micro_batches = m;
}

void promise(Schedule& schedule, int most) {
  schedule.max_in_flight = in_flight(schedule).until_w;
  for (const int peak : schedule.max_in_flight)
    QUINTET_CHECK(peak <= most, "schedule {} holds {} activations, not {}", schedule.name, peak, most);
}

}  // namespace quintet::schedule
