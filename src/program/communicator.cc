#include "program/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace quintet::program {
namespace {

// In the order of the enumerators. Main has no word.
constexpr std::array<std::string_view, 9> kWords = {"",   "values", "state",  "experts", "overflow",
                                                    "up", "down",   "shared", "ring"};

bool has_places(Purpose purpose) { return purpose >= Purpose::Up; }

// Takes the first word off the text.
std::string_view take_word(std::string_view& text) {
  const size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// "0-1", "0-2-3": two places or more
bool parse_places(std::string_view text, Channel& channel) {
  const char *at = text.data(), *const end = at + text.size();
  while (true) {
    const auto [stop, error] = std::from_chars(at, end, channel.places.emplace_back());
    if (error != std::errc() || channel.places.back() < 0) return false;
    if (stop == end) return channel.places.size() > 1;
    if (*stop != '-') return false;
    at = stop + 1;
  }
}

}  // namespace

std::string to_string(const Channel& channel) {
  std::string text = channel.axes.empty() ? "" : layout::to_string(channel.axes);
  const auto add = [&](std::string_view word) { text.append(text.empty() ? "" : " ").append(word); };
  if (channel.purpose != Purpose::Main) add(kWords[static_cast<size_t>(channel.purpose)]);
  if (has_places(channel.purpose)) add(fmt::format("{}", fmt::join(channel.places, "-")));
  return text;
}

std::optional<Channel> parse_channel(std::string_view text) {
  const std::string_view whole = text;
  Channel channel;
  std::string_view word = take_word(text);
  if (const auto axes = layout::parse_axis_parts(word)) {
    channel.axes = *axes;
    if (whole == word) return channel;
    word = take_word(text);
  }
  const auto found = std::ranges::find(kWords, word);
  if (word.empty() || found == kWords.end()) return std::nullopt;
  channel.purpose = static_cast<Purpose>(found - kWords.begin());
  const bool joins_pipeline_ranks = has_places(channel.purpose) && channel.purpose != Purpose::Ring;
  if (channel.axes.empty() != joins_pipeline_ranks) return std::nullopt;
  if (has_places(channel.purpose) && !parse_places(text, channel)) return std::nullopt;
  return to_string(channel) == whole ? std::optional(channel) : std::nullopt;
}

std::vector<layout::Axis> Communicator::axes() const {
  if (channel.axes.empty()) return {layout::Axis::Pp};
  std::vector<layout::Axis> list;
  for (const layout::AxisPart& part : channel.axes)
    if (std::ranges::find(list, part.axis) == list.end()) list.push_back(part.axis);
  return list;
}

std::string axes_text(const Communicator& comm) {
  if (comm.moves_experts()) return "ep";
  std::string text;
  for (const layout::Axis axis : comm.axes()) text.append(text.empty() ? "" : "+").append(to_string(axis));
  return text;
}

}  // namespace quintet::program
