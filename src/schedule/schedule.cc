#include "schedule/schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace quintet::schedule {

int Schedule::stage_of(int rank, int chunk) const {
  QUINTET_CHECK(rank >= 0 && rank < stages && chunk >= 0 && chunk < chunks, "rank {} chunk {}", rank, chunk);
  if (placement == Placement::Looped) return chunk * stages + rank;
  return chunk == 0 ? rank : 2 * stages - 1 - rank;
}

Home Schedule::home_of(int stage) const {
  QUINTET_CHECK(stage >= 0 && stage < virtual_stages(), "virtual stage {} of {}", stage, virtual_stages());
  if (placement == Placement::Looped) return {stage % stages, stage / stages};
  return stage < stages ? Home{stage, 0} : Home{2 * stages - 1 - stage, 1};
}

InFlight in_flight(const Schedule& schedule) {
  InFlight peaks;
  for (const std::vector<Action>& actions : schedule.ranks) {
    int until_w = 0, until_b = 0, peak_w = 0, peak_b = 0;
    for (const Action& action : actions) {
      if (action.kind == Kind::F) {
        peak_w = std::max(peak_w, ++until_w);
        peak_b = std::max(peak_b, ++until_b);
      }
      if (action.kind == Kind::B || action.kind == Kind::BW) --until_b;
      if (action.kind == Kind::W || action.kind == Kind::BW) --until_w;
    }
    peaks.until_w.push_back(peak_w);
    peaks.until_b.push_back(peak_b);
  }
  return peaks;
}

std::string to_text(Kind kind) {
  switch (kind) {
    case Kind::F:
      return "F";
    case Kind::B:
      return "B";
    case Kind::W:
      return "W";
    case Kind::BW:
      return "BW";
  }
  base::fail_internal("kind {}", static_cast<int>(kind));
}

std::string to_text(const Action& action) {
  return fmt::format("{}{}{}", action.chunk, to_text(action.kind), action.micro);
}

std::string to_text(Placement placement) { return placement == Placement::Looped ? "looped" : "v"; }

}  // namespace quintet::schedule
