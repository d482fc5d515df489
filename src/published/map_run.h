// The steps of mapping a published row to a recipe and a machine, used by map_run.cc. Each throws Unmodelled
// if the row does not state enough, or states something the planner does not model.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "published/published_run.h"
#include "published/sources.h"

namespace quintet::published {

struct Unmodelled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Assumptions made while mapping, and whether the row still counts as fully stated.
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

int64_t map_seq_len(const PublishedRun& row, const Source& source, Notes& notes);
config::Model map_model(const PublishedRun& row, const Source& source, Notes& notes);
void map_layout(const PublishedRun& row, const Source& source, config::Recipe& recipe, Notes& notes);
void map_recompute(const PublishedRun& row, const Source& source, config::Recipe& recipe, Notes& notes);
hardware::Cluster map_cluster(const PublishedRun& row, const Source& source, Notes& notes);
std::string map_stack(const PublishedRun& row, const Source& source);

}  // namespace quintet::published
