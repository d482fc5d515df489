// Where a run is in the files that it streams (data/sample_stream.h): what a checkpoint keeps, so that a run
// that continues does not read again what it has seen. A place is "SET PART CURSOR" (data::to_text).
#pragma once

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "train/run_data.h"

namespace quintet::train {

// After `sequences` of the run, for every part of every streamed set. Empty without streams.
std::vector<std::string> stream_places(const RunData& data, int64_t sequences);
// UserError if the text is not a position in these data.
void restore_places(const RunData& data, const std::vector<std::string>& places);
// Of the places of several processes, the one furthest on of each part.
std::vector<std::string> furthest_places(const std::vector<std::string>& places);
// The same of all processes, on rank 0; nothing on other ranks. Collective where there are streams.
std::vector<std::string> gather_places(comm::World& world, const RunData& data, int64_t sequences);

// Tokenises the first sequence that the run needs, so that bad data are found before its first step.
void open_streams(const RunData& data, int64_t sequences);
// "3 damaged records left out, the first: FILE:LINE: reason"; empty if there are none.
std::string stream_damage(const RunData& data);

}  // namespace quintet::train
