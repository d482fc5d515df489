// What a pipeline schedule is, by the word that parallel.schedule holds: the only place where the words are
// compared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace quintet::config {

enum class PipelineSchedule : uint8_t {
  None,  // no pipeline
  GPipe,
  OneFOneB,
  Interleaved,
  ZbH1,
  ZbH2,
  ZbV,
  VHalf,
  VMin,
  DualPipeV,
  File,     // the user's own
  Unknown,  // refused by a rule
};

struct ScheduleTraits {
  PipelineSchedule kind = PipelineSchedule::Unknown;
  bool v_shaped = false;         // two chunks a rank, in V shape
  bool splits_backward = false;  // gradients of weights may be put off (File: may)
  bool fills_bubbles = false;    // needs few micro-batches to keep all ranks busy

  // By default (interleaved) or always (in V shape).
  bool two_chunks() const { return v_shaped || kind == PipelineSchedule::Interleaved; }
};
ScheduleTraits traits_of(std::string_view schedule);

// The words that parallel.schedule may be, besides "file:PATH".
std::span<const std::string_view> pipeline_schedules();

// PATH of a schedule "file:PATH"; nothing for a word.
std::optional<std::string> schedule_file(std::string_view schedule);

}  // namespace quintet::config
