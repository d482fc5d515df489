// The parts of turning a published row into a recipe and a machine, for reference_map.cc. Each throws
// Unmodelled where the row does not say enough or says what the planner has not.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "plan/reference.h"
#include "plan/reference_sources.h"

namespace quintet::plan {

struct Unmodelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What was taken for granted on the way, and whether the row still counts as stated.
struct Notes {
  std::vector<std::string> assumed;
  bool stated = true;
  void note(std::string text) { assumed.push_back(std::move(text)); }
  void missing(std::string text) {
    assumed.push_back(std::move(text));
    stated = false;
  }
};

bool contains(std::string_view text, std::string_view part);

int64_t reference_seq(const PublishedRun& row, const Source& source, Notes& notes);
config::Model reference_model(const PublishedRun& row, const Source& source, Notes& notes);
void reference_layout(const PublishedRun& row, const Source& source, config::Recipe& recipe, Notes& notes);
void reference_recompute(const PublishedRun& row, const Source& source, config::Recipe& recipe, Notes& notes);
hardware::Cluster reference_cluster(const PublishedRun& row, const Source& source, Notes& notes);
std::string reference_stack(const PublishedRun& row, const Source& source);

}  // namespace quintet::plan
