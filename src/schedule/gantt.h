// Gantt charts of schedules.
#pragma once

#include <string>

#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace quintet::schedule {

// One line per rank. An action fills its time: its letter (F, B, W; lower case from chunk 1 on; BW is drawn
// as B), its micro-batch if it fits, then dashes; dots are idle. `scale` is columns per unit of time; 0 gives
// the shortest action three columns. With `columns` the chart is cut into panels of at most that width, one
// below the other. The last line states the bubble.
std::string text_gantt(const Schedule& schedule, const Timeline& timeline, double scale = 0,
                       size_t columns = 0);

// The same as a self-contained SVG document: no scripts, fonts or links.
std::string svg_gantt(const Schedule& schedule, const Timeline& timeline);

}  // namespace quintet::schedule
