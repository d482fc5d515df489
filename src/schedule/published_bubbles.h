// Compares simulated bubbles with published ones, using the costs that their authors measured.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quintet::schedule {

struct PublishedBubble {
  std::string source, model, schedule;
  int stages = 0, micro_batches = 0;
  double published = 0;
  double simulated = 0;
  std::string note;  // how it was simulated, or why it was not
  bool was_simulated = false;
  double difference() const { return simulated - published; }
};

// Reads a table with a header line and simulates every row that has costs. Columns (others are ignored):
// source, model, stages, microbatches, schedule (1F1B, 1F1B-I, ZB-H1, ZB-H2, ZB-1p, ZB-2p, ZB-V),
// bubble_rate; and for the costs, which may be empty or absent: f, b, w of a whole stage, hop, layers (1F1B-I
// has one chunk per layer of a stage) and freed_at_b (refill.h).
//
// The rate follows the source's definition: by makespan for 1F1B, 1F1B-I and ZB-H1; by rank
// (Timeline::span_bubble) for the others, which assume that consecutive steps overlap.
std::vector<PublishedBubble> compare_published(std::string_view csv);

// One line per row: label, published, simulated, difference, note.
std::string report(const std::vector<PublishedBubble>& rows);

}  // namespace quintet::schedule
