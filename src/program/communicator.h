// The groups of ranks in which a program communicates.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/mesh.h"

namespace quintet::program {

using base::RankId;

// What the members exchange. The same ranks have one communicator for each purpose.
enum class Purpose : uint8_t {
  Main,      // state over data axes, values over the others
  Values,    // values over data axes
  State,     // state over the other axes
  Experts,   // rows of experts and their counts
  Overflow,  // the same in further passes
  // Of the ranks at Channel::places:
  Up,      // from a pipeline rank to another one, activations
  Down,    // their gradients
  Shared,  // gradients of parameters that several stages use
  Ring,    // from a rank to its neighbour in the ring that the axes span
};

// Identifies a communicator among those of one rank. Its text, "dp_shard[1]+tp state" or "up 0-1", is the
// name in program texts, reports and messages.
struct Channel {
  std::vector<layout::AxisPart> axes = {};  // outermost first; none between two pipeline ranks
  Purpose purpose = Purpose::Main;
  std::vector<int> places = {};  // in the pipeline or ring

  auto operator<=>(const Channel&) const = default;
};
std::string to_string(const Channel& channel);
std::optional<Channel> parse_channel(std::string_view text);

struct Communicator {
  Channel channel;
  layout::AtomList atoms = {};
  std::vector<RankId> members = {};  // in the order of their position
  int position = 0;                  // of this rank

  std::string name() const { return to_string(channel); }
  std::vector<layout::Axis> axes() const;  // each once, outermost first
  // Rows of experts, between the ranks that hold them.
  bool moves_experts() const {
    return channel.purpose == Purpose::Experts || channel.purpose == Purpose::Overflow;
  }
};

// For people: "dp_shard+tp", "pp"; "ep" if it moves rows of experts.
std::string axes_text(const Communicator& comm);

}  // namespace quintet::program
